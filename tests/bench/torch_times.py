"""What torch_hvd.py and torch_dist.py share: how they take times, and ResNet-50's gradients."""
import statistics
import time

import torch

SIZES = {"8 B": 8, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "2 MiB": 2 << 20, "128 MiB": 128 << 20}
STEPS = 7


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def median_us(call, agreed, budget_s=0.3):
    """The median time of CALL, which all ranks make as often as AGREED(count) says: rank 0's count."""
    for _ in range(3):
        call()
    first = statistics.median(seconds(call) for _ in range(5))
    count = agreed(min(max(int(budget_s / first), 5), 5000))
    return statistics.median(seconds(call) for _ in range(count)) * 1e6


def resnet50_shapes():
    """The shapes of its 161 parameters: 25,557,032 numbers."""
    shapes, inputs = [(64, 3, 7, 7), (64,), (64,)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            convolutions = [(width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if not block:
                convolutions.append((4 * width, inputs, 1, 1))  # the way around
            for shape in convolutions:
                shapes += [shape, shape[:1], shape[:1]]
            inputs = 4 * width
    return shapes + [(1000, 2048), (1000,)]


class Parameters(torch.nn.Module):
    """Parameters of ResNet-50's shapes, and next to no work on them."""

    def __init__(self):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros(shape) for shape in resnet50_shapes())

    def forward(self):
        return torch.stack([p.sum() for p in self.all]).sum()


def communication_us(model, optimizer, barrier):
    """The median time of a step with MODEL and OPTIMIZER, less that of a step without communication.

    The two take turns; barrier() is before each, so that no rank waits for the other's work.
    """
    alone = Parameters()
    plain = torch.optim.SGD(alone.parameters(), lr=1e-3)

    def step(net, with_optimizer):
        with_optimizer.zero_grad()
        net().backward()
        with_optimizer.step()

    both = []
    for _ in range(STEPS + 2):  # two to get warm
        barrier()
        ours = seconds(lambda: step(model, optimizer))
        barrier()
        both.append((ours, seconds(lambda: step(alone, plain))))
    return statistics.median(a - b for a, b in both[2:]) * 1e6


def say(row, us):
    print(f"{row}\t{us:.2f}", flush=True)
