"""DistributedOptimizer against a single process, which has the samples of all ranks.  Each rank of a job runs
these in one order: runner -np N python3 -m pytest lib/python/tests

Models are of float64, so that curves agree to 1e-10 where the order of a sum differs.
"""
import copy
import warnings

import pytest
import torch

import berth.torch as hvd
from berth.torch.optimizer import DistributedOptimizer

SAMPLES, STEPS = 12, 4


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    torch.manual_seed(1)
    yield
    hvd.shutdown()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("one rank reduces nothing")


def make(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()


def data():
    torch.manual_seed(7)
    return torch.randn(SAMPLES, 5).double(), torch.randn(SAMPLES, 3).double()


def mine(tensor):
    return tensor.chunk(hvd.size())[hvd.rank()]


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def train(model, optimizer, x, y, steps=STEPS):
    """The losses over all ranks' samples, and the parameters."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def close(ours, theirs, tolerance=1e-10):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def same_on_all_ranks(tensors):
    for i, t in enumerate(tensors):
        of_all = hvd.allgather(t.detach().reshape(1, -1), name=f"same{i}")
        assert all(torch.equal(of_all[0], row) for row in of_all)


def compare(make_optimizer, tolerance=1e-10, scale=1.0, **arguments):
    """Train with all samples in one process, and with a share of them on each rank.  SCALE: of its loss."""
    x, y = data()
    plain, ours = make(), make()
    optimizer = make_optimizer(plain.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        (scale * loss_of(plain, x, y)).backward()
        optimizer.step()
    optimizer = DistributedOptimizer(make_optimizer(ours.parameters()),
                                     named_parameters=ours.named_parameters(), **arguments)
    train(ours, optimizer, mine(x), mine(y))
    close(ours.parameters(), plain.parameters(), tolerance)
    same_on_all_ranks(ours.parameters())


def sgd(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)


# ---- the curve of one process ----

@pytest.mark.parametrize("make_optimizer", [
    sgd, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Rprop,
    lambda p: torch.optim.Adam(p, foreach=True), lambda p: torch.optim.Adam(p, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=False),
], ids=["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Rprop", "foreach", "fused", "fused SGD", "amsgrad"])
def test_as_one_process(make_optimizer):
    compare(make_optimizer)


def test_losses_as_in_one_process():
    x, y = data()
    plain, ours = make(), make()
    theirs, _ = train(plain, sgd(plain.parameters()), x, y)
    losses, _ = train(ours, DistributedOptimizer(sgd(ours.parameters())), mine(x), mine(y))
    total = hvd.allreduce(torch.tensor(losses, dtype=torch.float64))
    torch.testing.assert_close(total, torch.tensor(theirs, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def test_sum():
    compare(sgd, op=hvd.Sum, scale=hvd.size())


@pytest.mark.parametrize("factor", [0.5, 4.0])
def test_predivide(factor):
    compare(sgd, gradient_predivide_factor=factor)
    compare(sgd, gradient_predivide_factor=factor, groups=2)
    with pytest.raises(ValueError, match="op=Average only"):
        DistributedOptimizer(sgd(make().parameters()), gradient_predivide_factor=factor, op=hvd.Sum)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max])
def test_other_ops(several, op):
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=op)
    (p * (hvd.rank() + 1.0)).sum().backward()
    optimizer.step()
    assert p.tolist() == [-1.0 if op == hvd.Min else -float(hvd.size())] * 2


@pytest.mark.parametrize("compression, tolerance", [
    (hvd.Compression.none, 1e-10), (hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)],
    ids=["none", "fp16", "bf16"])
@pytest.mark.parametrize("groups", [None, 1])
def test_compression(compression, tolerance, groups):
    compare(sgd, tolerance, compression=compression, groups=groups)


def test_compressor_of_the_callers(several):
    class Half:
        """Sends twice the gradient."""

        @staticmethod
        def compress(tensor):
            return tensor * 2, "context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "context"
            return tensor / 2

    compare(sgd, compression=Half)


def test_groups():
    compare(sgd, groups=1)
    compare(sgd, groups=2)
    compare(sgd, groups=50)
    x, y = data()
    plain, ours = make(), make()
    train(plain, sgd(plain.parameters()), x, y)
    groups = [[ours[0].weight, ours[2].weight], [ours[2].bias]]
    train(ours, DistributedOptimizer(sgd(ours.parameters()), groups=groups), mine(x), mine(y))
    close(ours.parameters(), plain.parameters())
    for wrong in (-1, [1], "x", [[ours[0].weight, ours[0].weight]], [[ours[0].bias], [ours[0].bias]]):
        with pytest.raises(ValueError, match="groups"):
            DistributedOptimizer(sgd(ours.parameters()), groups=wrong)


def test_num_groups_is_older():
    with pytest.warns(DeprecationWarning, match="use groups"):
        compare(sgd, num_groups=2)


# ---- several backward() ----

def test_backward_passes():
    x, y = data()
    plain, ours = make(), make()
    theirs = sgd(plain.parameters())
    optimizer = DistributedOptimizer(sgd(ours.parameters()), backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    for _ in range(STEPS):
        theirs.zero_grad()
        (2 * loss_of(plain, x, y)).backward()
        theirs.step()
        optimizer.zero_grad()
        for half in zip(mine(x).chunk(2), mine(y).chunk(2)):
            loss_of(ours, *half).backward()
        optimizer.step()
    close(ours.parameters(), plain.parameters())


def test_backward_passes_change():
    x, y = data()
    plain, ours = make(), make()
    theirs, optimizer = sgd(plain.parameters()), DistributedOptimizer(sgd(ours.parameters()))
    for passes in (1, 3, 2):
        optimizer.set_backward_passes_per_step(passes)
        theirs.zero_grad()
        optimizer.zero_grad()
        for _ in range(passes):
            loss_of(plain, x, y).backward()
            loss_of(ours, mine(x), mine(y)).backward()
        theirs.step()
        optimizer.step()
    close(ours.parameters(), plain.parameters())
    with pytest.raises(ValueError, match="1 or more"):
        optimizer.set_backward_passes_per_step(0)


def test_too_many_backward_passes(several):
    x, y = data()
    model = make()
    optimizer = DistributedOptimizer(sgd(model.parameters()), named_parameters=model.named_parameters())
    loss_of(model, x, y).backward()
    with pytest.raises(AssertionError, match="2.bias|2.weight"):
        loss_of(model, x, y).backward()
    optimizer.step()


def test_fewer_backward_passes_than_said():
    x, y = data()
    plain, ours = make(), make()
    train(plain, sgd(plain.parameters()), x, y)
    train(ours, DistributedOptimizer(sgd(ours.parameters()), backward_passes_per_step=3), mine(x), mine(y))
    close(ours.parameters(), plain.parameters())


def test_zero_grad_between_backward_passes(several):
    """Gradients that were not sent yet may be thrown away."""
    x, y = data()
    plain, ours = make(), make()
    train(plain, sgd(plain.parameters()), x, y, steps=1)
    optimizer = DistributedOptimizer(sgd(ours.parameters()), backward_passes_per_step=2)
    loss_of(ours, y[:, :1].expand(-1, 5), y).backward()
    train(ours, optimizer, mine(x), mine(y), steps=1)
    close(ours.parameters(), plain.parameters())


# ---- between backward() and step() ----

def test_zero_grad(several):
    x, y = data()
    model = make()
    optimizer = DistributedOptimizer(sgd(model.parameters()), groups=1)
    loss_of(model, x, y).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())
    optimizer.zero_grad(True)


def test_clipping():
    x, y = data()
    plain, ours = make(), make()
    theirs, optimizer = sgd(plain.parameters()), DistributedOptimizer(sgd(ours.parameters()))
    for _ in range(STEPS):
        theirs.zero_grad()
        loss_of(plain, x, y).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        theirs.step()
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
    close(ours.parameters(), plain.parameters())


def test_step_after_synchronize(several):
    """It warns, and does not reduce a second time."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=hvd.Sum)
    for step in (1, 2):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match=r"step\(\) called without optimizer.skip_synchronize\(\)"):
            optimizer.step()
        assert p.item() == -step * hvd.size()
    optimizer.zero_grad()
    p.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_backward_after_synchronize(several):
    """What comes later is reduced, too."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    (p * hvd.rank()).sum().backward()
    optimizer.synchronize()
    (p * hvd.rank()).sum().backward()
    optimizer.step()
    assert p.item() == pytest.approx(-(hvd.size() - 1))  # the mean of ranks, twice


def test_a_step_that_is_left_out(several):
    """As GradScaler does; then one rank has no gradients at all."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    p.sum().backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        pass
    p.grad = None
    if hvd.rank():
        p.sum().backward()
    optimizer.step()
    assert p.item() == pytest.approx(-(hvd.size() - 1) / hvd.size())


# ---- what goes with optimizers ----

def test_scheduler():
    x, y = data()
    plain, ours = make(), make()
    theirs, optimizer = sgd(plain.parameters()), DistributedOptimizer(sgd(ours.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5) for o in (theirs, optimizer)]
        for _ in range(STEPS):
            train(plain, theirs, x, y, 1)
            train(ours, optimizer, mine(x), mine(y), 1)
            for scheduler in schedulers:
                scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5 ** STEPS
    close(ours.parameters(), plain.parameters())


def test_scheduler_of_the_wrapped_optimizer():
    x, y = data()
    model = make()
    inner = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = DistributedOptimizer(inner)
    train(model, optimizer, mine(x), mine(y), 1)
    same_on_all_ranks(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it did not see the step
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("recipe", [False, True])
def test_grad_scaler(fused, recipe):
    """Infinite gradients of one rank: no rank does the step.  RECIPE: Horovod's, with synchronize()."""
    x, y = (t.float() for t in data())
    plain, ours = make().float(), make().float()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    optimizer = DistributedOptimizer(torch.optim.SGD(ours.parameters(), lr=0.1, fused=fused), op=hvd.Sum)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=100)
    for step in range(STEPS):
        bad = step == 1
        if not bad:
            train(plain, theirs, x, y, 1)
        optimizer.zero_grad()
        loss = loss_of(ours, mine(x), mine(y)) / hvd.size()
        scaler.scale(loss * float("inf") if bad and hvd.rank() == 0 else loss).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if recipe:
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(ours.parameters(), 1000.0)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
            else:
                scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (256.0 if step < 1 else 128.0)
    close(ours.parameters(), plain.parameters(), 1e-5)
    same_on_all_ranks(ours.parameters())


@pytest.mark.parametrize("make_optimizer", [
    sgd, lambda p: torch.optim.LBFGS(p, max_iter=5),
    lambda p: torch.optim.LBFGS(p, max_iter=5, line_search_fn="strong_wolfe")], ids=["SGD", "LBFGS", "wolfe"])
def test_closures(make_optimizer):
    x, y = data()
    plain, ours = make(), make()
    theirs = make_optimizer(plain.parameters())
    optimizer = DistributedOptimizer(make_optimizer(ours.parameters()))

    def closure(model, of, x, y):
        def evaluate():
            of.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        return evaluate

    for _ in range(3):
        a = theirs.step(closure(plain, theirs, x, y))
        b = optimizer.step(closure=closure(ours, optimizer, mine(x), mine(y)))
        assert a.item() == pytest.approx(b.item(), rel=1e-8)
    close(ours.parameters(), plain.parameters(), 1e-7)
    same_on_all_ranks(ours.parameters())


def test_closures_with_other_losses():
    p = torch.nn.Parameter(torch.zeros(1))
    for op, expected in ((hvd.Average, (hvd.size() - 1) / 2), (hvd.Sum, hvd.size() * (hvd.size() - 1) / 2)):
        optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=op)
        p.sum().backward()
        assert optimizer.step(lambda: float(hvd.rank())) == pytest.approx(expected)
        assert optimizer.step(lambda: None) is None


def test_gradients_in_a_bucket():
    x, y = data()
    plain, ours = make(), make()
    train(plain, sgd(plain.parameters()), x, y)
    optimizer = DistributedOptimizer(sgd(ours.parameters()))
    bucket, at = torch.zeros(sum(p.numel() for p in ours.parameters())).double(), 0
    for p in ours.parameters():
        p.grad = bucket[at:at + p.numel()].view_as(p)
        at += p.numel()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
    at = bucket.data_ptr()
    for p in ours.parameters():
        assert p.grad.data_ptr() == at
        at += p.numel() * p.element_size()
    close(ours.parameters(), plain.parameters())


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16], ids=["none", "fp16"])
def test_channels_last(compression):
    """Gradients with the strides of their parameters, in one left out by the last rank, too."""
    torch.manual_seed(3)
    convs = torch.nn.ModuleList(torch.nn.Conv2d(3, 4, 2) for _ in range(2))
    convs.to(memory_format=torch.channels_last)
    expected = copy.deepcopy(convs)
    x = torch.randn(SAMPLES, 3, 5, 5)
    optimizer = DistributedOptimizer(torch.optim.SGD(convs.parameters(), lr=0.5), compression=compression)
    loss = convs[0](mine(x)).square().mean()
    if hvd.size() == 1 or hvd.rank() < hvd.size() - 1:
        loss = loss + convs[1](mine(x)).square().mean()
    loss.backward()
    optimizer.step()
    n = SAMPLES // hvd.size()
    seen = x if hvd.size() == 1 else x[:-n]
    (expected[0](x).square().mean() + expected[1](seen).square().mean() * (len(seen) / len(x))).backward()
    torch.optim.SGD(expected.parameters(), lr=0.5).step()
    close(convs.parameters(), expected.parameters(), 1e-5 if compression is hvd.Compression.none else 2e-3)


def test_gradients_that_have_gradients():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (p ** 2 * hvd.size()).sum().backward(create_graph=True)
    optimizer.step()
    assert p.tolist() == [1.0 - 2 * hvd.size()] * 2


# ---- arguments, and the object that comes out ----

def test_names():
    model = make()
    inner = sgd(model.parameters())
    pairs = list(model.named_parameters())
    optimizer = DistributedOptimizer(inner, named_parameters=iter(pairs + [("more", torch.zeros(1))]))
    assert optimizer._parameter_names == {p: name for name, p in pairs}
    unnamed = DistributedOptimizer(sgd(model.parameters()))
    assert len(set(unnamed._parameter_names.values())) == len(pairs)
    assert optimizer.find_duplicates(["a", "b", "a"]) == {"a"}
    with pytest.raises(ValueError, match="unique"):
        DistributedOptimizer(inner, named_parameters=[("a", p) for _, p in pairs])
    with pytest.raises(ValueError, match="parameter 3 of group 0"):
        DistributedOptimizer(inner, named_parameters=pairs[:-1])
    with pytest.raises(ValueError, match="pairs"):
        DistributedOptimizer(inner, named_parameters=model.parameters())
    with pytest.raises(ValueError, match="already"):
        DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        DistributedOptimizer(inner, backward_passes_per_step=0)


def test_it_is_the_users_optimizer():
    x, y = data()
    model = make()
    inner = torch.optim.Adam(model.parameters(), lr=0.01)
    calls = []
    inner.register_step_pre_hook(lambda *_: calls.append("before"))
    train(model, inner, x, y, 1)
    calls.clear()
    optimizer = DistributedOptimizer(inner)
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    assert optimizer.state[model[0].weight]["step"] == 1 and optimizer.defaults == inner.defaults
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    train(model, optimizer, x, y, 1)
    assert calls == ["before", "after"]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, x, y, 1)
    assert calls == ["before", "after"] * 2
    assert torch.optim.Optimizer.__subclasses__().count(type(optimizer)) == 0


def test_a_group_that_is_added():
    x, y = data()
    plain, ours = make(), make()
    theirs = torch.optim.SGD(plain[0].parameters(), lr=0.1)
    optimizer = DistributedOptimizer(torch.optim.SGD(ours[0].parameters(), lr=0.1))
    theirs.add_param_group({"params": list(plain[2].parameters()), "lr": 0.5})
    optimizer.add_param_group({"params": list(ours[2].parameters()), "lr": 0.5})
    assert len(set(optimizer._parameter_names.values())) == 4
    train(plain, theirs, x, y)
    train(ours, optimizer, mine(x), mine(y))
    close(ours.parameters(), plain.parameters())


def test_hooks():
    """None where there is nothing to reduce, and none when the optimizer is gone."""
    model = make()
    optimizer = DistributedOptimizer(sgd(model.parameters()))
    assert all(bool(p._post_accumulate_grad_hooks) == (hvd.size() > 1) for p in model.parameters())
    del optimizer
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_process_set(several):
    """Its ranks reduce; for the last rank the optimizer is the plain one."""
    some = hvd.add_process_set(range(hvd.size() - 1)) if hvd.size() > 2 else hvd.add_process_set([0])
    p = torch.nn.Parameter(torch.zeros(1))
    for op in (hvd.Average, hvd.Adasum):
        p.data.zero_()
        optimizer = DistributedOptimizer(torch.optim.SGD([p], lr=1.0), process_set=some, op=op)
        optimizer.zero_grad()
        (p * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        if hvd.rank() == hvd.size() - 1:
            assert p.item() == -hvd.size()
        elif op == hvd.Average:
            assert p.item() == pytest.approx(-sum(r + 1 for r in some.ranks) / some.size())
        else:
            assert p.item() == (-1 if hvd.size() == 2 else pytest.approx(-1.5))
    hvd.remove_process_set(some)
