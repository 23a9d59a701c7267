from berth.torch import *  # noqa: F401,F403

from . import elastic  # noqa: F401
