"""What this build has, in Horovod's words: scripts ask before they choose."""
from __future__ import annotations

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
    """The version of NCCL as an int, 0: none.

    >>> hvd.nccl_built()
    0
    """
    return 0


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
    """False: tensors on GPUs go through the host's memory.

    >>> hvd.cuda_built()
    False
    """
    return False


def rocm_built() -> bool:
    """False: tensors on GPUs go through the host's memory.

    >>> hvd.rocm_built()
    False
    """
    return False
