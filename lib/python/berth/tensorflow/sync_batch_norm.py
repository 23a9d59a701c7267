"""Batch normalization over the batches of all ranks, in Keras 2 and 3.

It is imported when it is asked for: it loads Keras.
"""
from __future__ import annotations

from typing import Sequence, Tuple

import tensorflow as tf

from .. import basics
from ..basics import Sum
from . import mpi_ops

__all__ = ["SyncBatchNormalization"]


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """tf.keras.layers.BatchNormalization with the mean and the variance of the batches of all ranks, of any
    sizes.  KWARGS are those of that layer.  Sums are of 32 bits or more.  Without training it does no
    communication.

    ValueError: FUSED is true.

    >>> hvd.SyncBatchNormalization(axis=-1)(tf.ones([8, 3]), training=True).shape
    TensorShape([8, 3])
    """

    def __init__(self, fused: bool | None = False, **kwargs: object) -> None:
        if fused:
            raise ValueError("SyncBatchNormalization has no fused implementation: leave out fused=True.")
        if hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used"):  # Keras 2
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: tf.Tensor, axes_or_mask: object, keep_dims: bool | None = None,
                 mask: tf.Tensor | None = None) -> Tuple[tf.Tensor, tf.Tensor]:
        """Keras 2 gives all arguments, Keras 3 INPUTS and the mask."""
        if not basics.is_initialized() or basics.size() == 1:
            more = {} if keep_dims is None else {"keep_dims": keep_dims, "mask": mask}
            mean, variance = super()._moments(inputs, axes_or_mask, **more)
            return mean, variance
        if keep_dims is None:
            return _moments_of_all(inputs, self._reduction_axes, False, axes_or_mask)
        return _moments_of_all(inputs, axes_or_mask, keep_dims, mask)  # type: ignore[arg-type]


def _name() -> str | None:
    """In a graph: of the next such operation in it and in the functions that it calls.  The names of Keras'
    layers are numbered through all models of a rank, and a rank may have made one more.  A function's
    operations are numbered by themselves: ranks that came later may have traced it once, others twice.
    """
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while getattr(getattr(graph, "outer_graph", None), "building_function", False):
        graph = graph.outer_graph
    number = getattr(graph, "_berth_moments", 0)
    graph._berth_moments = number + 1
    of = f"{graph.name}." if graph.building_function else ""
    return f"SyncBatchNormalization.{of}{number}"


def _moments_of_all(x: tf.Tensor, axes: Sequence[int], keep_dims: bool,
                    mask: tf.Tensor | None) -> Tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of X over AXES of all ranks.  MASK has a dimension less: which elements count."""
    which = None if mask is None else tf.expand_dims(tf.cast(mask, tf.bool), -1)
    if which is None:
        count = tf.reduce_prod(tf.gather(tf.shape(x, tf.int64), axes))
    else:
        x = tf.where(which, x, tf.zeros_like(x))
        count = tf.reduce_sum(tf.broadcast_to(tf.cast(which, tf.int64), tf.shape(x)), axes, keepdims=True)
    total = tf.reduce_sum(x, axes, keepdims=True)
    mean = total / tf.cast(tf.maximum(count, 1), x.dtype)
    apart = x - tf.stop_gradient(mean)  # its gradient by the mean is 0, in the sum
    if which is not None:
        apart = tf.where(which, apart, tf.zeros_like(x))
    squares = tf.reduce_sum(tf.square(apart), axes, keepdims=True)
    # Of 64 bits, as the mean's square is taken off again.
    wide = [tf.cast(t, tf.float64) for t in (total, mean, squares)]
    own = tf.stack([wide[0], wide[2] + wide[0] * wide[1], tf.cast(count, tf.float64) * tf.ones_like(wide[0])])
    total, squares, count = tf.unstack(mpi_ops.allreduce(own, op=Sum, name=_name(), ignore_name_scope=True))
    count = tf.maximum(count, 1)
    mean = total / count
    variance = tf.maximum(squares / count - tf.square(mean), 0)
    if not keep_dims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)
