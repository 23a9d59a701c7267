#!/usr/bin/env python3
"""DistributedDataParallel with the backend "berth" of torch.distributed.

    runner -np 2 python3 examples/ddp_berth.py

The result does not depend on the number of ranks, up to the rounding of sums.
"""
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import berth.torch  # noqa: F401 -- has the backend; once berth is installed by pip, torch finds it itself
from train_digits import BATCH, HELD_OUT, digits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    dist.init_process_group("berth")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)  # pictures this small gain nothing from more
    torch.manual_seed(0)

    pictures, labels = digits()
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(options.epochs):
        # the same shuffle on every rank, of which each takes its share
        shuffle = torch.Generator().manual_seed(epoch)
        order = HELD_OUT + torch.randperm(len(labels) - HELD_OUT, generator=shuffle)
        total = torch.zeros(())
        for batch in order.split(BATCH)[:-1]:
            mine = batch[rank::size]
            loss = torch.nn.functional.cross_entropy(model(pictures[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()  # the ranks average the gradients here
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / size / (len(order) // BATCH):.4f}", flush=True)

    if rank == 0:
        with torch.no_grad():
            right = net(pictures[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]
        print(f"accuracy {right.float().mean().item():.3f} on {HELD_OUT} digits it never saw", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
