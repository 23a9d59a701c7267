"""Gradients of variables become those of all ranks: what tapes and optimizers have in common.

    reducer = Reducer(Options(op=Sum), "DistributedGradientTape")
    gradients = reducer.reduce(gradients, variables)

In a graph each gradient is an operation of its own, which begins when the gradient is there; but small ones
are one together.  Ranks meet by the place of the variable among all of them, so a rank may have ops that
others lack.  In eager mode, where all gradients are there at once, they are one request.
"""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Set, Type, Union

import tensorflow as tf

from .. import basics
from ..basics import Average, ProcessSet, global_process_set
from ..operations import grouped
from . import mpi_ops
from .compression import Compression, Compressor
from .util import variable_of

# A small gradient costs more to begin [30 us: it wakes two threads] than to send, so small ones go together.
SMALL_BYTES = 1 << 14
BUCKET_BYTES = 1 << 16

Gradient = Union[tf.Tensor, tf.IndexedSlices, None]
Groups = Union[int, Sequence[Sequence[tf.Variable]], None]


class Options(NamedTuple):
    """Of Horovod's tapes and optimizers.

    DEVICE_DENSE, DEVICE_SPARSE: the device of the operations.
    COMPRESSION: what makes gradients smaller on their way.
    SPARSE_AS_DENSE: tf.IndexedSlices are reduced as dense tensors.
    OP: the reduction.
    PREDIVIDE: an average is divided by it before it is summed, and the rest behind.
    GROUPS: a number of groups, or lists of variables: the gradients of a group are one request.
    PROCESS_SET: the ranks; on others gradients stay as they are.
    SCALE_LOCAL: gradients of local variables, which are not reduced, are divided by the number of ranks, as
    an average of the others is.
    """
    device_dense: str = ""
    device_sparse: str = ""
    compression: Type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    predivide: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    scale_local: bool = True


def _key(source: tf.Variable | tf.Tensor) -> object:
    """What says that SOURCE is a certain one."""
    return variable_of(source).ref()


def _divided(gradient: tf.Tensor | tf.IndexedSlices, n: int | tf.Tensor) -> tf.Tensor | tf.IndexedSlices:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_divided(gradient.values, n), gradient.indices,
                                dense_shape=gradient.dense_shape)
    return gradient / tf.cast(n, gradient.dtype)


def _in_buckets(indices: Sequence[int], sources: Sequence[tf.Variable | tf.Tensor]) -> List[List[int]]:
    """Each of INDICES alone, but those of small SOURCES together."""
    out: List[List[int]] = []
    bucket: List[int] = []
    room = 0
    for i in indices:
        source = variable_of(sources[i])
        elements = source.shape.num_elements()
        size = SMALL_BYTES + 1 if elements is None else elements * source.dtype.size
        if size > SMALL_BYTES:
            out.append([i])
            continue
        if size > room:
            bucket, room = [], BUCKET_BYTES
            out.append(bucket)
        bucket.append(i)
        room -= size
    return out


class Reducer:
    """Reduces gradients as OPTIONS say.  LABEL: the beginning of the names of its operations."""

    def __init__(self, options: Options, label: str) -> None:
        if options.predivide != 1.0 and options.op != Average:
            raise ValueError("gradient_predivide_factor is for op=Average only.")
        self.options, self.label = options, label
        self.local: Set[object] = set()

    def add_local(self, variable: tf.Variable) -> None:
        """The gradient of VARIABLE, which each rank has for itself, is not reduced."""
        self.local.add(_key(variable))

    def is_local(self, source: tf.Variable | tf.Tensor) -> bool:
        return bool(self.local) and _key(source) in self.local

    def is_alone(self) -> bool:
        """This rank has nobody to reduce gradients with."""
        ranks = self.options.process_set
        return not ranks.included() or (ranks.size() == 1 and not basics.may_grow())

    def reduce(self, gradients: Sequence[Gradient], sources: Sequence[tf.Variable | tf.Tensor]
               ) -> List[Gradient]:
        """GRADIENTS of SOURCES, those that are None left out, for all ranks together."""
        out = [None if g is None else self._as_sent(g) for g in gradients]
        if self.is_alone():
            return out
        mine = {i for i, source in enumerate(sources) if self.is_local(source)}
        if self.options.scale_local:
            n = mpi_ops.size_of(self.options.process_set)
            for i in mine:
                out[i] = None if out[i] is None else _divided(out[i], n)
        given = {i: g for i, g in enumerate(out) if g is not None and i not in mine}
        for indices in self._requests(given, sources):
            for i, reduced in zip(indices, self._request([given[i] for i in indices], indices)):
                out[i] = reduced
        return out

    def _as_sent(self, gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
        if self.options.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
        return gradient

    def _requests(self, given: Dict[int, tf.Tensor | tf.IndexedSlices],
                  sources: Sequence[tf.Variable | tf.Tensor]) -> List[List[int]]:
        """Which of the gradients that are GIVEN, by the indices of SOURCES, are reduced together."""
        groups = self.options.groups
        dense = [i for i, g in given.items() if not isinstance(g, tf.IndexedSlices)]
        if groups is None or groups == 0:
            together = [dense] if tf.executing_eagerly() else _in_buckets(dense, sources)
        elif isinstance(groups, int):
            together = grouped(groups, dense)
        else:
            index_of = {_key(sources[i]): i for i in dense}
            keys = [[_key(v) for v in group] for group in groups]
            together = [[index_of[key] for key in group] for group in grouped(keys, list(index_of))]
            in_groups = {i for group in together for i in group}
            together += [[i] for i in dense if i not in in_groups]
        return [*filter(None, together), *([i] for i in given if i not in set(dense))]

    def _request(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices], indices: Sequence[int]
                 ) -> List[tf.Tensor | tf.IndexedSlices]:
        device_dense, device_sparse, compression, _, op, predivide, _, process_set, _ = self.options
        name = None if tf.executing_eagerly() else f"{self.label}.{indices[0]}"
        if len(gradients) > 1:
            return mpi_ops.grouped_allreduce(gradients, None, device_dense, device_sparse, compression, op,
                                             1 / predivide, predivide, process_set, name=name)
        return [mpi_ops.allreduce(gradients[0], None, device_dense, device_sparse, compression, op,
                                  1 / predivide, predivide, name, process_set)]
