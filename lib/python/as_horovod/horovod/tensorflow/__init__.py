import importlib

import berth.tensorflow
from berth.tensorflow import *  # noqa: F401,F403
import horovod.tensorflow.compression
import horovod.tensorflow.elastic
import horovod.tensorflow.functions
import horovod.tensorflow.mpi_ops
import horovod.tensorflow.util
from horovod.common.util import check_extension  # noqa: F401


def __getattr__(name):
    """What is loaded when it is asked for: keras, and what needs it."""
    if name == "keras":
        return importlib.import_module("horovod.tensorflow.keras")
    return getattr(berth.tensorflow, name)
