"""Horovod has its operations here, and what says who the ranks are."""
from berth.torch import *  # noqa: F401,F403
