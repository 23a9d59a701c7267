"""init_process_group("berth"): each operation against gloo's, or numpy.  Each rank of a job runs these in one
order: runner -np N python3 -m pytest lib/python/tests/test_process_group.py
"""
import datetime
import gc
import os
import threading
import time
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402
from torch._C import _distributed_c10d as c10d  # noqa: E402
from torch.distributed.distributed_c10d import _coalescing_manager  # noqa: E402

from berth.torch_backend import register  # noqa: E402

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(scope="module", autouse=True)
def gloo():
    """The default group is berth's; this one is to compare with."""
    register()
    if "MASTER_ADDR" not in os.environ:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("berth", timeout=datetime.timedelta(seconds=60))
    yield dist.new_group(backend="gloo")
    dist.destroy_process_group()


@pytest.fixture(params=["sync", "async", "future"])
def how(request):
    """How a call is waited for."""
    def call(operation, *args, **named):
        if request.param == "sync":
            return operation(*args, **named)
        work = operation(*args, async_op=True, **named)
        if work is not None and request.param == "future":
            future = work.get_future()
            future.wait()
        return work.wait() if work is not None else None
    return call


def data(dtype, *shape, seed=0):
    """Different on each rank, and small, so that sums are exact."""
    torch.manual_seed(1000 * seed + RANK)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if dtype.is_complex:
        return torch.complex(*[torch.randint(1, 5, shape).to(torch.zeros((), dtype=dtype).real.dtype)] * 2)
    return torch.randint(1, 5, shape).to(dtype)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
          torch.int64]


# ---- reductions ----

@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX"])
def test_all_reduce(gloo, dtype, op):
    for shape in ((), (7,), (0,), (3, 5)):
        mine, other = data(dtype, *shape), data(dtype, *shape)
        dist.all_reduce(mine, getattr(dist.ReduceOp, op))
        dist.all_reduce(other, getattr(dist.ReduceOp, op), group=gloo)
        assert torch.equal(mine, other)


@pytest.mark.parametrize("op", ["BAND", "BOR", "BXOR"])
def test_all_reduce_of_bits(gloo, op):
    mine, other = data(torch.int32, 9), data(torch.int32, 9)
    dist.all_reduce(mine, getattr(dist.ReduceOp, op))
    dist.all_reduce(other, getattr(dist.ReduceOp, op), group=gloo)
    assert torch.equal(mine, other)


def test_all_reduce_in_each_way_of_waiting(how):
    t = torch.full((1000,), RANK + 1.0)
    how(dist.all_reduce, t)
    assert torch.equal(t, torch.full((1000,), SIZE * (SIZE + 1) / 2))


def test_averages_and_prescaled_sums(how):
    t = torch.full((5,), float(RANK))
    how(dist.all_reduce, t, dist.ReduceOp.AVG)
    assert torch.equal(t, torch.full((5,), (SIZE - 1) / 2))
    for factor in (0.5, torch.tensor([0.5])):
        t = torch.full((5,), float(RANK))
        how(dist.all_reduce, t, dist._make_nccl_premul_sum(factor))
        assert torch.equal(t, torch.full((5,), (SIZE - 1) * SIZE / 4))
    t, into = torch.arange(SIZE * 3.0), torch.empty(3)
    how(dist.reduce_scatter_single, into, t, dist._make_nccl_premul_sum(2.0))
    assert torch.equal(into, torch.arange(RANK * 3.0, RANK * 3.0 + 3) * 2 * SIZE)


def test_bool_and_complex(gloo, how):
    t = torch.tensor([RANK == 0, False, True])
    how(dist.all_reduce, t)
    assert t.tolist() == [True, False, True]
    for dtype in (torch.complex64, torch.complex128):
        t = data(dtype, 6)
        parts = [torch.empty_like(t) for _ in range(SIZE)]
        how(dist.all_gather, parts, t)
        how(dist.all_reduce, t)
        assert torch.equal(t, sum(parts))
        conj = parts[0].conj()
        dist.group.WORLD.broadcast([conj], 0).wait()  # dist.broadcast() refuses it
        assert torch.equal(conj, parts[0].conj())
        assert torch.equal(funcol.all_reduce(parts[RANK], "sum", dist.group.WORLD).wait(), sum(parts))
    with pytest.raises(ValueError, match="only sums"):
        dist.group.WORLD.allreduce([torch.zeros(2, dtype=torch.complex64)], dist.ReduceOp.MAX)


def test_tensors_that_are_not_contiguous(how):
    whole = torch.arange(24.0).reshape(4, 6)
    part = whole[:, ::2]
    how(dist.all_reduce, part)
    assert torch.equal(whole[:, ::2], torch.arange(24.0).reshape(4, 6)[:, ::2] * SIZE)
    assert torch.equal(whole[:, 1::2], torch.arange(24.0).reshape(4, 6)[:, 1::2])
    into = torch.zeros(SIZE * 3, 4).t()
    how(dist.all_gather_single, into, torch.full((4, 3), float(RANK)).t())
    assert torch.equal(into.contiguous().view(SIZE, 12), torch.arange(SIZE)[:, None].expand(SIZE, 12).float())


def test_reduce(how):
    for root in range(SIZE):
        t = torch.full((4,), RANK + 1.0)
        how(dist.reduce, t, root)
        assert t.tolist() == [SIZE * (SIZE + 1) / 2 if RANK == root else RANK + 1.0] * 4


def test_reduce_scatter(gloo, how):
    whole = data(torch.float32, SIZE * 4)
    out, other = torch.empty(4), torch.empty(4)
    how(dist.reduce_scatter_single, out, whole)
    dist.reduce_scatter_single(other, whole.clone(), group=gloo)
    assert torch.equal(out, other)
    how(dist.reduce_scatter, out, [t.clone() for t in whole.chunk(SIZE)])
    assert torch.equal(out, other)
    how(dist.reduce_scatter_single, whole.chunk(SIZE)[RANK], whole)  # in place
    assert torch.equal(whole.chunk(SIZE)[RANK], other)


def test_uneven_reduce_scatter(how):
    lists = [torch.full((r + 1,), float(RANK + r)) for r in range(SIZE)]
    out = torch.empty(RANK + 1)
    how(dist.reduce_scatter, out, lists)
    assert out.tolist() == [sum(q + RANK for q in range(SIZE))] * (RANK + 1)


# ---- moves ----

@pytest.mark.parametrize("dtype", DTYPES + [torch.bool, torch.complex64, torch.complex32, torch.float8_e4m3fn,
                                            torch.float8_e4m3fnuz, torch.uint16], ids=str)
def test_moves_of_each_type(dtype, how):
    def of(rank):
        return torch.arange(rank, rank + 6).view(2, 3).to(torch.float32).to(dtype)

    def same(a, b):
        return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))

    t = of(RANK)
    how(dist.broadcast, t, SIZE - 1)
    assert same(t, of(SIZE - 1))
    outs = [torch.zeros(2, 3).to(dtype) for _ in range(SIZE)]
    how(dist.all_gather, outs, of(RANK))
    assert all(same(out, of(r)) for r, out in enumerate(outs))


def test_all_gather(how):
    whole = torch.empty(SIZE * 3)
    how(dist.all_gather_single, whole, torch.full((3,), float(RANK)))
    assert whole.view(SIZE, 3).tolist() == [[float(r)] * 3 for r in range(SIZE)]
    whole = torch.full((SIZE, 3), -1.0)
    whole[RANK] = RANK
    how(dist.all_gather_single, whole, whole[RANK])  # in place
    assert whole.tolist() == [[float(r)] * 3 for r in range(SIZE)]
    side_by_side = torch.empty(SIZE, 3)
    how(dist.all_gather, list(side_by_side), torch.full((3,), float(RANK)))
    assert side_by_side.tolist() == [[float(r)] * 3 for r in range(SIZE)]


def test_uneven_all_gather(how):
    outs = [torch.empty(r, 2) for r in range(SIZE)]
    how(dist.all_gather, outs, torch.full((RANK, 2), float(RANK)))
    assert [out.tolist() for out in outs] == [[[float(r)] * 2] * r for r in range(SIZE)]


def test_all_gather_coalesced():
    outs = [[torch.empty(2), torch.empty(3)] for _ in range(SIZE)]
    dist.all_gather_coalesced(outs, [torch.full((2,), float(RANK)), torch.full((3,), RANK + 10.0)])
    wanted = [[[float(r)] * 2, [r + 10.0] * 3] for r in range(SIZE)]
    assert [[t.tolist() for t in of] for of in outs] == wanted


def test_gather_and_scatter(how):
    for root in range(SIZE):
        outs = [torch.empty(2) for _ in range(SIZE)] if RANK == root else None
        how(dist.gather, torch.full((2,), float(RANK)), outs, dst=root)
        if RANK == root:
            assert [t.tolist() for t in outs] == [[float(r)] * 2 for r in range(SIZE)]
        out = torch.empty(2)
        how(dist.scatter, out, outs, src=root)
        assert out.tolist() == [float(RANK)] * 2


def test_all_to_all(how):
    out, given = torch.empty(SIZE * 2), torch.arange(SIZE * 2.0) + 100 * RANK
    how(dist.all_to_all_single, out, given)
    wanted = [[100 * r + 2.0 * RANK, 100 * r + 2.0 * RANK + 1] for r in range(SIZE)]
    assert out.view(SIZE, 2).tolist() == wanted
    go, come = [RANK + r for r in range(SIZE)], [r + RANK for r in range(SIZE)]
    out = torch.empty(sum(come), 3)
    how(dist.all_to_all_single, out, torch.full((sum(go), 3), float(RANK)), come, go)
    assert out[:, 0].tolist() == [float(r) for r in range(SIZE) for _ in range(r + RANK)]
    outs = [torch.empty(r + RANK) for r in range(SIZE)]
    how(dist.all_to_all, outs, [torch.full((RANK + r,), float(RANK)) for r in range(SIZE)])
    assert [t.tolist() for t in outs] == [[float(r)] * (r + RANK) for r in range(SIZE)]
    even = [2] * SIZE if RANK == 0 else None  # as lists on one rank only
    out = torch.empty(SIZE * 2)
    how(dist.all_to_all_single, out, given, even, even)
    assert out[::2].tolist() == [100 * r + 2.0 * RANK for r in range(SIZE)]


def test_barrier(how):
    how(dist.barrier)
    dist.barrier(device_ids=[0])


def test_objects():
    everyone = [None] * SIZE
    dist.all_gather_object(everyone, {"rank": RANK, "x": "x" * RANK * 1000})
    assert [e["rank"] for e in everyone] == list(range(SIZE))
    lot = [RANK, "a"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(lot, 0)
    assert lot == [0, "a"]
    got = [None] * SIZE if RANK == 0 else None
    dist.gather_object(("r", RANK), got, 0)
    assert RANK or got == [("r", r) for r in range(SIZE)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(SIZE)] if RANK == 0 else None, 0)
    assert mine == [f"for {RANK}"]
    if SIZE > 1:
        if RANK == 0:
            dist.send_object_list(["hello", 5], 1)
        elif RANK == 1:
            lot = [None, None]
            dist.recv_object_list(lot, 0)
            assert lot == ["hello", 5]


# ---- messages ----

def test_messages_of_a_ring():
    to, of = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    if SIZE == 1:
        pytest.skip("torch sends no message to the rank itself")
    for n in (1, 100, 300000):
        got = torch.empty(n)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((n,), float(RANK)), to),
                                        dist.P2POp(dist.irecv, got, of)])
        for work in works:
            work.wait()
        assert torch.equal(got, torch.full((n,), float(of)))


def test_messages_with_tags_and_from_any():
    if SIZE == 1:
        pytest.skip("torch sends no message to the rank itself")
    if RANK == 0:
        seen = {}
        for _ in range(1, SIZE):
            t = torch.empty(2, dtype=torch.int64)
            source = dist.recv(t, tag=7)
            seen[source] = t.tolist()
        assert seen == {r: [r, r] for r in range(1, SIZE)}
        for r in range(1, SIZE):
            second, first = torch.empty(3, 2).t(), torch.empty(1)
            b, a = dist.irecv(second, r, tag=2), dist.irecv(first, r, tag=1)
            assert b.wait() and a.wait() and second.unique().tolist() == [2] and first.item() == 1
    else:
        dist.send(torch.tensor([RANK, RANK]), 0, tag=7)
        dist.send(torch.tensor([1.0]), 0, tag=1)
        dist.isend(torch.full((2, 3), 2.0), 0, tag=2).wait()


# ---- several at once ----

def test_coalescing():
    ts = [torch.full((n,), float(RANK)) for n in (1, 10, 1000)]
    with _coalescing_manager():
        for t in ts:
            dist.all_reduce(t)
    assert [t[0].item() for t in ts] == [SIZE * (SIZE - 1) / 2] * 3
    outs = [torch.empty(SIZE * n) for n in (1, 10)]
    with _coalescing_manager(async_ops=True) as manager:
        for n, out in zip((1, 10), outs):
            dist.all_gather_single(out, torch.full((n,), float(RANK)))
    manager.wait()
    assert [out.view(SIZE, -1)[:, 0].tolist() for out in outs] == [list(map(float, range(SIZE)))] * 2
    outs = [torch.empty(n) for n in (1, 10)]
    with _coalescing_manager():
        for n, out in zip((1, 10), outs):
            dist.reduce_scatter_single(out, torch.arange(float(SIZE)).repeat_interleave(n))
    assert [out[0].item() for out in outs] == [RANK * SIZE] * 2
    dist.all_reduce_coalesced(ts)
    assert ts[2][5].item() == SIZE * SIZE * (SIZE - 1) / 2


def test_coalescing_of_different_operations():
    t, into, got = torch.ones(3), torch.empty(SIZE), torch.empty(2)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        group = dist.group.WORLD
        group.allreduce([t])
        group.all_gather_single(into, torch.tensor([float(RANK)]))
        if SIZE > 1:
            group.send([torch.full((2,), float(RANK))], (RANK + 1) % SIZE, 0)
            group.recv([got], (RANK - 1) % SIZE, 0)
    manager.wait()
    assert t.tolist() == [SIZE] * 3 and into.tolist() == list(range(SIZE))
    assert SIZE == 1 or got.tolist() == [(RANK - 1) % SIZE] * 2


def test_many_in_flight():
    ts = [torch.full((100,), float(i)) for i in range(64)]
    works = [dist.all_reduce(t, async_op=True) for t in ts]
    futures = [work.get_future() for work in works[::2]]
    for work in reversed(works):
        work.wait()
    assert all(future.wait() for future in futures)
    assert [t[0].item() for t in ts] == [i * SIZE for i in range(64)]


def test_older_and_direct_names():
    group, t = dist.group.WORLD, torch.ones(2)
    for work in (group.allreduce(t), group.allreduce([t], dist.ReduceOp.SUM),
                 group.allreduce(t, op=dist.ReduceOp.SUM), group.broadcast(t, 0), group.broadcast(t, root=0),
                 group.reduce(t, 0), group.barrier(),
                 group.barrier(timeout=datetime.timedelta(seconds=20))):
        assert work.wait(datetime.timedelta(seconds=20))
    out = torch.empty(2 * SIZE)
    group._allgather_base(out, t, c10d.AllgatherOptions()).wait()
    group.allgather_into_tensor_coalesced([out], [t]).wait()
    group._reduce_scatter_base(t, out).wait()
    group.reduce_scatter_tensor_coalesced([t], [out]).wait()
    group.alltoall_base(out.clone(), out, [], []).wait()
    group.allgather([torch.empty(2) for _ in range(SIZE)], t).wait()


# ---- groups ----

def test_names():
    group = dist.group.WORLD
    assert dist.get_backend() == "berth" and group.name() == group._get_backend_name() == "berth"
    assert (group.rank(), group.size()) == (RANK, SIZE) and group.group_name
    assert group._device_types == [torch.device("cpu")]
    named = dist.new_group(group_desc="of a test")
    assert named.group_desc == "of a test" and named.group_name != group.group_name
    dist.destroy_process_group(named)


def test_groups_of_some_ranks():
    every_second = list(range(0, SIZE, 2))
    group = dist.new_group(every_second, backend="berth")
    if RANK in every_second:
        t = torch.ones(3)
        dist.all_reduce(t, group=group)
        assert t.tolist() == [len(every_second)] * 3
        dist.broadcast(t, every_second[-1], group=group)
    mine, groups = dist.new_subgroups(1, backend="berth")
    t = torch.full((2,), float(RANK))
    dist.all_reduce(t, group=mine)
    assert t.tolist() == [RANK] * 2 and len(groups) == SIZE
    back = dist.new_group(list(range(SIZE - 1, -1, -1)), backend="berth")
    parts = [torch.empty(1) for _ in range(SIZE)]
    dist.all_gather(parts, torch.tensor([float(RANK)]), group=back)
    assert [t.item() for t in parts] == [float(dist.get_global_rank(back, r)) for r in range(SIZE)]
    local = dist.new_group([RANK], use_local_synchronization=True, backend="berth")
    dist.barrier(local)


def test_split():
    half = [r for r in range(SIZE) if r % 2 == RANK % 2]
    part = dist.group.WORLD.split_group(half, group_name=f"half{RANK % 2}")
    assert (part.rank(), part.size(), part.group_name) == (half.index(RANK), len(half), f"half{RANK % 2}")
    t = torch.ones(2)
    part.allreduce([t]).wait()
    assert t.tolist() == [len(half)] * 2
    assert (dist.group.WORLD.split_group([0]) is None) == (RANK != 0)


def test_groups_do_not_mix():
    """The same operations in two groups, in another order on each rank."""
    groups = [dist.new_group(backend="berth") for _ in range(2)]
    ts = [torch.full((2000,), float(i)) for i in range(2)]
    order = (0, 1) if RANK % 2 else (1, 0)
    works = {i: dist.all_reduce(ts[i], group=groups[i], async_op=True) for i in order}
    for i in (1, 0):
        works[i].wait()
    assert [t[0].item() for t in ts] == [0.0, SIZE]


# ---- Works and Futures ----

def test_a_future_does_not_wait():
    """Rank 0 comes late, once the others have seen that theirs runs."""
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    store, t, late = dist.group.WORLD.get_group_store(), torch.ones(3), torch.ones(3)
    if RANK == 0:
        for r in range(1, SIZE):
            store.wait([f"seen{r}"])
        dist.all_reduce(t)
        return
    work = dist.all_reduce(t, async_op=True)
    future = work.get_future()
    done = threading.Event()
    future.then(lambda f: done.set())
    assert not future.done() and not work.is_completed()
    others = dist.all_reduce(late, group=_own(), async_op=True).get_future()  # of another group: done before
    assert others.wait()[0].tolist() == [1.0] * 3 and not future.done()
    with pytest.raises(dist.DistBackendError, match="not done"):
        work.wait(datetime.timedelta(seconds=0.05))
    store.set(f"seen{RANK}", "1")
    assert work.wait() and future.wait()[0] is t and done.wait(10)
    assert work.is_completed() and work.is_success() and work.exception() is None and work.result()[0] is t


def _own():
    return dist.new_group([RANK], use_local_synchronization=True, backend="berth")


def test_polling():
    t = torch.ones(3)
    work = dist.all_reduce(t, async_op=True)
    until = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < until
        time.sleep(0)
    assert t.tolist() == [SIZE] * 3


def test_a_work_that_nobody_waits_for():
    for _ in range(100):
        dist.all_reduce(torch.ones(1000), async_op=True)
    dist.barrier()


def test_nothing_remains_of_works_and_futures():
    def used():
        gc.collect()
        kinds = (c10d.Work, torch.Tensor, torch._C.Future)
        return sum(isinstance(thing, kinds) for thing in gc.get_objects())

    def use():
        t = torch.ones(3)
        for wait in (lambda work: work.wait(), lambda work: work.get_future().wait(),
                     lambda work: work.get_future()):
            wait(dist.all_reduce(t, async_op=True))
        dist.barrier()

    use()
    kept = weakref.ref(dist.all_reduce(torch.ones(3), async_op=True))
    for _ in range(50):
        use()
    before = used()
    for _ in range(50):
        use()
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()  # the thread has done what was before
    assert used() <= before + 3 and kept() is None


def test_nothing_goes_through_gloo():
    assert not isinstance(dist.group.WORLD, dist.ProcessGroupGloo)
    with pytest.raises(RuntimeError):
        dist.ProcessGroup._get_backend(dist.group.WORLD, torch.device("cpu"))


def test_functional_collectives():
    group, t = dist.group.WORLD, torch.full((SIZE, 2), float(RANK))
    total = SIZE * (SIZE - 1) / 2
    assert funcol.all_reduce(t, "sum", group).tolist() == [[total] * 2] * SIZE
    assert funcol.all_gather_tensor(t[:1], 0, group)[:, 0].tolist() == list(range(SIZE))
    assert funcol.reduce_scatter_tensor(t, "avg", 0, group).tolist() == [[total / SIZE] * 2]
    assert funcol.all_to_all_single(t, None, None, group)[:, 0].tolist() == list(range(SIZE))
    assert funcol.broadcast(t, 0, group).tolist() == [[0.0] * 2] * SIZE
    outs = funcol.all_reduce_coalesced([t[0], t[0]], "max", group)
    assert [x.tolist() for x in outs] == [[SIZE - 1.0] * 2] * 2
    outs = funcol.all_gather_into_tensor_coalesced([t[0], t[0]], group)
    assert all(x.view(SIZE, 2)[:, 0].tolist() == list(range(SIZE)) for x in outs)
    outs = funcol.reduce_scatter_tensor_coalesced([t, t], "sum", [0, 0], group)
    assert [x.tolist() for x in outs] == [[[total] * 2]] * 2
