from berth.torch import *  # noqa: F401,F403

from ..common.util import check_extension  # noqa: F401
from . import elastic  # noqa: F401
