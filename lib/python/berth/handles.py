"""Operations that were begun and have not been waited for, by the numbers that Horovod's scripts hold."""
from __future__ import annotations

import itertools
from typing import Iterable, Sequence, Tuple

from . import basics, library
from .errors import HorovodInternalError

# A name of libberth, and the number of a process set.
Name = Tuple[bytes, "int | None"]

_numbers = itertools.count(1)
# The result, or a function that makes it.
_pending: dict[int, tuple[library.Operation, object, Sequence[Name]]] = {}
_names: set[Name] = set()  # of them


def claim(names: Sequence[Name]) -> None:
    """NAMES of tensors are in flight until release().  To libberth an operation is no more when it is done,
    which may be before the script's next line; to a script it is until it has looked.
    """
    if len(names) == 1 and names[0] not in _names:  # the usual case
        _names.add(names[0])
        return
    for i, name in enumerate(names):
        if name in _names:
            release(names[:i])
            raise ValueError(f"{name[0].decode()}: an operation on a tensor of this name is in flight "
                             "already: wait for it by hvd.synchronize(), or give each tensor its own name.")
        _names.add(name)


def release(names: Iterable[Name]) -> None:
    """NAMES are no longer in flight."""
    _names.difference_update(names)


def add(operation: library.Operation, result: object, names: Sequence[Name] = ()) -> int:
    """The number of OPERATION.  RESULT: what synchronize() returns, or a function that makes it then."""
    number = next(_numbers)
    _pending[number] = operation, result, names
    return number


def poll(handle: int) -> bool:
    """Whether the operation of HANDLE has ended: synchronize() then returns at once.

    >>> hvd.poll(0)  # no operation
    True
    """
    if handle not in _pending:
        return True
    operation, _, names = _pending[handle]
    if not operation.is_done():
        return False
    release(names)
    return True


def synchronize(handle: int | None) -> object:
    """Wait for the operation of HANDLE.  Returns its result: a tensor, a list for a grouped one, a tuple for
    an alltoall with splits; None if there is no such operation, or it was waited for.

    HorovodInternalError: the operation failed.

    >>> hvd.synchronize(hvd.broadcast_async(torch.ones(2), root_rank=0))
    tensor([1., 1.])
    """
    if handle is None or handle not in _pending:
        return None
    operation, result, names = _pending[handle]
    try:
        operation.wait()
    except (HorovodInternalError, ValueError, MemoryError):  # not ^C, after which it goes on
        _forget(handle)
        raise
    _pending.pop(handle, None)
    _names.difference_update(names)
    return result() if callable(result) else result


def _forget(handle: int) -> None:
    entry = _pending.pop(handle, None)
    if entry is not None:
        release(entry[2])


@basics.at_leave
def _forget_all() -> None:
    _pending.clear()
    _names.clear()
