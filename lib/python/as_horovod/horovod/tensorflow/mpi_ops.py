"""Horovod has its operations here, and what says who the ranks are."""
from berth.tensorflow import *  # noqa: F401,F403
from berth.tensorflow.mpi_ops import _allreduce, _grouped_allreduce  # noqa: F401
from berth.tensorflow.util import _executing_eagerly  # noqa: F401
from horovod.common.basics import HorovodBasics

_basics = HorovodBasics()
