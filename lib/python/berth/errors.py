"""What the calls of this package raise, under Horovod's names."""
from __future__ import annotations

class HorovodInternalError(RuntimeError):
    """An operation failed: its ranks did not match, one of them was lost, or it took too long."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts came or went.  Elastic programs catch it; no call of this package raises it."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A library or an extension is of another version than this package."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} has version {installed_version}, but {version} is needed")
        self.name, self.version, self.installed_version = name, version, installed_version
