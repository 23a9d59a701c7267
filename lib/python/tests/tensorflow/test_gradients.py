"""Tapes, and the optimizers of TensorFlow 1: gradients against NumPy; run by runner, with any ranks."""
import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd

RANK, SIZE = hvd.rank(), hvd.size()
RANKS = np.arange(SIZE) + 1.0  # each rank's gradient is a multiple of RANK + 1
several = pytest.mark.skipif(SIZE == 1, reason="one rank reduces nothing")


def scaled_loss(variables):
    """Its gradient for the i-th of VARIABLES is (RANK + 1) * (i + 1)."""
    return (RANK + 1.0) * tf.add_n([(i + 1.0) * tf.reduce_sum(v) for i, v in enumerate(variables)])


def gradients_of(variables, is_graph, loss=scaled_loss, **arguments):
    def compute():
        with tf.GradientTape() as tape:
            target = loss(variables)
        return hvd.DistributedGradientTape(tape, **arguments).gradient(target, variables)

    return [g.numpy() for g in (tf.function(compute) if is_graph else compute)()]


def three_variables():
    return [tf.Variable(tf.zeros(shape, tf.float64)) for shape in ([2], [3, 1], [])]


GROUPS = {"alone": lambda v: None, "two": lambda v: 2, "lists": lambda v: [[v[0], v[2]]]}


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("op", ["Average", "Sum", "Min", "Max"])
def test_a_tape(is_graph, groups, op):
    variables = three_variables()
    of = {"Average": np.mean, "Sum": np.sum, "Min": np.min, "Max": np.max}[op](RANKS)
    made = gradients_of(variables, is_graph, op=getattr(hvd, op), groups=GROUPS[groups](variables))
    for i, (gradient, variable) in enumerate(zip(made, variables)):
        assert gradient.shape == variable.shape
        np.testing.assert_allclose(gradient, of * (i + 1))


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
def test_what_else_a_tape_takes(is_graph):
    variables = three_variables()
    average = np.mean(RANKS)
    made = gradients_of(variables, is_graph, gradient_predivide_factor=4.0, compression=hvd.Compression.fp16)
    np.testing.assert_allclose(made[0], average)
    with pytest.raises(ValueError, match="op=Average only"):
        gradients_of(variables, is_graph, gradient_predivide_factor=4.0, op=hvd.Sum)
    if SIZE == 1:
        return
    ranks = hvd.add_process_set([0])
    try:
        np.testing.assert_allclose(gradients_of(variables, is_graph, process_set=ranks)[0], RANK + 1.0)
    finally:
        hvd.remove_process_set(ranks)


def test_one_source_and_none():
    x, unused = tf.Variable(2.0), tf.Variable(1.0)
    with tf.GradientTape(persistent=True) as tape:
        loss = (RANK + 1.0) * x
    tape = hvd.DistributedGradientTape(tape)
    assert float(tape.gradient(loss, x)) == np.mean(RANKS)
    made = tape.gradient(loss, {"x": x, "unused": unused})
    assert float(made["x"]) == np.mean(RANKS) and made["unused"] is None
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedGradientTape(tape)


@pytest.mark.parametrize("is_dense", [False, True])
def test_slices(is_dense):
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [0, RANK % 4]))
    gradient = hvd.DistributedGradientTape(tape, sparse_as_dense=is_dense).gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices) != is_dense
    expected = np.zeros([4, 2])
    for r in range(SIZE):
        expected[0] += 1 / SIZE
        expected[r % 4] += 1 / SIZE
    np.testing.assert_allclose(tf.convert_to_tensor(gradient).numpy(), expected, rtol=1e-6)


@several
@pytest.mark.parametrize("is_scaled", [False, True])
def test_local_sources(is_scaled):
    variables = three_variables()
    with tf.GradientTape() as tape:
        loss = scaled_loss(variables)
    tape = hvd.DistributedGradientTape(tape, scale_local_gradients=is_scaled)
    tape.register_local_source(variables[1])
    local, others = tape.get_local_and_global_gradients(loss, variables)
    assert [v is variables[1] for v, _ in local] == [True] and len(others) == 2
    np.testing.assert_allclose(local[0][1], 2 * (RANK + 1.0) / (SIZE if is_scaled else 1))
    np.testing.assert_allclose(others[1][1], 3 * np.mean(RANKS))


# ---- optimizers of TensorFlow 1 ----

def in_a_session(make, steps):
    """What MAKE()'s variable is after each of STEPS runs of its operation."""
    seen = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable, operation = make()
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        for _ in range(steps):
            session.run(operation)
            seen.append(session.run(variable).tolist())
    return seen


def sgd(**arguments):
    return hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), **arguments)


def minimized(optimizer, **arguments):
    variable = tf.compat.v1.get_variable("v", initializer=tf.zeros([2], tf.float64))
    return variable, optimizer.minimize((RANK + 1.0) * tf.reduce_sum(variable), **arguments)


def test_an_optimizer_in_a_session():
    average = np.mean(RANKS)
    assert in_a_session(lambda: minimized(sgd()), 3) == [[-average * n] * 2 for n in (1, 2, 3)]
    total = np.sum(RANKS)
    assert in_a_session(lambda: minimized(sgd(op=hvd.Sum, groups=1)), 1) == [[-total] * 2]


@pytest.mark.parametrize("is_averaged", [False, True])
def test_several_passes_in_a_session(is_averaged):
    steps = []

    def make():
        step = tf.compat.v1.train.get_or_create_global_step()
        steps.append(step)
        optimizer = sgd(backward_passes_per_step=2, average_aggregated_gradients=is_averaged)
        return minimized(optimizer, global_step=step)

    each = np.mean(RANKS) * (1 if is_averaged else 2)
    assert in_a_session(make, 5) == [[0.0] * 2, [-each] * 2, [-each] * 2, [-2 * each] * 2, [-2 * each] * 2]


def test_an_optimizer_in_eager_mode():
    variable = tf.Variable(tf.zeros([2], tf.float64))
    optimizer = sgd()
    optimizer.minimize(lambda: (RANK + 1.0) * tf.reduce_sum(variable), var_list=[variable])
    np.testing.assert_allclose(variable.numpy(), -np.mean(RANKS))
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


@pytest.mark.parametrize("passes", [1, 2])
def test_adasum_combines_steps(passes):
    """Steps of one direction and one length are that step; those that are orthogonal are added."""
    def same():
        variable = tf.compat.v1.get_variable("v", initializer=tf.zeros([2], tf.float64))
        optimizer = sgd(op=hvd.Adasum, backward_passes_per_step=passes)
        return variable, optimizer.minimize(tf.reduce_sum(variable))

    seen = in_a_session(same, 2 * passes)
    np.testing.assert_allclose(seen, [[-n] * 2 for n in range(1, 2 * passes + 1)])

    def orthogonal():
        variable = tf.compat.v1.get_variable("v", initializer=tf.zeros([SIZE], tf.float64))
        optimizer = sgd(op=hvd.Adasum, backward_passes_per_step=passes)
        return variable, optimizer.minimize(variable[RANK])

    np.testing.assert_allclose(in_a_session(orthogonal, passes)[-1], [-passes] * SIZE)
