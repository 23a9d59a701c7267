"""elastic.py STEPS RANKS [torch] [RANK@STEP[WHEN]]...: a training in f64 with sums, in worlds that follow.

It does STEPS, and goes on until there are RANKS.  RANK of the job, in its first life, kills itself at STEP:
`2@10` before its operation, `2@10+` before it commits, `2@10r` and `2@10s` in on_reset() and in sync() of the
world that follows; `2@0i` in its second life, before it joins.  At the end each rank compares its state
with that of the undisturbed training, which it computes alone.
"""
import ctypes
import math
import os
import re
import signal
import sys

with_torch = "torch" in sys.argv
if with_torch:
    import torch

    import berth.torch as hvd
    from berth.torch import elastic
else:
    import berth as hvd
    from berth import clib, elastic, library

ME, LIFE = int(os.environ["BERTH_RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
WIDTH, BATCHES = 8, 24
steps, ranks = int(sys.argv[1]), int(sys.argv[2])
deaths = [(int(rank), int(step), when) for text in sys.argv[3:] if "@" in text
          for rank, step, when in re.findall(r"^(\d+)@(\d+)(.?)$", text)]


def die_at(step, when):
    life = 2 if when == "i" else 1
    if LIFE == life and (ME, step, when) in deaths:
        os.kill(os.getpid(), signal.SIGKILL)


# ---- plain numbers ----

def total(values):
    array = (ctypes.c_double * len(values))(*values)
    at = ctypes.addressof(array)
    library.run(array, library.fields(clib.ALLREDUCE, clib.F64, clib.SUM, at, at, len(values)))
    return list(array)


class Numbers:
    """What is trained: a list."""

    def __init__(self, is_alone):
        self.total = list if is_alone else total
        self.state = State(x=[1 / (i + 1) for i in range(WIDTH)], step=0)

    def step(self, step, batches):
        gradient = [0.0] * WIDTH
        for b in batches:
            of = step * BATCHES + b
            for i in range(WIDTH):
                gradient[i] += math.sin(of * (i + 1)) - self.state.x[i] * math.cos(of) / 10
        self.state.x = [a + b / BATCHES for a, b in zip(self.state.x, self.total(gradient))]

    def end(self):
        return self.state.x


# ---- a model ----

class Model:
    """What is trained: two layers, by a distributed optimizer with momentum."""

    def __init__(self, is_alone):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        self.model = torch.nn.Sequential(*layers).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        if not is_alone:
            named = self.model.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, named, op=hvd.Sum)
        self.state = State(self.model, self.optimizer, step=0)
        generator = torch.Generator().manual_seed(1)
        self.data = torch.randn(64, BATCHES, 4, generator=generator, dtype=torch.float64)

    def step(self, step, batches):
        x = self.data[step % 64, list(batches)]
        loss = (self.model(x) - x.sum(1, keepdim=True).sin()).square().sum() / BATCHES
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def end(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()]).tolist()


class State(elastic.TorchState if with_torch else elastic.ObjectState):
    """It dies where it is told to."""

    def reset(self):
        die_at(self.step, "r")
        super().reset()

    def sync(self):
        die_at(self.step, "s")
        super().sync()


def make(is_alone):
    return (Model if with_torch else Numbers)(is_alone)


@elastic.run
def train(state):
    if LIFE > 1:
        came.add(state.step)
    while state.step < steps or hvd.size() < ranks:
        die_at(state.step, "")
        thing.step(state.step, range(hvd.rank(), BATCHES, hvd.size()))
        die_at(state.step, "+")
        state.step += 1
        state.commit()


came = set()
die_at(0, "i")
hvd.init()
thing = make(False)
train(thing.state)
if came:
    print(f"rank {ME} came")
other = make(True)
for step in range(thing.state.step):
    other.step(step, range(BATCHES))
worst = max(abs(a - b) for a, b in zip(other.end(), thing.end()))
assert thing.state.step >= steps and worst < 1e-9, (thing.state.step, worst)
if hvd.rank() == 0:
    print(hvd.size(), "ranks, the state is that of the undisturbed training")
