from berth.tensorflow.keras.elastic import *  # noqa: F401,F403
