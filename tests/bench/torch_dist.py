"""Times of torch.distributed's BACKEND, gloo or berth.

    torch_dist.py BACKEND

Rank 0 prints lines "ROW<tab>MICROSECONDS" for torch_table.py.
"""
import importlib
import sys

import torch
import torch.distributed as dist

from torch_times import SIZES, Parameters, communication_us, median_us, say

backend = sys.argv[1]
if backend == "berth":
    importlib.import_module("berth.torch")


def report(row, us):
    if dist.get_rank() == 0:
        say(row, us)


def agreed(count):
    number = torch.tensor(count)
    dist.broadcast(number, 0)
    return int(number)


def all_reduces():
    for row, size in SIZES.items():
        x = torch.ones(size // 4)
        report(f"all_reduce {row}", median_us(lambda: dist.all_reduce(x), agreed))


def parts():
    whole = torch.ones((2 << 20) // 4)
    mine = whole.chunk(dist.get_world_size())[dist.get_rank()].clone()
    report("all_gather_into_tensor", median_us(lambda: dist.all_gather_into_tensor(whole, mine), agreed))
    report("reduce_scatter_tensor", median_us(lambda: dist.reduce_scatter_tensor(mine, whole), agreed))


def training():
    model = torch.nn.parallel.DistributedDataParallel(Parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    report("step, DDP", communication_us(model, optimizer, dist.barrier))


dist.init_process_group(backend)
torch.set_num_threads(1)
all_reduces()
parts()
training()
dist.destroy_process_group()
