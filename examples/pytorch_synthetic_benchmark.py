#!/usr/bin/env python3
"""Pictures per second of a training with random pictures: what a network's gradients cost.

    runner -np 2 python3 examples/pytorch_synthetic_benchmark.py --model resnet50 --batch-size 8

It uses the Horovod API: with `import horovod.torch as hvd` it is a program for Horovod.
"""
import argparse
import statistics
import time

import torch
from torch import nn

import berth.torch as hvd

try:
    from torchvision import models
except ImportError:  # --model small and resnet50 need none
    models = None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="small", help="small, resnet50, or a name of torchvision.models")
    parser.add_argument("--batch-size", type=int, default=32, help="pictures of one rank in a step")
    parser.add_argument("--num-warmup-batches", type=int, default=5)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=5, help="times that are taken")
    parser.add_argument("--no-cuda", action="store_true", help="do not use a GPU")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16-bit floats")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    return parser.parse_args()


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and a way around them."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.through = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.around = nn.Identity() if inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.through(x) + self.around(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def small():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 1000))


def network(name):
    if hasattr(models, name):
        return getattr(models, name)()
    if name not in ("small", "resnet50"):
        raise SystemExit(f"no model '{name}': without torchvision there are small and resnet50")
    return resnet50() if name == "resnet50" else small()


def main():
    options = arguments()
    hvd.init()
    cuda = not options.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count()) if cuda else "cpu"

    model = network(options.model).to(device)
    # the batch of a step grows with the ranks, and the learning rate with it, but not for Adasum
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (1 if options.use_adasum else hvd.size()))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average)

    edge = 32 if options.model == "small" else 224
    pictures = torch.randn(options.batch_size, 3, edge, edge, device=device)
    labels = torch.randint(1000, (options.batch_size,), device=device)

    def steps(count):
        """Pictures per second of this rank over COUNT steps."""
        before = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
        if cuda:
            torch.cuda.synchronize()
        return count * options.batch_size / (time.perf_counter() - before)

    def say(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    kind = "GPU" if cuda else "CPU"
    say(f"model {options.model}, batch size {options.batch_size}, {hvd.size()} x {kind}")
    steps(options.num_warmup_batches)
    rates = []
    for i in range(options.num_iters):
        rates.append(steps(options.num_batches_per_iter))
        say(f"iter {i}: {rates[-1]:.1f} img/sec per {kind}")
    mean, spread = statistics.mean(rates), 1.96 * statistics.pstdev(rates)
    say(f"img/sec per {kind}: {mean:.1f} +-{spread:.1f}")
    # each rank took its own times
    total, spread = hvd.allreduce(torch.tensor([mean, spread]), op=hvd.Sum, name="total").tolist()
    say(f"total img/sec on {hvd.size()} {kind}(s): {total:.1f} +-{spread:.1f}")


if __name__ == "__main__":
    main()
