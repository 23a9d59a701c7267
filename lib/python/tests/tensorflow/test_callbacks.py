"""Callbacks for Keras, of berth.keras and of berth.tensorflow.keras; run by runner with any ranks."""
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import berth.keras
import berth.tensorflow.keras
from berth.tensorflow.util import optimizer_variables

hvd = berth.tensorflow
RANK, SIZE = hvd.rank(), hvd.size()
IS_2 = not hasattr(tf.keras, "ops")  # Keras 3 has them
PACKAGES = {"keras": (keras, berth.keras), "tf.keras": (tf.keras, berth.tensorflow.keras)}


@pytest.fixture(params=sorted(PACKAGES))
def packages(request):
    """A Keras, and what Berth has for it."""
    return PACKAGES[request.param]


def same_everywhere(arrays):
    """ARRAYS have the same bits on all ranks."""
    of_all = hvd.allgather_object([np.asarray(a).tobytes() for a in arrays])
    return all(other == of_all[0] for other in of_all)


def mean_of(_, predicted):
    """A loss whose gradient is that of the model alone."""
    return tf.reduce_mean(predicted)


def dense(package, units, value, **arguments):
    return package.layers.Dense(units, kernel_initializer=package.initializers.Constant(value), **arguments)


def model_of(package, optimizer, value=0.0):
    """Each of two weights has VALUE, and the gradient 1 for inputs of 1."""
    model = package.Sequential([package.Input((2,)), dense(package, 1, value, use_bias=False)])
    model.compile(optimizer, mean_of)
    return model


def fit(model, callbacks, epochs=1, batches=3, **arguments):
    x = np.ones([4 * batches, 2], np.float32)
    return model.fit(x, x[:, :1], batch_size=4, epochs=epochs, callbacks=callbacks, verbose=0, **arguments)


def recorder(package, of):
    """A callback that keeps OF(model) after each batch."""
    class Recorder(package.callbacks.Callback):
        seen = []

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append(of(self.model))

    return Recorder()


# ---- variables ----

def optimizers(package):
    kinds = [package.optimizers.SGD, package.optimizers.Adam]
    return kinds + ([package.optimizers.legacy.SGD, package.optimizers.legacy.Adam] if IS_2 else [])


@pytest.mark.parametrize("kind", range(4 if IS_2 else 2))
def test_all_have_the_variables_of_the_root(packages, kind):
    package, own = packages
    make = optimizers(package)[kind]
    optimizer = make(0.1, momentum=0.9) if "SGD" in make.__name__ else make(0.1)
    model = model_of(package, optimizer, value=float(RANK))
    variables = recorder(package, lambda model: [v.numpy() for v in model.weights])
    fit(model, [own.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1), variables])
    np.testing.assert_allclose(variables.seen[0][0], SIZE - 1 - 0.1, rtol=1e-5)
    for seen in (*variables.seen, [v.numpy() for v in optimizer_variables(model.optimizer)]):
        assert same_everywhere(seen)


def test_local_variables_stay(packages):
    package, own = packages
    model = package.Sequential([dense(package, 2, float(RANK)) for _ in range(3)])
    model.build((None, 2))
    model.trainable = False
    model.compile("sgd", "mse")
    kernels = [layer.kernel for layer in model.layers]
    callback = own.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1, local_variables=[kernels[0]])
    callback.register_local_var(kernels[2])
    fit(model, [callback])
    assert [float(k[0, 0]) for k in kernels] == [RANK, SIZE - 1, RANK]


def test_one_local_variable(packages):
    package, own = packages
    model = model_of(package, "sgd", value=float(RANK))
    model.layers[0].trainable = False
    model.compile("sgd", mean_of)
    only = model.layers[0].kernel
    fit(model, [own.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1, "/cpu:0",
                                                               only if IS_2 else only.value)])
    assert float(only[0, 0]) == RANK


# ---- metrics ----

def test_averages_of_metrics(packages):
    _, own = packages
    names = ["b", "a"] if RANK == 0 else ["a", "b"]
    logs = {name: 1.0 + RANK + (name == "b") for name in names}
    logs.update(text=f"rank {RANK}", nothing=None, yes=True, vector=np.array([1.0, RANK]), whole=RANK,
                array=np.float32(RANK), tensor=tf.constant(float(RANK)))
    own.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    mean = (SIZE - 1) / 2
    assert (logs["a"], logs["b"]) == (1 + mean, 2 + mean)
    assert [logs[name] for name in ("whole", "array", "tensor")] == [mean] * 3
    assert (logs["text"], logs["nothing"], logs["yes"]) == (f"rank {RANK}", None, True)
    assert logs["vector"].tolist() == [1.0, RANK]
    own.callbacks.MetricAverageCallback(device="/cpu:0").on_epoch_end(0)


def test_averages_in_the_history(packages):
    package, own = packages
    model = model_of(package, "sgd", value=float(RANK))
    history = fit(model, [own.callbacks.MetricAverageCallback()], epochs=2).history
    assert same_everywhere([history["loss"]])
    assert SIZE == 1 or history["loss"][0] != 0


# ---- learning rates ----

def rates(package):
    return recorder(package, lambda model: float(model.optimizer.learning_rate))


def test_a_schedule_of_epochs(packages):
    package, own = packages
    schedule = own.callbacks.LearningRateScheduleCallback
    seen = rates(package)
    schedules = [schedule(0.5, 0.1, start_epoch=1, end_epoch=4),
                 schedule(2.0, lambda epoch: epoch, start_epoch=4)]
    history = fit(model_of(package, "sgd"), [*schedules, seen], epochs=6, batches=2).history
    expected = [0.01, 0.5, 0.05, 0.005, 8, 10]
    np.testing.assert_allclose(seen.seen, np.repeat(expected, 2), rtol=1e-6)
    np.testing.assert_allclose(history["lr"], expected, rtol=1e-6)


def test_a_schedule_of_batches(packages):
    package, own = packages
    seen = rates(package)
    fit(model_of(package, "sgd"), [own.callbacks.LearningRateScheduleCallback(
        2.0, lambda epoch: 1 + epoch, end_epoch=2, staircase=False), seen], epochs=3, batches=4)
    np.testing.assert_allclose(seen.seen, [2 + i / 2 for i in range(8)] + [5.5] * 4, rtol=1e-6)


def test_warm_up(packages, capfd):
    package, own = packages
    seen = rates(package)
    warmup = own.callbacks.LearningRateWarmupCallback(0.3, 2, verbose=1)
    fit(model_of(package, "sgd"), [warmup, seen], epochs=3)
    done = np.minimum(np.arange(1, 10) / 6, 1)  # of the warm-up, after each batch
    np.testing.assert_allclose(seen.seen, 0.3 * (1 + (SIZE - 1) * done) / SIZE, rtol=1e-5)
    said = capfd.readouterr().out
    assert ("Epoch 2: finished gradual learning rate warmup to 0.3." in said) == (RANK == 0)


def test_a_schedule_that_lacks_something(packages):
    package, own = packages
    schedule = own.callbacks.LearningRateScheduleCallback
    with pytest.raises(ValueError, match="LearningRateScheduleCallback needs initial_lr"):
        schedule(None, 0.1)
    shapes = tf.TensorSpec((4, 2)), tf.TensorSpec((4, 1))
    unknown = tf.data.Dataset.from_generator(lambda: iter([(np.ones((4, 2)), np.ones((4, 1)))]),
                                             output_signature=shapes)
    with pytest.raises(ValueError, match="give LearningRateWarmupCallback steps_per_epoch"):
        model_of(package, "sgd").fit(unknown, verbose=0,
                                     callbacks=[own.callbacks.LearningRateWarmupCallback(0.1)])
    seen = rates(package)
    model_of(package, "sgd").fit(unknown, verbose=0, callbacks=[
        own.callbacks.LearningRateWarmupCallback(0.1, 1, steps_per_epoch=1), seen])
    np.testing.assert_allclose(seen.seen, [0.1], rtol=1e-6)


@pytest.mark.parametrize("kind", ["new", "legacy", "RMSprop"])
@pytest.mark.parametrize("is_corrected", [True, False])
def test_momentum(packages, kind, is_corrected):
    """v = m * (new rate / old rate) * v - new rate * gradient."""
    package, own = packages
    if kind == "legacy" and not IS_2:
        pytest.skip("Keras 3 has no legacy optimizers")
    makers = package.optimizers.legacy if kind == "legacy" else package.optimizers
    if kind == "RMSprop":
        optimizer = makers.RMSprop(1.0, rho=0.0, momentum=0.5, epsilon=0.0)
    else:
        optimizer = makers.SGD(1.0, momentum=0.5)
    weight = recorder(package, lambda model: float(np.asarray(model.get_weights()[0])[0, 0]))
    fit(model_of(package, optimizer), [own.callbacks.LearningRateScheduleCallback(
        1.0, lambda epoch: 4 ** epoch, momentum_correction=is_corrected), weight], epochs=3, batches=2)
    w, v, before, expected = 0.0, 0.0, 1.0, []
    for rate in (1.0, 1.0, 4.0, 4.0, 16.0, 16.0):
        v = 0.5 * (rate / before if is_corrected else 1) * v - rate
        w, before = w + v, rate
        expected.append(w)
    np.testing.assert_allclose(weight.seen, expected, rtol=1e-5)


# ---- checkpoints ----

@pytest.mark.parametrize("weights_only", [False, True], ids=["model", "weights"])
def test_the_best_of_rank_0_is_saved(packages, tmp_path, weights_only):
    package, own = packages
    checkpoint = own.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=weights_only)
    assert isinstance(checkpoint, package.callbacks.ModelCheckpoint)
    with pytest.raises(ValueError, match="set its filepath"):
        fit(model_of(package, "sgd"), [checkpoint])
    path = checkpoint.filepath = str(tmp_path / ("best.weights.h5" if weights_only else "best.keras"))
    model = model_of(package, "sgd")
    fit(model, [checkpoint], epochs=2)
    assert os.path.exists(path) == (RANK == 0)
    if RANK == 0:
        other = model_of(package, "sgd")
        if weights_only:
            other.load_weights(path)
        else:
            other = package.models.load_model(path, compile=False)
        np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


# ---- elastic ----

def test_states_are_kept(packages):
    package, own = packages
    model = model_of(package, "sgd")
    state = own.elastic.KerasState(model, batch=0, epoch=5)
    commits, batches = [], []
    state.commit = lambda: commits.append((state.epoch, state.batch))
    watch = recorder(package, lambda _: batches.append(state.batch))
    callbacks = [own.elastic.UpdateBatchStateCallback(state), watch,
                 own.elastic.CommitStateCallback(state, batches_per_commit=2),
                 own.elastic.UpdateEpochStateCallback(state)]
    fit(model, callbacks, epochs=2, batches=3)
    assert batches == [0, 1, 2] * 2 and (state.batch, state.epoch) == (0, 7)
    assert commits == [(5, 1), (5, 0), (6, 1), (6, 0)]
    fit(model, callbacks)
    assert state.epoch == 8
    assert all(isinstance(callback, package.callbacks.Callback) for callback in callbacks)


# ---- TensorFlow 1 ----

@pytest.mark.skipif(not IS_2, reason="Keras 3 has no sessions")
def test_in_a_session(packages):
    package, own = packages
    backend = tf.compat.v1.keras.backend
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        backend.set_session(session)
        model = model_of(package, package.optimizers.legacy.SGD(1.0, momentum=0.5), value=float(RANK))
        weight = recorder(package, lambda model: model.get_weights()[0])
        callbacks = [own.callbacks.BroadcastGlobalVariablesCallback(0), own.callbacks.MetricAverageCallback(),
                     own.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 4 ** epoch), weight]
        history = fit(model, callbacks, epochs=2, batches=2).history
        assert same_everywhere(weight.seen) and same_everywhere([history["loss"]])
        np.testing.assert_allclose([w[0, 0] for w in weight.seen], [-1, -2.5, -9.5, -17], rtol=1e-5)
    backend.clear_session()
