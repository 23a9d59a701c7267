"""libberth by Python's ctypes: library.py LIBRARY DIRECTORY CASE...; each rank is one of a job.
Rank 0 prints "ok CASE"; a rank that finds something wrong says what, and ends with 1.

CASE "all" is all but init_by_bootstrap, and then rank 0 prints which calls they have used.
"""
import ctypes
import json
import os
import random
import sys
import threading
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p

sys.dont_write_bytecode = True
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib", "python"))
from berth import clib as B  # noqa: E402
from berth.clib import desc, descs, made  # noqa: E402
from meeting import Meeting  # noqa: E402

LIBRARY, DIRECTORY, CASES = sys.argv[1], sys.argv[2], sys.argv[3:]
b = B.load(LIBRARY)


def error():
    return b.berth_last_error().contents


def is_(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: {got}, not {want}; last error: {error().text.decode()}")


def ints(*x):
    return (c_int * len(x))(*x)


def counts(*x):
    return (c_uint64 * len(x))(*x)


def run(**fields):
    return b.berth_run(desc(**fields), -1, None)


def fine(rc, what="result"):
    is_(rc, B.OK, what)


def all_ranks():
    """A set of its own, which may break."""
    return split(None, 0, b.berth_rank())


def split(parent, color, key):
    s = c_void_p(7)
    fine(b.berth_set_split(parent, color, key, byref(s)), "berth_set_split")
    return s


def barrier(s=None):
    return run(kind=B.BARRIER, set=s)


def sum_of(value, **fields):
    """(result, the sum of VALUE) of one int."""
    x = ints(value)
    return run(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1, **fields), x[0]


# ---- begin and end ----

lines = []


@B.LOG_CALL
def say(ctx, level, text):
    lines.append((ctx, level, text))


def begin():
    """Before berth_init(), and the first of two."""
    is_((b.berth_rank(), b.berth_size()), (-1, -1), "numbers before berth_init()")
    is_(barrier(), B.STATE, "an operation before berth_init()")
    is_(error().result, B.STATE, "its last error")
    is_(b.berth_world(made(B.World)), B.STATE, "berth_world()")
    is_(b.berth_alloc(1, B.HOST, 0), None, "berth_alloc()")
    is_(b.berth_shutdown(), B.STATE, "berth_shutdown()")
    c = made(B.Config, log=say, log_ctx=7, timeout_ms=60000)
    c.size = 8
    is_(b.berth_init(c), B.INVALID, "a config of 8 bytes")
    c.size = ctypes.sizeof(c)
    os.environ["HOROVOD_CYCLE_TIME"] = "1"  # which the log tells
    fine(b.berth_init(c), "berth_init()")
    told = [(ctx, level) for ctx, level, text in lines if b"HOROVOD_CYCLE_TIME" in text]
    is_(told, [(7, B.LOG_INFO)], "log")
    fine(b.berth_init(None), "a second berth_init()")
    fine(b.berth_shutdown(), "its berth_shutdown()")
    fine(b.berth_elastic(1), "berth_elastic()")
    fine(b.berth_change(None), "berth_change()")


def world():
    w = made(B.World)
    fine(b.berth_world(w), "berth_world()")
    n = b.berth_size()
    is_((w.rank, w.ranks, w.local_rank, w.local_size, w.cross_rank, w.cross_size, w.changed, w.epoch),
        (b.berth_rank(), n, b.berth_rank(), n, 0, 1, 0, 2), "world")
    is_(w.rank, int(os.environ.get("RANK", 0)), "rank")
    half = made(B.World)
    half.size, half.ranks, half.local_rank = B.World.ranks.offset, 99, 99
    fine(b.berth_world(half), "a struct world of an older caller")
    is_((half.rank, half.ranks, half.local_rank), (w.rank, 99, 99), "no more than its size")
    is_(b.berth_version().decode().split(".")[:2], ["0", "2"], "version")
    is_([b.berth_result_text(i) for i in (B.MEMORY, 99)][0], b"out of memory", "text of a result")


def forked():
    """A child is no rank."""
    request = c_void_p()
    x = ints(1)
    d = desc(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1)
    fine(b.berth_submit(d, 1, byref(request)), "berth_submit()")
    child = os.fork()
    if not child:
        said = (barrier(), b.berth_wait(request, -1), b.berth_poll(request), b.berth_rank(),
                b.berth_alloc(1, B.HOST, 0))
        os._exit(said != (B.STATE, B.STATE, B.STATE, b.berth_rank(), None))
    is_(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "in a child")
    fine(b.berth_wait(request, -1), "the request of its parent")


def end():
    """Requests remain, sets end."""
    n, request, s, x = b.berth_size(), c_void_p(), all_ranks(), ints(1)
    if n == 1 or b.berth_rank():
        request = None
    else:
        d = desc(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1, name=b"alone", set=s)
        fine(b.berth_submit(d, 1, byref(request)), "berth_submit()")
    barrier()
    fine(b.berth_shutdown(), "berth_shutdown()")
    if request:
        is_(b.berth_wait(request, -1), B.ABORTED, "a request beyond berth_shutdown()")
    is_((b.berth_set_rank(s), b.berth_set_size(s), b.berth_set_member(s, 0)), (-1,) * 3, "a set beyond it")
    is_((barrier(s), b.berth_set_remove(s)), (B.STATE, B.STATE), "calls with it")
    is_((b.berth_rank(), b.berth_size()), (-1, -1), "numbers after berth_shutdown()")
    is_(b.berth_shutdown(), B.STATE, "berth_shutdown() once too often")


# ---- operations ----

def reductions():
    n, me = b.berth_size(), b.berth_rank()
    ranks = range(1, n + 1)
    product = 1
    for i in ranks:
        product *= i
    for op, want in ((B.SUM, sum(ranks)), (B.AVG, sum(ranks) // n), (B.MIN, 1), (B.MAX, n),
                     (B.PRODUCT, product)):
        is_(sum_of(me + 1, op=op), (B.OK, want), f"op {op}")
    for op, want in ((B.BAND, 4), (B.BOR, 4 + (1 << n + 3) - 8), (B.BXOR, 4 * (n & 1) + (1 << n + 3) - 8)):
        is_(sum_of(4 + (8 << me), op=op), (B.OK, want if n > 1 or op != B.BAND else 12), f"bits: op {op}")
    for t, c in ((B.F32, c_float), (B.F64, c_double)):
        x, y = (c * 3)(1, 2, 3), (c * 3)()
        fine(run(kind=B.ALLREDUCE, type=t, in_=x, out=y, count=3, name=b"x", shape=b"[3]",
                 prescale=c_double(2), postscale=c_double(0.5), memory=B.HOST, stream=B.HOST_STREAM))
        is_(list(y), [n, 2 * n, 3 * n], "scaled sum")
        fine(run(kind=B.ALLREDUCE, type=t, op=B.ADASUM, in_=x, out=y, count=3))
        is_(list(y), [1, 2, 3], "Adasum of equal arrays")
    x, y = ints(*range(n * 2)), ints(*[-1] * (n * 2))
    fine(run(kind=B.REDUCE, type=B.I32, in_=x, out=y, count=2 * n, root=n - 1))
    is_(list(y), [i * n if me == n - 1 else -1 for i in range(2 * n)], "reduce")
    fine(run(kind=B.REDUCESCATTER, type=B.I32, in_=x, out=y, count=2 * n))
    is_(list(y)[:2], [2 * me * n, (2 * me + 1) * n], "reducescatter")
    parts = counts(n + 1, *[1] * (n - 1))
    fine(run(kind=B.REDUCESCATTER, type=B.I32, in_=x, out=y, count=2 * n, in_counts=parts))
    is_(y[0], (me and me + n) * n, "reducescatter by counts")


def moves():
    n, me = b.berth_size(), b.berth_rank()
    x, y = ints(*[10 * me + i for i in range(n)]), ints(*[-1] * n)
    fine(run(kind=B.BROADCAST, type=B.I32, in_=x if me == n - 1 else None, out=y, count=n, root=n - 1))
    is_(list(y), [10 * (n - 1) + i for i in range(n)], "broadcast")
    fine(run(kind=B.ALLTOALL, type=B.I32, in_=x, out=y, count=n))
    is_(list(y), [10 * i + me for i in range(n)], "alltoall")
    fine(run(kind=B.ALLGATHER, type=B.I32, in_=ints(me), out=y, count=1))
    is_(list(y), list(range(n)), "allgather")
    y = ints(*[me if i == me else -1 for i in range(n)])
    fine(run(kind=B.ALLGATHER, type=B.I32, in_=ctypes.addressof(y) + 4 * me, out=y, count=1))
    is_(list(y), list(range(n)), "allgather in place")
    y = ints(*[-1] * (n * (n + 1) // 2))
    fine(run(kind=B.ALLGATHER, type=B.I32, in_=ints(*[me] * (me + 1)), out=y, count=me + 1,
             out_counts=counts(*range(1, n + 1))))
    is_(list(y), [i for i in range(n) for _ in range(i + 1)], "allgather with known counts")
    fine(barrier())


def own_counts():
    """Only the rank itself knows how much it gives: rank i gives i + 1."""
    n, me = b.berth_size(), b.berth_rank()
    want = [i for i in range(n) for _ in range(i + 1)]
    received, pointer, asked = counts(*[9] * n), c_void_p(), []
    fields = dict(kind=B.ALLGATHER, type=B.I32, in_=ints(*[me] * (me + 1)), count=me + 1)
    d = desc(received=received, made=pointer, **fields)
    fine(b.berth_run(d, -1, None))
    is_(list(received), list(range(1, n + 1)), "received")
    is_(list((c_int * len(want)).from_address(pointer.value)), want, "made")
    b.berth_free(pointer)

    place = (c_int * len(want))()

    @B.ALLOC_CALL
    def alloc(ctx, size):
        asked.append((ctx, size))
        return ctypes.addressof(place)

    fine(run(received=received, alloc=alloc, alloc_ctx=3, **fields))
    is_((asked, list(place)), ([(3, 4 * len(want))], want), "alloc")
    out = (c_int * len(want))(*[-1] * len(want))
    fine(run(received=received, out=out, room=len(want), out_counts=counts(*range(1, n + 1)), **fields))
    is_(list(out), want, "room")
    out = (c_int * len(want))(*[-1] * len(want))
    is_(run(received=received, out=out, room=len(want) - (me == 0), **fields), B.MISMATCH, "too little room")
    is_(set(out), {-1}, "out, as it was")
    is_(b"rank 0 gets" in error().text, True, "who has too little room")
    is_(run(received=received, out=out, room=len(want), out_counts=counts(*range(2, n + 2)), **fields),
        B.INVALID, "out_counts of this rank is not count")
    y = ints(*[-1] * n)
    fine(run(kind=B.ALLTOALL, type=B.I32, in_=ints(*[me] * n), count=n, received=received, out=y, room=n))
    is_((list(received), list(y)), ([1] * n, list(range(n))), "received of even parts")
    send = [me + to for to in range(n)]
    x, y = ints(*[me] * sum(send)), (c_int * (n * 2 * n))()
    fine(run(kind=B.ALLTOALL, type=B.I32, in_=x, count=sum(send), in_counts=counts(*send),
             received=received, out=y, room=len(y)))
    is_(list(received), [i + me for i in range(n)], "received of an alltoall")
    is_(list(y)[:sum(received)], [i for i in range(n) for _ in range(i + me)], "alltoall with counts")
    fine(run(kind=B.ALLTOALL, type=B.I32, in_=x, count=sum(send), in_counts=counts(*send),
             out_counts=counts(*send), out=y))


def unknown():
    """What this version does not know or have."""
    class Larger(B.Desc):
        _fields_ = [("later", c_int)]

    x, y = ints(1), ints(0)
    d = Larger(size=ctypes.sizeof(Larger), kind=B.ALLREDUCE, type=B.I32, count=1)
    setattr(d, "in", ctypes.addressof(x))
    d.out = ctypes.addressof(x)
    larger = ctypes.cast(byref(d), ctypes.POINTER(B.Desc))
    fine(b.berth_run(larger, -1, None), "a later struct without its new field")
    d.later = 1
    is_(b.berth_run(larger, -1, None), B.UNSUPPORTED, "a field of a later version")
    d.later, x[0], request = 0, 1, c_void_p()
    other = Larger.from_buffer_copy(d)
    other.out = ctypes.addressof(y)
    both = (Larger * 2)(d, other)
    fine(b.berth_submit(ctypes.cast(both, ctypes.POINTER(B.Desc)), 2, byref(request)), "two of them")
    fine(b.berth_wait(request, -1), "berth_wait()")
    is_((x[0], y[0]), (b.berth_size(),) * 2, "structs that are size apart")
    is_(run(kind=B.BARRIER, memory=B.CUDA), B.UNSUPPORTED, "memory of a GPU")
    is_(run(kind=B.BARRIER, stream=1), B.INVALID, "a stream")
    is_(run(kind=B.BARRIER, ready=1), B.INVALID, "an event")
    is_(run(), B.INVALID, "no kind")
    is_(run(kind=B.REDUCE, type=B.I32, in_=x, out=x, count=1, root=b.berth_size()), B.INVALID, "root")
    is_(b.berth_run(None, -1, None), B.INVALID, "no descriptor")


# ---- requests ----

def submitted(s=None, **fields):
    request = c_void_p()
    d = fields.pop("d", None) or desc(set=s, **fields)
    fine(b.berth_submit(d, 1, byref(request)), "berth_submit()")
    return request


def requests():
    n, me = b.berth_size(), b.berth_rank()
    x = [ints(i) for i in range(5)]
    one = dict(kind=B.ALLREDUCE, type=B.I32, count=1)
    d = descs(*[desc(in_=v, out=v, name=b"pair %d" % i, priority=i, **one) for i, v in enumerate(x[:2])])
    pair = c_void_p()
    fine(b.berth_submit(d, 2, byref(pair)), "two at once")
    is_(b.berth_wait_stream(pair, None, -1), B.INVALID, "berth_wait_stream()")
    while (rc := b.berth_poll(pair)) == B.BUSY:
        pass
    fine(rc, "berth_poll()")
    fine(b.berth_wait(pair, -1), "berth_wait()")
    is_([v[0] for v in x[:2]], [0, n], "sums")
    y, z = ints(1), ints(me)
    last = desc(kind=B.BROADCAST, type=B.I32, in_=z, out=z, count=1, root=n - 1)
    d = descs(desc(in_=y, out=y, **one), last)
    fine(b.berth_submit(d, 2, byref(pair)), "two kinds at once")
    fine(b.berth_wait(pair, -1), "berth_wait()")
    is_((y[0], z[0]), (n, n - 1), "a sum and a broadcast")
    two, y = (c_void_p * 2)(), [ints(me), ints(1)]
    d = descs(*[desc(in_=v, out=v, **one) for v in y])
    fine(b.berth_submit_each(d, 2, two), "two requests")
    for r in two:
        fine(b.berth_wait(r, -1), "berth_wait()")
    is_([v[0] for v in y], [n * (n - 1) // 2, n], "sums of two requests")
    # of three, and a NULL; each rank has its own order
    order = [(i + me) % 3 for i in range(3)]
    some = {i: submitted(in_=x[2 + i], out=x[2 + i], name=b"any %d" % i, **one) for i in order}
    left = (c_void_p * 4)(some[0], None, some[1], some[2])
    ended, which = [], c_size_t()
    for _ in range(3):
        fine(b.berth_wait_any(left, 4, -1, byref(which)), "berth_wait_any()")
        ended.append(which.value)
        left[which.value] = None
    is_(sorted(ended), [0, 2, 3], "which")
    is_([v[0] for v in x[2:]], [2 * n, 3 * n, 4 * n], "sums of three")
    is_(b.berth_wait_any(left, 4, -1, byref(which)), B.INVALID, "no request is left")


def callbacks():
    n, me, s = b.berth_size(), b.berth_rank(), all_ranks()
    seen, called = [], threading.Event()

    def call(ctx, result):
        seen.append((ctx, result, barrier(), error().result))
        called.set()

    done = B.DONE_CALL(call)
    x = ints(1)
    r = submitted(s, kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1)
    fine(b.berth_then(r, done, 5), "berth_then()")
    is_(b.berth_then(r, done, 6), B.STATE, "a second callback")
    fine(b.berth_wait(r, -1), "berth_wait()")
    is_(called.wait(30), True, "it is called")
    is_(seen, [(5, B.OK, B.STATE, B.STATE)], "the callback, which may not wait")
    r = submitted(s, kind=B.BARRIER)
    while b.berth_poll(r) == B.BUSY:
        pass
    fine(b.berth_then(r, done, 8), "of one that is done")
    is_(len(seen), 2, "its callback, at once")
    fine(b.berth_wait(r, -1), "it remains")
    # it ends the request itself, and gets the error
    ends, ended = [], threading.Event()

    def end_it(ctx, result):
        ends.append((result, error().result, error().tensor, b.berth_wait(mine, -1)))
        ended.set()

    end_done = B.DONE_CALL(end_it)
    y = ints(*range(3))
    mine = submitted(s, kind=B.ALLREDUCE, type=B.I32, in_=y, out=y, count=1 + me, name=b"differs")
    fine(b.berth_then(mine, end_done, None), "berth_then()")
    is_(ended.wait(30), True, "it is called")
    want = B.MISMATCH if n > 1 else B.OK
    is_(ends[0][0::3], (want, want), "a callback that ends its request")
    if n > 1:
        is_(ends[0][1:3], (B.MISMATCH, b"differs"), "the error in it")
    fine(b.berth_set_remove(s), "berth_set_remove()")


def slices():
    """Rank 0 comes early, and looks at something else meanwhile."""
    n, me, other = b.berth_size(), b.berth_rank(), all_ranks()
    x, later = ints(1), c_void_p()
    d = desc(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1)
    if me == 0:
        rc = b.berth_run(d, 5, byref(later))
        is_(rc in ((B.BUSY,) if n > 1 else (B.BUSY, B.OK)), True, "after a slice")
        barrier(other)
        if rc == B.BUSY:
            while (rc := b.berth_wait(later, 5)) == B.BUSY:
                pass
        fine(rc, "the last slice")
    else:
        barrier(other)
        fine(b.berth_run(d, -1, None), "the rank that came late")
    is_(x[0], n, "sum")
    is_(b.berth_run(d, 5, None), B.INVALID, "no LATER")
    fine(b.berth_set_remove(other), "berth_set_remove()")


def any_way(way, x, i):
    """An allreduce by WAY: in one piece, in slices of 0, 1 or 50 ms, or submitted.  What it came to."""
    d = desc(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=len(x), name=b"any%d" % i)
    later = c_void_p()
    if way == "piece":
        return b.berth_run(d, -1, None)
    if way == "submit":
        rc = b.berth_submit(d, 1, byref(later)) or B.BUSY
    else:
        rc = b.berth_run(d, way, byref(later))
    while rc == B.BUSY:
        rc = b.berth_wait(later, 50)
    return rc


def ways():
    """Each rank does each of 400 operations in a way of its own, and now and then comes late to one."""
    n, me = b.berth_size(), b.berth_rank()
    chance = random.Random(me)
    for i in range(400):
        x = ints(me + i)
        if chance.random() < 0.02:
            threading.Event().wait(0.003)  # what a rank that blocks has patience for is 1 ms
        fine(any_way(chance.choice(("piece", 0, 1, 50, "submit")), x, i), "an allreduce")
        is_(x[0], n * i + n * (n - 1) // 2, "its sum")


# ---- sets ----

def sets():
    n, me = b.berth_size(), b.berth_rank()
    first, s = ints(0), c_void_p()
    fine(b.berth_set_add(first, 1, byref(s)), "berth_set_add()")
    is_((b.berth_set_size(s), b.berth_set_member(s, 0), b.berth_set_member(s, 1), b.berth_set_rank(s)),
        (1, 0, -1, -1 if me else 0), "a set of rank 0")
    is_(barrier(s), B.INVALID if me else B.OK, "an operation in it")
    fine(b.berth_set_remove(s), "berth_set_remove()")
    is_((b.berth_set_remove(s), b.berth_set_rank(s), barrier(s)), (B.STATE, -1, B.STATE), "removed")
    back = split(None, 3, -me)
    is_([b.berth_set_member(back, i) for i in range(n)], list(range(n))[::-1], "split: the order of keys")
    none = split(back, -1 if me else 0, 0)
    is_(bool(none), me == 0, "color -1")
    is_((b.berth_set_size(None), b.berth_set_member(None, n), b.berth_set_rank(None)), (n, -1, me), "NULL")
    is_(b.berth_set_add(ints(n), 1, byref(s)), B.INVALID, "no such rank")
    is_(b.berth_set_remove(None), B.INVALID, "the set of all ranks")
    if none:
        fine(b.berth_set_remove(none), "berth_set_remove()")
    fine(b.berth_set_remove(back), "berth_set_remove()")


def aborted():
    """One rank aborts, or leaves, and the others learn it."""
    n, me, s, t = b.berth_size(), b.berth_rank(), all_ranks(), all_ranks()
    r = submitted(s, kind=B.BARRIER) if me or n == 1 else None
    if me == 0:
        if n == 1:
            fine(b.berth_wait(r, -1), "alone")
        fine(b.berth_set_abort(s, b"because of a test"), "berth_set_abort()")
    else:
        is_(b.berth_wait(r, -1), B.ABORTED, "an operation of an aborted set")
        is_(b"because of a test" in error().text, True, "why")
    barrier()
    is_(barrier(s), B.ABORTED, "one that comes later")
    fine(b.berth_set_remove(s), "berth_set_remove()")
    if me == 0:
        fine(b.berth_set_remove(t), "rank 0 leaves alone")
    else:
        is_(barrier(t), B.ABORTED, "what rank 0 does not come to")
        fine(b.berth_set_remove(t), "and so does rank 1")


def bootstraps():
    n, me, s = b.berth_size(), b.berth_rank(), c_void_p()
    meeting = Meeting(f"{DIRECTORY}/make", barrier, me, n)
    fine(b.berth_set_make(meeting.bootstrap(), byref(s)), "berth_set_make()")
    is_((b.berth_set_size(s), b.berth_set_rank(s), meeting.calls > 0), (n, me, True), "a bootstrap's set")
    is_(sum_of(2, set=s), (B.OK, 2 * n), "a sum in it")
    fine(b.berth_set_remove(s), "berth_set_remove()")

    @B.ALLGATHER_CALL
    def fails(*_):
        return 9

    wrong = made(B.Bootstrap, rank=0, ranks=1, allgather=fails)
    is_(b.berth_set_make(wrong, byref(s)) != B.OK, True, "an allgather that fails")
    is_(b"9" in error().text, True, "its text")
    wrong.rank = 1
    is_(b.berth_set_make(wrong, byref(s)), B.INVALID, "rank 1 of 1")
    meeting.close()


def init_by_bootstrap():
    """berth_init() with a bootstrap of the caller."""
    meeting = Meeting(f"{DIRECTORY}/init", barrier, b.berth_rank(), b.berth_size())
    numbers = b.berth_rank(), b.berth_size()
    fine(b.berth_shutdown(), "berth_shutdown()")
    boot = meeting.bootstrap()
    fine(b.berth_init(made(B.Config, bootstrap=boot)), "berth_init() by a bootstrap")
    is_(meeting.calls > 0, True, "the bootstrap was used")
    is_((b.berth_rank(), b.berth_size()), numbers, "numbers")
    is_(sum_of(1), (B.OK, numbers[1]), "sum")
    meeting.close()


def joining():
    n, me, s = b.berth_size(), b.berth_rank(), all_ranks()
    for given in (s, None):
        last = c_int(-1)
        for _ in range(3 if me == 0 else 0):
            rc, x = sum_of(5, set=given)
            is_(rc, B.OK, "beside ranks that join")
            is_(x % 5, 0, "a sum with zeros")
        fine(b.berth_join(given, byref(last)), "berth_join()")
        all_last = ints(*[-1] * n)
        fine(run(kind=B.ALLGATHER, type=B.I32, in_=ints(last.value), out=all_last, count=1, set=given))
        is_(set(all_last), {last.value}, "the last, on all ranks")
        is_(0 <= last.value < n, True, "a rank")
    fine(b.berth_set_remove(s), "berth_set_remove()")


# ---- memory, errors, observation ----

def memory():
    for where in (B.HOST, B.ANYWHERE):
        p = b.berth_alloc(1000, where, 0)
        is_((p is not None, p % 64, ctypes.string_at(p, 1000)), (True, 0, bytes(1000)), "berth_alloc()")
        fine(b.berth_register(p, 1000, where, 0), "berth_register()")
        fine(b.berth_deregister(p), "berth_deregister()")
        (c_int * 1).from_address(p)[0] = 1
        fine(run(kind=B.ALLREDUCE, type=B.I32, in_=p, out=p, count=1))
        is_((c_int * 1).from_address(p)[0], b.berth_size(), "a sum there")
        b.berth_free(p)
    b.berth_free(None)
    is_(b.berth_alloc(1000, B.CUDA, 0), None, "memory of a GPU")
    is_(b.berth_alloc(1000, B.HOST, 1), None, "device 1 of the host")
    is_(b.berth_register(ints(1), 4, B.CUDA, 0), B.INVALID, "berth_register() of a GPU")
    is_(b.berth_register(None, 4, B.HOST, 0), B.INVALID, "berth_register(NULL)")


def errors():
    n, me, s, x = b.berth_size(), b.berth_rank(), all_ranks(), ints(1, 2)
    is_(run(kind=B.ALLREDUCE, type=B.I32, count=1, name=b"grad"), B.INVALID, "no array")
    e = error()
    is_((e.size, e.result, e.tensor, e.nmissing), (ctypes.sizeof(B.Error), B.INVALID, b"grad", 0), "error")
    is_((b"grad" in e.text, e.text[-1:]), (True, e.text[-1:].rstrip(b".")), "one sentence, no full stop")
    if n == 1:
        return
    rc = run(kind=B.ALLREDUCE, type=B.I32, in_=x, out=x, count=1 + (me == 1), name=b"grad", set=s)
    is_(rc, B.MISMATCH, "counts that differ")
    e = error()
    is_((e.result, e.tensor, e.nmissing > 0), (B.MISMATCH, b"grad", True), "a mismatch")
    is_(e.missing[:1], [0] if me == 1 else [1], "a rank of the other side")
    rc, _ = sum_of(1, set=s, shape=b"[1]" if me else b"[1,1]")
    is_(rc, B.MISMATCH, "shapes that differ")
    is_((b'"[1]"' in error().text, b'"[1,1]"' in error().text), (True, True), "both in the text")
    is_(sum_of(1, set=s), (B.OK, n), "the set remains usable")
    if me == 0:
        is_(run(kind=B.BARRIER, set=s, timeout_ms=100), B.TIMEOUT, "nobody comes")
        is_(sorted(error().missing[:error().nmissing]), list(range(1, n)), "missing")
    barrier()
    is_(barrier(s) in (B.TIMEOUT, B.ABORTED, B.PEER_LOST), True, "the set is broken")
    fine(b.berth_set_remove(s), "berth_set_remove()")


def observation():
    m = made(B.Metrics)
    fine(b.berth_metrics(m), "berth_metrics()")
    is_((m.operations > 0, m.bytes > 0, m.errors < m.operations), (True,) * 3, "metrics")
    path = f"{DIRECTORY}/timeline"
    fine(b.berth_timeline_start(path.encode()), "berth_timeline_start()")
    is_(b.berth_timeline_start(path.encode()), B.STATE, "twice")
    fine(sum_of(1, name=b"drawn")[0])
    fine(b.berth_timeline_stop(), "berth_timeline_stop()")
    is_(b.berth_timeline_stop(), B.STATE, "twice")
    with open(f"{path}.{b.berth_rank()}" if b.berth_rank() else path) as f:
        is_("drawn" in json.dumps(json.load(f)), True, "the timeline")
    text = ctypes.create_string_buffer(4096)
    is_(b.berth_algorithms(text, 4096), len(text.value), "berth_algorithms()")
    is_(b.berth_algorithms(None, 0), len(text.value), "its length alone")
    m2 = made(B.Metrics)
    fine(b.berth_metrics(m2), "berth_metrics()")
    is_(m2.operations - m.operations, 1, "one operation more")


# ---- roots and messages ----

def rooted():
    """Gather and scatter."""
    n, me = b.berth_size(), b.berth_rank()
    for root in range(n):
        out = ints(*[me if me == i == root else -1 for i in range(n)])
        here = ctypes.addressof(out) + 4 * me if me == root else ints(me)
        fine(run(kind=B.GATHER, type=B.I32, in_=here, out=out if me == root else None, count=1, root=root))
        is_(list(out), list(range(n)) if me == root else [-1] * n, "gather in place")
        x, y = ints(*[7 * i for i in range(2 * n)]), ints(-1, -1)
        fine(run(kind=B.SCATTER, type=B.I32, in_=x if me == root else None, out=y, count=2, root=root))
        is_(list(y), [14 * me, 14 * me + 7], "scatter")
        part = ctypes.addressof(x) + 8 * me if me == root else y
        fine(run(kind=B.SCATTER, type=B.I32, in_=x if me == root else None, out=part, count=2, root=root))
        is_(list(x), [7 * i for i in range(2 * n)], "scatter in place")


def send(to, value, **fields):
    return desc(kind=B.SEND, type=B.I32, in_=ints(value), count=1, root=to, **fields)


def receive(out, sender, **fields):
    return desc(kind=B.RECV, type=B.I32, out=out, room=len(out), root=sender, **fields)


def messages():
    """Sends and receives."""
    n, me = b.berth_size(), b.berth_rank()
    # to the next, and to itself; a receive from any rank says from which
    for step, tag in ((1, 0), (1, 2**63), (0, 3)):
        y, received, sender, request = ints(-1, -1), counts(0), c_int(-1), c_void_p()
        came = receive(y, B.ANY, tag=tag, received=received, from_=sender)
        pair = descs(send((me + step) % n, 10 * me, tag=tag), came)
        fine(b.berth_submit(pair, 2, byref(request)), "berth_submit()")
        fine(b.berth_wait(request, -1), "berth_wait()")
        before = (me - step) % n
        is_((list(y), received[0], sender.value), ([10 * before, -1], 1, before), f"ring, tag {tag}")
    # of one sender with one tag in their order, those with another tag apart
    if n > 1 and me == 0:
        values = [send(1, value, tag=tag) for tag, value in ((1, 11), (2, 22), (1, 12))]
        for request in [submitted(d=d) for d in values]:
            fine(b.berth_wait(request, -1), "berth_wait()")
    elif me == 1:
        for tag, value in ((2, 22), (1, 11), (1, 12)):
            y = ints(-1)
            fine(b.berth_run(receive(y, 0, tag=tag), -1, None))
            is_(y[0], value, f"tag {tag}")
    is_(b.berth_run(receive(y, n), -1, None), B.INVALID, "no such rank")


ALWAYS = [world, reductions, moves, own_counts, unknown, requests, callbacks, slices, ways, sets,
          aborted, bootstraps, joining, memory, errors, observation, forked, rooted, messages]


def main():
    begin()
    rank = b.berth_rank()
    wanted = ALWAYS if CASES == ["all"] else [globals()[name] for name in CASES]
    for case in wanted:
        try:
            case()
            fine(barrier(), "a barrier after it")
        except AssertionError as e:
            print(f"rank {rank}: {case.__name__}: {e}", flush=True)
            os._exit(1)
        if rank == 0:
            print(f"ok {case.__name__}", flush=True)
    end()
    if rank == 0 and CASES == ["all"]:
        print("called", *sorted(b.called))


main()
