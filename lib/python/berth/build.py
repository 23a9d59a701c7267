"""What this build has, in Horovod's words: scripts ask before they choose."""
from __future__ import annotations

import ctypes
import os

from . import basics


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of ranks, as far as this rank's numbers tell.

    >>> hvd.is_homogeneous()
    True
    """
    return basics.size() == basics.local_size() * basics.cross_size()


def mpi_threads_supported() -> bool:
    """False: libberth uses no MPI.  Before init() a ValueError.

    >>> hvd.mpi_threads_supported()
    False
    """
    basics.size()
    return False


def mpi_enabled() -> bool:
    """False: libberth uses no MPI.

    >>> hvd.mpi_enabled()
    False
    """
    return False


def mpi_built() -> bool:
    """False: libberth uses no MPI.

    >>> hvd.mpi_built()
    False
    """
    return False


def gloo_enabled() -> bool:
    """True, for scripts that want either MPI or gloo: libberth does what gloo does there.

    >>> hvd.gloo_enabled()
    True
    """
    return True


def gloo_built() -> bool:
    """True, as gloo_enabled(): ranks need no MPI, and init() may follow shutdown().

    >>> hvd.gloo_built()
    True
    """
    return True


def nccl_built() -> int:
    """The version of NCCL as an int, where BERTH_DEVICE=nccl has it sum tensors of GPUs; 0: it does not.

    >>> hvd.nccl_built()
    0
    """
    version = ctypes.c_int(0)
    if not cuda_built():
        return 0
    try:
        ctypes.CDLL(os.environ.get("BERTH_NCCL") or "libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    except OSError:  # it is in no place that the loader looks at, nor loaded
        return 0
    return version.value


def ddl_built() -> bool:
    """False: libberth uses no DDL.

    >>> hvd.ddl_built()
    False
    """
    return False


def ccl_built() -> bool:
    """False: libberth uses no oneCCL.

    >>> hvd.ccl_built()
    False
    """
    return False


def cuda_built() -> bool:
    """Whether tensors on GPUs go to NCCL: with BERTH_DEVICE=nccl in the environment.  Else they are copied to
    the host and back.

    >>> hvd.cuda_built()
    False
    """
    return os.environ.get("BERTH_DEVICE") in ("nccl", "nccl-only")


def rocm_built() -> bool:
    """False: tensors on GPUs go through the host's memory.

    >>> hvd.rocm_built()
    False
    """
    return False
