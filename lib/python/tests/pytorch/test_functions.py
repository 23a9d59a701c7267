"""What all ranks begin with, and compression.  Each rank of a job runs these in one order:
runner -np N python3 -m pytest lib/python/tests
"""
import copy
import warnings

import pytest
import torch

import berth.torch as hvd
from berth.torch.compression import Compression, Compressor
from berth.torch.functions import broadcast_optimizer_state, broadcast_parameters
from berth.torch.optimizer import DistributedOptimizer


@pytest.fixture(autouse=True)
def world():
    hvd.init()
    torch.manual_seed(hvd.rank())
    yield
    hvd.shutdown()


def make():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 2), torch.nn.BatchNorm2d(2), torch.nn.Flatten(),
                               torch.nn.Linear(8, 3))


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 1, 3, 3)).square().sum().backward()
        optimizer.step()


def of_rank(thing, root):
    """A copy of what ROOT has."""
    return hvd.allgather_object(copy.deepcopy(thing))[root]


def equal(a, b):
    """Also of types and of what is nested."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


# ---- broadcast_parameters ----

@pytest.mark.parametrize("form", ["state_dict", "pairs", "iterator", "tensors"])
def test_parameters(form):
    for root in range(hvd.size()):
        model = make()
        model[1].num_batches_tracked.fill_(hvd.rank() + 5)
        expected = of_rank(model.state_dict(), root)
        broadcast_parameters({"state_dict": model.state_dict(), "pairs": list(model.named_parameters()),
                              "iterator": iter(model.state_dict().items()),
                              "tensors": list(model.state_dict().values())}[form], root_rank=root)
        ours = model.state_dict()
        if form == "pairs":  # no buffers
            names = dict(model.named_parameters())
            expected, ours = ({k: v for k, v in d.items() if k in names} for d in (expected, ours))
        assert equal(ours, expected)


def test_parameters_of_any_kind():
    model = torch.nn.ParameterDict({
        "last": torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "small": torch.randn(3).bfloat16(), "turned": torch.randn(3, 2).t(), "scalar": torch.randn(()),
        "none": torch.randn(0, 2), "wide": torch.randn(2).double()})
    expected = of_rank(dict(model.state_dict()), 0)
    broadcast_parameters(model.state_dict(), root_rank=0)
    assert equal(dict(model.state_dict()), expected)
    broadcast_parameters({"flag": torch.tensor([True]), "nothing": None}, root_rank=0)
    broadcast_parameters({}, root_rank=0)


def test_parameters_of_different_shapes():
    """An error on all ranks; then they go on."""
    if hvd.size() == 1:
        pytest.skip("one rank has one shape")
    for shapes in ([2 + hvd.rank(), 1, 1], [1, 1, 1]):
        params = {name: torch.full((n,), float(hvd.rank())) for name, n in zip("abc", shapes)}
        if shapes[0] > 1:
            with pytest.raises(hvd.HorovodInternalError, match="broadcast.a"):
                broadcast_parameters(params, root_rank=0)
        else:
            broadcast_parameters(params, root_rank=0)
            assert not any(p.any() for p in params.values())


def test_what_is_no_parameter():
    for wrong in (3, "x", torch.zeros(2)):
        with pytest.raises(ValueError, match="invalid params"):
            broadcast_parameters(wrong, root_rank=0)
    with pytest.raises(ValueError, match="broadcast_object"):
        broadcast_parameters({"a": torch.zeros(1), "extra": {"b": 1}}, root_rank=0)


# ---- broadcast_optimizer_state ----

OPTIMIZERS = [
    lambda p, lr: torch.optim.SGD(p, lr=lr),
    lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
    lambda p, lr: torch.optim.Adam(p, lr=lr, betas=(0.8, 0.9), amsgrad=True),
    lambda p, lr: torch.optim.AdamW(p, lr=torch.tensor(lr), foreach=False),
    lambda p, lr: torch.optim.RMSprop(p, lr=lr, centered=True), lambda p, lr: torch.optim.Adagrad(p, lr=lr),
    lambda p, lr: torch.optim.Rprop(p, lr=lr, etas=(0.4, 1.3)), lambda p, lr: torch.optim.NAdam(p, lr=lr),
]
IDS = ["SGD", "momentum", "Adam", "AdamW", "RMSprop", "Adagrad", "Rprop", "NAdam"]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS, ids=IDS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_resuming(make_optimizer, wrapped):
    """One rank has a state; the others have none, or another."""
    for root in {0, hvd.size() - 1}:
        for others_too in (False, True):
            model = make()
            optimizer = make_optimizer(model.parameters(), 0.01 * (1 + hvd.rank()))
            if others_too or hvd.rank() == root:
                train(model, optimizer, 1 + hvd.rank())
            if wrapped:
                optimizer = DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            expected = of_rank(optimizer.state_dict(), root)
            broadcast_parameters(model.state_dict(), root_rank=root)
            broadcast_optimizer_state(optimizer, root_rank=root, model=model if others_too else None)
            assert equal(optimizer.state_dict(), expected)
            if wrapped:
                torch.manual_seed(4)  # the ranks have the same samples
                train(model, optimizer)
                assert equal(optimizer.state_dict(), of_rank(optimizer.state_dict(), 0))


def test_options():
    """Of several groups, and of any kind."""
    def options(n):
        return {"lr": 0.1 * n, "betas": (0.1 * n, 0.5), "amsgrad": n == 1,
                "foreach": None if n == 1 else False, "name": f"of {n}",
                "list": [n, None, {"deep": torch.tensor(float(n))}]}

    n = 1 + hvd.rank()
    model = make()
    optimizer = torch.optim.Adam([{"params": list(model[0].parameters()), **options(n)},
                                  {"params": list(model[3].parameters()), **options(2 * n)}])
    broadcast_optimizer_state(optimizer, root_rank=0)
    for i, group in enumerate(optimizer.param_groups):
        assert equal({k: group[k] for k in options(1)}, options(i + 1))
        assert group["params"] == list((model[0], model[3])[i].parameters())


def test_state_of_any_kind():
    """Tensors keep their types: those of load_state_dict() would get the parameter's."""
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([p], lr=0.1)
    wanted = {"sum": torch.ones(2), "count": torch.tensor(3), "none": None, "text": "x",
              "list": [torch.ones(1).half(), {"a": (torch.zeros(3), 4)}]}
    if hvd.rank() == 0:
        optimizer.state[p] = copy.deepcopy(wanted)
        optimizer.state["of all"] = {"step": 7}
    broadcast_optimizer_state(optimizer, root_rank=0)
    assert equal(optimizer.state[p], wanted) and optimizer.state["of all"] == {"step": 7}


def test_gradients_of_zeros():
    model = make()
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    broadcast_optimizer_state(optimizer, root_rank=0)
    assert model[0].bias.grad is None and not model[0].weight.grad.any()
    assert not optimizer.state_dict()["state"]


def test_optimizers_that_cannot():
    with pytest.raises(ValueError, match="LBFGS"):
        broadcast_optimizer_state(torch.optim.LBFGS(make().parameters()), root_rank=0)
    if hvd.size() > 1:
        params = list(make().parameters())
        optimizer = torch.optim.SGD(params if hvd.rank() == 0 else params[:-1], lr=0.1)
        optimizer.state[params[0]] = {"a": torch.zeros(1)}
        with pytest.raises(ValueError, match="different parameters"):
            broadcast_optimizer_state(optimizer, root_rank=0)


# ---- compression ----

@pytest.mark.parametrize("of, small", [("fp16", torch.float16), ("bf16", torch.bfloat16), ("none", None)])
def test_compression(of, small):
    compression = getattr(Compression, of)
    assert issubclass(compression, Compressor)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8,
                  torch.bool):
        tensor = torch.ones(5, 2, dtype=dtype)
        sent, context = compression.compress(tensor)
        assert sent.dtype == (small if small and dtype in (torch.float32, torch.float64) else dtype)
        assert equal(compression.decompress(sent, context), tensor)


@pytest.mark.parametrize("of", ["fp16", "bf16"])
def test_compressed_allreduce(of):
    tensor = torch.full((3,), float(hvd.rank()))
    out = hvd.allreduce(tensor, op=hvd.Sum, compression=getattr(Compression, of))
    assert equal(out, torch.full((3,), hvd.size() * (hvd.size() - 1) / 2))


def test_no_warnings():
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    train(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        broadcast_optimizer_state(optimizer, root_rank=0)
        broadcast_parameters(model.state_dict(), root_rank=0)
