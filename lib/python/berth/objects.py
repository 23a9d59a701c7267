"""Any objects of Python that pickle takes, from one rank or from all.

To unpickle bytes runs code that they name.  So the length and the SHA-256 of a pickle go first, in operations
that each BERTH_NET_SECURE authenticates, and nothing is unpickled that differs from them.
"""
from __future__ import annotations

import ctypes
import hashlib
import pickle
import struct
from typing import Any, Mapping, TypeVar, cast

from . import basics, clib, library
from .errors import HorovodInternalError

T = TypeVar("T")

_HEAD = struct.Struct("<Q32s")  # length, SHA-256
_HEADS_AT_ONCE = 1024 // _HEAD.size  # BERTH_NET_SECURE=heads authenticates data up to 1 KiB


def _name(name: str | None) -> bytes | None:
    return name.encode() if name else None


def _head(data: bytes) -> bytes:
    return _HEAD.pack(len(data), hashlib.sha256(data).digest())


def _load(data: bytes, head: bytes, rank: int, name: str | None) -> object:
    """The object of RANK, of the set, whose pickle is DATA if HEAD says so."""
    if _head(data) != head:
        raise HorovodInternalError(f"object{f' {name!r}' if name else ''}: the bytes from rank {rank} of the "
                                   "set do not have the length and the SHA-256 that this rank sent: they "
                                   "were changed on their way, and are not unpickled")
    return pickle.loads(data)


def broadcast_object(obj: T, root_rank: int = 0, name: str | None = None,
                     process_set: basics.ProcessSet = basics.global_process_set) -> T:
    """OBJ of ROOT_RANK, a rank of the world.  Any object that pickle takes.

    HorovodInternalError: it failed, or the bytes were changed on their way.

    >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
    {'epoch': 3}
    """
    is_root = basics.rank() == root_rank
    data = pickle.dumps(obj) if is_root else b""
    root = process_set.ranks.index(root_rank)
    fields: dict[str, Any] = {"kind": clib.BROADCAST, "type": clib.U8, "root": root,
                              "set": process_set.handle}
    head = ctypes.create_string_buffer(_head(data), _HEAD.size)
    at = ctypes.addressof(head)
    library.run(head, library.fields(count=_HEAD.size, in_=at, out=at, name=_name(name), **fields))
    length, _ = _HEAD.unpack(head.raw)
    buffer = ctypes.create_string_buffer(data, length)
    at = ctypes.addressof(buffer)
    library.run(buffer, library.fields(count=length, in_=at, out=at, name=_name(name), **fields))
    return obj if is_root else cast(T, _load(buffer.raw, head.raw, root, name))


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _heads(mine: bytes, size: int, rank: int,
           fields: Mapping[str, Any]) -> tuple[ctypes.Array[ctypes.c_char], list[library.Fields]]:
    """(where the heads of all ranks come to, the operations that bring them)."""
    all_of_them = ctypes.create_string_buffer(size * _HEAD.size)
    parts = []
    for first in range(0, size, _HEADS_AT_ONCE):
        said = [_HEAD.size if first <= r < first + _HEADS_AT_ONCE else 0 for r in range(size)]
        parts.append(library.fields(count=said[rank], out_counts=(ctypes.c_uint64 * size)(*said),
                                    in_=_address(mine),
                                    out=ctypes.addressof(all_of_them) + first * _HEAD.size, **fields))
    return all_of_them, parts


def allgather_object(obj: T, name: str | None = None,
                     process_set: basics.ProcessSet = basics.global_process_set) -> list[T]:
    """A list of the objects OBJ of all ranks of the set, in their order.  Any objects that pickle takes.

    HorovodInternalError: it failed, or bytes were changed on their way.

    >>> hvd.allgather_object(hvd.rank())
    [0]
    """
    data = pickle.dumps(obj)
    size, mine = process_set.size(), _head(data)
    fields: dict[str, Any] = {"kind": clib.ALLGATHER, "type": clib.U8, "name": _name(name),
                              "set": process_set.handle}
    heads, parts = _heads(mine, size, process_set.rank(), fields)
    lengths, made = (ctypes.c_uint64 * size)(), ctypes.c_void_p()
    parts.append(library.fields(count=len(data), in_=_address(data),
                                received=lengths, made=made, **fields))
    # One request: if it is interrupted, none of its operations is left out.
    library.submit((data, mine, heads, lengths, made), *parts).wait()
    try:
        whole = ctypes.string_at(made, sum(lengths))
    finally:
        library.get().berth_free(made)
    ends = [sum(lengths[:i]) for i in range(size + 1)]
    return [cast(T, _load(whole[a:b], heads.raw[r * _HEAD.size:(r + 1) * _HEAD.size], r, name))
            for r, (a, b) in enumerate(zip(ends, ends[1:]))]
