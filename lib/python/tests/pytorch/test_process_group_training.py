"""What PyTorch builds on a process group, over berth's: DDP, ZeRO, FSDP, DTensor, checkpoints.  Each rank of
a job runs these in one order: runner -np N python3 -m pytest lib/python/tests/test_process_group_training.py
"""
import copy
import datetime
import os
import shutil

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.distributed.checkpoint.state_dict as states  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from berth.torch_backend import register  # noqa: E402

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
STEPS, ROWS = 6, 4
pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning",
                                         "ignore::DeprecationWarning")]


@pytest.fixture(scope="module", autouse=True)
def world():
    register()
    if "MASTER_ADDR" not in os.environ:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29572", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("berth", timeout=datetime.timedelta(seconds=90))
    yield
    dist.destroy_process_group()


class Net(nn.Module):
    """The layer "unused" takes no part where a batch says so."""

    def __init__(self):
        super().__init__()
        self.first, self.unused, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x, skip=False):
        x = torch.relu(self.first(x))
        return self.last(x if skip else torch.tanh(self.unused(x)))


def net():
    torch.manual_seed(7)
    return Net().double()


def batches(steps=STEPS):
    """For all ranks: STEPS of SIZE * ROWS rows."""
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(steps, SIZE * ROWS, 8, generator=generator, dtype=torch.float64)
    return x, x.sum(2, keepdim=True).sin()


def mine(x):
    return x[RANK * ROWS:(RANK + 1) * ROWS]


def train(model, optimizer, part, skip=lambda step: False, run=None):
    """The losses of each step; PART: which rows this rank takes."""
    losses = []
    for step, (x, y) in enumerate(zip(*batches())):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss((model if run is None else run)(part(x), skip(step)), part(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def alone(skip=lambda step: False):
    """The losses of a single process with all rows, and its parameters."""
    model = net()
    return train(model, torch.optim.SGD(model.parameters(), 0.1), lambda x: x, skip), list(model.parameters())


def same_as_alone(losses, parameters, skip=lambda step: False):
    wanted, theirs = alone(skip)
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    torch.testing.assert_close(losses, wanted)
    for p, q in zip(parameters, theirs):
        torch.testing.assert_close(p.detach(), q.detach())


# ---- DDP ----

@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True},
                                     {"bucket_cap_mb": 0.0001}], ids=str)
def test_ddp(options):
    model = DistributedDataParallel(net(), **options)
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), mine)
    same_as_alone(losses, model.parameters())


def test_ddp_with_unused_parameters():
    model = DistributedDataParallel(net(), find_unused_parameters=True)
    odd = (lambda step: step % 2 == 1)
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), mine, odd)
    same_as_alone(losses, model.parameters(), odd)


def test_ddp_no_sync():
    model, whole = DistributedDataParallel(net()), net()
    (x, y), (_, z) = batches()[0][:2], batches()[1][:2]
    with model.no_sync():
        nn.functional.mse_loss(model(mine(x)), mine(z)).backward()
    own = model.module.first.weight.grad.clone()
    nn.functional.mse_loss(model(mine(y)), mine(z)).backward()
    for batch in (x, y):
        nn.functional.mse_loss(whole(batch), z).backward()
    torch.testing.assert_close(model.module.first.weight.grad, whole.first.weight.grad)
    assert SIZE == 1 or not torch.equal(own, whole.first.weight.grad)


def test_ddp_join():
    """Rank R has R + 1 batches."""
    model = DistributedDataParallel(net())
    optimizer, steps = torch.optim.SGD(model.parameters(), 0.1), 0
    with Join([model]):
        for x, y in list(zip(*batches()))[:RANK + 1]:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(mine(x)), mine(y)).backward()
            optimizer.step()
            steps += 1
    assert steps == RANK + 1
    weight = model.module.last.weight.detach()
    parts = [torch.empty_like(weight) for _ in range(SIZE)]
    dist.all_gather(parts, weight.clone())
    assert all(torch.equal(part, parts[0]) for part in parts)


def test_ddp_compression_hook():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model = DistributedDataParallel(net().float())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    x, y = (b.float() for b in batches())
    nn.functional.mse_loss(model(mine(x[0])), mine(y[0])).backward()
    whole = net().float()
    nn.functional.mse_loss(whole(x[0]), y[0]).backward()
    torch.testing.assert_close(model.module.first.weight.grad, whole.first.weight.grad, rtol=0.03, atol=0.01)


def test_buffers_and_syncbatchnorm_like_models():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)))
    for x in batches()[0]:
        model(mine(x).float()).sum().backward()
    mean = model.module[1].running_mean.clone()
    model(mine(batches()[0][0]).float())  # which brings rank 0's buffers
    dist.broadcast(mean, 0)
    parts = [None] * SIZE
    dist.all_gather_object(parts, mean)
    assert all(torch.equal(part, parts[0]) for part in parts)


# ---- shards ----

def test_zero():
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    losses = train(model, optimizer, mine)
    same_as_alone(losses, model.parameters())
    optimizer.consolidate_state_dict(to=0)
    assert RANK or optimizer.state_dict()["param_groups"]


def test_fsdp():
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), mine)
    with FullyShardedDataParallel.summon_full_params(model):
        same_as_alone(losses, model.parameters())


def test_fsdp2():
    model = net()
    for layer in (model.first, model.unused, model.last):
        fully_shard(layer)
    fully_shard(model)
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), mine)
    same_as_alone(losses, [p.full_tensor() for p in model.parameters()])


def test_fsdp2_in_mixed_precision():
    model = net().float()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (model.first, model.unused, model.last):
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in zip(*batches()):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(mine(x).float()).float(), mine(y).float()).backward()
        optimizer.step()
    _, theirs = alone()
    for p, q in zip(model.parameters(), theirs):
        assert p.dtype == torch.float32
        torch.testing.assert_close(p.full_tensor(), q.detach().float(), rtol=0.1, atol=0.05)


def test_fsdp2_clipping():
    model = net()
    fully_shard(model)
    x, y = batches()
    nn.functional.mse_loss(model(mine(x[0])), mine(y[0])).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    whole = net()
    nn.functional.mse_loss(whole(x[0]), y[0]).backward()
    torch.testing.assert_close(norm.full_tensor(), nn.utils.clip_grad_norm_(whole.parameters(), 0.01))


# ---- meshes and DTensor ----

def test_mesh():
    shape = (2, SIZE // 2) if SIZE % 2 == 0 else (1, SIZE)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("rows", "columns"))
    for name in ("rows", "columns"):
        group = mesh.get_group(name)
        assert group.name() == "berth" and group.size() == mesh[name].size()
        t = torch.ones(2)
        dist.all_reduce(t, group=group)
        assert t.tolist() == [group.size()] * 2


def test_dtensor():
    mesh = init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(3)
    a, b = torch.randn(6, 5), torch.randn(5, 7)
    da, db = distribute_tensor(a, mesh, [Shard(0)]), distribute_tensor(b, mesh, [Replicate()])
    torch.testing.assert_close((da @ db).full_tensor(), a @ b)
    rows = distribute_tensor(b, mesh, [Shard(0)])
    columns = distribute_tensor(a, mesh, [Shard(1)])
    torch.testing.assert_close((columns @ rows).redistribute(mesh, [Replicate()]).to_local(), a @ b)
    torch.testing.assert_close(da.redistribute(mesh, [Shard(1)]).full_tensor(), a)
    torch.testing.assert_close(da.sum().full_tensor(), a.sum())


# ---- torch.compile ----

@pytest.mark.parametrize("backend", ["aot_eager"])
def test_compiled_functional_collectives(backend):
    group = dist.group.WORLD

    def f(x):
        y = funcol.all_reduce(x * 2, "sum", group)
        return funcol.all_gather_tensor(y + 1, 0, group)

    x = torch.full((3,), float(RANK))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, backend=backend, fullgraph=True)(x), f(x))


def test_compiled_ddp():
    torch._dynamo.reset()
    model = DistributedDataParallel(net())
    compiled = torch.compile(model, backend="aot_eager")
    losses = train(model, torch.optim.SGD(model.parameters(), 0.1), mine, run=compiled)
    same_as_alone(losses, model.parameters())


# ---- checkpoints ----

@pytest.fixture
def folder():
    names = [f"/tmp/berth-test-{os.getpid()}"]
    dist.broadcast_object_list(names, 0)
    yield names[0]
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(names[0], ignore_errors=True)


@pytest.mark.parametrize("kind", ["save", "async_save"])
def test_distributed_checkpoint(folder, kind):
    model = net()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    x, y = batches()
    nn.functional.mse_loss(model(mine(x[0])), mine(y[0])).backward()
    optimizer.step()
    state = states.get_state_dict(model, optimizer)
    before = {"model": state[0], "optimizer": state[1], "step": 5}
    if kind == "save":
        dcp.save(before, checkpoint_id=folder)
    else:
        dcp.async_save(before, checkpoint_id=folder).result()
    wanted = [p.full_tensor().clone() for p in model.parameters()]
    other = copy.deepcopy(net())
    fully_shard(other)
    again = torch.optim.Adam(other.parameters(), 0.5)
    state = states.get_state_dict(other, again)
    after = {"model": state[0], "optimizer": state[1], "step": 0}
    dcp.load(after, checkpoint_id=folder)
    states.set_state_dict(other, again, model_state_dict=after["model"], optim_state_dict=after["optimizer"])
    assert after["step"] == 5 and again.param_groups[0]["lr"] == 0.1
    for p, q in zip(other.parameters(), wanted):
        assert torch.equal(p.full_tensor(), q)
