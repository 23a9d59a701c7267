"""DistributedOptimizer where the ranks differ: in the gradients that they have, in sparse ones, in their
steps (Adasum), in shapes.  Each rank of a job runs these in one order:
runner -np N python3 -m pytest lib/python/tests
"""
import copy

import pytest
import torch
from test_optimizer import STEPS, close, data, loss_of, make, mine, same_on_all_ranks, sgd, train
from test_optimizer import several, world  # noqa: F401  (fixtures)

import berth.torch as hvd
from berth.torch import optimizer as module
from berth.torch.optimizer import DistributedOptimizer


# ---- what a rank leaves out ----

@pytest.mark.parametrize("groups", [None, 1, 2])
def test_left_out_by_one_rank(several, groups):
    heads = torch.nn.ModuleList(torch.nn.Linear(2, 1) for _ in range(3))
    hvd_params = [p.detach().clone() for p in heads.parameters()]
    hvd.broadcast_(hvd_params[0], 0)  # the seed is the same on all ranks
    optimizer = DistributedOptimizer(torch.optim.SGD(heads.parameters(), lr=1.0), groups=groups)
    x = torch.ones(1, 2)
    for _ in range(3):
        optimizer.zero_grad()
        heads[min(hvd.rank(), 2)](x).sum().backward()
        optimizer.step()
    same_on_all_ranks(heads.parameters())
    for i, head in enumerate(heads):
        users = sum(min(r, 2) == i for r in range(hvd.size()))
        close([head.bias], [hvd_params[2 * i + 1] - 3 * users / hvd.size()], 1e-5)


def test_frozen_and_free_again():
    x, y = data()
    plain, ours = make(), make()
    plain[0].weight.requires_grad_(False)
    ours[0].weight.requires_grad_(False)
    theirs, optimizer = sgd(plain.parameters()), DistributedOptimizer(sgd(ours.parameters()), groups=2)
    train(plain, theirs, x, y, 2)
    train(ours, optimizer, mine(x), mine(y), 2)
    plain[0].weight.requires_grad_(True)
    ours[0].weight.requires_grad_(True)
    train(plain, theirs, x, y, 3)
    train(ours, optimizer, mine(x), mine(y), 3)
    close(ours.parameters(), plain.parameters())
    same_on_all_ranks(ours.parameters())


def test_a_rank_with_fewer_batches(several):
    """It joins: zeros count, and averages still divide by all ranks."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    for _ in range(1 if hvd.rank() == 0 else 3):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
    hvd.join()
    assert p.item() == pytest.approx(-1 if hvd.rank() == 0 else -1 - 2 * (hvd.size() - 1) / hvd.size())


# ---- sparse gradients ----

def embeddings():
    torch.manual_seed(5)
    return torch.nn.Embedding(10, 3, sparse=True)


def words():
    return [torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]]), torch.tensor([[1, 3, 4]]), torch.tensor([[7]])]


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_sparse(as_dense, groups, op):
    ours, plain = embeddings(), embeddings()
    theirs = torch.optim.SparseAdam(list(plain.parameters()), lr=0.1)
    optimizer = DistributedOptimizer(torch.optim.SparseAdam(list(ours.parameters()), lr=0.1),
                                     sparse_as_dense=as_dense, groups=groups, op=op)
    assert isinstance(optimizer, torch.optim.SparseAdam)
    for _ in range(STEPS):
        theirs.zero_grad()
        loss = sum(plain(words()[min(r, 2)]).square().sum() for r in range(hvd.size()))
        (loss / (hvd.size() if op == hvd.Average else 1)).backward()
        theirs.step()
        optimizer.zero_grad()
        ours(words()[min(hvd.rank(), 2)]).square().sum().backward()
        optimizer.step()
        assert ours.weight.grad.is_sparse
        if hvd.size() > 1:
            gradient = optimizer._reducer.gradients[ours.weight]
            assert optimizer._reducer.is_sent_sparse(gradient) == (0 if as_dense else 1)
    close(ours.parameters(), plain.parameters(), 1e-5)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("first", [0, 2])
def test_sparse_and_left_out(several, as_dense, first):
    """Rank 0 never comes to the embedding, and the others from step FIRST on."""
    table, other = embeddings(), torch.nn.Linear(1, 1)
    before = table.weight.detach().clone()
    params = [*other.parameters(), *table.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD(params, lr=1.0), sparse_as_dense=as_dense)
    for step in range(4):
        optimizer.zero_grad()
        loss = other(torch.ones(1, 1)).sum()
        if hvd.rank() and step >= first:
            loss = loss + table(torch.tensor([2, 2, 5])).sum()
        loss.backward()
        optimizer.step()
    same_on_all_ranks(params)
    each = (4 - first) * (hvd.size() - 1) / hvd.size()
    before[2] -= 2 * each
    before[5] -= each
    close([table.weight], [before], 1e-5)


# ---- Adasum ----

def adasum(a, b):
    return (1 - (a * b).sum() / (2 * (a * a).sum())) * a + (1 - (a * b).sum() / (2 * (b * b).sum())) * b


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bf16], ids=["none", "bf16"])
def test_adasum(compression):
    """Each rank's step, combined parameter by parameter: first the ranks past a power of two with the first
    ones, then pairs of neighbours.
    """
    before, deltas = list(make().parameters()), []
    for rank in range(hvd.size()):
        torch.manual_seed(10 + rank)
        x, y = torch.randn(4, 5).double(), torch.randn(4, 3).double()
        model = make()
        loss_of(model, x, y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        deltas.append([(a - b).detach() for a, b in zip(model.parameters(), before)])
    power = 1 << hvd.size().bit_length() - 1
    for i, more in enumerate(deltas[power:]):
        deltas[i] = list(map(adasum, deltas[i], more))
    del deltas[power:]
    while len(deltas) > 1:
        deltas = [list(map(adasum, *deltas[i:i + 2])) for i in range(0, len(deltas), 2)]
    torch.manual_seed(10 + hvd.rank())
    x, y = torch.randn(4, 5).double(), torch.randn(4, 3).double()
    model = make()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum,
                                     named_parameters=model.named_parameters(), compression=compression)
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    tolerance = 1e-9 if compression is hvd.Compression.none else 1e-2
    close(model.parameters(), [a.detach() + d for a, d in zip(before, deltas[0])], tolerance)
    same_on_all_ranks(model.parameters())


def test_adasum_of_what_one_rank_leaves_out(several):
    heads = torch.nn.ModuleList(torch.nn.Linear(2, 1) for _ in range(2))
    before = [p.detach().clone() for p in heads.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD(heads.parameters(), lr=1.0), op=hvd.Adasum)
    assert optimizer.step(lambda: 3.0) == 3.0
    heads[0 if hvd.rank() == 0 else 1](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    close([heads[0].bias, heads[1].bias], [before[1] - 1, before[3] - 1], 1e-5)  # equal steps: their average
    with pytest.raises(AssertionError, match="Adasum"):
        with optimizer.skip_synchronize():
            pass
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2


# ---- errors ----

def test_ranks_with_different_shapes(several):
    """An error on all ranks; then they go on."""
    p = torch.nn.Parameter(torch.zeros(2 + hvd.rank()))
    q = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(torch.optim.SGD([p, q], lr=1.0), named_parameters=[("p", p), ("q", q)])
    (p.sum() + q.sum()).backward()
    with pytest.raises(hvd.HorovodInternalError, match="allreduce.p"):
        optimizer.step()
    optimizer.zero_grad()
    good = DistributedOptimizer(torch.optim.SGD([q], lr=1.0), named_parameters=[("q", q)])
    del optimizer
    q.sum().backward()
    good.step()
    assert q.item() == -1


def test_adasum_with_different_shapes(several):
    """The parameters of all ranks are as before the step, and the next step works."""
    p, q = torch.nn.Parameter(torch.zeros(2 + hvd.rank())), torch.nn.Parameter(torch.zeros(1))
    named = [("q", q), ("p", p)]
    optimizer = DistributedOptimizer(torch.optim.SGD([q, p], lr=1.0), named_parameters=named, op=hvd.Adasum)
    (p.sum() + q.sum()).backward()
    with pytest.raises(hvd.HorovodInternalError, match="allreduce.p"):
        optimizer.step()
    assert not p.any() and not q.any()
    good = DistributedOptimizer(torch.optim.SGD([q], lr=1.0), named_parameters=named[:1], op=hvd.Adasum)
    good.step()
    assert q.item() == -1


def test_loading_a_state_drops_what_is_in_flight(several):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(sgd([p]))
    state = copy.deepcopy(optimizer.state_dict())
    p.sum().backward()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    p.sum().backward()
    optimizer.step()


def test_large_gradients_go_at_once(several):
    """Small ones are begun together, others when they are there."""
    large, small = (torch.nn.Parameter(torch.zeros(n)) for n in (module.BURST_BYTES // 4, 4))
    optimizer = DistributedOptimizer(torch.optim.SGD([large, small], lr=1.0))
    gradients = optimizer._reducer.gradients
    small.sum().backward()
    assert gradients[small].wait is None
    large.sum().backward()
    assert gradients[small].wait is not None and gradients[large].wait is not None
    optimizer.step()
    assert large[0].item() == small[0].item() == -1
