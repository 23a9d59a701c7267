from ..cli import main
