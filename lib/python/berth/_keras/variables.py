"""Variables of models and optimizers: read, set and scaled, in Keras 2 and 3.  Without eager mode, which only
Keras 2 can be used without, they are in Keras' session.
"""
from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from ..tensorflow.functions import broadcast_variables
from ..tensorflow.util import variable_of


def _backend() -> Any:
    """Keras 2, which has a session."""
    return tf.compat.v1.keras.backend


def learning_rate(optimizer: tf.keras.optimizers.Optimizer) -> float:
    """That of OPTIMIZER now."""
    rate = optimizer.learning_rate
    if callable(rate):
        rate = rate(optimizer.iterations)
    if not tf.executing_eagerly():
        rate = _backend().get_value(rate)
    return float(rate)


def broadcast(variables: Sequence[tf.Variable], root_rank: int) -> None:
    """VARIABLES become those of ROOT_RANK, now."""
    operation = broadcast_variables(variables, root_rank)
    if operation is not None:
        _backend().get_session().run(operation)


def scale_velocities(optimizer: tf.keras.optimizers.Optimizer, factor: float) -> None:
    """Multiply by FACTOR what the momentum of OPTIMIZER has gathered, if it has one."""
    for variable in map(variable_of, _velocities(getattr(optimizer, "inner_optimizer", optimizer))):
        if tf.executing_eagerly():
            variable.assign(variable * tf.cast(factor, variable.dtype))
        else:
            _backend().set_value(variable, _backend().get_value(variable) * factor)


def _velocities(optimizer: tf.keras.optimizers.Optimizer) -> Sequence[tf.Variable]:
    if hasattr(optimizer, "get_slot"):  # Keras 2's first optimizers
        slots: Sequence[dict[str, tf.Variable]] = list(optimizer._slots.values())
        return [of_one["momentum"] for of_one in slots if "momentum" in of_one]
    if not hasattr(optimizer, "momentum"):
        return []
    variables = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [v for v in variables if v is not None]
