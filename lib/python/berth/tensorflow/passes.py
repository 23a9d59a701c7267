"""Gradients of several backward passes are added up on each rank before they are reduced."""
from __future__ import annotations

from typing import Callable, Dict, List, Sequence

import tensorflow as tf

from .gradients import Gradient, Reducer


class Passes:
    """PASSES calls of reduce() add up gradients; the last of them reduces the sums, or their averages, if
    IS_AVERAGED, and begins anew.  Between them apply() leaves out the step.

    It works in eager mode, in a tf.function and in a graph of TensorFlow 1, where its variables are local
    ones, which tf.compat.v1.local_variables_initializer() sets.
    """

    def __init__(self, passes: int, is_averaged: bool, reducer: Reducer) -> None:
        if passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes}: it has to be 1 or more.")
        self.passes, self.is_averaged, self.reducer = passes, is_averaged, reducer
        self.counter: tf.Variable | None = None
        self.sums: Dict[int, tf.Variable] = {}

    def _variable(self, name: str, like: tf.Tensor) -> tf.Variable:
        """Zeros of the type and the shape of LIKE."""
        with tf.init_scope():
            if tf.executing_eagerly():
                return tf.Variable(tf.zeros(like.shape, like.dtype), trainable=False, name=name)
        v1 = tf.compat.v1
        return v1.Variable(tf.zeros(like.shape, like.dtype), trainable=False, name=name, use_resource=True,
                           collections=[v1.GraphKeys.LOCAL_VARIABLES])

    def _make(self, gradients: Sequence[Gradient]) -> None:
        """The variables, at the first call."""
        if self.counter is None:
            self.counter = self._variable("berth_passes", tf.zeros([], tf.int32))
        for i, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                raise ValueError("backward_passes_per_step adds up dense gradients only: give "
                                 "sparse_as_dense=True.")
            if gradient is not None and i not in self.sums:
                self.sums[i] = self._variable(f"berth_sum_{i}", gradient)

    def reduce(self, gradients: Sequence[Gradient], sources: Sequence[tf.Variable]) -> List[Gradient]:
        """The reduced sums, at the last of the passes; before it what the sums are."""
        if self.reducer.options.sparse_as_dense:
            gradients = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        self._make(gradients)
        assert self.counter is not None
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        added = [self.sums[i].assign_add(gradients[i]) for i in there]
        with tf.control_dependencies(added):
            counted = self.counter.assign_add(1)
            with tf.control_dependencies([counted]):
                is_last = tf.equal(tf.identity(self.counter), self.passes)
        kept = tf.cond(is_last, lambda: self._finish(there, [sources[i] for i in there]),
                       lambda: [tf.identity(self.sums[i]) for i in there])
        out: List[Gradient] = [None] * len(gradients)
        for i, gradient in zip(there, kept):
            out[i] = gradient
        return out

    def _finish(self, there: Sequence[int], sources: Sequence[tf.Variable]) -> List[tf.Tensor]:
        sums = [tf.identity(self.sums[i]) for i in there]
        if self.is_averaged:
            sums = [s / tf.cast(self.passes, s.dtype) for s in sums]
        reduced = [tf.identity(g) for g in self.reducer.reduce(sums, sources)]
        assert self.counter is not None
        with tf.control_dependencies(reduced):
            cleared = [self.sums[i].assign(tf.zeros_like(self.sums[i])) for i in there]
            cleared.append(self.counter.assign(0))
        with tf.control_dependencies(cleared):
            return [tf.identity(g) for g in reduced]

    def apply(self, gradients: Sequence[Gradient], step: Callable[[], object],
              leave_out: Callable[[], object]) -> object:
        """STEP(), if GRADIENTS are those of the last pass, else LEAVE_OUT()."""
        def after(do: Callable[[], object]) -> Callable[[], tf.Tensor]:
            def branch() -> tf.Tensor:
                done = do()
                with tf.control_dependencies([] if done is None or tf.executing_eagerly() else [done]):
                    return tf.constant(True)
            return branch

        assert self.counter is not None
        with tf.control_dependencies([g for g in gradients if g is not None]):
            is_first = tf.equal(tf.identity(self.counter), 0)
        return tf.cond(is_first, after(step), after(leave_out))
