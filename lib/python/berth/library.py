"""libberth: where its file is, operations that are run or submitted, and what they raise."""
from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from ctypes import addressof, c_int, c_int64, c_size_t, c_void_p, memset, sizeof
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from . import clib, trust
from .errors import HorovodInternalError, HorovodVersionMismatchError

RELEASE = "0.2.0"
VERSION = RELEASE.rpartition(".")[0]  # of the ABI
FILE = f"libberth.so.{VERSION}"
# A callback inside of a wait would swallow KeyboardInterrupt, so each wait comes back to Python.
SLICE_MS = 100

_lock = threading.Lock()
_collecting = threading.Lock()
_library: clib.Library | None = None


# ---- the file ----

def places() -> list[str]:
    """The files to try, in this order."""
    here = os.path.dirname(os.path.realpath(__file__))
    if os.environ.get("BERTH_LIBRARY"):
        return [os.environ["BERTH_LIBRARY"]]
    tree = os.path.join(here, "..", "..", "..")
    beside = [os.path.join(here, FILE), os.path.join(tree, "build", "lib", FILE)]
    return [os.path.normpath(path) for path in beside if os.path.exists(path)] + [FILE]


def _refusal(path: str) -> str | None:
    """What the user names is taken, and what the system finds."""
    if path == os.environ.get("BERTH_LIBRARY") or not os.path.isabs(path):
        return None
    return trust.refusal(os.path.dirname(os.path.realpath(__file__)), path)


def beside(name: str) -> str:
    """The file NAME in the directory of libberth.  ImportError: another user could replace it."""
    path = os.path.join(os.path.dirname(get().path), name)
    reason = _refusal(path) if os.environ.get("BERTH_LIBRARY") is None else None
    if reason:
        raise ImportError(f"another user could replace {path}: {reason}")
    return path


def _load() -> clib.Library:
    tried = []
    for path in places():
        reason = _refusal(path)
        if reason:
            tried.append(f"another user could replace {path}: {reason}")
            continue
        try:
            library = clib.load(path)
        except (OSError, AttributeError) as e:
            tried.append(str(e))
            continue
        version = library.berth_version().decode()
        if not version.startswith(VERSION + "."):
            raise HorovodVersionMismatchError(path, VERSION, version)
        return library
    raise ImportError(f"no {FILE} ({'; '.join(tried)}): build it with make, install it with make install, "
                      "or give its file in BERTH_LIBRARY")


def get() -> clib.Library:
    """The library, loaded once."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                library = _load()
                _make_calls(library)
                _library = library
    return _library


def check(result: int) -> None:
    """Raise what RESULT is, unless it is OK."""
    if result == clib.OK:
        return
    last = get().berth_last_error().contents
    text, tensor = (last.text or get().berth_result_text(result)), last.tensor or b""
    text = (text if tensor in text else tensor + b": " + text).decode(errors="replace")
    if result == clib.INVALID:
        raise ValueError(text)
    if result == clib.MEMORY:
        raise MemoryError(text)
    error = HorovodInternalError(text)
    error.result = result
    raise error


# ---- operations ----

def _make_calls(library: clib.Library) -> None:
    """These take addresses, which costs ctypes least: 0.3 us a call, and with byref() 0.6."""
    global _run, _submit, _submit_each, _wait, _wait_stream, _poll

    def own(name: str, *arguments: type) -> Callable[..., int]:
        call = library.own(name)
        call.argtypes, call.restype = arguments, c_int
        return call

    _run = own("berth_run", c_void_p, c_int64, c_void_p)
    _submit = own("berth_submit", c_void_p, c_size_t, c_void_p)
    _submit_each = own("berth_submit_each", c_void_p, c_size_t, c_void_p)
    _wait = own("berth_wait", c_void_p, c_int64)
    _wait_stream = own("berth_wait_stream", c_void_p, c_void_p, c_int64)
    _poll = own("berth_poll", c_void_p)


_run: Callable[[int, int, int], int]  # by get()
_submit: Callable[[int, int, int], int]
_submit_each: Callable[[int, int, int], int]
_wait: Callable[[int | None, int], int]
_wait_stream: Callable[[int, int, int], int]
_poll: Callable[[int], int]


# From KIND to COUNT, which one call writes in 0.2 us; as attributes they take 0.8.
_pack = struct.Struct("=4i16x3Q24xQ").pack_into  # x: 0
_KIND = clib.Desc.kind.offset
assert clib.Desc.count.offset == _KIND + 4 * 4 + 8 * 8

class Place:
    """Where arrays of a device lie: MEMORY, of clib, and the DEVICE's number."""
    __slots__ = ("memory", "device", "spares")

    def __init__(self, memory: int, device: int) -> None:
        self.memory, self.device = memory, device
        self.spares: list[_Spare] = []

    def stream(self) -> int:
        """The address of the stream that the calling thread's work is on."""
        raise NotImplementedError


# An operation: kind, type, op, in, out, count, name, set, shape, root, timeout_ms, and other fields of
# clib.Desc by their names, or None; of these "place" is a Place, where the arrays are a device's.  IN, OUT
# and SET are addresses, or None; NAME and SHAPE are bytes, or None.  A tuple is what Python makes fastest.
Fields = Tuple[int, int, int, Optional[int], Optional[int], int, Optional[bytes], Optional[int],
               Optional[bytes], int, int, Optional[Dict[str, object]]]


def fields(kind: int, type: int = 0, op: int = 0, in_: int | None = None, out: int | None = None,
           count: int = 0, name: bytes | None = None, set: int | None = None, shape: bytes | None = None,
           root: int = 0, timeout_ms: int = 0, **more: object) -> Fields:
    """Fields by their names.  Of MORE, what is None is left out."""
    more = {key: value for key, value in more.items() if value is not None}
    return kind, type, op, in_, out, count, name, set, shape, root, timeout_ms, more or None


def describe(operation: Fields) -> clib.Desc:
    """The descriptor of an operation, which are Fields."""
    kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms, more = operation
    place = place_of(operation)
    others: Dict[str, object] = {"memory": clib.HOST, **(more or {})}
    if place is not None:
        del others["place"]
        others.update(memory=place.memory, device=place.device, stream=place.stream())
    return clib.desc(kind=kind, type=type_, op=op, in_=in_, out=out, count=count, name=name, set=set_,
                     shape=shape, root=root, timeout_ms=timeout_ms, **others)


def place_of(operation: Fields) -> Place | None:
    """Of an operation on a device's arrays."""
    more = operation[-1]
    return None if more is None else more.get("place")  # type: ignore[return-value]


class _Spare:
    """A descriptor and a place for a request, to be used again, by those in the list HOME: to make them takes
    1 us.
    """
    __slots__ = ("d", "at", "later", "later_at", "timeout_ms", "home")

    def __init__(self, d: clib.Desc | ctypes.Array[clib.Desc], home: list[_Spare] | None = None) -> None:
        self.d: Any = d
        self.home = home
        self.later, self.timeout_ms = c_void_p(), 0
        self.at, self.later_at = addressof(self.d), addressof(self.later)


_spares: list[_Spare] = []  # more than one where several threads are at it


def _prepare(operation: Fields) -> _Spare:
    """A _Spare that describes it.  One with more fields than a place can't be used again."""
    kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms, more = operation
    place = None if more is None or len(more) > 1 else place_of(operation)
    if more is not None and place is None:
        get()
        return _Spare(describe(operation))
    home = _spares if place is None else place.spares
    try:
        spare = home.pop()
    except IndexError:  # also the first time
        get()
        spare = _Spare(clib.Desc(size=sizeof(clib.Desc), memory=clib.HOST if place is None else place.memory,
                                 device=0 if place is None else place.device), home)
    d = spare.d
    if place is not None:
        d.stream = place.stream()
    _pack(d, _KIND, kind, type_, op, root, set_ or 0, in_ or 0, out or 0, count)
    if name is not None:
        d.name = name
    if shape is not None:
        d.shape = shape
    if timeout_ms != spare.timeout_ms:
        d.timeout_ms = spare.timeout_ms = timeout_ms
    return spare


class _Spares:
    """EACH descriptors in one array, and places for requests, to be used again."""
    EACH = 64
    __slots__ = ("d", "at", "each", "timeouts", "later", "later_at")

    def __init__(self) -> None:
        self.d = (clib.Desc * self.EACH)()
        self.each = list(self.d)  # each in the array's memory
        for d in self.each:
            d.size, d.memory = sizeof(clib.Desc), clib.HOST
        self.timeouts = [0] * self.EACH
        self.later = (c_void_p * self.EACH)()
        self.at, self.later_at = addressof(self.d), addressof(self.later)


_spare_arrays: list[_Spares] = []


class Operation:
    """What was submitted as one request.  It keeps KEPT, the objects whose memory it uses."""
    __slots__ = ("request", "kept")

    def __init__(self, request: int | None, kept: object) -> None:
        self.request, self.kept = request, kept

    def is_done(self) -> bool:
        """It has come to its end, whatever that is."""
        return self.request is None or _poll(self.request) != clib.BUSY

    def wait(self, limit_s: float | None = None) -> bool:
        """Until it is done; raise what went wrong, once.  It goes on if this is interrupted.  False: LIMIT_S
        seconds were not enough.
        """
        if self.request is not None:
            until = None if limit_s is None else time.monotonic() + limit_s
            result = _wait(self.request, SLICE_MS if until is None else _slice_before(until))
            while result == clib.BUSY:
                if until is not None and time.monotonic() >= until:
                    return False
                result = _wait(self.request, SLICE_MS if until is None else _slice_before(until))
            if result == clib.SYSTEM:
                _in_use.append(self.kept)
            self.request = self.kept = None
            check(result)
        return True

    def __del__(self) -> None:
        if self.request is not None:
            _leave(self.request, self.kept)


class OnDevice(Operation):
    """One of which all arrays are at PLACE, a device's.  Its wait() is the device's: what the calling thread
    puts on its stream comes behind the operation.
    """
    __slots__ = ("place",)

    def __init__(self, request: int | None, kept: object, place: Place) -> None:
        super().__init__(request, kept)
        self.place = place

    def wait(self, limit_s: float | None = None) -> bool:
        """Until the operation has begun.  An error after that is the next operation's."""
        if self.request is None:
            return True
        until = None if limit_s is None else time.monotonic() + limit_s
        stream = self.place.stream()
        while True:
            result = _wait_stream(self.request, stream, SLICE_MS if until is None else _slice_before(until))
            if result != clib.BUSY:
                break
            if until is not None and time.monotonic() >= until:
                return False
        if result:
            return super().wait(limit_s)  # it raises what went wrong
        _left.append((self.request, self.kept))
        self.request = self.kept = None
        collect()  # memory of a device is too dear to be kept for long
        return True


def _slice_before(until: float) -> int:
    return max(0, min(SLICE_MS, int((until - time.monotonic()) * 1000) + 1))


# (request, kept) of operations for which nobody waits: they still use their memory.
_left: list[tuple[int, object]] = []
# What operations kept whose end hangs on a device, which uses it for good.
_in_use: list[object] = []


def _leave(request: int, kept: object) -> None:
    _left.append((request, kept))
    if len(_left) > 16:
        collect()


def collect() -> None:
    """Forget those that nobody waits for, and that are done."""
    if not _collecting.acquire(blocking=False):
        return  # another thread is at it, or this one: to forget may end others
    try:
        for entry in list(_left):
            if _poll(entry[0]) != clib.BUSY:
                _left.remove(entry)
                if _wait(entry[0], 0) == clib.SYSTEM:
                    _in_use.append(entry[1])
    finally:
        _collecting.release()


def run(kept: object, operation: Fields) -> None:
    """Do the OPERATION, which are Fields.  It can be interrupted, and goes on then.  KEPT: the objects whose
    memory it uses.
    """
    if operation[-1] is not None and "place" in operation[-1]:
        submit(kept, operation).wait()
        return
    spare = _prepare(operation)
    try:
        result = _run(spare.at, SLICE_MS, spare.later_at)
        if result:
            check(_wait_for(spare.later) if result == clib.BUSY else result)
    except BaseException:
        if spare.later.value:  # an interrupt
            _leave(spare.later.value, (kept, spare.d))
            spare.later.value = None
        raise
    finally:
        if spare.home is not None:
            spare.home.append(spare)


def _wait_for(later: c_void_p) -> int:
    result = clib.BUSY
    while result == clib.BUSY:
        result = _wait(later.value, SLICE_MS)
    later.value = None
    return result


def submit(kept: object, operation: Fields, *others: Fields) -> Operation:
    """Begin OPERATION and OTHERS of one set, Fields each, as one request.  Returns the Operation."""
    if not others:
        spare = _prepare(operation)
    else:
        get()
        spare = _Spare(clib.descs(*map(describe, (operation, *others))))
    if spare.home is None:
        kept = (kept, spare.d)
    later = spare.later
    try:
        result = _submit(spare.at, 1 + len(others), spare.later_at)
        if result:
            check(result)
        place = place_of(operation)
        if place is None or any(place_of(one) is None for one in others):
            begun = Operation(later.value, kept)
        else:
            begun = OnDevice(later.value, kept, place)
    except BaseException:
        if later.value:  # an interrupt
            _leave(later.value, kept)
        raise
    if spare.home is not None:
        later.value = None
        spare.home.append(spare)
    return begun


def submit_each(kept: Sequence[object], operations: Sequence[Fields]) -> list[Operation]:
    """Begin OPERATIONS of one set, Fields each, as one request each: submit() of each one, in less time.
    KEPT has for each the objects whose memory it uses.  Returns the Operations.  If one of up to 64 cannot
    begin, none of these does.
    """
    if len(operations) == 1 or any(operation[-1] is not None for operation in operations):
        return [submit(objects, operation) for objects, operation in zip(kept, operations)]
    begun: list[Operation] = []
    for at in range(0, len(operations), _Spares.EACH):
        begun += _submit_array(kept[at:at + _Spares.EACH], operations[at:at + _Spares.EACH])
    return begun


def _submit_array(kept: Sequence[object], operations: Sequence[Fields]) -> list[Operation]:
    try:
        spares = _spare_arrays.pop()
    except IndexError:  # also the first time
        get()
        spares = _Spares()
    d, offset, step = spares.d, _KIND, sizeof(clib.Desc)
    for i, operation in enumerate(operations):
        kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms, _ = operation
        _pack(d, offset, kind, type_, op, root, set_ or 0, in_ or 0, out or 0, count)
        offset += step
        if name is not None:
            spares.each[i].name = name
        if shape is not None:
            spares.each[i].shape = shape
        if timeout_ms != spares.timeouts[i]:
            spares.each[i].timeout_ms = spares.timeouts[i] = timeout_ms
    begun = [Operation(None, objects) for objects in kept]
    requests = spares.later
    try:
        result = _submit_each(spares.at, len(operations), spares.later_at)
        if result:
            check(result)
        for i, one in enumerate(begun):
            one.request = requests[i]
    except BaseException:
        for request, one in zip(requests, begun):
            if request and one.request is None:  # an interrupt
                _leave(request, one.kept)
        raise
    memset(spares.later_at, 0, sizeof(requests))
    _spare_arrays.append(spares)
    return begun
