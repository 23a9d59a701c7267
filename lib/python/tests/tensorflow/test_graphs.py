"""What TensorFlow makes of the ops in graphs, and what comes of mistakes; run by runner, with any ranks."""
import ctypes

import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd
from berth import clib, library
from berth.tensorflow import ops

RANK, SIZE = hvd.rank(), hvd.size()
with_ops = pytest.mark.skipif(ops._module is None, reason="numpy_function is not the op")
several = pytest.mark.skipif(SIZE == 1, reason="one rank has nobody to differ from")


def operations():
    """How many libberth has done."""
    metrics = clib.made(clib.Metrics)
    library.check(library.get().berth_metrics(ctypes.byref(metrics)))
    return metrics.operations


def in_five_calls(function, *arguments):
    before = operations()
    for _ in range(5):
        function(*arguments)
    return operations() - before


# ---- order ----

def in_opposite_order(make):
    """20 results of MAKE, which rank 0 creates in one order, the others in the opposite one."""
    out = [None] * 20
    for i in range(20) if RANK == 0 else reversed(range(20)):
        out[i] = make(i)
    return out


@with_ops
def test_opposite_orders_in_a_function():
    @tf.function
    def all_of(tensors):
        return in_opposite_order(lambda i: hvd.allreduce(tensors[i], op=hvd.Sum, name=f"opposite{i}"))

    for _ in range(5):
        for i, t in enumerate(all_of([tf.fill([100 + i], float(i + RANK)) for i in range(20)])):
            assert np.all(t.numpy() == SIZE * i + SIZE * (SIZE - 1) // 2)


@with_ops
@pytest.mark.parametrize("threads", [1, 0])
def test_opposite_orders_in_a_session(threads):
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        x = tf.compat.v1.placeholder(tf.float32, [4])

        def twice(i):
            first = hvd.allreduce(x + float(i), op=hvd.Max, name=f"a{i}")
            return hvd.allreduce(first * 2.0, op=hvd.Sum, name=f"b{i}")

        out = in_opposite_order(twice)
        for _ in range(5):
            for i, value in enumerate(session.run(out, {x: np.full(4, RANK, np.float32)})):
                assert np.all(value == 2 * SIZE * (SIZE - 1 + i))


@with_ops
def test_a_loop_in_parallel():
    @tf.function
    def sums(x):
        def body(i, parts):
            part = hvd.allreduce(x * tf.cast(i, tf.float32), op=hvd.Sum, name="in_loop")
            return i + 1, parts.write(i, part)

        parts = tf.TensorArray(tf.float32, 100)
        return tf.while_loop(lambda i, _: i < 100, body, (0, parts), parallel_iterations=32)[1].stack()

    before = operations()
    out = sums(tf.fill([3], float(RANK + 1))).numpy()
    assert np.all(out == np.arange(100)[:, None] * SIZE * (SIZE + 1) / 2)
    assert operations() - before == 100
    mapped = tf.function(lambda x: tf.map_fn(lambda t: hvd.allreduce(t, op=hvd.Sum, name="mapped"), x,
                                             parallel_iterations=10))
    assert np.all(mapped(tf.range(10.0)).numpy() == np.arange(10) * SIZE)


def test_a_function_called_twice_in_another():
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"))
    outer = tf.function(lambda x: (inner(x), inner(x * 2.0)))
    for _ in range(5):
        one, two = outer(tf.ones(2))
        assert np.all(one.numpy() == SIZE) and np.all(two.numpy() == 2 * SIZE)


def test_through_a_layer():
    keras = pytest.importorskip("keras")
    layer = keras.layers.Dense(2, kernel_initializer="ones")
    run = tf.function(lambda x: layer(hvd.allgather(x)))
    assert np.all(run(tf.ones([1, 3])).numpy() == np.full((SIZE, 2), 3.0))


# ---- how often: as with Horovod, whose ops are stateless, too ----

@with_ops
def test_operations_of_a_graph():
    constant = tf.function(lambda: hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum, name="constant"))
    assert np.all(constant().numpy() == [SIZE, 2 * SIZE])
    assert in_five_calls(constant) == 0  # it was folded

    def unused(x):
        hvd.allreduce(x, name="unused")
        return x

    assert in_five_calls(tf.function(unused), tf.ones(2)) == 0
    same = tf.function(lambda x: hvd.allreduce(x, name="same") + hvd.allreduce(x, name="same"))
    assert in_five_calls(same, tf.ones(2)) == 5  # the two were merged
    assert in_five_calls(lambda: hvd.allreduce(tf.ones(2))) == 5
    assert in_five_calls(tf.function(lambda x: hvd.grouped_allreduce([x, x + 1.0])), tf.ones(2)) == 10


@with_ops
def test_autoclustering_leaves_the_op_outside():
    tf.config.optimizer.set_jit("autoclustering")
    try:
        clustered = tf.function(lambda x: hvd.allreduce(x * 2.0, op=hvd.Sum, name="clustered") + 1.0)
        assert np.all(clustered(tf.ones(3)).numpy() == 2 * SIZE + 1)
    finally:
        tf.config.optimizer.set_jit(False)


def test_eager_calls_do_not_grow():
    def pages():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1])

    x = tf.ones(2)
    for _ in range(200):
        hvd.allreduce(x, name="warm")
    before = pages()
    for i in range(2000):
        hvd.allreduce(x, name=f"n{i}")
    assert pages() - before < 1000  # of 4 KiB; a kernel for each call would take 22000


# ---- mistakes ----

FAILS = (tf.errors.OpError, ValueError, hvd.HorovodInternalError)


@several
@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
def test_ranks_that_differ_get_an_error_each(is_graph):
    def fails(call):
        with pytest.raises(FAILS) as caught:
            (tf.function(call) if is_graph else call)()
        if ops._module is not None:
            assert isinstance(caught.value, (tf.errors.FailedPreconditionError,
                                             tf.errors.InvalidArgumentError))

    x = tf.Variable(tf.ones([3 + RANK]), name="x")
    fails(lambda: hvd.allreduce(tf.ones([3 + RANK]) * x, name="shape"))
    y = tf.Variable(tf.ones([3, 4]), name="y")
    fails(lambda: hvd.allreduce(tf.reshape(y, [3, 4] if RANK == 0 else [4, 3]), name="sizes"))
    fails(lambda: hvd.allreduce(tf.cast(y, tf.float32 if RANK == 0 else tf.int32), name="type"))
    fails(lambda: hvd.broadcast(y * 2.0, root_rank=RANK, name="root"))
    fails(lambda: hvd.allreduce(y * 2.0, op=hvd.Sum if RANK == 0 else hvd.Max, name="op"))
    assert np.all(hvd.allreduce(y, op=hvd.Sum, name="after").numpy() == SIZE)


def test_arguments_that_cannot_be():
    for call in (lambda: hvd.allgather(tf.constant(1.0)), lambda: hvd.broadcast(tf.ones(1), SIZE),
                 lambda: hvd.alltoall(tf.ones(SIZE), splits=[1] * (SIZE + 1)),
                 lambda: hvd.alltoall(tf.ones(SIZE), splits=[-1] * SIZE),
                 lambda: hvd.allreduce(tf.ones(1), op=9), lambda: hvd.allreduce(tf.constant("text"))):
        with pytest.raises((*FAILS, TypeError)):
            call()


def test_a_world_after_another():
    x = tf.constant([1.0])
    summed = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name="worlds"))
    for _ in range(5):
        assert summed(x).numpy() == [SIZE]
        hvd.shutdown()
        with pytest.raises(FAILS):
            hvd.allreduce(x)
        with pytest.raises(FAILS):
            summed(x)
        hvd.init()
    assert hvd.allreduce(x, op=hvd.Sum).numpy() == [SIZE]
