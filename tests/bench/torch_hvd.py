"""Times of the Horovod API of MODULE, horovod.torch or berth.torch.

    torch_hvd.py MODULE             collectives, a training step
    torch_hvd.py MODULE optimizer   for one rank: what its optimizer adds to PyTorch's, in percent

Rank 0 prints lines "ROW<tab>MICROSECONDS" for torch_table.py.
"""
import importlib
import statistics
import sys

import torch

from torch_times import SIZES, Parameters, communication_us, median_us, say, seconds

hvd = importlib.import_module(sys.argv[1])


def report(row, us):
    if hvd.rank() == 0:
        say(row, us)


def agreed(count):
    return int(hvd.broadcast(torch.tensor(count), root_rank=0, name="count"))


def barrier():
    hvd.allreduce_(torch.zeros(1), name="barrier")


def allreduces():
    for row, size in SIZES.items():
        x = torch.ones(size // 4)
        report(f"allreduce {row}", median_us(lambda: hvd.allreduce_(x, name=row), agreed))


def gradients():
    tensors = [torch.ones(4096) for _ in range(64)]

    def step():
        handles = [hvd.allreduce_async_(x, name=f"gradient {i}") for i, x in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    report("64 x 16 KiB", median_us(step, agreed))


def training():
    model = Parameters()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3),
                                         named_parameters=model.named_parameters())
    report("step, hvd", communication_us(model, optimizer, barrier))


def optimizer_alone():
    """1 M parameters in 10 layers, of one rank: a step with each optimizer, in turns."""
    pictures = torch.randn(64, 316)
    steps = []
    for wrapped in (True, False):
        net = torch.nn.Sequential(*(torch.nn.Linear(316, 316) for _ in range(10)))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        if wrapped:
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())

        def step(net=net, optimizer=optimizer):
            optimizer.zero_grad()
            net(pictures).square().sum().backward()
            optimizer.step()

        steps.append(step)
    ratios = []
    for i in range(420):
        times = {step: seconds(step) for step in (steps if i % 2 else steps[::-1])}
        ratios.append(times[steps[0]] / times[steps[1]])
    report("optimizer", 100 * (statistics.median(ratios[20:]) - 1))


hvd.init()
torch.set_num_threads(1)
if sys.argv[2:] == ["optimizer"]:
    optimizer_alone()
else:
    allreduces()
    gradients()
    training()
hvd.shutdown()
