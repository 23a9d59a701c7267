from berth.tensorflow.keras import *  # noqa: F401,F403
from horovod.tensorflow.keras import callbacks, elastic  # noqa: F401
