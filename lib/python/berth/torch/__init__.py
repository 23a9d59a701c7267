"""Berth for PyTorch, under Horovod's names.

    import berth.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

It makes the backend "berth" of torch.distributed known, too.  Its names, by subject:

    the world           init, shutdown, rank, size, local_rank, cross_rank, ProcessSet, add_process_set
    training            DistributedOptimizer, broadcast_parameters, broadcast_optimizer_state, Compression,
                        SyncBatchNorm, join, elastic
    tensors             allreduce, allgather, broadcast, alltoall, reducescatter, sparse_allreduce_async,
                        barrier; grouped_X: of a list; X_: in place; X_async: with synchronize and poll
    any objects         broadcast_object, allgather_object
    what it does        start_timeline, stop_timeline; what is built in: X_built, X_enabled
"""
from .. import *  # noqa: F401,F403
from .. import __all__ as _common
from .. import __version__  # noqa: F401
from .. import torch_backend as _backend
from ..handles import poll, synchronize
from . import elastic
from .collectives import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                          allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_,
                          broadcast_async, broadcast_async_, grouped_allgather, grouped_allgather_async,
                          grouped_allreduce, grouped_allreduce_, grouped_allreduce_async,
                          grouped_allreduce_async_, grouped_reducescatter, grouped_reducescatter_async, join,
                          reducescatter, reducescatter_async, sparse_allreduce_async)
from .compression import Compression
from .functions import broadcast_optimizer_state, broadcast_parameters
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

_backend.register()

__all__ = [*_common, "Compression", "DistributedOptimizer", "SyncBatchNorm", "allgather", "allgather_async",
           "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async",
           "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
           "broadcast_optimizer_state", "broadcast_parameters", "elastic", "grouped_allgather",
           "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
           "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll",
           "reducescatter", "reducescatter_async", "sparse_allreduce_async", "synchronize"]
