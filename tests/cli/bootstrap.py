"""Processes that no launcher started find each other through one of torch's stores.

bootstrap.py LIBRARY tcp|file PATH   starts three of them, and prints the sum of each round
bootstrap.py LIBRARY tcp|file PORT-OR-PATH RANK   is one of them
"""
import ctypes
import os
import subprocess
import sys
from datetime import timedelta

from torch.distributed import FileStore, TCPStore

RANKS = 3
LIMIT = timedelta(seconds=60 * int(os.environ.get("SLOW", "1")))
ALLREDUCE, F32, SUM = 1, 10, 0
ALLGATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Bootstrap(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rank", ctypes.c_int), ("ranks", ctypes.c_int),
                ("allgather", ALLGATHER), ("ctx", ctypes.c_void_p), ("key", ctypes.c_char_p),
                ("host", ctypes.c_char_p)]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("log", ctypes.c_void_p), ("log_ctx", ctypes.c_void_p),
                ("timeout_ms", ctypes.c_int64), ("bootstrap", ctypes.POINTER(Bootstrap))]


class Desc(ctypes.Structure):
    """As far as it is used here: the library takes the rest for not given."""
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("type", ctypes.c_int),
                ("op", ctypes.c_int), ("root", ctypes.c_int), ("name", ctypes.c_char_p),
                ("shape", ctypes.c_char_p), ("set", ctypes.c_void_p), ("in_", ctypes.c_void_p),
                ("out", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("alloc_ctx", ctypes.c_void_p),
                ("made", ctypes.c_void_p), ("count", ctypes.c_uint64)]


class World(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("epoch", ctypes.c_uint64), ("rank", ctypes.c_int),
                ("ranks", ctypes.c_int), ("local_rank", ctypes.c_int), ("local_size", ctypes.c_int)]


class Error(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("result", ctypes.c_int), ("tensor", ctypes.c_char_p),
                ("missing", ctypes.c_void_p), ("nmissing", ctypes.c_size_t), ("text", ctypes.c_char_p)]


def check(berth, result):
    if result:
        berth.berth_last_error.restype = ctypes.POINTER(Error)
        sys.exit(berth.berth_last_error().contents.text.decode())


def allreduce(berth, x):
    at = ctypes.addressof(x)
    d = Desc(size=ctypes.sizeof(Desc), kind=ALLREDUCE, type=F32, op=SUM, in_=at, out=at, count=len(x))
    check(berth, berth.berth_run(ctypes.byref(d), ctypes.c_int64(-1), None))


def allgather_of(store, turn, rank):
    """An allgather over STORE, whose keys begin with TURN and the number of its call."""
    calls = 0

    def allgather(_, given, out, n):
        nonlocal calls
        calls += 1
        try:
            store.set(f"{turn}/{calls}/{rank}", ctypes.string_at(given, n))
            for r in range(RANKS):
                value = store.get(f"{turn}/{calls}/{r}")
                if len(value) != n:
                    return 2
                ctypes.memmove(out + r * n, value, n)
        except Exception as e:
            print(e, file=sys.stderr)
            return 1
        return 0
    return ALLGATHER(allgather)


def use(berth, store, turn, rank, host):
    """One init round; the sum of a million elements on each of its ranks."""
    allgather = allgather_of(store, turn, rank)
    b = Bootstrap(size=ctypes.sizeof(Bootstrap), rank=rank, ranks=RANKS, allgather=allgather, host=host)
    c = Config(size=ctypes.sizeof(Config), bootstrap=ctypes.pointer(b))
    check(berth, berth.berth_init(ctypes.byref(c)))
    if (berth.berth_rank(), berth.berth_size()) != (rank, RANKS):
        sys.exit("wrong rank or size")
    x = (ctypes.c_float * 1000000)(*[rank + 1] * 1000000)
    allreduce(berth, x)
    if rank == 0:
        w = World(size=ctypes.sizeof(World))
        check(berth, berth.berth_world(ctypes.byref(w)))
        print(turn, min(x), max(x), "on", w.local_size, "here")
    check(berth, berth.berth_shutdown())


def main(library, kind, where, rank=None):
    if rank is None:
        if kind == "tcp":
            server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LIMIT)
            where = server.port
        words = [sys.executable, __file__, library, kind, str(where)]
        ranks = [subprocess.Popen(words + [str(r)]) for r in range(RANKS)]
        sys.exit(max(abs(p.wait()) for p in ranks))
    rank = int(rank)
    berth = ctypes.CDLL(library)
    if kind == "tcp":
        store = TCPStore("127.0.0.1", int(where), is_master=False, timeout=LIMIT)
    else:
        store = FileStore(where, RANKS)
        store.set_timeout(LIMIT)
    use(berth, store, "first", rank, None)
    use(berth, store, "second", RANKS - 1 - rank, b"a" if rank else b"b")


main(*sys.argv[1:])
