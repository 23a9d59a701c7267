"""Berth for the package keras, with TensorFlow behind it, under Horovod's names.

    import berth.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

For tf.keras, which may be another package, there is berth.tensorflow.keras, with the same names.
"""
from __future__ import annotations

from typing import Mapping, Sequence, Type, TypeVar

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError("berth.keras is for Keras with TensorFlow behind it, and here it is "
                      f"{keras.backend.backend()}: with jax use keras.distribution, with torch berth.torch.")

from .. import *  # noqa: E402,F401,F403
from .. import __all__ as _common  # noqa: E402
from .._keras import functions as _functions  # noqa: E402
from .._keras import optimizer as _optimizer  # noqa: E402
from .._keras.functions import (allgather, allreduce, broadcast, broadcast_global_variables,  # noqa: E402
                                reducescatter)
from .._keras.optimizer import PartialDistributedOptimizer  # noqa: E402
from ..basics import Average, ProcessSet, global_process_set  # noqa: E402
from ..tensorflow.compression import Compression, Compressor  # noqa: E402
from ..tensorflow.gradients import Groups  # noqa: E402
from . import callbacks, elastic  # noqa: E402

__all__ = [*_common, "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "allgather",
           "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "elastic", "load_model",
           "reducescatter"]

Optimizer = TypeVar("Optimizer")


def DistributedOptimizer(optimizer: Optimizer, name: str | None = None, device_dense: str = "",
                         device_sparse: str = "", compression: Type[Compressor] = Compression.none,
                         sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
                         op: int = Average, num_groups: int = 0, groups: Groups = None,
                         backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True
                         ) -> Optimizer:
    """As berth.tensorflow.keras.DistributedOptimizer(); the order of arguments is that of horovod.keras.

    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    """
    return _optimizer.DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor,
        op, backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
        scale_local_gradients)


def load_model(filepath: object, custom_optimizers: Sequence[type] | None = None,
               custom_objects: Mapping[str, object] | None = None,
               compression: Type[Compressor] = Compression.none, legacy_opts: bool = False) -> object:
    """As berth.tensorflow.keras.load_model(), by keras.models.load_model().

    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    >>> _ = model.fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0)
    >>> model.save(folder + "/model.keras")
    >>> _ = hvd.load_model(folder + "/model.keras").fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0)
    """
    return _functions.load_model(keras.models.load_model, filepath, custom_optimizers, custom_objects,
                                 compression)
