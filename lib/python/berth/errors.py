"""What the calls of this package raise, under Horovod's names."""
from __future__ import annotations

class HorovodInternalError(RuntimeError):
    """An operation failed: its ranks did not match, one of them was lost, or it took too long.

    >>> issubclass(hvd.HorovodInternalError, RuntimeError)
    True
    """
    result: int | None = None  # libberth's, where it is known


class HostsUpdatedInterrupt(RuntimeError):
    """Ranks came or went: state.commit() raises it on all ranks, and elastic.run() joins the next world.

    >>> hvd.HostsUpdatedInterrupt().skip_sync
    False
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A library or an extension NAME is of the version INSTALLED_VERSION, and VERSION is needed.

    >>> print(hvd.HorovodVersionMismatchError("libberth.so", "0.2", "9.1"))
    libberth.so has version 9.1, but 0.2 is needed
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} has version {installed_version}, but {version} is needed")
        self.name, self.version, self.installed_version = name, version, installed_version
