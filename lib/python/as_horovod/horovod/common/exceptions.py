from berth.errors import *  # noqa: F401,F403
