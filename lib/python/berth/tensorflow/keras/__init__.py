"""Berth for tf.keras, under Horovod's names.

    import berth.tensorflow.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

tf.keras is Keras 3 since TensorFlow 2.16, or with TF_USE_LEGACY_KERAS=1 the package tf-keras.  For the
package keras itself there is berth.keras, with the same names.
"""
from __future__ import annotations

from typing import Mapping, Sequence, Type

import tensorflow as tf

from ... import *  # noqa: F401,F403
from ... import __all__ as _common
from ..._keras import functions as _functions
from ..._keras.functions import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter
from ..._keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from ..compression import Compression, Compressor
from . import callbacks, elastic

__all__ = [*_common, "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "allgather",
           "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "elastic", "load_model",
           "reducescatter"]


def load_model(filepath: object, custom_optimizers: Sequence[type] | None = None,
               custom_objects: Mapping[str, object] | None = None,
               compression: Type[Compressor] = Compression.none, legacy_opts: bool = False) -> object:
    """The model in FILEPATH, whose optimizer reduces its gradients with COMPRESSION.

    CUSTOM_OPTIMIZERS: classes of optimizers that Keras does not have; CUSTOM_OBJECTS: all else that
    keras.models.load_model() takes.  LEGACY_OPTS is Horovod's, and says nothing here.

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    >>> _ = model.fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0)
    >>> model.save(folder + "/model.keras")
    >>> _ = hvd.load_model(folder + "/model.keras").fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0)
    """
    return _functions.load_model(tf.keras.models.load_model, filepath, custom_optimizers, custom_objects,
                                 compression)
