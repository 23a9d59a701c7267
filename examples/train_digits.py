#!/usr/bin/env python3
"""Data-parallel training of a small network on handwritten digits.

    runner -np 2 python3 examples/train_digits.py

Every rank trains on its own share of each batch; PyTorch's DistributedDataParallel averages
the gradients.  Rank, size and meeting point come from the environment that runner sets.  The
result depends on the number of ranks alone, not on the hosts or the cores they got.
"""
import argparse
import os
import platform
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from digits import HELD_OUT, read

BATCH = 128  # of the whole job


def digits():
    """1797 pictures of 8x8 pixels, 0 to 1, and the digit that each one shows."""
    pictures, labels = read()
    return torch.from_numpy(pictures), torch.from_numpy(labels)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fail-rank", type=int, default=-1, metavar="N",
                        help="rank N exits 3 in the middle of the training")
    return parser.parse_args()


def cpu_list():
    """The CPUs that this process may use, as "0-3,8"."""
    ids = sorted(os.sched_getaffinity(0))
    first = [i for i in ids if i - 1 not in ids]
    last = [i for i in ids if i + 1 not in ids]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(first, last))


def train(model, optimizer, pictures, labels, epoch, rank, size):
    """One pass over the data.  Returns the mean loss over all ranks, the same on each."""
    # the same shuffle on every rank: seeded by the epoch alone
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
    total = torch.zeros((), device=labels.device)
    steps = len(labels) // BATCH
    for step in range(steps):
        mine = order[step * BATCH:(step + 1) * BATCH][rank::size].to(labels.device)
        loss = torch.nn.functional.cross_entropy(model(pictures[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()  # DistributedDataParallel averages the gradients here
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item() / (steps * size)


def main():
    options = arguments()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(f"rank {rank} of {size} on {platform.node()}, cpus {cpu_list()}, "
          f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '(unset)')}", flush=True)

    on_gpu = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", 0)) % max(torch.cuda.device_count(), 1)
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # one thread: pictures this small gain nothing from more, and sums keep their order
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("nccl" if on_gpu else "gloo")

    pictures, labels = (t.to(device) for t in digits())
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    for epoch in range(options.epochs):
        if rank == options.fail_rank and epoch == options.epochs // 2:
            print(f"rank {rank}: failing as asked", file=sys.stderr, flush=True)
            os._exit(3)
        loss = train(model, optimizer, pictures[HELD_OUT:], labels[HELD_OUT:], epoch, rank, size)
        if rank == 0:
            print(f"epoch {epoch} loss {loss!r}", flush=True)

    if rank == 0:
        with torch.no_grad():
            right = model.module(pictures[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]
        print(f"accuracy {right.float().mean().item():.3f} on {HELD_OUT} digits it never saw", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    # A thread of gloo that lets go of its last tensor while Python takes itself apart aborts the
    # process, in some runs of a hundred; all is done, so leave without that.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
