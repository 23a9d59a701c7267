"""The collectives of berth.tensorflow, against NumPy; run by runner with any number of ranks.

Each is called in three ways: eagerly, in a tf.function, in a session of TensorFlow 1.
"""
import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd
from berth.tensorflow import ops

RANK, SIZE = hvd.rank(), hvd.size()
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
SUMMED = [tf.uint8, tf.int8, tf.int32, tf.int64, *FLOATS]
MOVED = [*SUMMED, tf.uint16, tf.int16, tf.uint32, tf.uint64, tf.bool]
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]


def eagerly(call, *arrays):
    return call(*map(tf.constant, arrays))


def in_function(call, *arrays):
    # of unknown sizes, so that one trace serves for all
    types = [tf.TensorSpec([None] * np.ndim(a), a.dtype) for a in arrays]
    return tf.function(call, input_signature=types)(*map(tf.constant, arrays))


def in_session(call, *arrays):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        places = [tf.compat.v1.placeholder(a.dtype, a.shape) for a in arrays]
        return session.run(call(*places), dict(zip(places, arrays)))


WAYS = [eagerly, in_function, in_session]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
each_summed = pytest.mark.parametrize("dtype", SUMMED, ids=lambda dtype: dtype.name)
each_moved = pytest.mark.parametrize("dtype", MOVED, ids=lambda dtype: dtype.name)


def of(rank, shape, dtype=tf.float32):
    """What RANK gives: small whole numbers, so that sums are exact."""
    n = int(np.prod(shape, dtype=int))
    return (np.arange(n).reshape(shape) % 5 + rank + 1).astype(dtype.as_numpy_dtype)


def all_of(shape, dtype=tf.float32):
    return [of(r, shape, dtype) for r in range(SIZE)]


def same(result, expected):
    result, expected = result.numpy() if tf.is_tensor(result) else np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


REDUCTIONS = {hvd.Sum: sum, hvd.Min: np.minimum.reduce, hvd.Max: np.maximum.reduce,
              hvd.Product: np.multiply.reduce}


# ---- allreduce ----

@each_way
@each_summed
def test_allreduce_is_what_numpy_says(way, dtype):
    for shape in SHAPES if way is eagerly else [(3, 4)]:
        for op, reduce in REDUCTIONS.items():
            expected = reduce([a.astype(np.float64) for a in all_of(shape, dtype)])
            result = way(lambda t: hvd.allreduce(t, op=op, name="sum"), of(RANK, shape, dtype))
            assert result.dtype == dtype
            same(result, np.asarray(expected).astype(dtype.as_numpy_dtype))


@each_way
def test_an_average_divides_and_scales_multiply(way):
    mine, mean = of(RANK, (3, 4), tf.float64), sum(all_of((3, 4), tf.float64)) / SIZE
    for call in (lambda t: hvd.allreduce(t), lambda t: hvd.allreduce(t, average=True)):
        np.testing.assert_allclose(way(call, mine), mean, rtol=1e-15)
    third = way(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.1), mine)
    np.testing.assert_allclose(third, mean * SIZE / 30, rtol=1e-14)  # a factor of 32 bits would be 1e-8 off


@each_way
def test_a_group_is_one_request(way):
    arrays = [of(RANK, (2, 3)), of(RANK, ()), of(RANK, (4,), tf.int64)]
    out = way(lambda *t: hvd.grouped_allreduce(t, op=hvd.Sum), *arrays)
    same(out[0], sum(all_of((2, 3))))
    same(out[1], sum(all_of(())))
    same(out[2], sum(all_of((4,), tf.int64)))


@each_way
def test_adasum_of_equal_vectors_is_one_of_them(way):
    same(way(lambda t: hvd.allreduce(t, op=hvd.Adasum), np.array([1.0, 2.0])), [1.0, 2.0])


@each_way
@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression(way, compression):
    result = way(lambda t: hvd.allreduce(t, op=hvd.Sum, compression=compression), of(RANK, (3,)))
    assert result.dtype == np.float32
    same(result, sum(all_of((3,))))


def test_slices_of_all_ranks():
    slices = tf.IndexedSlices(tf.fill([RANK + 1, 2], float(RANK)), tf.range(RANK + 1), tf.constant([SIZE, 2]))
    out = hvd.allreduce(slices, op=hvd.Sum)
    same(out.values, np.concatenate([np.full((r + 1, 2), r, np.float32) for r in range(SIZE)]))
    same(out.indices, np.concatenate([np.arange(r + 1) for r in range(SIZE)]))
    mean = hvd.allreduce(slices)
    np.testing.assert_allclose(mean.values, np.asarray(out.values) / SIZE, rtol=1e-6)
    for more in ({"op": hvd.Adasum}, {"prescale_factor": 0.5}):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **more)


# ---- what only moves ----

@each_way
@each_moved
def test_moves_of_each_type(way, dtype):
    mine = of(RANK, (2 * SIZE, 3), dtype)
    gathered = way(lambda t: hvd.allgather(t), mine[:RANK + 1])
    same(gathered, np.concatenate([a[:r + 1] for r, a in enumerate(all_of((2 * SIZE, 3), dtype))]))
    same(way(lambda t: hvd.broadcast(t, SIZE - 1), mine), of(SIZE - 1, (2 * SIZE, 3), dtype))
    even = way(lambda t: hvd.alltoall(t), mine)
    same(even, np.concatenate([a[2 * RANK:2 * RANK + 2] for a in all_of((2 * SIZE, 3), dtype)]))


@each_way
def test_alltoall_by_splits(way):
    mine = np.arange(SIZE * (SIZE + 1) // 2, dtype=np.int64) + 100 * RANK  # r rows and one more to rank r
    out, received = way(lambda t: hvd.alltoall(t, splits=list(range(1, SIZE + 1))), mine)
    first = RANK * (RANK + 1) // 2
    same(out, np.concatenate([np.arange(first, first + RANK + 1) + 100 * r for r in range(SIZE)]))
    same(received, [RANK + 1] * SIZE)
    none, received = way(lambda t: hvd.alltoall(t, splits=[0] * SIZE), np.zeros((0, 2), np.float32))
    assert np.asarray(none).shape == (0, 2) and list(np.asarray(received)) == [0] * SIZE


@pytest.mark.skipif(ops._module is None, reason="numpy_function does not count rows without elements")
@each_way
def test_rows_without_elements_are_counted(way):
    mine = np.zeros((RANK + 1, 0), np.float32)
    assert np.asarray(way(lambda t: hvd.allgather(t), mine)).shape == (SIZE * (SIZE + 1) // 2, 0)
    out, received = way(lambda t: hvd.alltoall(t, splits=[1] + [0] * (SIZE - 1)), mine)
    assert np.asarray(out).shape == (SIZE if RANK == 0 else 0, 0)
    assert list(np.asarray(received)) == [1 if RANK == 0 else 0] * SIZE


@each_way
def test_groups_gather_and_scatter(way):
    mine = of(RANK, (SIZE + 1, 2))
    out = way(lambda a, b: hvd.grouped_allgather([a, b]), mine, mine[:RANK])
    same(out[0], np.concatenate(all_of((SIZE + 1, 2))))
    same(out[1], np.concatenate([a[:r] for r, a in enumerate(all_of((SIZE + 1, 2)))]))
    whole = sum(all_of((SIZE + 1, 2)))
    first = 0 if RANK == 0 else RANK + 1  # rank 0 has one row more
    rows = whole[first:first + (2 if RANK == 0 else 1)]
    same(way(lambda t: hvd.reducescatter(t, op=hvd.Sum), mine), rows)
    for result in way(lambda a, b: hvd.grouped_reducescatter([a, b], op=hvd.Sum), mine, mine):
        same(result, rows)
    np.testing.assert_allclose(way(lambda t: hvd.reducescatter(t, prescale_factor=2.0), mine),
                               rows * 2 / SIZE, rtol=1e-6)


def test_shapes_are_known_before_a_graph_runs():
    with tf.Graph().as_default():
        t = tf.compat.v1.placeholder(tf.float32, [4, 7])
        assert hvd.allreduce(t).shape == [4, 7] and hvd.broadcast(t, 0).shape == [4, 7]
        assert hvd.allgather(t).shape.as_list() == [None, 7]
        assert hvd.reducescatter(t).shape.as_list() == [None, 7]
        out, received = hvd.alltoall(t, splits=[4] + [0] * (SIZE - 1))
        assert out.shape.as_list() == [None, 7] and received.shape.as_list() == [None]
        assert hvd.size_op().shape == []
        with pytest.raises(ValueError):
            hvd.allgather(tf.compat.v1.placeholder(tf.float32, []))


@each_way
def test_numbers_of_the_world(way):
    def numbers():
        return (hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(),
                hvd.process_set_included_op())

    assert [int(n) for n in way(numbers)] == [SIZE, RANK, hvd.local_size(), hvd.local_rank(), 1]


@each_way
def test_process_sets(way):
    sets = [hvd.add_process_set([r]) for r in range(SIZE)] if SIZE > 1 else [hvd.global_process_set]
    mine = sets[RANK]
    same(way(lambda t: hvd.allreduce(t, op=hvd.Sum, process_set=mine, prescale_factor=2.0), of(RANK, (3,))),
         2 * of(RANK, (3,)))
    same(way(lambda t: hvd.broadcast(t, RANK, process_set=mine), of(RANK, (3,))), of(RANK, (3,)))
    assert int(way(lambda: hvd.size_op(mine.process_set_id))) == 1
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        way(lambda t: hvd.broadcast(t, SIZE, process_set=mine), of(RANK, (3,)))
    if SIZE > 1:
        assert int(way(lambda: hvd.process_set_included_op(sets[RANK - 1].process_set_id))) == 0
        everybody = hvd.add_process_set(range(SIZE - 1)) if SIZE > 2 else None
        if everybody and RANK < SIZE - 1:
            same(way(lambda t: hvd.allreduce(t, op=hvd.Sum, process_set=everybody), of(RANK, (3,))),
                 sum(all_of((3,))[:SIZE - 1]))
        for each in [*sets, *filter(None, [everybody])]:
            hvd.remove_process_set(each)
        with pytest.raises(ValueError):
            hvd.allreduce(tf.ones(1), process_set=mine)


@each_way
def test_join_gives_zeros_to_others(way):
    if RANK == 0 and SIZE > 1:
        # while the others have joined, or are about to
        same(way(lambda t: hvd.allreduce(t, op=hvd.Sum, name="joined"), np.ones(2, np.float32)), [1.0, 1.0])
    last = int(way(hvd.join))
    assert 0 <= last < SIZE


# ---- gradients ----

@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])
def test_gradients(is_graph):
    if SIZE > 1:
        factor = np.arange(1.0, SIZE + 1)  # rank r's loss counts r + 1 times
    else:
        factor = np.ones(1)

    def gradient(call, *arrays):
        def compute(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                out = call(*tensors)
                loss = sum(tf.reduce_sum(t) for t in (out if isinstance(out, list) else [out]))
                loss *= tf.cast(factor[RANK], loss.dtype)
            return tape.gradient(loss, tensors)

        return (tf.function(compute) if is_graph else compute)(*map(tf.constant, arrays))

    mine, total, mean = of(RANK, (2 * SIZE, 3), tf.float64), factor.sum(), factor.mean()
    ones = np.ones_like(mine)
    same(gradient(lambda t: hvd.allreduce(t, op=hvd.Sum), mine)[0], ones * total)
    np.testing.assert_allclose(gradient(lambda t: hvd.allreduce(t, prescale_factor=0.5), mine)[0],
                               ones * mean / 2)
    for g in gradient(lambda *t: hvd.grouped_allreduce(t, op=hvd.Sum), mine, mine):
        same(g, ones * total)
    np.testing.assert_allclose(gradient(lambda t: hvd.allgather(t), mine[:RANK + 1])[0],
                               ones[:RANK + 1] * mean)
    for g in gradient(lambda *t: hvd.grouped_allgather(t), mine, mine):
        np.testing.assert_allclose(g, ones * mean)
    np.testing.assert_allclose(gradient(lambda t: hvd.broadcast(t, 0), mine)[0],
                               ones * mean if RANK == 0 else 0 * ones)
    back = gradient(lambda t: hvd.alltoall(t), mine)[0]
    np.testing.assert_allclose(back, np.repeat(factor, 2)[:, None] * ones)
    rows = np.repeat(factor, 2)[:, None] * ones
    np.testing.assert_allclose(gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), mine)[0], rows * SIZE)
    for g in gradient(lambda *t: hvd.grouped_reducescatter(list(t)), mine, mine):
        np.testing.assert_allclose(g, rows)


# ---- variables, objects ----

@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
def test_variables_of_the_root(is_graph):
    variables = [tf.Variable(of(RANK, (3,))), tf.Variable(RANK, dtype=tf.int64)]

    def spread():
        hvd.broadcast_variables(variables, root_rank=SIZE - 1)

    (tf.function(spread) if is_graph else spread)()
    same(variables[0], of(SIZE - 1, (3,)))
    same(variables[1], SIZE - 1)


def test_variables_of_keras():
    keras = pytest.importorskip("keras")
    layer = keras.layers.Dense(3)
    layer.build((None, 2))
    layer.set_weights([np.full((2, 3), RANK + 1.0), np.full(3, RANK + 2.0)])
    hvd.broadcast_variables(layer.variables, root_rank=0)
    assert [w.tolist() for w in layer.get_weights()] == [[[1.0] * 3] * 2, [2.0] * 3]


def test_sessions_of_tensorflow_1():
    with tf.Graph().as_default():
        v = tf.compat.v1.get_variable("v", initializer=float(RANK + 1))
        tf.compat.v1.train.get_or_create_global_step()
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert session.run(v) == 1.0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=float(RANK + 1))
        everywhere = hvd.broadcast_global_variables(SIZE - 1)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(everywhere)
        assert session.run(v) == SIZE
    with pytest.raises(RuntimeError):
        hvd.broadcast_global_variables(0)


def test_objects():
    assert hvd.broadcast_object({"rank": RANK}, root_rank=SIZE - 1) == {"rank": SIZE - 1}
    assert hvd.broadcast_object_fn(root_rank=0)(RANK) == 0
    assert hvd.allgather_object(RANK) == list(range(SIZE))
