from berth.keras.callbacks import *  # noqa: F401,F403
