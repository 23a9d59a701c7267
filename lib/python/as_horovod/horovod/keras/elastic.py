from berth.keras.elastic import *  # noqa: F401,F403
