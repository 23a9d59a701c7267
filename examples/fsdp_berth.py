#!/usr/bin/env python3
"""FSDP2 with the backend "berth": each rank keeps its part of the parameters only.

    runner -np 2 python3 examples/fsdp_berth.py

fully_shard() gathers a layer's parameters before it runs, and sums and scatters its gradients
after it.  The result does not depend on the number of ranks, up to the rounding of sums.
"""
import argparse

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import berth.torch  # noqa: F401 -- has the backend; once berth is installed by pip, torch finds it itself
from train_digits import BATCH, HELD_OUT, digits


def network():
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(3)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    options = parser.parse_args()

    dist.init_process_group("berth")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)  # pictures this small gain nothing from more
    torch.manual_seed(0)

    pictures, labels = digits()
    model = network()
    mesh = init_device_mesh("cpu", (size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if options.bf16 else None,
                                  output_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    mine = sum(p.to_local().numel() for p in model.parameters())
    whole = sum(p.numel() for p in model.parameters())
    print(f"rank {rank} of {size} keeps {mine} of {whole} parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(options.epochs):
        # the same shuffle on every rank, of which each takes its share
        shuffle = torch.Generator().manual_seed(epoch)
        order = HELD_OUT + torch.randperm(len(labels) - HELD_OUT, generator=shuffle)
        total = torch.zeros(())
        for batch in order.split(BATCH)[:-1]:
            share = batch[rank::size]
            loss = torch.nn.functional.cross_entropy(model(pictures[share]), labels[share])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / size / (len(order) // BATCH):.4f}", flush=True)

    # all parameters, on rank 0: as one would save them
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        alone = network()
        alone.load_state_dict(state)
        with torch.no_grad():
            right = alone(pictures[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]
        print(f"accuracy {right.float().mean().item():.3f} on {HELD_OUT} digits it never saw", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
