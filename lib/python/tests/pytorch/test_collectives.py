"""The collectives of berth.torch, against numpy; run by runner with any number of ranks."""
import gc
import inspect
import itertools
import operator
import os
import signal
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import berth.torch as hvd  # noqa: E402
from berth.torch import collectives  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]


@pytest.fixture(autouse=True)
def together():
    """A test begins on all ranks when it has ended on all."""
    yield
    hvd.barrier()


def of(rank, shape, dtype=torch.float32):
    """What RANK gives: small whole numbers, so that sums are exact."""
    n = int(np.prod(shape, dtype=int))
    return (torch.arange(n).reshape(shape) % 5 + rank + 1).to(dtype)


def all_of(shape, dtype=torch.float32):
    return [of(r, shape, dtype) for r in range(SIZE)]


def numpy_of(tensor):
    return tensor.to(torch.float64).numpy()


REDUCTIONS = {hvd.Sum: sum, hvd.Min: lambda a: np.minimum.reduce(a), hvd.Max: lambda a: np.maximum.reduce(a),
              hvd.Product: lambda a: np.multiply.reduce(a)}


# ---- allreduce ----

@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_allreduce_is_what_numpy_says(op, dtype):
    for shape in SHAPES:
        expected = REDUCTIONS[op]([numpy_of(t) for t in all_of(shape, dtype)])
        if dtype in INTEGERS:  # they wrap
            expected = numpy_of(torch.tensor(expected, dtype=torch.int64).to(dtype))
        given = of(RANK, shape, dtype)
        out = hvd.allreduce(given, op=op)
        assert (out.shape, out.dtype) == (given.shape, dtype)
        np.testing.assert_array_equal(numpy_of(out), expected)
        np.testing.assert_array_equal(numpy_of(given), numpy_of(of(RANK, shape, dtype)))
        assert hvd.allreduce_(given, op=op) is given
        np.testing.assert_array_equal(numpy_of(given), expected)


def test_an_average_divides_by_the_ranks():
    expected = sum(t.double() for t in all_of((3, 4))) / SIZE
    for out in (hvd.allreduce(of(RANK, (3, 4))), hvd.allreduce(of(RANK, (3, 4)), average=True),
                hvd.synchronize(hvd.allreduce_async(of(RANK, (3, 4)), op=hvd.Average))):
        torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=0)
    whole = hvd.allreduce(torch.tensor([-RANK - 1, 7]))
    assert whole.tolist() == [int(-(SIZE * (SIZE + 1) // 2) / SIZE), 7]  # toward zero


def test_bools_are_or():
    assert hvd.allreduce(torch.tensor([RANK == 0, False]), op=hvd.Sum).tolist() == [True, False]
    assert hvd.allreduce(torch.tensor([RANK == 0, True]), op=hvd.Product).tolist() == [SIZE == 1, True]
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce(torch.tensor([True]))


def test_complex_numbers_are_added():
    given = torch.tensor([complex(RANK, 1), complex(0, -RANK)])
    total = sum(range(SIZE))
    assert hvd.allreduce(given, op=hvd.Sum).tolist() == [complex(total, SIZE), complex(0, -total)]
    hvd.allreduce_(given, op=hvd.Sum)
    assert given.tolist() == [complex(total, SIZE), complex(0, -total)]
    assert hvd.allreduce(given.conj(), op=hvd.Average).tolist() == [complex(total, -SIZE), complex(0, total)]
    with pytest.raises(ValueError, match="summed and averaged"):
        hvd.allreduce(given, op=hvd.Max)


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[::2], lambda t: t[:, 1:3], lambda t: t[0]])
def test_a_tensor_may_have_any_layout(view):
    base = of(RANK, (4, 6))
    expected = sum(view(of(r, (4, 6))) for r in range(SIZE))
    assert hvd.allreduce(view(base), op=hvd.Sum).tolist() == expected.tolist()
    hvd.allreduce_(view(base), op=hvd.Sum)
    assert view(base).tolist() == expected.tolist()


def test_scales():
    out = hvd.allreduce(of(RANK, (5,)), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert out.tolist() == (2 * sum(all_of((5,)))).tolist()
    given = of(RANK, (5,), torch.int32)
    hvd.allreduce_(given, op=hvd.Sum, postscale_factor=0.5)
    assert given.tolist() == [int(x / 2) for x in sum(all_of((5,))).tolist()]
    out = hvd.reducescatter(of(RANK, (SIZE,)), op=hvd.Sum, prescale_factor=2.0)
    assert out.tolist() == [2 * sum(all_of((SIZE,)))[RANK].item()]


def test_groups_of_different_types():
    for grouped, in_place in ((hvd.grouped_allreduce, False), (hvd.grouped_allreduce_, True)):
        given = [of(RANK, (3,), torch.float64), of(RANK, (2, 2), torch.int32), of(RANK, (), torch.bfloat16)]
        out = grouped(given, op=hvd.Sum, name="mixed")
        for a, b in zip(given, out):
            assert (a is b) is in_place
            assert b.tolist() == sum(all_of(b.shape, b.dtype)).tolist()
    assert hvd.grouped_allreduce([]) == []


def test_arguments_that_are_wrong():
    for wrong in (lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum),
                  lambda: hvd.allreduce(torch.ones(1), op=17),
                  lambda: hvd.allreduce(torch.ones(2).to_sparse()),
                  lambda: hvd.allgather(torch.tensor(1)), lambda: hvd.alltoall(torch.tensor(1)),
                  lambda: hvd.reducescatter(torch.tensor(1)),
                  lambda: hvd.broadcast(torch.ones(1), SIZE),
                  lambda: hvd.alltoall(torch.ones(SIZE + 1), [1] * SIZE),
                  lambda: hvd.alltoall(torch.ones(SIZE), [1] * (SIZE + 1))):
        with pytest.raises(ValueError):
            wrong()


def test_adasum_of_equal_vectors_is_the_vector():
    if SIZE & (SIZE - 1):
        pytest.skip("the same vector on a power of two of ranks")
    out = hvd.allreduce(torch.tensor([1.0, 2.0, 3.0]), op=hvd.Adasum)
    torch.testing.assert_close(out, torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match="Adasum"):
        hvd.reducescatter(torch.ones(SIZE), op=hvd.Adasum)


def test_sparse_tensors():
    dense = torch.zeros(6, 2)
    dense[RANK % 6] = RANK + 1
    dense[5] += 1
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, SIZE)):
        out = hvd.sparse_allreduce_async(dense.to_sparse(1), name="embedding", op=op)()
        torch.testing.assert_close(out.to_dense(), hvd.allreduce(dense, op=hvd.Sum) / divisor)


# ---- moves ----

@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool, torch.complex64], ids=str)
def test_moves_of_each_type(dtype):
    given = of(RANK, (RANK + 1, 2), dtype)
    expected = torch.cat([of(r, (r + 1, 2), dtype) for r in range(SIZE)])
    assert torch.equal(hvd.allgather(given), expected)
    assert torch.equal(hvd.broadcast(given[:1], SIZE - 1), of(SIZE - 1, (SIZE, 2), dtype)[:1])
    out, received = hvd.alltoall(of(RANK, (SIZE, 3), dtype), torch.ones(SIZE, dtype=torch.int32))
    assert torch.equal(out, torch.stack([of(r, (SIZE, 3), dtype)[RANK] for r in range(SIZE)]))
    assert received.tolist() == [1] * SIZE


def uneven(r, to):
    """Rows that rank R sends to rank TO; some are none."""
    return (r * 3 + to) % 4


def sent(r):
    return torch.cat([torch.full((uneven(r, to), 2), r * 100 + to) for to in range(SIZE)])


def test_uneven_operations_in_each_order_of_waiting():
    """Two gathers and two exchanges are in flight; ranks wait for them in different orders."""
    for order in itertools.permutations(range(4)):
        handles = [hvd.allgather_async(of(RANK, (RANK, 2)), name="a"),
                   hvd.alltoall_async(sent(RANK), [uneven(RANK, to) for to in range(SIZE)], name="b"),
                   hvd.allgather_async(of(RANK, (SIZE - RANK,)), name="c"),
                   hvd.alltoall_async(sent(RANK), torch.tensor([uneven(RANK, to) for to in range(SIZE)]))]
        order = order[RANK % 4:] + order[:RANK % 4]
        out = dict((i, hvd.synchronize(handles[i])) for i in order)
        assert torch.equal(out[0], torch.cat([of(r, (r, 2)) for r in range(SIZE)]))
        assert torch.equal(out[2], torch.cat([of(r, (SIZE - r,)) for r in range(SIZE)]))
        rows = torch.cat([torch.full((uneven(r, RANK), 2), r * 100 + RANK) for r in range(SIZE)])
        for exchanged, counts in (out[1], out[3]):
            assert torch.equal(exchanged, rows)
            assert counts.tolist() == [uneven(r, RANK) for r in range(SIZE)]


def test_groups_of_gathers_and_scatters():
    out = hvd.grouped_allgather([of(RANK, (RANK,)), of(RANK, (1, 2), torch.int64)])
    assert torch.equal(out[0], torch.cat([of(r, (r,)) for r in range(SIZE)]))
    assert torch.equal(out[1], torch.cat(all_of((1, 2), torch.int64)))
    whole = sum(all_of((SIZE + 1, 2)))
    parts = hvd.grouped_reducescatter([of(RANK, (SIZE + 1, 2))] * 2, op=hvd.Sum)
    assert all(torch.equal(p, whole[:2] if RANK == 0 else whole[RANK + 1:RANK + 2]) for p in parts)


def test_broadcast_in_place():
    given = torch.full((2, 3), float(RANK)).t()
    assert hvd.broadcast_(given, 0) is given
    assert given.tolist() == [[0.0, 0.0]] * 3
    handle = hvd.broadcast_async_(given.fill_(RANK), SIZE - 1, name="last")
    assert hvd.synchronize(handle).tolist() == [[SIZE - 1.0] * 2] * 3


def test_the_memory_of_a_gather_goes_with_its_tensor():
    """100 gathers of 4 MiB from each rank: what is let go of does not stay."""
    def resident():
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    given = torch.ones(1 << 20)
    hvd.allgather(given)
    gc.collect()
    before = resident()
    for _ in range(100):
        part = hvd.allgather(given)[:1]
        assert part.item() == 1
    del part
    gc.collect()
    until = time.monotonic() + 20  # a device may lag behind
    while resident() - before >= SIZE * (50 << 20) and time.monotonic() < until:
        time.sleep(0.05)
    assert resident() - before < SIZE * (50 << 20)


# ---- gradients ----

def gradient(function, shape=(2, 3)):
    given = of(RANK, shape).requires_grad_()
    out = function(given)
    (out * (RANK + 1)).sum().backward()
    return given.grad


def test_gradients():
    total = SIZE * (SIZE + 1) / 2
    assert gradient(lambda t: hvd.allreduce(t, op=hvd.Sum)).unique().tolist() == [total]
    torch.testing.assert_close(gradient(hvd.allreduce), torch.full((2, 3), total / SIZE))
    torch.testing.assert_close(gradient(hvd.allgather), torch.full((2, 3), total / SIZE))
    torch.testing.assert_close(gradient(lambda t: hvd.grouped_allgather([t])[0]),
                               torch.full((2, 3), total / SIZE))
    torch.testing.assert_close(gradient(lambda t: hvd.broadcast(t, 0)),
                               torch.full((2, 3), total / SIZE if RANK == 0 else 0.0))
    torch.testing.assert_close(gradient(lambda t: hvd.grouped_allreduce([t], op=hvd.Sum)[0]),
                               torch.full((2, 3), total))
    rows = torch.arange(1.0, SIZE + 1).unsqueeze(1).expand(SIZE, 2)
    torch.testing.assert_close(gradient(hvd.alltoall, (SIZE, 2)), rows)
    splits = torch.ones(SIZE, dtype=torch.int32)
    torch.testing.assert_close(gradient(lambda t: hvd.alltoall(t, splits)[0], (SIZE, 2)), rows)
    torch.testing.assert_close(gradient(hvd.reducescatter, (SIZE, 2)), rows)
    torch.testing.assert_close(gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), (SIZE, 2)), rows * SIZE)
    torch.testing.assert_close(gradient(lambda t: hvd.grouped_reducescatter([t])[0], (SIZE, 2)), rows)


def test_compression():
    kinds = hvd.Compression
    for compression, exact in ((kinds.none, True), (kinds.fp16, True), (kinds.bf16, False)):
        given = torch.full((4,), 1.001953125)  # 1 + 2^-9: fp16 has it, bf16 has not
        out = hvd.allreduce(given, compression=compression, op=hvd.Max)
        assert out.dtype == torch.float32
        assert (out == given).all().item() is exact


# ---- handles, sets, joining ----

def test_handles():
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum)
    while not hvd.poll(handle):
        time.sleep(0)
    assert hvd.synchronize(handle).tolist() == [SIZE] * 3
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(123456789) is None


def test_a_name_in_flight_is_an_error():
    handle = hvd.allreduce_async(torch.ones(3), name="twice")
    with pytest.raises(ValueError, match="allreduce.twice: .* in flight already"):
        hvd.allreduce_async(torch.ones(3), name="twice")
    hvd.synchronize(handle)
    hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="twice"))


def test_names_meet_in_any_order():
    names = [f"tensor{i}" for i in range(20)]
    order = names[RANK:] + names[:RANK]
    handles = {name: hvd.allreduce_async(torch.tensor(float(name[6:])), name=name, op=hvd.Sum)
               for name in order}
    for name in reversed(names):
        assert hvd.synchronize(handles[name]).item() == SIZE * float(name[6:])


def test_many_are_begun_together():
    """As one by one: more of them than go in one call; in any order; with a scale; with one refused."""
    names = [f"one{i}" for i in range(150)]
    order = names[RANK * 7:] + names[:RANK * 7]
    for factor in (1.0, 2.0):
        tensors = {name: torch.tensor([float(name[3:])]) for name in order}
        handles = collectives.allreduce_each_async_(list(tensors.values()), order, op=hvd.Sum,
                                                    postscale_factor=factor)
        for handle, name in zip(handles, order):
            assert hvd.synchronize(handle) is tensors[name]
            assert tensors[name].item() == SIZE * factor * float(name[3:])
    held = hvd.allreduce_async(torch.ones(1), name="one3")
    with pytest.raises(ValueError, match="allreduce.one3: .* in flight already"):
        collectives.allreduce_each_async_([torch.ones(1)] * 5, names[:5])
    with pytest.raises(ValueError, match="allreduce.one9: .* in flight already"):
        collectives.allreduce_each_async_([torch.ones(1)] * 2, ["one9"] * 2)
    hvd.synchronize(held)
    with pytest.raises(ValueError):
        collectives.allreduce_each_async_([torch.ones(1), torch.ones(1, dtype=torch.complex64)], names[:2],
                                          op=hvd.Min)
    for handle in collectives.allreduce_each_async_([torch.ones(1)] * 5, names[:5]):
        assert hvd.synchronize(handle).item() == 1
    assert collectives.allreduce_each_async_([], []) == []


def test_a_process_set_of_the_even_ranks():
    if SIZE == 1:
        pytest.skip("that would be the set of all ranks")
    even = hvd.add_process_set(range(0, SIZE, 2))
    if even.included():
        assert hvd.allreduce(torch.tensor([RANK]), op=hvd.Sum, process_set=even).item() == sum(even.ranks)
        assert hvd.allgather(torch.tensor([RANK]), process_set=even).tolist() == even.ranks
        assert hvd.broadcast(torch.tensor(RANK), even.ranks[-1], process_set=even).item() == even.ranks[-1]
        hvd.barrier(process_set=even)
    else:
        with pytest.raises(ValueError):
            hvd.allreduce(torch.tensor([RANK]), process_set=even)
    hvd.remove_process_set(even)
    with pytest.raises(ValueError, match="not added"):
        hvd.allreduce(torch.ones(1), process_set=even)


def test_join_gives_zeros():
    """Rank r has r + 1 batches."""
    for batch in range(RANK + 1):
        out = hvd.allreduce(torch.ones(2), op=hvd.Sum, name=f"batch{batch}")
        assert out.tolist() == [SIZE - batch] * 2
        hvd.grouped_allreduce([torch.ones(1), torch.ones(1)], prescale_factor=2.0)
    last = hvd.join()
    assert 0 <= last < SIZE
    assert hvd.allgather_object(last) == [last] * SIZE


def test_what_cannot_go_on_beside_a_joined_rank():
    if SIZE == 1:
        pytest.skip("nobody else can join")
    if RANK == 0:
        hvd.join()
        return
    with pytest.raises(hvd.HorovodInternalError, match="rank 0 has joined: only allreduce and barrier can"):
        hvd.allgather(torch.ones(1))
    hvd.join()


# ---- errors ----

DIFFERENT = {  # on rank 0, and on the others
    "shape": (lambda: hvd.allreduce(torch.ones(2, 3), name="grad"),
              lambda: hvd.allreduce(torch.ones(3, 2), name="grad")),
    "dtype": (lambda: hvd.allreduce(torch.ones(6), name="grad"),
              lambda: hvd.allreduce(torch.ones(6).int(), name="grad")),
    "root": (lambda: hvd.broadcast_(torch.ones(6), 0, name="grad"),
             lambda: hvd.broadcast_(torch.ones(6), 1, name="grad")),
    "rows": (lambda: hvd.allgather(torch.ones(2, 3), name="grad"),
             lambda: hvd.allgather(torch.ones(2, 4), name="grad")),
    "order": (lambda: hvd.allreduce(torch.ones(6)), lambda: hvd.allgather(torch.ones(6))),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_ranks_that_differ_are_told_both_sides(what):
    if SIZE == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(hvd.HorovodInternalError, match="rank 0 .*rank") as e:
        DIFFERENT[what][RANK > 0]()
    assert what == "order" or "grad" in str(e.value)
    assert what != "shape" or ("[2, 3]" in str(e.value) and "[3, 2]" in str(e.value))
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE  # the world goes on


def interrupted(wait):
    """Rank 0 waits, is interrupted, and then the others come."""
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    if RANK:
        time.sleep(0.6)  # rank 0 is to wait by then; were it not, the test would see less, and pass
        wait()
        return
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - began < 2  # 0.3 where nothing else runs


def test_an_interrupt_ends_a_wait():
    """The operation goes on: the others are not left alone."""
    interrupted(lambda: hvd.allreduce(torch.ones(1)))
    handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum) if RANK == 0 else None
    interrupted(lambda: hvd.synchronize(handle or hvd.allreduce_async(torch.ones(1), op=hvd.Sum)))
    if RANK == 0:
        assert hvd.synchronize(handle).item() == SIZE


def test_an_interrupt_ends_a_join():
    interrupted(hvd.join)
    for thread in threading.enumerate():
        if thread.name == "berth join":
            thread.join()


# ---- begin and end ----

def test_workers_of_a_loader_may_ask_who_they_are():
    class Asks(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.tensor([hvd.rank(), hvd.size(), hvd.local_rank()])

    loader = torch.utils.data.DataLoader(Asks(), num_workers=2, multiprocessing_context="fork")
    assert {tuple(row) for batch in loader for row in batch.tolist()} == {(RANK, SIZE, hvd.local_rank())}
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE


def held():
    """Descriptors, threads and mappings of this process, without those of memory that malloc keeps."""
    with open("/proc/self/maps", encoding="ascii") as f:
        mapped = sum("memfd:" in line or "berth" in line for line in f)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mapped


def test_begin_and_end_leave_nothing():
    hvd.shutdown()
    hvd.init()
    hvd.allreduce_(torch.ones(4))
    hvd.synchronize(hvd.allreduce_async(torch.ones(4)))
    hvd.shutdown()
    gc.collect()
    before = held()
    for i in range(int(os.environ.get("CYCLES", "30"))):
        hvd.init()
        hvd.allreduce_(torch.ones(4))
        if i % 2:
            hvd.allreduce_async(torch.ones(4), name="left behind")
        else:
            hvd.synchronize(hvd.allgather_async(torch.ones(4)))
        hvd.shutdown()
    gc.collect()
    after = held()
    hvd.init()
    assert after == before


def test_before_init():
    hvd.shutdown()
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.barrier, hvd.join,
                 lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.broadcast(torch.ones(1), 0),
                 lambda: hvd.allgather_async(torch.ones(1))):
        with pytest.raises(ValueError, match=r"use hvd.init\(\)"):
            call()
    hvd.init()


SIGNATURES = """
allreduce_async(tensor, average=None, name=None, op=None, prescale_factor, postscale_factor, process_set)
allreduce(tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set)
allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
allreduce_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
grouped_allreduce(tensors, average, name, compression, op, prescale_factor, postscale_factor, process_set)
grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
grouped_allreduce_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
sparse_allreduce_async(tensor, name, op, process_set)
allgather_async(tensor, name, process_set)
allgather(tensor, name, process_set)
grouped_allgather_async(tensors, name, process_set)
grouped_allgather(tensors, name, process_set)
broadcast_async(tensor, root_rank, name, process_set)
broadcast(tensor, root_rank, name, process_set)
broadcast_async_(tensor, root_rank, name, process_set)
broadcast_(tensor, root_rank, name, process_set)
alltoall_async(tensor, splits, name, process_set)
alltoall(tensor, splits, name, process_set)
reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor)
reducescatter(tensor, name, compression, op, process_set, prescale_factor, postscale_factor)
grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
grouped_reducescatter(tensors, name, compression, op, process_set, prescale_factor, postscale_factor)
poll(handle)
synchronize(handle)
join(device)
barrier(process_set)
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model)
broadcast_object(obj, root_rank, name, process_set)
allgather_object(obj, name, process_set)
DistributedOptimizer(optimizer, named_parameters, compression, backward_passes_per_step, op, \
gradient_predivide_factor, num_groups, groups, sparse_as_dense, process_set)
SyncBatchNorm(num_features, eps, momentum, affine, track_running_stats)
init(comm, process_sets)
shutdown()
is_initialized()
size()
local_size()
cross_size()
rank()
local_rank()
cross_rank()
add_process_set(process_set)
remove_process_set(process_set)
start_timeline(file_path, mark_cycles)
stop_timeline()
is_homogeneous()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()
ProcessSet(ranks_or_comm)
elastic.run(func)
elastic.TorchState(model, optimizer)
elastic.ElasticSampler(dataset, shuffle, seed)
elastic.ElasticSampler.set_epoch(self, epoch)
elastic.ElasticSampler.record_batch(self, batch_idx, batch_size)
elastic.ElasticSampler.load_state_dict(self, state_dict)
elastic.ElasticSampler.state_dict(self)
elastic.ElasticSampler.reset(self)
"""


@pytest.mark.parametrize("line", SIGNATURES.strip().splitlines())
def test_each_name_has_the_arguments_of_horovods(line):
    name, arguments = line.rstrip(")").split("(")
    wanted = [word.split("=")[0] for word in arguments.split(", ") if word]
    assert list(inspect.signature(operator.attrgetter(name)(hvd)).parameters)[:len(wanted)] == wanted
    assert name.split(".")[0] in hvd.__all__


def test_each_name_says_what_it_is():
    public = {name: getattr(hvd, name) for name in hvd.__all__}
    assert not [name for name, value in public.items() if callable(value) and not value.__doc__]
