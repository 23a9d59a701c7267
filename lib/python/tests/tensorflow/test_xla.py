"""Operations in functions that XLA compiles (jit_compile=True); run by runner, with any number of ranks."""
import re
import types

import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd
from berth.tensorflow import ops, xla

RANK, SIZE = hvd.rank(), hvd.size()
several = pytest.mark.skipif(SIZE == 1, reason="one rank has nobody to differ from")
compiled = pytest.mark.skipif(xla.why_not() != "", reason=xla.why_not())


def jit(function):
    return tf.function(function, jit_compile=True)


def of(rank, shape, dtype=np.float32):
    """What RANK gives: small whole numbers, so that sums are exact."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + rank + 1).astype(dtype)


def all_of(shape, dtype=np.float32):
    return [of(r, shape, dtype) for r in range(SIZE)]


def same(result, expected):
    assert result.shape == np.shape(expected)
    np.testing.assert_array_equal(result.numpy().astype(np.float64), np.asarray(expected, np.float64))


def test_there_is_a_reason_where_xla_cannot():
    if ops._module is None:
        assert xla.why_not() == "its operations go by numpy_function"
    else:
        assert xla.why_not() in ("", "libberth_tf.so was built without a C++ compiler")


# ---- values ----

@compiled
@pytest.mark.parametrize("dtype", [tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32,
                                   tf.float64], ids=lambda dtype: dtype.name)
def test_allreduce_is_what_numpy_says(dtype):
    for shape in [(), (0,), (5,), (3, 4), (2, 0, 3)]:
        mine, total = of(RANK, shape, dtype.as_numpy_dtype), sum(all_of(shape))
        call = jit(lambda t: hvd.allreduce(t * 2, op=hvd.Sum, name="sum") + 1)
        for _ in range(2):
            same(call(mine), 2 * total + 1)
        same(jit(lambda t: hvd.allreduce(t, op=hvd.Max))(mine), of(SIZE - 1, shape))


@compiled
def test_an_average_divides_and_scales_multiply():
    mine, mean = of(RANK, (3, 4), np.float64), sum(all_of((3, 4), np.float64)) / SIZE
    np.testing.assert_allclose(jit(lambda t: hvd.allreduce(t))(mine), mean, rtol=1e-15)
    third = jit(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.1))(mine)
    np.testing.assert_allclose(third, mean * SIZE / 30, rtol=1e-14)  # a factor of 32 bits would be 1e-8 off


@compiled
def test_a_group_has_several_types():
    call = jit(lambda *t: hvd.grouped_allreduce(t, op=hvd.Sum))
    out = call(of(RANK, (2, 3)), of(RANK, ()), of(RANK, (4,), np.int64))
    for t, shape in zip(out, [(2, 3), (), (4,)]):
        same(t, sum(all_of(shape)))


@compiled
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.uint16])
def test_moves(dtype):
    mine, everybody = of(RANK, (3, 2)).astype(dtype), [a.astype(dtype) for a in all_of((3, 2))]
    same(jit(lambda t: hvd.broadcast(t, SIZE - 1))(mine), everybody[SIZE - 1])
    same(jit(lambda t: hvd.allgather(t))(mine), np.concatenate(everybody))
    for t in jit(lambda t: hvd.grouped_allgather([t, t]))(mine):
        same(t, np.concatenate(everybody))


@compiled
def test_shares_of_rows():
    mine, whole = of(RANK, (SIZE + 1, 2)), sum(all_of((SIZE + 1, 2)))
    first = 0 if RANK == 0 else RANK + 1  # rank 0 has one row more
    rows = whole[first:first + (2 if RANK == 0 else 1)]
    same(jit(lambda t: hvd.reducescatter(t, op=hvd.Sum))(mine), rows)
    for t in jit(lambda t: hvd.grouped_reducescatter([t, t], op=hvd.Sum))(mine):
        same(t, rows)


@compiled
def test_slices_of_all_ranks():
    slices = tf.IndexedSlices(tf.fill([2, 2], float(RANK)), tf.range(2), tf.constant([SIZE, 2]))
    out = jit(lambda t: hvd.allreduce(tf.IndexedSlices(t, slices.indices, slices.dense_shape)).values)
    same(out(slices.values), np.repeat(np.arange(SIZE), 2)[:, None] * np.ones(2) / SIZE)


@compiled
def test_process_sets():
    sets = [hvd.add_process_set([r]) for r in range(SIZE)] if SIZE > 1 else [hvd.global_process_set]
    mine = sets[RANK]
    both = jit(lambda t: (hvd.allreduce(t, op=hvd.Sum, process_set=mine, prescale_factor=2.0),
                          hvd.broadcast(t, RANK, process_set=mine)))
    alone, own = both(of(RANK, (3,)))
    same(alone, 2 * of(RANK, (3,)))
    same(own, of(RANK, (3,)))
    with pytest.raises(ValueError, match="root_rank"):
        jit(lambda t: hvd.broadcast(t, SIZE, process_set=mine))(of(RANK, (3,)))
    if SIZE > 1:
        for each in sets:
            hvd.remove_process_set(each)
        with pytest.raises(tf.errors.OpError, match="there is no process set"):
            both(of(RANK, (3,)))


# ---- gradients ----

@compiled
@pytest.mark.parametrize("around", [jit, tf.function, lambda compute: compute],
                         ids=["compiled", "graph", "eager"])
def test_gradients(around):
    factor = np.arange(1.0, SIZE + 1)  # rank r's loss counts r + 1 times

    def gradient(call, *arrays):
        def loss(*tensors):
            out = call(*tensors)
            return sum(tf.reduce_sum(t) for t in (out if isinstance(out, list) else [out])) * factor[RANK]

        def compute(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = jit(loss)(*tensors)
            return tape.gradient(value, tensors)

        return around(compute)(*map(tf.constant, arrays))

    mine, total, mean = of(RANK, (2 * SIZE, 3), np.float64), factor.sum(), factor.mean()
    ones, rows = np.ones_like(mine), np.repeat(factor, 2)[:, None]
    same(gradient(lambda t: hvd.allreduce(t, op=hvd.Sum), mine)[0], ones * total)
    np.testing.assert_allclose(gradient(lambda t: hvd.allreduce(t, prescale_factor=0.5), mine)[0],
                               ones * mean / 2)
    for g in gradient(lambda *t: hvd.grouped_allreduce(t, op=hvd.Sum), mine, mine):
        same(g, ones * total)
    np.testing.assert_allclose(gradient(lambda t: hvd.broadcast(t, 0), mine)[0],
                               ones * mean if RANK == 0 else 0 * ones)
    np.testing.assert_allclose(gradient(lambda t: hvd.allgather(t), mine)[0], ones * mean)
    for g in gradient(lambda *t: hvd.grouped_allgather(t), mine, mine):
        np.testing.assert_allclose(g, ones * mean)
    scattered = gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), mine)[0]
    np.testing.assert_allclose(scattered, rows * ones * SIZE)


@compiled
def test_a_step_of_training():
    w = tf.Variable(tf.zeros([64, 10], tf.float64))
    b = tf.Variable(tf.zeros([10], tf.float64))
    x, y = of(RANK, (20, 64), np.float64) / 10, of(RANK, (20, 10), np.float64)

    @jit
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w + b - y) ** 2)
        for v, g in zip((w, b), hvd.grouped_allreduce(tape.gradient(loss, (w, b)), name="gradients")):
            v.assign_sub(g * 0.001)
        return hvd.allreduce(loss, name="loss")

    losses = [float(step(x, y)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    for v in (w, b):
        assert len({a.tobytes() for a in hvd.allgather_object(v.numpy())}) == 1


# ---- order ----

@compiled
def test_independent_operations_have_one_order():
    """XLA has several threads, and sizes for which it uses them."""
    inner = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name="inner") * 2.0)

    def all_of_them(tensors):
        out = []
        for i, t in enumerate(tensors):
            if i % 3 == 2:
                out.append(inner(t * 1.0))
            else:
                out.append(hvd.allreduce(t * 2.0, op=hvd.Sum, name=f"independent{i}"))
        return out

    tensors = [tf.fill([40000 + 1000 * (i * 7 % 5)], float(i + RANK)) for i in range(15)]
    call = jit(all_of_them)
    for _ in range(10):
        for i, t in enumerate(call(tensors)):
            assert np.all(t.numpy() == 2 * (SIZE * i + SIZE * (SIZE - 1) // 2))


@compiled
def test_each_call_takes_what_the_one_before_it_gives():
    inner = tf.function(lambda t: hvd.allreduce(t, name="inner"))
    call = jit(lambda t: (hvd.allreduce(t + 1.0, name="a"), inner(t + 2.0), hvd.allreduce(t + 3.0, name="b")))
    program = call.experimental_get_compiler_ir(tf.ones(3))(stage="hlo")
    calls = re.findall(r'(%\S+) = [^=]* custom-call\((.*?)\), custom_call_target="berth"', program)
    gives = dict(re.findall(r"(%\S+) = s32\[\][^=]* get-tuple-element\(.*?(%\S+)\)", program))
    assert len(calls) == 3
    for (before, _), (_, operands) in zip(calls, calls[1:]):
        assert before in [gives.get(o) for o in re.findall(r"%[^\s,]+", operands)]


@compiled
def test_functions_in_functions():
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"))
    outer = jit(lambda x: (inner(x), inner(x * 2.0), hvd.allreduce(x * 3.0, op=hvd.Sum, name="outer")))
    around = tf.function(lambda x: outer(x) + outer(x + 1.0))
    for _ in range(3):
        assert [float(t[0]) for t in outer(tf.ones(2))] == [SIZE, 2 * SIZE, 3 * SIZE]
        assert [float(t[0]) for t in around(tf.ones(2))] == [SIZE * n for n in (1, 2, 3, 2, 4, 6)]


@compiled
def test_a_function_is_traced_for_each_of_both():
    inner = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name="inner"))
    around = tf.function(lambda t: inner(t) + 1.0)
    outer = jit(lambda t: inner(t) * inner(t + 0.0))
    both = tf.function(lambda t: (outer(t), inner(t)))
    mine, total = of(RANK, (3,)), sum(all_of((3,)))
    for _ in range(2):
        same(inner(mine), total)
        same(around(mine), total + 1)
        same(outer(mine), total * total)
        for t, expected in zip(both(mine), (total * total, total)):
            same(t, expected)


@compiled
@pytest.mark.parametrize("around", [jit, tf.function, lambda compute: compute],
                         ids=["compiled", "graph", "eager"])
def test_gradients_of_a_function_that_was_traced_outside(around):
    inner = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name="inner"))
    outer = jit(lambda t: tf.reduce_sum(inner(t) * inner(t * 2.0)))

    def compute(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            value = outer(t)
        return tape.gradient(value, t)

    mine, total = of(RANK, (3,)), sum(all_of((3,)))
    inner(mine)
    same(around(compute)(tf.constant(mine)), 4 * SIZE * total)


@compiled
def test_loops_and_branches():
    @jit
    def sums(x):
        total = tf.zeros_like(x)
        for i in tf.range(10):
            if i % 2 == 0:
                total += hvd.allreduce(x, op=hvd.Sum, name="even")
            else:
                total -= hvd.allreduce(x * 2.0, op=hvd.Sum, name="odd")
        return total + hvd.allreduce(x * 6.0, op=hvd.Sum, name="after")

    same(sums(of(RANK, (3,))), sum(all_of((3,))))


# ---- what can't be ----

def refused(call, *arguments, match=""):
    line = rf"can't be compiled by XLA in TensorFlow .*{match}.*jit_compile=False"
    with pytest.raises(NotImplementedError, match=line):
        call(*arguments)


def test_what_cannot_be_compiled_says_so():
    x = tf.ones([SIZE])
    for call in (lambda t: hvd.alltoall(t), lambda t: hvd.join(), lambda t: hvd.size_op(),
                 lambda t: hvd.process_set_included_op(0)):
        refused(jit(call), x)
    unknown = tf.function(lambda t: hvd.allreduce(t), jit_compile=True,
                          input_signature=[tf.TensorSpec([None], tf.float32)])
    if not xla.why_not():
        refused(unknown, x, match="shape of '.*' is not known")
    else:
        refused(jit(lambda t: hvd.allreduce(t)), x)
    outside = tf.function(lambda t: hvd.alltoall(t))
    outside(x)
    refused(jit(lambda t: outside(t)), x)


@compiled
def test_a_gpu_is_not_a_cpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: ["a GPU"])
    refused(jit(lambda t: hvd.allreduce(t)), tf.ones(2), match="on a GPU")
    with tf.device("/cpu:0"):
        same(jit(lambda t: hvd.allreduce(t, op=hvd.Sum))(tf.ones(2)), [SIZE, SIZE])


@compiled
@several
def test_ranks_that_differ_get_an_error_each():
    for call in (lambda t: hvd.allreduce(t[:RANK + 1], name="count"),
                 lambda t: hvd.allreduce(tf.reshape(t, [3, 4] if RANK == 0 else [4, 3]), name="sizes"),
                 lambda t: hvd.allgather(t[:RANK + 1], name="rows"),
                 lambda t: hvd.allreduce(t, op=hvd.Sum if RANK == 0 else hvd.Max, name="op")):
        with pytest.raises(tf.errors.OpError, match="(allreduce|allgather)[.].*(count|sizes|rows|op)"):
            jit(call)(tf.ones(12))
    same(jit(lambda t: hvd.allreduce(t, op=hvd.Sum, name="after"))(tf.ones(2)), [SIZE, SIZE])


@compiled
def test_sizes_of_another_world(monkeypatch):
    gathered = jit(lambda t: hvd.allgather(t))
    with monkeypatch.context() as world:
        world.setattr(hvd.ProcessSet, "size", lambda self: SIZE + 1)
        gathered.get_concrete_function(tf.ones(2))
    with pytest.raises(tf.errors.OpError, match="make a new tf.function"):
        gathered(tf.ones(2))


def test_auto_of_keras_is_no_compilation(monkeypatch):
    keras = pytest.importorskip("keras")
    if not hasattr(keras.Model, "_resolve_auto_jit_compile"):
        pytest.skip("Keras 2 does not decide by itself")
    xla.never_auto_jit(keras)
    xla.never_auto_jit(keras)
    gpu = types.SimpleNamespace(device_type="GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [gpu])

    def compiles(optimizer):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer=optimizer, loss="mse", jit_compile="auto")
        return model.jit_compile

    ours = keras.optimizers.SGD()
    ours.never_auto_jit = True
    assert compiles(keras.optimizers.SGD())
    assert not compiles(ours) and not compiles(keras.optimizers.LossScaleOptimizer(ours))
