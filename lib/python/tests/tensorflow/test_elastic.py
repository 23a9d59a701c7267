"""berth.tensorflow.elastic, and what Keras' states are; run by runner with any number of ranks."""
import os

import numpy as np
import pytest
import tensorflow as tf

import berth.elastic
import berth.keras
import berth.tensorflow as hvd
import berth.tensorflow.keras
from berth import basics
from berth.tensorflow import elastic
from berth.tensorflow.util import optimizer_variables
from training import same_everywhere

RANK, SIZE = hvd.rank(), hvd.size()
IS_2 = not hasattr(tf.keras, "ops")  # Keras 3 has them
SGDS = [tf.keras.optimizers.SGD] + ([tf.keras.optimizers.legacy.SGD] if IS_2 else [])
of_runner = pytest.mark.skipif("BERTH_AGENT" not in os.environ, reason="runner did not start it")
only_2 = pytest.mark.skipif(not IS_2, reason="Keras 3 has no sessions")


# ---- variables ----

def test_variables():
    v, w = tf.Variable([1.0 + RANK, 2.0]), tf.Variable(RANK, dtype=tf.int64)
    state = elastic.TensorFlowState([v, w], batch=20 + RANK, epoch=10 + RANK)
    assert (state.variables, state.batch) == ([v, w], 20 + RANK)
    state.sync()
    assert v.numpy().tolist() == [1, 2] and (int(w), state.batch, state.epoch) == (0, 20, 10)
    v.assign([5, 6])
    w.assign(7)
    state.batch = 21
    for _ in range(2):
        state.restore()
        assert v.numpy().tolist() == [1, 2] and (int(w), state.batch) == (0, 20)
    v.assign([5, 6])
    state.commit()
    v.assign([7, 8])
    state.restore()
    assert v.numpy().tolist() == [5, 6]


def test_a_state_of_variables_alone():
    v = tf.Variable(float(RANK))
    state = elastic.TensorFlowState([v])
    state.sync()
    v.assign(3)
    state.restore()
    assert float(v) == 0


@pytest.mark.parametrize("is_given", [False, True], ids=["default session", "session"])
def test_variables_in_a_session(is_given):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=1.0 + RANK)
        w = tf.compat.v1.get_variable("w", initializer=[RANK], use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        state = elastic.TensorFlowState(session=session if is_given else None, batch=RANK)
        graph.finalize()  # as MonitoredTrainingSession does

        def assign(values):
            session.run([v.initializer, w.initializer],
                        {v.initializer.inputs[1]: values[0], w.initializer.inputs[1]: values[1]})

        for _ in range(2):
            state.sync()
            assert session.run([v, w]) == [1.0, [0]] and state.batch == 0
        assign((5.0, [6]))
        state.restore()
        assert session.run([v, w]) == [1.0, [0]]
        assign((5.0, [6]))
        state.commit()
        assign((7.0, [8]))
        state.restore()
        assert session.run([v, w]) == [5.0, [6]]


def test_no_session():
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("v", initializer=1.0)
        with pytest.raises(ValueError, match="give session="):
            elastic.TensorFlowState()


# ---- models ----

def model_of(value):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.build((None, 3))
    model.set_weights([np.full_like(w, value) for w in model.get_weights()])
    return model


def contents(model, optimizer):
    return [w.numpy().copy() for w in (*model.weights, *optimizer_variables(optimizer))]


def step(model, optimizer):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([4, 3])))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


def equal(a, b):
    return len(a) == len(b) and all(map(np.array_equal, a, b))


@pytest.mark.parametrize("make", SGDS, ids=lambda make: make.__module__)
@pytest.mark.parametrize("state_of", [elastic.TensorFlowKerasState, berth.keras.elastic.KerasState,
                                      berth.tensorflow.keras.elastic.KerasState])
def test_a_model_and_its_optimizer(make, state_of):
    model, optimizer = model_of(RANK + 1), make(0.1, momentum=0.9)
    for _ in range(1 + RANK):
        step(model, optimizer)
    state = state_of(model, optimizer, batch=20 + RANK)
    assert state.model is model and state.optimizer is optimizer
    state.sync()
    begin = contents(model, optimizer)
    assert same_everywhere(begin) and state.batch == 20
    step(model, optimizer)
    assert not equal(contents(model, optimizer), begin)
    state.restore()
    assert equal(contents(model, optimizer), begin)
    step(model, optimizer)
    kept = contents(model, optimizer)
    state.batch = 21
    state.commit()
    step(model, optimizer)
    state.restore()
    assert equal(contents(model, optimizer), kept) and state.batch == 21
    assert int(optimizer.iterations) == 2


def test_an_optimizer_before_its_first_step():
    model = model_of(RANK)
    model.compile(optimizer="adam", loss="mse")
    state = elastic.TensorFlowKerasState(model)
    assert state.optimizer is model.optimizer
    state.sync()
    step(model, model.optimizer)
    state.restore()
    assert all(np.all(w == 0) for w in model.get_weights()) and int(model.optimizer.iterations) == 0


def test_a_model_without_an_optimizer():
    model = model_of(RANK)
    state = elastic.TensorFlowKerasState(model)
    state.sync()
    assert state.optimizer is None and all(np.all(w == 0) for w in model.get_weights())


def test_a_model_without_variables():
    with pytest.raises(ValueError, match="model.build"):
        elastic.TensorFlowKerasState(tf.keras.Sequential([tf.keras.layers.Dense(2)]))


@only_2
@pytest.mark.parametrize("given", [False, True], ids=["", "backend"])
def test_a_model_in_a_session(given):
    backend = tf.compat.v1.keras.backend
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        backend.set_session(session)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
        model.set_weights([np.full((3, 1), RANK + 1.0), np.full(1, RANK + 1.0)])
        model.compile(tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9), "mse")
        x, y = np.ones([4, 3], np.float32), np.ones([4, 1], np.float32)
        model.fit(x, y, verbose=0)
        state = elastic.TensorFlowKerasState(model, backend=backend if given else None, epoch=RANK)
        state.sync()
        begin = model.get_weights() + model.optimizer.get_weights()
        assert same_everywhere(begin) and state.epoch == 0
        model.fit(x, y, verbose=0)
        assert not equal(model.get_weights() + model.optimizer.get_weights(), begin)
        state.restore()
        assert equal(model.get_weights() + model.optimizer.get_weights(), begin)
    backend.clear_session()


# ---- run ----

def test_run():
    calls = []

    @elastic.run
    def train(state, more, key=None):
        """What it does."""
        calls.append((state.epoch, more, key))
        return "result"

    assert train(elastic.ObjectState(epoch=RANK), 2, key=3) == "result" and calls == [(0, 2, 3)]
    assert train.__doc__ == "What it does."
    assert elastic.run_fn(lambda state: state.epoch + 1, reset=hvd.init)(elastic.ObjectState(epoch=RANK)) == 1


@pytest.mark.parametrize("text, becomes", [
    ("libberth: allreduce.w: rank 1 on 'n' has ended", hvd.HorovodInternalError),
    ("HorovodInternalError: rank 1 on 'n' has ended", hvd.HorovodInternalError),
    ("another's", tf.errors.UnknownError),
])
def test_errors_of_operations(text, becomes, monkeypatch):
    monkeypatch.setattr(berth.elastic, "NEWS_S", 0.1)

    @elastic.run
    def train(state):
        raise tf.errors.UnknownError(None, None, text)

    with pytest.raises(becomes, match=text):
        train(elastic.ObjectState())


def test_other_errors_stay():
    @elastic.run
    def train(state):
        hvd.allgather(tf.constant(1.0))  # of no dimensions

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        train(elastic.ObjectState())


# ---- worlds that follow ----

def loses(calls, train):
    """TRAIN(state) in two worlds: a rank is lost at the end of the first one."""
    def call(state):
        made = train(state)
        if not calls:
            calls.append(made)
            raise tf.errors.UnknownError(None, None, "libberth: allreduce.w: rank 7 on 'n' has ended")
        return made

    return elastic.run(call)


@of_runner
def test_a_function_of_the_last_world(monkeypatch):
    monkeypatch.setattr(basics, "changed", lambda: 1)
    v = tf.Variable([1.0, 2.0])
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([RANK], tf.int64), dense_shape=(SIZE, 1))

    @tf.function
    def work(x):
        with tf.GradientTape() as tape:
            gathered = hvd.allgather(x * v)
            loss = tf.reduce_sum(gathered * gathered) + tf.reduce_sum(hvd.broadcast(v, 0))
        inner = hvd.DistributedGradientTape(tape).gradient(loss, v)
        return hvd.allreduce(x), inner, tf.convert_to_tensor(hvd.allreduce(slices)), hvd.size_op()

    calls = []
    again = loses(calls, lambda state: [t.numpy() for t in work(tf.constant([RANK + 1.0, 2.0]))])(
        elastic.ObjectState(epoch=0))
    assert all(np.array_equal(a, b) for a, b in zip(calls[0], again))
    assert again[2].tolist() == [[1 / SIZE]] * SIZE


@of_runner
def test_normalization_in_a_function_that_is_traced_once_more(monkeypatch):
    """As on rank 0 only, if the others come later: the names of its operations are the same."""
    monkeypatch.setattr(basics, "changed", lambda: 1)
    layer = hvd.SyncBatchNormalization()
    layer.build([None, 2])

    def work(x):
        return layer(x, training=True)

    functions = [tf.function(work)]

    def train(state):
        if functions[1:] and RANK == 0:
            functions[0] = tf.function(work)
        functions.append(None)
        return functions[0](tf.constant([[RANK + 1.0, 2.0]])).numpy()

    calls = []
    assert np.array_equal(loses(calls, train)(elastic.ObjectState(epoch=0)), calls[0])


@of_runner
def test_optimizers_of_ranks_that_come(monkeypatch):
    """Rank 0 has done steps, and others none: an optimizer makes its variables in the first."""
    monkeypatch.setattr(basics, "changed", lambda: 1)
    model, optimizer = model_of(RANK), tf.keras.optimizers.Adam(0.1)
    if RANK == 0:
        step(model, optimizer)
    state = elastic.TensorFlowKerasState(model, optimizer)
    state.sync()
    assert same_everywhere(contents(model, optimizer)) and int(optimizer.iterations) == 1


@of_runner
def test_fit_in_two_worlds(monkeypatch):
    """As Horovod's own example has it."""
    monkeypatch.setattr(basics, "changed", lambda: 1)
    model = model_of(1.0)
    optimizer = berth.tensorflow.keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer=optimizer, loss="mse")
    x = np.ones([20, 3], np.float32)
    state = berth.tensorflow.keras.elastic.KerasState(model, batch=0, epoch=0)
    raised, begun = [], []

    class Lost(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if (state.epoch, batch) == (1, 3) and not raised:
                raised.append((state.epoch, state.batch))
                raise tf.errors.UnknownError(None, None, "libberth: allreduce.w: rank 7 on 'n' has ended")

    callbacks = [Lost(), berth.tensorflow.keras.elastic.UpdateBatchStateCallback(state),
                 berth.tensorflow.keras.elastic.UpdateEpochStateCallback(state),
                 berth.tensorflow.keras.elastic.CommitStateCallback(state, batches_per_commit=2)]

    @elastic.run
    def train(state):
        begun.append((state.epoch, state.batch))
        model.fit(x, np.zeros([20, 2]), batch_size=2, epochs=2 - state.epoch, verbose=0, callbacks=callbacks)

    train(state)
    assert raised == [(1, 2)] and begun == [(0, 0), (1, 1)] and (state.epoch, state.batch) == (2, 0)
    assert same_everywhere(model.get_weights())
