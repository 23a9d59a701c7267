"""The same operations by numpy_function, for a TensorFlow that can't load libberth_tf.so.

It is slower, and TensorFlow does one after the other, in the order of the graph: so that all ranks have to
create them in one order.
"""
from __future__ import annotations

from typing import Any, Callable, List, Sequence

import numpy as np
import tensorflow as tf

from .. import basics, operations
from ..handles import synchronize
from . import arrays, ops
from .util import normalized

_arrays = arrays.OPERATIONS


def _works(kind: str, tensors: Sequence[np.ndarray], names: Sequence[str | None],
           arguments: ops.Arguments) -> List[operations.Work[Any]]:
    op, prescale, postscale, root_rank, process_set, _ = arguments
    kind = kind.replace("grouped_", "")
    if kind == "alltoall":
        tensor, splits = tensors
        parts = [int(n) for n in splits] if len(splits) else None
        if parts is not None and sum(parts) < len(tensor):  # as the op: the rest goes nowhere
            tensor = tensor[:sum(parts)]

        def both(out: np.ndarray, received: List[int]) -> List[np.ndarray]:
            return [out, np.array(received, np.int32)]

        return [_arrays.alltoall(tensor, parts, both, names[0], process_set)]
    make: Callable[[np.ndarray, str | None], operations.Work[Any]] = {
        "allreduce": lambda t, n: _arrays.allreduce(t, False, op, n, prescale, postscale, process_set),
        "reducescatter": lambda t, n: _arrays.reducescatter(t, op, n, prescale, postscale, process_set),
        "allgather": lambda t, n: _arrays.allgather(t, n, process_set),
        "broadcast": lambda t, n: _arrays.broadcast(t, False, root_rank, n, process_set),
    }[kind]
    return [make(t, n) for t, n in zip(tensors, names)]


def _sizes(kind: str, i: int, tensor: tf.Tensor) -> tf.TensorShape:
    """Of output I, as far as they are known before."""
    if kind == "alltoall" and i:
        return tf.TensorShape([None])
    shape = tensor.shape
    if kind in ("allreduce", "grouped_allreduce", "broadcast") or shape.rank is None:
        return shape
    if not shape.rank:
        raise ValueError(f"{kind} takes a tensor of one dimension or more: this one has none.")
    return tf.TensorShape([None]).concatenate(shape[1:])


def run(kind: str, inputs: Sequence[object], name: str | None, arguments: ops.Arguments) -> object:
    """As ops.run()."""
    is_group = kind.startswith("grouped_")
    first: Any = inputs[0] if is_group else inputs[:1]
    given = [tf.convert_to_tensor(t) for t in first]
    tensors = given + [tf.convert_to_tensor(t, tf.int32) for t in ([] if is_group else inputs[1:])]
    outputs = given if kind != "alltoall" else tensors
    is_eager = tf.executing_eagerly()
    arguments.process_set.usable()

    def call(*values: np.ndarray) -> List[np.ndarray]:
        values = tuple(map(np.asarray, values))  # a number, for one of no dimensions
        names: List[str | None] = [None] * len(values) if is_eager else operations.names_of(name, len(values))
        works = _works(kind, values, names, arguments)
        if is_eager and len(works) == 1:
            result = operations.run(works[0])
        else:
            result = synchronize(operations.begin_group(works, arguments.process_set))
            result = result if is_group else result[0]
        return result if isinstance(result, list) else [result]

    @tf.custom_gradient  # type: ignore[misc]
    def differentiable(*tensors: tf.Tensor) -> object:
        if is_eager:
            made = [tf.convert_to_tensor(a) for a in call(*(t.numpy() for t in tensors))]
        else:
            made = tf.numpy_function(call, tensors, [t.dtype for t in outputs],
                                     name=None if name is None else normalized(name))
            for i, each in enumerate(made):
                each.set_shape(_sizes(kind, i, tensors[i]))

        def grad(*upstream: tf.Tensor) -> object:
            return ops.gradients[kind](ops.Call(None, arguments, tensors, made), *upstream)

        return list(made), grad

    result = differentiable(*tensors)
    result = result if isinstance(result, (list, tuple)) else [result]
    return list(result) if is_group or kind == "alltoall" else result[0]


def _number(call: Callable[[], int]) -> tf.Tensor:
    made = tf.numpy_function(lambda: np.int32(call()), [], tf.int32)
    made.set_shape([])
    return made


def join() -> tf.Tensor:
    """As ops.join()."""
    return _number(operations.join)


def scalar(kind: str, process_set_id: int | None) -> tf.Tensor:
    """As ops.scalar()."""
    calls: dict[str, Callable[[], int]] = {
        "size": lambda: basics.process_set_of(process_set_id or 0).size(), "rank": basics.rank,
        "local_size": basics.local_size, "local_rank": basics.local_rank,
        "process_set_included": lambda: int(basics.process_set_of(process_set_id or 0).included())}
    return _number(calls[kind])
