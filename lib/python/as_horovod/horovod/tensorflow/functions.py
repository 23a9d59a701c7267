from berth.tensorflow.functions import *  # noqa: F401,F403
