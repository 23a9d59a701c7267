from berth.keras import *  # noqa: F401,F403
from horovod.keras import callbacks, elastic  # noqa: F401
