"""Operations that were begun and have not been waited for, by the numbers that Horovod's scripts hold."""
import itertools

from . import basics
from .errors import HorovodInternalError

_numbers = itertools.count(1)
_pending = {}  # number: (library.Operation, the result or a function that makes it, names)
_names = set()  # of them: (name of libberth, process set)


def claim(names):
    """NAMES of tensors are in flight until release().  To libberth an operation is no more when it is done,
    which may be before the script's next line; to a script it is until it has looked.
    """
    for i, name in enumerate(names):
        if name in _names:
            release(names[:i])
            raise ValueError(f"{name[0].decode()}: an operation on a tensor of this name is in flight "
                             "already: wait for it by hvd.synchronize(), or give each tensor its own name.")
        _names.add(name)


def release(names):
    _names.difference_update(names)


def add(operation, result, names=()):
    """The number of OPERATION.  RESULT: what synchronize() returns, or a function that makes it then."""
    number = next(_numbers)
    _pending[number] = operation, result, names
    return number


def poll(handle):
    """Has the operation of HANDLE ended?  synchronize() then returns at once."""
    if handle not in _pending:
        return True
    operation, _, names = _pending[handle]
    if not operation.is_done():
        return False
    release(names)
    return True


def synchronize(handle):
    """Wait for the operation of HANDLE.  Returns its result: a tensor, a list for a grouped one, a tuple for
    an alltoall with splits; None if there is no such operation, or it was waited for.
    """
    if handle not in _pending:
        return None
    operation, result, _ = _pending[handle]
    try:
        operation.wait()
    except (HorovodInternalError, ValueError, MemoryError):  # not ^C, after which it goes on
        _forget(handle)
        raise
    _forget(handle)
    return result() if callable(result) else result


def _forget(handle):
    release(_pending.pop(handle, (None, None, ()))[2])


@basics.at_shutdown
def _forget_all():
    _pending.clear()
    _names.clear()
