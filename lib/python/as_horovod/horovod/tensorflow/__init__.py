import importlib

import tensorflow

import berth.tensorflow
from berth.tensorflow import *  # noqa: F401,F403
import horovod.tensorflow.compression
import horovod.tensorflow.elastic
import horovod.tensorflow.functions
import horovod.tensorflow.mpi_ops
import horovod.tensorflow.util
from horovod.common.util import check_extension  # noqa: F401


def _give_ref():
    """Scripts of Horovod's time take ref() of variables as keys.  Variables of Keras 3 have none."""
    variable = getattr(tensorflow.keras, "Variable", None)
    if variable is not None and not hasattr(variable, "ref"):
        variable.ref = lambda self: self.value.ref()


_give_ref()


def __getattr__(name):
    """What is loaded when it is asked for: keras, and what needs it."""
    if name == "keras":
        return importlib.import_module("horovod.tensorflow.keras")
    return getattr(berth.tensorflow, name)
