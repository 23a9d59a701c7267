"""Berth for TensorFlow, under Horovod's names.

    import berth.tensorflow as hvd
    hvd.init()
    loss = hvd.allreduce(loss)
    hvd.broadcast_variables(model.variables, root_rank=0)

TensorFlow 2.13 or later loads the operations from libberth_tf.so.  An older one, or one that can't, does the
same by tf.numpy_function, slower; a line says so.  Its names, by subject:

    the world           init, shutdown, rank, size, local_rank, cross_rank, ProcessSet, add_process_set
    tensors             allreduce, allgather, broadcast, alltoall, reducescatter; grouped_X: of a list; join
    variables           broadcast_variables, broadcast_, broadcast_global_variables,
                        BroadcastGlobalVariablesHook; Compression
    training            DistributedGradientTape, DistributedOptimizer, PartialDistributedGradientTape,
                        SyncBatchNormalization; elastic
    Keras               keras: loads itself when it is used
    any objects         broadcast_object, broadcast_object_fn, allgather_object
    numbers in graphs   size_op, rank_op, local_size_op, local_rank_op, process_set_included_op
    what it does        start_timeline, stop_timeline; what is built in: X_built, X_enabled
"""
import importlib

from .. import *  # noqa: F401,F403
from .. import __all__ as _common
from .. import __version__  # noqa: F401
from ..operations import check_num_rank_power_of_2, split_list
from .compression import Compression
from .functions import (BroadcastGlobalVariablesHook, allgather_object,  # type: ignore[assignment]
                        broadcast_global_variables, broadcast_object, broadcast_object_fn,
                        broadcast_variables)
from .mpi_ops import (allgather, allreduce, alltoall, broadcast, broadcast_, grouped_allgather,
                      grouped_allreduce, grouped_reducescatter, join, local_rank_op, local_size_op,
                      process_set_included_op, rank_op, reducescatter, size_op)
from .optimizer import DistributedOptimizer
from .tape import DistributedGradientTape, PartialDistributedGradientTape
from .util import (_executing_eagerly, gpu_available, handle_average_backwards_compatibility,  # noqa: F401
                   refs_to_vars, vars_to_refs)

__all__ = [*_common, "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape",
           "DistributedOptimizer", "PartialDistributedGradientTape", "allgather", "allreduce", "alltoall",
           "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object_fn",
           "broadcast_variables", "check_num_rank_power_of_2", "gpu_available", "grouped_allgather",
           "grouped_allreduce", "grouped_reducescatter", "handle_average_backwards_compatibility", "join",
           "local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "reducescatter",
           "refs_to_vars", "size_op", "split_list", "vars_to_refs"]

# What needs Keras, which takes a second to load, is loaded when it is used.
_LATER = {"SyncBatchNormalization": "sync_batch_norm", "elastic": "", "keras": ""}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    module = importlib.import_module(f"{__name__}.{_LATER[name] or name}")
    made: object = getattr(module, name) if _LATER[name] else module
    globals()[name] = made
    return made
