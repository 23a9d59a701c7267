"""Loops of TensorFlow 2 and sessions of TensorFlow 1: 20 steps of all ranks are those of one rank that has
all ranks' batches, the same rate, and doubles; run by runner, with any ranks.
"""
import numpy as np
import pytest
import tensorflow as tf

import berth.tensorflow as hvd
from berth.tensorflow import ops
from training import RANK, check_weights, data

v1 = tf.compat.v1
STEPS = 20
each_argument = pytest.mark.parametrize("more", [{}, {"groups": 2}, {"gradient_predivide_factor": 2.0}],
                                        ids=lambda more: next(iter(more), "plain"))


# a session runs independent operations in any order: ranks that differ wait for ever
with_ops = pytest.mark.skipif(ops._module is None, reason="each numpy_function blocks a thread")


def batches(rows, steps):
    """The pair ROWS in STEPS parts."""
    return list(zip(*(np.split(part, steps) for part in rows)))


def weights_at_first(is_alone):
    """Those of rank 0, which is the one that is alone; others have others."""
    random = np.random.RandomState(7 if is_alone else 7 + RANK)
    return [random.randn(*shape) for shape in ((3, 5), (5,), (5, 1))]


def loss_of(variables, x, y):
    first, bias, last = variables
    return tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, first) + bias), last) - y))


# ---- loops ----

def subtract(pairs):
    for gradient, variable in pairs:
        variable.assign_sub(0.1 * gradient)


# What makes a function that takes pairs (gradient, variable).
APPLIES = {"assign_sub": lambda: subtract,
           "Keras": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9).apply_gradients,
           "compat.v1": lambda: v1.train.MomentumOptimizer(0.1, 0.9).apply_gradients}


def after_a_loop(rows, apply, is_graph, more=None):
    """The weights after a loop over ROWS: of one rank, or, by a tape with the arguments MORE, of all."""
    variables = [tf.Variable(w) for w in weights_at_first(is_alone=more is None)]
    if more is not None:
        hvd.broadcast_variables(variables, root_rank=0)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, x, y)
        if more is not None:
            tape = hvd.DistributedGradientTape(tape, **more)
        apply(list(zip(tape.gradient(loss, variables), variables)))

    step = tf.function(step) if is_graph else step
    for x, y in batches(rows, STEPS):
        step(tf.constant(x), tf.constant(y))
    return [v.numpy() for v in variables]


@each_argument
@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("apply", APPLIES)
def test_a_loop(apply, is_graph, more):
    everything, mine = data(STEPS, 4)
    alone = after_a_loop(everything, APPLIES[apply](), is_graph)
    check_weights(after_a_loop(mine, APPLIES[apply](), is_graph, more), alone)


# ---- sessions ----

OPTIMIZERS = {"SGD": lambda: v1.train.GradientDescentOptimizer(0.1),
              "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
              "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
              "Adam": lambda: v1.train.AdamOptimizer(0.1)}


def after_a_session(parts, optimizer, more=None):
    """The weights after a step for each of PARTS: of one rank, or, by a DistributedOptimizer with the
    arguments MORE, of all.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        x, y = v1.placeholder(tf.float64, [None, 3]), v1.placeholder(tf.float64, [None, 1])
        variables = [v1.Variable(w) for w in weights_at_first(is_alone=more is None)]
        used = optimizer if more is None else hvd.DistributedOptimizer(optimizer, **more)
        step = used.minimize(loss_of(variables, x, y), var_list=variables)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        if more is not None:
            session.run(hvd.broadcast_global_variables(0))
        for batch in parts:
            session.run(step, dict(zip((x, y), batch)))
        return session.run(variables)


@with_ops
@each_argument
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_session(optimizer, more):
    everything, mine = data(STEPS, 4)
    alone = after_a_session(batches(everything, STEPS), OPTIMIZERS[optimizer]())
    check_weights(after_a_session(batches(mine, STEPS), OPTIMIZERS[optimizer](), more), alone)


@with_ops
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_several_passes_in_a_session(optimizer):
    """Two of them are one step with both batches."""
    everything, mine = data(STEPS, 4)
    alone = after_a_session(batches(everything, STEPS // 2), OPTIMIZERS[optimizer]())
    together = after_a_session(batches(mine, STEPS), OPTIMIZERS[optimizer](),
                               {"backward_passes_per_step": 2, "average_aggregated_gradients": True})
    check_weights(together, alone)
