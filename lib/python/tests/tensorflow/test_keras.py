"""Optimizers of tf.keras and of keras, whichever there are; run by runner, with any ranks."""
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow
import berth.tensorflow.keras as hvd
from berth.tensorflow import ops
from training import check_weights, data, same_everywhere

RANK, SIZE = hvd.rank(), hvd.size()
RANKS = np.arange(SIZE) + 1.0
keras = tf.keras
is_keras_3 = hasattr(keras.optimizers.Optimizer, "stateless_apply")
OPTIMIZERS = {"SGD": keras.optimizers.SGD}
if not is_keras_3:
    OPTIMIZERS["legacy"] = keras.optimizers.legacy.SGD
each_optimizer = pytest.mark.parametrize("kind", OPTIMIZERS)
several = pytest.mark.skipif(SIZE == 1, reason="one rank reduces nothing")


def applied(optimizer, variables, gradients, is_graph):
    def apply():
        optimizer.apply_gradients(zip([tf.convert_to_tensor(g) for g in gradients], variables))

    (tf.function(apply) if is_graph else apply)()


def variable_of(values):
    return keras.Variable(values, dtype="float32") if is_keras_3 else tf.Variable(values, dtype=tf.float32)


def value_of(variable):
    return np.asarray(variable)


@each_optimizer
@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("groups", [None, 1])
def test_a_step(kind, is_graph, groups):
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[kind](1.0), groups=groups)
    variables = [variable_of([0.0, 0.0]), variable_of([[0.0]])]
    optimizer.build(variables) if hasattr(optimizer, "build") else None
    applied(optimizer, variables, [np.float32([RANK + 1.0] * 2), np.float32([[RANK + 1.0]])], is_graph)
    for variable in variables:
        np.testing.assert_allclose(value_of(variable), -np.mean(RANKS))


@each_optimizer
@pytest.mark.parametrize("is_averaged", [False, True])
@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
def test_several_passes(kind, is_averaged, is_graph):
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[kind](1.0), backward_passes_per_step=2,
                                         average_aggregated_gradients=is_averaged)
    variable = variable_of([0.0])
    if hasattr(optimizer, "build"):
        optimizer.build([variable])
    each = np.mean(RANKS) * (1 if is_averaged else 2)
    for step, expected in enumerate((0, each, each, 2 * each)):
        applied(optimizer, [variable], [np.float32([RANK + 1.0])], is_graph)
        np.testing.assert_allclose(value_of(variable), -expected)
        assert int(optimizer.iterations) == step + 1


@each_optimizer
def test_what_is_refused(kind):
    optimizer = OPTIMIZERS[kind](1.0)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(optimizer))
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        hvd.DistributedOptimizer(optimizer, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="op=Average only"):
        hvd.DistributedOptimizer(optimizer, gradient_predivide_factor=2.0, op=hvd.Sum)


@several
def test_local_layers():
    layers = [keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False) for _ in range(2)]
    for layer in layers:
        layer.build((None, 1))
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=layers[0])
    variables = [layer.trainable_weights[0] for layer in layers]
    applied(optimizer, variables, [np.float32([[RANK + 1.0]])] * 2, is_graph=False)
    np.testing.assert_allclose(value_of(variables[0]), -(RANK + 1.0) / SIZE)
    np.testing.assert_allclose(value_of(variables[1]), -np.mean(RANKS))


# ---- training ----

def model_of(seed, optimizer, dtype="float64", **arguments):
    made = keras.Sequential([keras.layers.Dense(5, activation="tanh", dtype=dtype),
                             keras.layers.Dense(1, dtype=dtype)])
    made.build((None, 3))
    random = np.random.RandomState(seed)
    made.set_weights([random.randn(*w.shape) for w in made.get_weights()])
    made.compile(optimizer=optimizer, loss="mse", **arguments)
    return made


def joined_weights(model):
    return np.concatenate([w.ravel() for w in model.get_weights()])


@each_optimizer
@pytest.mark.parametrize("more", [{}, {"groups": 1}, {"gradient_predivide_factor": 2.0}])
def test_twenty_steps_are_those_of_one_rank(kind, more):
    """That has all ranks' batches, the same rate, and doubles."""
    floats = keras.backend.floatx()
    keras.backend.set_floatx("float64")
    try:
        everything, mine = data(20, 4)
        alone = model_of(7, OPTIMIZERS[kind](0.1))
        alone.fit(*everything, batch_size=4 * SIZE, shuffle=False, verbose=0)
        together = model_of(7 if RANK == 0 else RANK, hvd.DistributedOptimizer(OPTIMIZERS[kind](0.1), **more))
        berth.tensorflow.broadcast_variables(together.variables, root_rank=0)
        together.fit(*mine, batch_size=4, shuffle=False, verbose=0)
    finally:
        keras.backend.set_floatx(floats)
    check_weights(together.get_weights(), alone.get_weights())


@each_optimizer
def test_scaled_losses(kind):
    """An infinite gradient on one rank: all leave out the step."""
    scaler = keras.mixed_precision.LossScaleOptimizer
    arguments = {"initial_scale": 4.0}
    optimizer = hvd.DistributedOptimizer(scaler(OPTIMIZERS[kind](1.0), **arguments))
    variable = variable_of([0.0])
    if hasattr(optimizer, "build"):
        optimizer.build([variable])
    for gradient, expected in ((4.0 * (RANK + 1), np.mean(RANKS)),
                               (np.inf if RANK == 0 else 1.0, np.mean(RANKS))):
        applied(optimizer, [variable], [np.float32([gradient])], is_graph=True)
        times = 1 if is_keras_3 else 4  # Keras 2 leaves it to get_unscaled_gradients()
        np.testing.assert_allclose(value_of(variable), -expected * times)


def test_mixed_precision():
    """Keras itself puts the optimizer in a LossScaleOptimizer."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        x = np.full([8, 2], 1.0 + RANK, np.float32)
        if RANK == 0:
            x[0, 0] = np.inf
        model.fit(x, np.ones([8, 1], np.float32), batch_size=2, shuffle=False, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert np.isfinite(joined_weights(model)).all()
    assert same_everywhere(model.get_weights())


def test_a_saved_model_needs_no_berth():
    model = model_of(3, hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), dtype="float32")
    x, y = np.ones([4, 3], np.float32), np.ones([4, 1], np.float32)
    model.fit(x, y, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        plain = keras.models.load_model(path)
        assert type(plain.optimizer) is keras.optimizers.Adam
        again = hvd.load_model(path)
    assert type(again.optimizer) is not keras.optimizers.Adam
    assert isinstance(again.optimizer, keras.optimizers.Adam)
    for made in (model, plain, again):
        assert int(made.optimizer.iterations) == 1
    again.fit(x, y, verbose=0)
    model.fit(x, y, verbose=0)
    np.testing.assert_allclose(joined_weights(again), joined_weights(model), rtol=1e-6)


@pytest.mark.skipif(not is_keras_3, reason="of Keras 3")
def test_optimizers_of_keras_itself():
    import keras as package

    import berth.keras
    optimizer = berth.keras.DistributedOptimizer(package.optimizers.SGD(1.0))
    variable = package.Variable([0.0])
    optimizer.build([variable])
    applied(optimizer, [variable], [np.float32([RANK + 1.0])], is_graph=True)
    np.testing.assert_allclose(value_of(variable), -np.mean(RANKS))


@pytest.mark.skipif(not is_keras_3 or ops._module is None, reason="of Keras 3, and the ops")
def test_jit_compile():
    """With XLA the same weights; "auto", which Keras takes for yes where there is a GPU, is no."""
    def trained(optimizer, **arguments):
        model = model_of(3, optimizer, dtype="float32", **arguments)
        model.fit(*data(4, 2)[1], batch_size=2, shuffle=False, verbose=0)
        return model

    def optimizer():
        return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))

    by_xla, plain = trained(optimizer(), jit_compile=True), trained(optimizer(), jit_compile=False)
    np.testing.assert_allclose(joined_weights(by_xla), joined_weights(plain), rtol=1e-5)
    auto = model_of(3, optimizer(), dtype="float32", jit_compile="auto")
    assert not auto._resolve_auto_jit_compile()


def test_functions_of_values():
    assert float(hvd.allreduce(RANK + 1.0)) == np.mean(RANKS)
    assert hvd.allgather([RANK]).numpy().tolist() == list(range(SIZE))
    assert float(hvd.broadcast(RANK + 5.0, root_rank=0)) == 5.0
    assert hvd.reducescatter(np.ones([SIZE]), op=hvd.Sum).numpy().tolist() == [SIZE]
