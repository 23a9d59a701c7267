"""Small things that scripts written for Horovod take from its modules."""
from __future__ import annotations

import re
from typing import Callable, Sequence, cast

import tensorflow as tf

from ..operations import reduction

_executing_eagerly: Callable[[], bool] = tf.executing_eagerly  # Horovod's tests take it from here


def normalized(name: str) -> str:
    """NAME as a part of the name of a node."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def variable_of(variable: tf.Variable) -> tf.Variable:
    """VARIABLE; of one of Keras 3 that which TensorFlow knows."""
    value = getattr(variable, "value", variable)
    return variable if callable(value) else value


def optimizer_variables(optimizer: tf.keras.optimizers.Optimizer | None) -> Sequence[tf.Variable]:
    """What OPTIMIZER keeps from step to step, in any Keras; nothing of None."""
    variables = getattr(optimizer, "variables", ())
    return cast("Sequence[tf.Variable]", variables() if callable(variables) else variables)


def vars_to_refs(vars: Sequence[tf.Variable] | tf.Variable) -> object:
    """References of VARS, which can be keys, in the same lists and tuples.

    >>> v = tf.Variable(1.0)
    >>> hvd.refs_to_vars(hvd.vars_to_refs([v]))[0] is v
    True
    """
    if isinstance(vars, (list, tuple)):
        return type(vars)(vars_to_refs(v) for v in vars)
    return vars.ref()  # type: ignore[union-attr]


def refs_to_vars(refs: Sequence[object] | object) -> object:
    """The variables of REFS, which are those of vars_to_refs().

    >>> v = tf.Variable(1.0)
    >>> hvd.refs_to_vars((v.ref(),))[0] is v
    True
    """
    if isinstance(refs, (list, tuple)):
        return type(refs)(refs_to_vars(r) for r in refs)
    return refs.deref() if hasattr(refs, "deref") else refs


def gpu_available() -> bool:
    """Whether TensorFlow sees a GPU.

    >>> hvd.gpu_available()
    False
    """
    return bool(tf.config.list_physical_devices("GPU"))


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """The reduction that OP means, or its older form AVERAGE.

    >>> hvd.handle_average_backwards_compatibility(None, False) == hvd.Sum
    True
    """
    return reduction(average, op)
