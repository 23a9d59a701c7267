"""SyncBatchNormalization on shares of a batch against Keras' layer on the whole; run by runner with any
number of ranks.
"""
import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd
from berth.tensorflow.util import variable_of

RANK, SIZE = hvd.rank(), hvd.size()
keras = tf.keras
IS_2 = not hasattr(tf.keras, "ops")  # Keras 3 has them


def share(array, sizes):
    return np.split(array, np.cumsum(sizes)[:-1])[RANK]


def pair(dtype="float64", **arguments):
    plain = keras.layers.BatchNormalization(dtype=dtype, **arguments, **({"fused": False} if IS_2 else {}))
    return hvd.SyncBatchNormalization(dtype=dtype, **arguments), plain


def step(layer, x, wanted, is_function=False, **arguments):
    """(output, gradient of the input, gradients of the parameters) of one step of training."""
    def run(x, wanted):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = layer(x, training=True, **arguments)
            loss = tf.reduce_sum(out * wanted)
        return out, *tape.gradient(loss, [x, variable_of(layer.gamma), variable_of(layer.beta)])

    call = tf.function(run) if is_function else run
    return [t.numpy() for t in call(tf.constant(x), tf.constant(wanted))]


def summed(array):
    return hvd.allreduce(array, op=hvd.Sum).numpy()


def compare(shape, sizes, tolerance=1e-9, dtype="float64", at=100, is_function=False, **arguments):
    """Two steps, and what comes without training.  SIZES: of the ranks' batches."""
    ours, plain = pair(dtype, **arguments)
    random = np.random.default_rng(1)
    close = {"rtol": tolerance, "atol": tolerance}
    for _ in range(2):
        whole = (random.standard_normal((sum(sizes), *shape)) * 3 + at).astype(dtype)
        wanted = random.standard_normal(whole.shape).astype(dtype)
        expected = step(plain, whole, wanted)
        found = step(ours, share(whole, sizes), share(wanted, sizes), is_function)
        for a, b in zip(found[:2], expected[:2]):
            np.testing.assert_allclose(a, share(b, sizes), **close)
        for a, b in zip(found[2:], expected[2:]):
            np.testing.assert_allclose(summed(a), b, rtol=tolerance, atol=tolerance * sum(sizes))
        for a, b in zip(ours.weights, plain.weights):
            np.testing.assert_allclose(a.numpy(), b.numpy(), **close)
    x = share(whole, sizes)
    np.testing.assert_allclose(ours(x).numpy(), plain(x).numpy(), **close)


@pytest.mark.parametrize("is_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 3, 4), (2, 2, 2, 4)], ids=str)
def test_as_one_process(shape, is_function):
    compare(shape, [3] * SIZE, is_function=is_function)


def test_batches_of_different_sizes():
    compare((3, 4), [1 + 2 * r for r in range(SIZE)] if SIZE > 1 else [4])


def test_a_rank_without_samples():
    if SIZE == 1:
        pytest.skip("one rank has all samples")
    compare((3, 4), [0] + [3] * (SIZE - 1))


@pytest.mark.parametrize("arguments", [{"axis": 1}, {"momentum": 0.5}, {"epsilon": 0.5}], ids=str)
def test_arguments(arguments):
    compare((4, 3, 2), [2] * SIZE, **arguments)


@pytest.mark.skipif(not IS_2, reason="Keras 3 has one axis")
def test_two_axes():
    compare((4, 3, 2), [2] * SIZE, axis=[1, 3])


def test_float32_far_from_zero():
    """Where the mean is 10,000 times the deviation a sum of squares of 32 bits says nothing."""
    ours, _ = pair("float32")
    x = (np.random.default_rng(RANK).standard_normal((64, 2)) + 1e4).astype("float32")
    whole = hvd.allgather(x).numpy().astype("float64")
    out = ours(x, training=True).numpy()
    expected = (x - whole.mean(0)) / np.sqrt(whole.var(0) + 1e-3)
    np.testing.assert_allclose(out, expected, atol=5e-3)


def test_16_bits():
    for dtype in ("mixed_float16", "mixed_bfloat16"):
        layer = hvd.SyncBatchNormalization(dtype=dtype)
        x = tf.cast(tf.range(8.0)[:, None] + RANK, dtype[6:])
        out = layer(x, training=True)
        assert out.dtype == x.dtype
        np.testing.assert_allclose(summed(tf.reduce_sum(tf.cast(out, tf.float32))), 0, atol=0.1 * SIZE)


def test_a_mask():
    """What it leaves out counts nowhere, on no rank."""
    ours, plain = pair()
    x = np.random.default_rng(2).standard_normal((2 * SIZE, 3, 4)) + 5
    mask = np.arange(6 * SIZE).reshape(2 * SIZE, 3) % 4 != 1
    x[~mask] = 1e6
    expected = plain(x[mask][None], training=True).numpy()[0]
    sizes = [2] * SIZE
    out = ours(share(x, sizes), training=True, mask=tf.constant(share(mask, sizes))).numpy()
    before = int(mask[:2 * RANK].sum())
    mine = out[share(mask, sizes)]
    np.testing.assert_allclose(mine, expected[before:before + len(mine)], rtol=1e-5, atol=1e-5)


def test_frozen():
    layer = hvd.SyncBatchNormalization(trainable=False)
    x = np.ones((2, 3), np.float32) * (5 + RANK)
    np.testing.assert_allclose(layer(x, training=True), x / np.sqrt(1.001), rtol=1e-6)


def test_within_a_model(tmp_path):
    """Two of them, fit() on a batch of its own on each rank: the same means on all; saved, and loaded."""
    if RANK == 0:  # whose layers then have other names
        keras.Sequential([keras.layers.Dense(2), hvd.SyncBatchNormalization()]).build((None, 2))
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    hidden = hvd.SyncBatchNormalization()(keras.layers.Dense(4)(inputs))
    outputs = hvd.SyncBatchNormalization()(keras.layers.Dense(3)(hidden))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    random = np.random.default_rng(RANK)
    x, y = random.standard_normal((8, 6)).astype("float32"), random.standard_normal((8, 3)).astype("float32")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    weights = model.get_weights()
    assert not np.allclose(weights[4], 0)  # a moving mean
    for other in hvd.allgather_object(weights):
        for a, b in zip(weights, other):
            np.testing.assert_array_equal(a, b)
    path = str(tmp_path / "model.keras")
    model.save(path)
    given = {"SyncBatchNormalization": hvd.SyncBatchNormalization}
    loaded = keras.models.load_model(path, custom_objects=given)
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)


def test_fused():
    with pytest.raises(ValueError, match="has no fused implementation"):
        hvd.SyncBatchNormalization(fused=True)
