"""Times of the Horovod API of MODULE, horovod.tensorflow or berth.tensorflow.

    tensorflow_times.py MODULE            collectives, a step of Keras
    tensorflow_times.py MODULE optimizer  for one rank: what its optimizer adds to a step of Keras, in percent

Rank 0 prints lines "ROW<tab>MICROSECONDS" for tensorflow_table.py.
"""
import importlib
import statistics
import sys
import time


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


import_s = seconds(lambda: importlib.import_module("tensorflow"))
import_s = seconds(lambda: importlib.import_module(sys.argv[1]))  # what it adds

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

hvd = importlib.import_module(sys.argv[1])
keras_hvd = importlib.import_module(sys.argv[1] + ".keras")

CHAIN = 50
SIZES = {"8 B": 8, "64 KiB": 64 << 10, "2 MiB": 2 << 20}
# 161 tensors of 26 million numbers, as a ResNet-50 has
TENSORS = [1000] * 60 + [65536] * 60 + [500000] * 40 + [2000000]


def report(row, us):
    if hvd.rank() == 0:
        print(f"{row}\t{us:.2f}", flush=True)


def barrier():
    hvd.allreduce(tf.zeros([1]), name="barrier")


def agreed(count):
    return int(hvd.broadcast(tf.constant(count), root_rank=0, name="count"))


def median_us(call, budget_s=1.0):
    """The median time of CALL, which all ranks make as often as rank 0 says."""
    for _ in range(5):
        call()
    first = statistics.median(seconds(call) for _ in range(3))
    count = agreed(min(max(int(budget_s / first), 7), 3000))
    return statistics.median(seconds(call) for _ in range(count)) * 1e6


def chains():
    for row, size in SIZES.items():
        x = tf.ones([size // 4])

        @tf.function
        def chain(x):
            for i in range(CHAIN):
                x = hvd.allreduce(x, op=hvd.Sum, name=f"chain_{size}_{i}") * (1 / hvd.size())
            return x

        report(f"{row}, chain", median_us(lambda: chain(x)) / CHAIN)


def eager():
    x = tf.ones([2])
    report("8 B, eager", median_us(lambda: hvd.allreduce(x, op=hvd.Sum)))
    report("x + 1, eager", median_us(lambda: x + 1.0))


def tensors():
    each = [tf.ones([size]) for size in TENSORS]
    whole = tf.ones([sum(TENSORS)])

    @tf.function
    def many(each):
        return [hvd.allreduce(x, op=hvd.Sum, name=f"tensor_{i}") for i, x in enumerate(each)]

    @tf.function
    def one(whole):
        return hvd.allreduce(whole, op=hvd.Sum, name="whole")

    both = []
    for _ in range(12):  # in turns: the memory of this machine is not equally fast at all times
        barrier()
        separate = seconds(lambda: many(each))
        barrier()
        both.append((separate, seconds(lambda: one(whole))))
    report("161 tensors, 99 MiB", statistics.median(a for a, _ in both[2:]) * 1e6)
    report("one tensor, 99 MiB", statistics.median(b for _, b in both[2:]) * 1e6)


class Clock(tf.keras.callbacks.Callback):
    """The time of an epoch, without what fit() does before and after it."""

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.began


class Fit:
    """A model of 1.06 million parameters; an epoch has 50 steps."""
    STEPS = 50

    def __init__(self, wrapped):
        sizes = ((1024, "relu"), (512, "relu"), (10, None))
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(size, activation=how) for size, how in sizes])
        self.clock = Clock()
        optimizer = tf.keras.optimizers.SGD(0.01)
        self.model.compile(optimizer=keras_hvd.DistributedOptimizer(optimizer) if wrapped else optimizer,
                           loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        random = np.random.default_rng(0)
        x = random.random((32 * self.STEPS, 512), np.float32)
        y = random.integers(0, 10, 32 * self.STEPS)
        self.data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).cache()

    def step_us(self):
        """The time of one step of an epoch."""
        self.model.fit(self.data, verbose=0, callbacks=[self.clock])
        return self.clock.seconds * 1e6 / self.STEPS


def steps_of_both(epochs):
    """(wrapped, plain): the times of a step, in turns."""
    wrapped, plain = Fit(True), Fit(False)
    times = []
    for i in range(epochs + 2):  # two to get warm
        both = {}
        for fit in ((wrapped, plain), (plain, wrapped))[i % 2]:
            barrier()
            both[fit] = fit.step_us()
        times.append((both[wrapped], both[plain]))
    return times[2:]


def training():
    times = steps_of_both(8)
    report("Keras step, plain", statistics.median(plain for _, plain in times))
    report("Keras step, added", statistics.median(wrapped - plain for wrapped, plain in times))


def optimizer_alone():
    times = steps_of_both(40)
    report("optimizer, 1 rank", 100 * (statistics.median(wrapped / plain for wrapped, plain in times) - 1))


hvd.init()
if sys.argv[2:] == ["optimizer"]:
    optimizer_alone()
else:
    report("import", import_s * 1e6)
    chains()
    eager()
    tensors()
    training()
hvd.shutdown()
