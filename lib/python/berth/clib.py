"""berth.h for ctypes: its numbers, structs and calls.  tests/cli/abi.test compares them with the header.

    b = clib.load("libberth.so")
    b.berth_init(None)
    b.berth_run(clib.desc(kind=clib.ALLREDUCE, ...), -1, None)
    b.called                        the names of the calls so far
"""
from __future__ import annotations

import ctypes
from typing import Callable, TypeVar
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p

(OK, BUSY, INVALID, STATE, NO_PEERS, MISMATCH, PEER_LOST, TIMEOUT, ABORTED, MEMORY, AUTH, UNSUPPORTED,
 SYSTEM) = range(13)
U8, I8, U16, I16, I32, U32, I64, U64, F16, BF16, F32, F64, BOOL, F8_E4M3, F8_E5M2 = range(15)
BYTES = (1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1)  # of an element of each
SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR, BXOR, ADASUM = range(9)
(ALLREDUCE, REDUCE, REDUCESCATTER, ALLGATHER, BROADCAST, ALLTOALL, BARRIER, GATHER, SCATTER, SEND,
 RECV) = range(1, 12)
ANYWHERE, HOST, CUDA = range(3)
LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG = range(4)
RANKS_LOST, RANKS_WAIT = 1, 2
ANY = -1
HOST_STREAM = c_void_p(-1)

ALLGATHER_CALL = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)
LOG_CALL = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ALLOC_CALL = CFUNCTYPE(c_void_p, c_void_p, c_uint64)
DONE_CALL = CFUNCTYPE(None, c_void_p, c_int)
SET = REQUEST = c_void_p


class Bootstrap(ctypes.Structure):
    """struct berth_bootstrap."""
    _fields_ = [("size", c_size_t), ("rank", c_int), ("ranks", c_int), ("allgather", ALLGATHER_CALL),
                ("ctx", c_void_p), ("key", c_char_p), ("host", c_char_p)]


class Config(ctypes.Structure):
    """struct berth_config."""
    _fields_ = [("size", c_size_t), ("log", LOG_CALL), ("log_ctx", c_void_p), ("timeout_ms", c_int64),
                ("bootstrap", POINTER(Bootstrap))]


class World(ctypes.Structure):
    """struct berth_world."""
    _fields_ = [("size", c_size_t), ("epoch", c_uint64), ("rank", c_int), ("ranks", c_int),
                ("local_rank", c_int), ("local_size", c_int), ("cross_rank", c_int),
                ("cross_size", c_int), ("changed", c_int)]


class Error(ctypes.Structure):
    """struct berth_error."""
    _fields_ = [("size", c_size_t), ("result", c_int), ("tensor", c_char_p), ("missing", POINTER(c_int)),
                ("nmissing", c_size_t), ("text", c_char_p)]


class Desc(ctypes.Structure):
    """struct berth_desc."""
    # "in" is a word of Python: setattr() sets it.
    _fields_ = [("size", c_size_t), ("kind", c_int), ("type", c_int), ("op", c_int), ("root", c_int),
                ("name", c_char_p), ("shape", c_char_p), ("set", SET), ("in", c_void_p), ("out", c_void_p),
                ("alloc", ALLOC_CALL), ("alloc_ctx", c_void_p), ("made", POINTER(c_void_p)),
                ("count", c_uint64), ("room", c_uint64), ("in_counts", POINTER(c_uint64)),
                ("out_counts", POINTER(c_uint64)), ("received", POINTER(c_uint64)),
                ("from", POINTER(c_int)), ("prescale", POINTER(c_double)), ("postscale", POINTER(c_double)),
                ("tag", c_uint64), ("timeout_ms", c_int64), ("priority", c_int), ("device", c_int),
                ("memory", c_int), ("stream", c_void_p), ("ready", c_void_p)]


class Metrics(ctypes.Structure):
    """struct berth_metrics."""
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "operations", "bytes", "fused", "negotiations", "stalls", "errors", "wait_ns")]


STRUCTS = {"berth_bootstrap": Bootstrap, "berth_config": Config, "berth_world": World,
           "berth_error": Error, "berth_desc": Desc, "berth_metrics": Metrics}

# name: (what it returns, its arguments)
CALLS = {
    "berth_init": (c_int, [POINTER(Config)]),
    "berth_change": (c_int, [POINTER(Config)]),
    "berth_shutdown": (c_int, []),
    "berth_rank": (c_int, []),
    "berth_size": (c_int, []),
    "berth_world": (c_int, [POINTER(World)]),
    "berth_elastic": (c_int, [c_int]),
    "berth_version": (c_char_p, []),
    "berth_last_error": (POINTER(Error), []),
    "berth_result_text": (c_char_p, [c_int]),
    "berth_set_add": (c_int, [POINTER(c_int), c_size_t, POINTER(SET)]),
    "berth_set_split": (c_int, [SET, c_int, c_int, POINTER(SET)]),
    "berth_set_make": (c_int, [POINTER(Bootstrap), POINTER(SET)]),
    "berth_set_abort": (c_int, [SET, c_char_p]),
    "berth_set_remove": (c_int, [SET]),
    "berth_set_rank": (c_int, [SET]),
    "berth_set_size": (c_int, [SET]),
    "berth_set_member": (c_int, [SET, c_int]),
    "berth_run": (c_int, [POINTER(Desc), c_int64, POINTER(REQUEST)]),
    "berth_submit": (c_int, [POINTER(Desc), c_size_t, POINTER(REQUEST)]),
    "berth_submit_each": (c_int, [POINTER(Desc), c_size_t, POINTER(REQUEST)]),
    "berth_poll": (c_int, [REQUEST]),
    "berth_wait": (c_int, [REQUEST, c_int64]),
    "berth_wait_any": (c_int, [POINTER(REQUEST), c_size_t, c_int64, POINTER(c_size_t)]),
    "berth_wait_stream": (c_int, [REQUEST, c_void_p, c_int64]),
    "berth_then": (c_int, [REQUEST, DONE_CALL, c_void_p]),
    "berth_join": (c_int, [SET, POINTER(c_int)]),
    "berth_alloc": (c_void_p, [c_size_t, c_int, c_int]),
    "berth_free": (None, [c_void_p]),
    "berth_register": (c_int, [c_void_p, c_size_t, c_int, c_int]),
    "berth_deregister": (c_int, [c_void_p]),
    "berth_metrics": (c_int, [POINTER(Metrics)]),
    "berth_algorithms": (c_size_t, [c_char_p, c_size_t]),
    "berth_timeline_start": (c_int, [c_char_p]),
    "berth_timeline_stop": (c_int, []),
}


class Library:
    """The calls of berth.h; CALLED gets the names of those that were used."""

    # Those that return an int are not listed.
    berth_version: Callable[[], bytes]
    berth_last_error: Callable[[], ctypes._Pointer[Error]]
    berth_result_text: Callable[[int], bytes]
    berth_alloc: Callable[[int, int, int], int | None]
    berth_free: Callable[[int | c_void_p | None], None]

    def __init__(self, path: str) -> None:
        self.library, self.path = ctypes.CDLL(path), path
        self.called: set[str] = set()
        for name, (result, arguments) in CALLS.items():
            call = getattr(self.library, name)
            call.restype, call.argtypes = result, arguments

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in CALLS:
            raise AttributeError(name)
        self.called.add(name)
        call: Callable[..., int] = getattr(self.library, name)
        setattr(self, name, call)  # __getattr__ is for what is not there yet
        return call

    def own(self, name: str) -> ctypes._NamedFuncPointer:
        """Call NAME as an object of the caller's, who may give it other types."""
        return self.library[name]


def load(path: str) -> Library:
    """The library in the file PATH.  OSError, AttributeError: it is none of Berth's."""
    return Library(path)


Struct = TypeVar("Struct", bound=ctypes.Structure)
_kinds: dict[type[ctypes.Structure], dict[str, type]] = {
    struct: {field[0]: field[1] for field in struct._fields_} for struct in STRUCTS.values()}


def made(struct: type[Struct], **fields: object) -> Struct:
    """STRUCT with its size and FIELDS; a field "in_" is "in".  It keeps alive what its pointers show."""
    s = struct(size=ctypes.sizeof(struct))
    s.kept = fields
    for name, value in fields.items():
        name = name.rstrip("_")
        kind = _kinds[struct][name]
        if isinstance(value, ctypes.Array):
            value = ctypes.cast(value, kind)
        elif isinstance(kind, type) and issubclass(kind, ctypes._Pointer):
            value = ctypes.pointer(value)  # type: ignore[type-var]
        setattr(s, name, value)
    return s


def desc(**fields: object) -> Desc:
    """A descriptor of an operation."""
    return made(Desc, **fields)


def descs(*each: Desc) -> ctypes.Array[Desc]:
    """An array of them for berth_submit(); it keeps what they keep."""
    array = (Desc * len(each))(*each)
    array.kept = each  # type: ignore[attr-defined]
    return array
