"""Operations that were begun and have not been waited for, by the numbers that Horovod's scripts hold."""
import itertools

from .. import basics
from ..errors import HorovodInternalError

_numbers = itertools.count(1)
_pending = {}
_names = set()  # of the operations in flight: (name of libberth, process set)


class Pending:
    """OPERATION of tensors.  FINISH: what synchronize() returns, or a function that makes it."""
    __slots__ = ("operation", "finish", "names")

    def __init__(self, operation, finish, names):
        self.operation, self.finish, self.names = operation, finish, names


def _refuse(name):
    raise ValueError(f"{name.decode()}: an operation on a tensor of this name is in flight already: wait for it "
                     "by hvd.synchronize(), or give each tensor a name of its own.")


def check(name, process_set):
    """NAME, or None, is not in flight."""
    if name and (name, process_set.process_set_id) in _names:
        _refuse(name)


def claim(names):
    """NAMES are in flight from now on, until release()."""
    for name in names:
        if name in _names or names.count(name) > 1:
            _refuse(name[0])
    _names.update(names)


def release(names):
    _names.difference_update(names)


def add(operation, finish, names=()):
    """The number of OPERATION (library.Operation)."""
    number = next(_numbers)
    _pending[number] = Pending(operation, finish, names)
    return number


def poll(handle):
    """Has the operation of HANDLE ended?  synchronize() then returns at once."""
    pending = _pending.get(handle)
    return pending is None or pending.operation.is_done()


def synchronize(handle):
    """Wait for the operation of HANDLE.  Returns its result: a tensor, a list for a grouped one, a tuple for
    an alltoall with splits; None if there is no such operation, or it was waited for.
    """
    pending = _pending.get(handle)
    if pending is None:
        return None
    try:
        pending.operation.wait()
    except (HorovodInternalError, ValueError, MemoryError):  # not ^C, after which it goes on
        _forget(handle)
        raise
    _forget(handle)
    return pending.finish() if callable(pending.finish) else pending.finish


def _forget(handle):
    pending = _pending.pop(handle, None)
    if pending is not None and pending.names:
        release(pending.names)


def _forget_all():
    _pending.clear()
    _names.clear()


basics.at_shutdown(_forget_all)
