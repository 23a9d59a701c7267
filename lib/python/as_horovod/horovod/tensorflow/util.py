from berth.tensorflow.util import *  # noqa: F401,F403
from berth.tensorflow.util import _executing_eagerly  # noqa: F401
