"""Berth for Python: what all frameworks have in common, under Horovod's names.

    import berth as hvd
    hvd.init()
    print(hvd.rank(), hvd.size(), hvd.allgather_object(hvd.local_rank()))

It needs libberth, which library.places() finds, and nothing else but Python 3.9.
"""
from .basics import (Adasum, Average, Max, Min, ProcessSet, Product, Sum, add_process_set, cross_rank,
                     cross_size, global_process_set, init, is_initialized, local_rank, local_size, rank,
                     remove_process_set, shutdown, size)
from .errors import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from .library import RELEASE as __version__
from .objects import allgather_object, broadcast_object

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt",
    "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather_object",
    "broadcast_object", "cross_rank", "cross_size", "global_process_set", "init", "is_initialized",
    "local_rank", "local_size", "rank", "remove_process_set", "shutdown", "size",
]
