from berth.elastic import *  # noqa: F401,F403
