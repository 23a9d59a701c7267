"""Collectives on the arrays of any framework: what an operation is made of, how it begins, what it gives.

A framework's module has an Operations, which it makes of an adapter of six, and public functions over it:

    arrays = Operations(plain, like, empty_like, restore, adopt, TYPES)

    def allreduce(tensor, average=None, name=None, ...):
        return run(arrays.allreduce(tensor, False, reduction(average, op), name, ...))

An Array is the memory of elements, one behind the other: the framework's object that owns it, libberth's type
of an element, its address, the number of elements, the sizes of its dimensions, and its Place on a device, or
None.  Of a tensor only `shape` and
`dtype` are looked at.

plain(tensor)           an Array of TENSOR's elements: its own memory, or a copy where libberth can't use
                        that.  The owner is TENSOR itself only if an owner is what users take for a tensor.
                        A type that TYPES does not have, such as complex numbers, may go as pairs of one that
                        it has, in a dimension more.  ValueError: libberth can't add or move such a tensor.
like(tensor, owner)     what users get: the elements of OWNER with the type of TENSOR, where TENSOR lies
empty_like(array, rows) the owner and the address of new memory, of the type and the sizes of ARRAY; ROWS,
                        unless it is None, in the place of the first size
restore(tensor, owner)  write the elements of OWNER to TENSOR, unless they are in it.  A framework without
                        changes in place raises ValueError
adopt(address, rows, array, let_go)
                        an owner of memory of libberth's, ROWS rows as those of ARRAY; LET_GO(ADDRESS) is to
                        be called, once, when nothing uses them any more
TYPES                   {dtype: libberth's type}

A Place that arrays have is a library.Place with two functions more:

make(array, rows)       empty_like(), in a thread of the library, for what comes
taken(owner)            the calling thread's stream has come behind the operation, and uses OWNER, of make()
"""
from __future__ import annotations

import ctypes
import math
import threading
import warnings
from typing import (Any, Callable, Final, Container, Generic, Hashable, Iterable, Optional, Protocol,
                    Sequence, Tuple, TypeVar, Union)

from . import clib, handles, library
from .basics import Adasum, Average, ProcessSet, Sum, global_process_set
from .errors import HorovodInternalError

OPS = (clib.AVG, clib.SUM, clib.ADASUM, clib.MIN, clib.MAX, clib.PRODUCT)  # by Horovod's numbers
_NUMBERS = range(len(OPS))
_NAME: Final = 6  # of library.Fields

class Tensor(Protocol):
    """What is looked at of a tensor."""

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of its dimensions."""

    @property
    def dtype(self) -> Hashable:
        """The type of its elements."""


T = TypeVar("T", bound=Tensor)
P = TypeVar("P", bound=Hashable)
Item = TypeVar("Item")
Owner = TypeVar("Owner")  # of the framework, from one function of the adapter to another


class Place(library.Place, Generic[Owner]):
    """That of a framework's arrays."""
    __slots__ = ()

    def make(self, array: Array[Owner], rows: int) -> Tuple[Owner, int]:
        """As above."""
        raise NotImplementedError

    def taken(self, owner: Owner) -> None:
        """As above."""
        raise NotImplementedError


Array = Tuple[Owner, int, int, int, Tuple[int, ...], Optional[Place[Owner]]]
# An operation that has not begun: the objects whose memory it uses, its Fields, and its result, or a function
# that makes it once the operation is done.
R = TypeVar("R")
Result = Union[R, Callable[[], R]]
Work = Tuple[object, library.Fields, Result[R]]


# ---- arguments ----

def reduction(average: bool | None, op: int | None) -> int:
    """Horovod's number of the op.  AVERAGE is its older form."""
    if op is None:
        return Sum if average is False else Average
    if average is not None:
        raise ValueError("op and average are the same argument: give op alone.")
    if op not in _NUMBERS:
        raise ValueError(f"op is {op!r}: it has to be hvd.Average, Sum, Adasum, Min, Max or Product.")
    return op


def names_of(name: str | None, n: int) -> list[str | None]:
    """Those of the N tensors of a group that has NAME, or none."""
    return [None if name is None else f"{name}_{i + 1}of{n}" for i in range(n)]


def _more(prescale: float, postscale: float, place: library.Place | None) -> dict[str, object] | None:
    """More Fields; None: neither scales, and the arrays are the host's."""
    if place is None and prescale == postscale == 1.0:
        return None
    more: dict[str, object] = {key: ctypes.c_double(factor) for key, factor in (
        ("prescale", prescale), ("postscale", postscale)) if factor != 1.0}
    if place is not None:
        more["place"] = place
    return more


_shapes: dict[tuple[int, ...], bytes] = {}  # sizes: the text of them


_labels: dict[str, bytes] = {}  # the name of a tensor: that of its allreduce


def _label(name: str) -> bytes:
    if len(_labels) >= 4096:
        _labels.clear()
    label = _labels[name] = f"allreduce.{name}".encode()
    return label


def _shape_text(sizes: tuple[int, ...]) -> bytes | None:
    """SIZES as bytes for a descriptor; None for one dimension, of which the count says all."""
    if len(sizes) == 1:
        return None
    text = _shapes.get(sizes)
    if text is None:
        if len(_shapes) >= 4096:
            _shapes.clear()
        text = _shapes[sizes] = str(list(sizes)).encode()
    return text


def _rows_text(sizes: tuple[int, ...]) -> bytes | None:
    """The same, where the first dimension may differ."""
    return None if len(sizes) == 1 else ("[*" + "".join(f", {n}" for n in sizes[1:]) + "]").encode()


def _splits(rows: int, parts: list[int] | None, ranks: int) -> list[int]:
    """The rows for each rank."""
    if parts is None:
        if rows % ranks:
            raise ValueError(f"alltoall without splits takes a multiple of {ranks} rows, and the tensor has "
                             f"{rows}.")
        return [rows // ranks] * ranks
    if len(parts) != ranks:
        raise ValueError(f"splits has {len(parts)} entries: it has to have one for each of {ranks} ranks.")
    if min(parts) < 0 or sum(parts) != rows:
        raise ValueError(f"the entries of splits have to be 0 or more, and sum up to the {rows} rows of the "
                         f"tensor: they are {parts}.")
    return parts


# ---- from Work to results ----

def run(work: Work[R]) -> R:
    """Do WORK.  Its result."""
    kept, fields, result = work
    library.run(kept, fields)
    return result() if callable(result) else result


def begin(work: Work[R], process_set: ProcessSet) -> int:
    """A handle of WORK, for handles.poll() and synchronize()."""
    kept, fields, result = work
    name = fields[_NAME]
    names = ((name, process_set.process_set_id),) if name is not None else ()
    if names:
        handles.claim(names)
    try:
        operation = library.submit(kept, fields)
    except BaseException:
        handles.release(names)
        raise
    return handles.add(operation, result, names)


def begin_each(works: Sequence[Work[R]], process_set: ProcessSet) -> list[int]:
    """The handles of WORKS: begin() of each one, in less time."""
    set_ = process_set.process_set_id
    names = [() if fields[_NAME] is None else ((fields[_NAME], set_),) for _, fields, _ in works]
    claimed = [name for one in names for name in one]
    handles.claim(claimed)
    try:
        begun = library.submit_each([kept for kept, _, _ in works], [fields for _, fields, _ in works])
    except BaseException:
        handles.release(claimed)
        raise
    return [handles.add(operation, work[2], name) for operation, work, name in zip(begun, works, names)]


def begin_group(works: Sequence[Work[R]], process_set: ProcessSet) -> int:
    """A handle of all WORKS together, whose result is a list."""
    if not works:
        return handles.add(library.Operation(None, None), list)
    names = [(fields[_NAME], process_set.process_set_id) for _, fields, _ in works
             if fields[_NAME] is not None]
    handles.claim(names)
    try:
        operation = library.submit([kept for kept, _, _ in works], *(fields for _, fields, _ in works))
    except BaseException:
        handles.release(names)
        raise
    return handles.add(operation, lambda: [result() if callable(result) else result
                                           for _, _, result in works], names)


Adopt = Callable[[int, int, Array[Owner], Callable[[int], None]], Owner]


class _Rows(Generic[Owner]):
    """Rows that come from each rank, in memory of libberth's until take()."""

    def __init__(self, array: Array[Owner], ranks: int, adopt: Adopt[Owner]) -> None:
        self.array, self.adopt = array, adopt
        self.received = (ctypes.c_uint64 * ranks)()
        self.made = ctypes.c_void_p()
        self.row = math.prod(array[4][1:])  # elements

    def __del__(self) -> None:
        if self.made:
            library.get().berth_free(self.made)

    def fields(self) -> dict[str, Any]:
        """Where libberth gets memory, and says what came."""
        return {"received": self.received, "made": self.made}

    def _counts(self) -> list[int]:
        return [n // self.row for n in self.received]

    def take(self) -> tuple[Owner, list[int]]:
        """The owner of the rows, and how many come from each rank."""
        counts = self._counts()
        address, self.made = self.made.value or 0, ctypes.c_void_p()
        return self.adopt(address, sum(counts), self.array, library.get().berth_free), counts


class _RowsThere(_Rows[Owner]):
    """Those of a device, whose memory the framework makes."""

    def __init__(self, array: Array[Owner], ranks: int, place: Place[Owner]) -> None:
        super().__init__(array, ranks, _no_adopt)
        self.place = place
        self.owner: Owner | None = None
        self.alloc: Any = clib.ALLOC_CALL(self._make)

    def _make(self, ctx: int | None, bytes_: int) -> int | None:
        rows = bytes_ // (self.row * clib.BYTES[self.array[1]])
        try:
            self.owner, at = self.place.make(self.array, rows)
        except Exception:  # libberth says that there is no memory
            return None
        return at

    def fields(self) -> dict[str, Any]:
        return {"received": self.received, "alloc": self.alloc, "place": self.place}

    def take(self) -> tuple[Owner, list[int]]:
        owner = self.place.make(self.array, 0)[0] if self.owner is None else self.owner  # nothing came
        self.owner = self.alloc = None  # which has a reference to SELF
        self.place.taken(owner)
        return owner, self._counts()


def _no_adopt(*_: object) -> Any:
    raise NotImplementedError


def _rows_for(array: Array[Owner], ranks: int, adopt: Adopt[Owner]) -> _Rows[Owner]:
    place = array[5]
    return _Rows(array, ranks, adopt) if place is None else _RowsThere(array, ranks, place)


class Operations(Generic[T, Owner]):
    """Works on the tensors of one framework.  PROCESS_SET, NAME, OP (of reduction()), PRESCALE and POSTSCALE
    are those of Horovod.
    """
    __slots__ = ("_plain", "_like", "_empty_like", "_restore", "_adopt", "_types")

    def __init__(self, plain: Callable[[T], Array[Owner]], like: Callable[[T, Owner], T],
                 empty_like: Callable[[Array[Owner], int | None], Tuple[Owner, int]],
                 restore: Callable[[T, Owner], None], adopt: Adopt[Owner],
                 types: Container[Hashable]) -> None:
        self._plain, self._like, self._empty_like = plain, like, empty_like
        self._restore, self._adopt, self._types = restore, adopt, types

    def _result(self, tensor: T, owner: Owner, to: Owner, in_place: bool) -> Result[T]:
        """Of an operation on TENSOR, whose own Array has OWNER, and which leaves its elements in TO."""
        if owner is tensor:
            return to  # type: ignore[return-value]  # it is what users take for a tensor
        if not in_place:
            return lambda: self._like(tensor, to)

        def restored() -> T:
            self._restore(tensor, to)
            return tensor

        return restored

    def _check_op(self, tensor: T, op: int) -> None:
        if op not in (Average, Sum) and tensor.dtype not in self._types:
            raise ValueError(f"{tensor.dtype} can be summed and averaged, and nothing else.")

    def _rows(self, tensor: T, what: str) -> Array[Owner]:
        """The Array of TENSOR, of which each row is something."""
        if not len(tensor.shape):
            raise ValueError(f"{what} takes a tensor of one dimension or more: this one has none.")
        return self._plain(tensor)

    def _whole_rows(self, tensor: T, what: str) -> Array[Owner]:
        """Rows of which each has elements."""
        array = self._rows(tensor, what)
        sizes = array[4]
        if not math.prod(sizes[1:]):
            raise ValueError(f"{what} of rows without elements is not supported: the shape is {list(sizes)}.")
        return array

    def allreduce(self, tensor: T, in_place: bool, op: int, name: str | None, prescale: float,
                  postscale: float, process_set: ProcessSet) -> Work[T]:
        """Gradients come here, 64 of them before the first is waited for: so it has few calls."""
        set_ = process_set.handle if process_set.process_set_id is not None else process_set.usable()
        array = self._plain(tensor)
        owner, type_, at, count, sizes, place = array
        if op > Sum:
            self._check_op(tensor, op)
        if in_place:
            to, to_at = owner, at
        else:
            to, to_at = self._empty_like(array, None)
        return ((owner, to),
                (clib.ALLREDUCE, type_, OPS[op], at, to_at, count,
                 None if name is None else _labels.get(name) or _label(name), set_,
                 None if len(sizes) == 1 else _shape_text(sizes), 0, 0,
                 None if place is None and prescale == postscale == 1.0
                 else _more(prescale, postscale, place)),
                to if owner is tensor else  # type: ignore[return-value]  # as in _result(), in less time
                self._result(tensor, owner, to, in_place))

    def grouped_allreduce(self, tensors: Sequence[T], in_place: bool, op: int, name: str | None,
                          prescale: float, postscale: float, process_set: ProcessSet) -> int:
        """A handle, as of begin_group()."""
        return begin_group([self.allreduce(t, in_place, op, n, prescale, postscale, process_set)
                            for t, n in zip(tensors, names_of(name, len(tensors)))], process_set)

    def allgather(self, tensor: T, name: str | None, process_set: ProcessSet) -> Work[T]:
        """The rows of all ranks."""
        set_ = process_set.usable()
        array = self._whole_rows(tensor, "allgather")
        owner, type_, at, count, sizes, place = array
        rows = _rows_for(array, process_set.size(), self._adopt)
        return ((owner, rows),
                library.fields(clib.ALLGATHER, type_, in_=at, count=count, name=_name("allgather", name),
                               set=set_, shape=_rows_text(sizes), **rows.fields()),
                lambda: self._like(tensor, rows.take()[0]))

    def alltoall(self, tensor: T, splits: list[int] | None, take: Callable[[T, list[int]], R],
                 name: str | None, process_set: ProcessSet) -> Work[R]:
        """SPLITS: the rows for each rank, or None: even.  TAKE(the rows that came, how many from each rank)
        makes the result.
        """
        set_ = process_set.usable()
        array = self._whole_rows(tensor, "alltoall")
        owner, type_, at, count, sizes, place = array
        ranks = process_set.size()
        parts = _splits(sizes[0], splits, ranks)
        rows = _rows_for(array, ranks, self._adopt)
        counts = (ctypes.c_uint64 * ranks)(*(n * rows.row for n in parts))

        def result() -> R:
            to, received = rows.take()
            return take(self._like(tensor, to), received)

        return ((owner, rows),
                library.fields(clib.ALLTOALL, type_, in_=at, count=count, in_counts=counts,
                               name=_name("alltoall", name), set=set_, shape=_rows_text(sizes),
                               **rows.fields()),
                result)

    def broadcast(self, tensor: T, in_place: bool, root_rank: int, name: str | None,
                  process_set: ProcessSet) -> Work[T]:
        """What ROOT_RANK, a rank of the world, has."""
        set_ = process_set.usable()
        if root_rank not in process_set.ranks:
            raise ValueError(f"root_rank {root_rank} is not in the process set, which has "
                             f"{process_set.ranks}.")
        root = process_set.ranks.index(root_rank)
        array = self._plain(tensor)
        owner, type_, at, count, sizes, place = array
        if in_place:
            to, to_at = owner, at
        else:
            to, to_at = self._empty_like(array, None)
        return ((owner, to),
                library.fields(clib.BROADCAST, type_, root=root, in_=at, out=to_at, count=count,
                               name=_name("broadcast", name), set=set_, shape=_shape_text(sizes),
                               place=place),
                self._result(tensor, owner, to, in_place))

    def reducescatter(self, tensor: T, op: int, name: str | None, prescale: float, postscale: float,
                      process_set: ProcessSet) -> Work[T]:
        """This rank's rows: an equal share, and one more on the first ranks."""
        set_ = process_set.usable()
        array = self._rows(tensor, "reducescatter")
        if op == Adasum:
            raise HorovodInternalError("reducescatter does not do Adasum: allreduce does.")
        self._check_op(tensor, op)
        owner, type_, at, count, sizes, place = array
        ranks, row = process_set.size(), math.prod(sizes[1:])
        share, more = divmod(sizes[0], ranks)
        parts = [share + (r < more) for r in range(ranks)]
        to, to_at = self._empty_like(
            array, parts[process_set.rank()] if process_set.included() else 0)
        others = _more(prescale, postscale, place) or {}
        if more:
            others["in_counts"] = (ctypes.c_uint64 * ranks)(*(n * row for n in parts))
        return ((owner, to),
                (clib.REDUCESCATTER, type_, OPS[op], at, to_at, count, _name("reducescatter", name), set_,
                 _shape_text(sizes), 0, 0, others or None),
                self._result(tensor, owner, to, False))


def _name(kind: str, name: str | None) -> bytes | None:
    return None if name is None else f"{kind}.{name}".encode()


# ---- without tensors ----

def barrier(process_set: ProcessSet) -> None:
    """Wait until all ranks of PROCESS_SET have called it."""
    library.run(None, library.fields(clib.BARRIER, set=process_set.usable()))


def join() -> int:
    """Take part with zeros in each allreduce of the others, until all ranks have joined.  The last one."""
    global_process_set.usable()
    last, ended = ctypes.c_int(-1), threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            library.check(library.get().berth_join(None, ctypes.byref(last)))
        except Exception as e:
            errors.append(e)
        ended.set()

    # berth_join() waits in one piece; a wait for an event can be interrupted.  (Not so one for the thread: in
    # Python 3.11 it then counts as ended.)
    threading.Thread(target=wait, name="berth join", daemon=True).start()
    while not ended.wait(library.SLICE_MS / 1000):
        pass
    if errors:
        raise errors[0]
    return last.value


def largest(numbers: Sequence[int], name: str | None, process_set: ProcessSet) -> list[int]:
    """The largest of all ranks in each place of NUMBERS, a list of some below 256: so ranks agree."""
    array = (ctypes.c_uint8 * len(numbers))(*numbers)
    at = ctypes.addressof(array)
    library.run(array, library.fields(clib.ALLREDUCE, clib.U8, clib.MAX, at, at, len(numbers),
                                      _name("allreduce", name), process_set.usable()))
    return list(array)


# ---- parameters of optimizers ----

def find_duplicates(lst: Iterable[P]) -> set[P]:
    """The set of those that are in LST more than once."""
    seen: set[P] = set()
    twice: set[P] = set()
    for x in lst:
        (twice if x in seen else seen).add(x)
    return twice


def given_names(named_parameters: Iterable[tuple[str, P]] | None) -> dict[P, str]:
    """{parameter: name} of the pairs that the caller gave."""
    pairs = list(named_parameters or [])
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters has to be pairs (name, parameter): model.named_parameters().")
    twice = find_duplicates(name for name, _ in pairs)
    if twice:
        raise ValueError("the names in named_parameters have to be unique: there is more than one of "
                         f"{', '.join(sorted(map(str, twice)))}.")
    return {p: name for name, p in pairs}


def grouped(groups: int | Sequence[Sequence[P]] | None, params: Sequence[P]) -> list[list[P]]:
    """Lists of those of PARAMS that are reduced together."""
    if groups is None or groups == 0:
        return []
    if isinstance(groups, int) and groups > 0:
        n = min(groups, len(params))
        return [list(params[len(params) * i // n:len(params) * (i + 1) // n]) for i in range(n)]
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, (list, tuple)) for g in groups):
        raise ValueError("groups has to be a number of groups, or a list of lists of parameters.")
    if find_duplicates(p for group in groups for p in group):
        raise ValueError("a parameter can be in one of the groups only, and once.")
    known = set(params)
    return [[p for p in group if p in known] for group in groups]


def number_of_groups(num_groups: int, groups: int | Item | None) -> int | Item | None:
    """GROUPS, or its older name NUM_GROUPS."""
    if num_groups != 0:
        warnings.warn("num_groups is deprecated: use groups.", DeprecationWarning, stacklevel=3)
    return num_groups if num_groups != 0 and groups is None else groups


# ---- small things of Horovod's ----

def split_list(l: Sequence[Item], n: int) -> list[Sequence[Item]]:  # noqa: E741  # Horovod's name
    """L in N parts, whose lengths differ by 1 at most, the longer ones first.

    >>> hvd.split_list([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    share, more = divmod(len(l), n)
    ends = [i * share + min(i, more) for i in range(n + 1)]
    return [l[a:b] for a, b in zip(ends, ends[1:])]


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether NUM_RANK is a power of two, as Horovod's Adasum needs; Berth's takes any number.

    >>> hvd.check_num_rank_power_of_2(6)
    False
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
