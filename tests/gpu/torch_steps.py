"""torch_steps.py: berth.torch and the backend "berth" on tensors of a GPU, by a launcher's ranks.  All of it
is compared with plain torch.  With STANDIN_TENSORS=1 in the environment CPU tensors stand for the GPU's.

Rank 0 prints what it found, in a line.
"""
from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# Ranks that share a GPU are joined by NCCL if it takes them for those of several hosts.
if os.environ.get("WORLD_SIZE", "1") != "1":
    os.environ.setdefault("NCCL_HOSTID", "rank" + os.environ["RANK"])
    os.environ.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_MNNVL_ENABLE="0")

import torch
import torch.distributed as dist
from torch import nn

import berth.torch as hvd

STANDIN = bool(os.environ.get("STANDIN_TENSORS"))
if STANDIN:
    # One folder of the tests has what puts CPU tensors in the place of a GPU's.
    sys.path.insert(0, str(Path(hvd.__file__).parents[2] / "tests" / "pytorch"))
    import conftest  # noqa: F401
STEPS, BATCH, WIDTH = 20, 16, 64


def check(is_so: bool, what: str) -> None:
    if not is_so:
        sys.exit(f"rank {hvd.rank()}: {what}")


def equal(a: torch.Tensor, b: torch.Tensor, what: str) -> None:
    check(a.shape == b.shape and torch.allclose(a.cpu(), b.cpu(), rtol=1e-5, atol=1e-6), what)


def model_of(device: torch.device) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
                         nn.Linear(WIDTH, 10)).to(device)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(BATCH, WIDTH, generator=random), torch.randint(10, (BATCH,), generator=random)


def plain_parameters(size: int) -> list[torch.Tensor]:
    """After STEPS, of one process that has the batches of all ranks."""
    model = model_of(torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        parts = [batch(step, rank) for rank in range(size)]
        optimizer.zero_grad()
        x, y = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, rank: int) -> None:
    for step in range(STEPS):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()


def collectives(device: torch.device) -> int:
    """How many have come out right."""
    rank, size, done = hvd.rank(), hvd.size(), 0
    for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64,
                 torch.uint8):
        def values(n: int, of: int) -> torch.Tensor:
            return (torch.arange(n) % 5 + of).to(kind)

        def expect(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
            equal(got.to(torch.float64), want.to(torch.float64), f"{what} of {kind}")

        sizes = (1, 7, 4093)
        sums = hvd.grouped_allreduce([values(n, rank).to(device) for n in sizes], op=hvd.Sum)
        for n, got in zip(sizes, sums):
            expect(got, torch.stack([values(n, r).to(torch.float64) for r in range(size)]).sum(0), "sum")
        gathered = hvd.allgather(values(7, rank)[:1 + rank].to(device))
        expect(gathered, torch.cat([values(7, r)[:1 + r] for r in range(size)]), "allgather")
        expect(hvd.broadcast(values(4093, rank).to(device), size - 1), values(4093, size - 1), "broadcast")
        done += 5
    return done


def optimizers(device: torch.device, plain: list[torch.Tensor]) -> None:
    model = model_of(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train(model, optimizer, device, hvd.rank())
    for got, want in zip(model.parameters(), plain):
        equal(got.detach(), want, "parameters after DistributedOptimizer")


def backend(device: torch.device, plain: list[torch.Tensor]) -> None:
    """torch.distributed, by DDP."""
    dist.init_process_group("berth")
    model = nn.parallel.DistributedDataParallel(model_of(device))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), device, dist.get_rank())
    for got, want in zip(model.parameters(), plain):
        equal(got.detach(), want, "parameters after DistributedDataParallel")
    work = dist.all_reduce(torch.ones(5, device=device), async_op=True)
    equal(work.get_future().wait()[0], torch.full((5,), float(dist.get_world_size())), "a Future")
    dist.destroy_process_group()


def main() -> int:
    begun = time.monotonic()
    hvd.init()
    if not STANDIN and not torch.cuda.is_available():
        print("torch finds no GPU")
        return 77
    device = torch.device("cpu") if STANDIN else torch.device("cuda", 0)
    done = collectives(device)
    plain = plain_parameters(hvd.size())
    optimizers(device, plain)
    backend(device, plain)
    if hvd.rank() == 0:
        print(f"torch {torch.__version__}, {hvd.size()} ranks: {done} collectives, and {STEPS} steps by "
              f"DistributedOptimizer and by DDP as plain torch, in {time.monotonic() - begun:.1f} s")
    hvd.shutdown()
    return 0


sys.exit(main())
