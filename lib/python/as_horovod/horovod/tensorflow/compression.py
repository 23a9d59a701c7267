from berth.tensorflow.compression import *  # noqa: F401,F403
