"""Berth for Python: what all frameworks have in common, under Horovod's names.

    import berth as hvd
    hvd.init()
    print(hvd.rank(), hvd.size(), hvd.allgather_object(hvd.local_rank()))

It needs libberth, which library.places() finds, and nothing else but Python 3.9.
"""
from .basics import (Adasum, Average, Max, Min, ProcessSet, Product, Sum, add_process_set, cross_rank,
                     cross_size, global_process_set, init, is_initialized, local_rank, local_size, rank,
                     remove_process_set, shutdown, size)
from .build import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, is_homogeneous, mpi_built,
                    mpi_enabled, mpi_threads_supported, nccl_built, rocm_built)
from .errors import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from .launch import run
from .library import RELEASE
from .objects import allgather_object, broadcast_object
from .timeline import start_timeline, stop_timeline

__version__ = RELEASE

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt",
    "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather_object",
    "broadcast_object", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "global_process_set", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "remove_process_set", "rocm_built", "run", "shutdown", "size", "start_timeline", "stop_timeline",
]
