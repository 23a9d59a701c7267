"""The collectives on tensors, under Horovod's names and with its arguments.

All of them work in eager mode, in a tf.function and in a session, and can be differentiated.  In a graph
ranks meet by the names of nodes, in any order; in eager mode in the order of the calls.

TENSOR: of the types of Horovod, or bfloat16, on any device; those of a GPU are copied to the host and back.
All ranks give the same type and shape, unless it is said otherwise.
In a function of jit_compile=True, on the CPU: allreduce, broadcast, and, of equal shapes, allgather and
reducescatter.
NAME: of the node; without it one that the name of TENSOR makes.
OP: Average, Sum, Min, Max, Product or Adasum; without it Average.  AVERAGE=False is the older op=Sum.
PRESCALE_FACTOR, POSTSCALE_FACTOR: each element is multiplied by them, before and behind the reduction.
COMPRESSION: what makes tensors smaller on their way (Compression).
PROCESS_SET: the ranks that do it, all of which call it.
IGNORE_NAME_SCOPE: ranks meet by the name without its scopes.
DEVICE_DENSE, DEVICE_SPARSE: the device of the operation, of dense tensors and of tf.IndexedSlices.

ValueError, InvalidArgumentError: an argument is wrong.
FailedPreconditionError: the ranks differ in what they call, or there is no world.
UnknownError: a rank was lost, or it took too long.
"""
from __future__ import annotations

import contextlib
from typing import Any, ContextManager, List, Sequence, Tuple, Type, Union, cast

import tensorflow as tf

from ..basics import Adasum, Average, ProcessSet, Sum, global_process_set
from ..operations import reduction
from . import ops
from .compression import Compression, Compressor
from .util import normalized, variable_of

Splits = Union[tf.Tensor, Sequence[int], None]


def _name(kind: str, tensor: object, name: str | None) -> str | None:
    """NAME, or in a graph that of a node which is the same on all ranks."""
    if name is not None or tf.executing_eagerly():
        return name
    given = getattr(tensor, "name", None) or "tensor"
    return f"Horovod{kind}_{normalized(given)}"


def _gradient_name(call: ops.Call, kind: str) -> str | None:
    """That of an operation in the gradient of CALL.  It follows from that of CALL: the name of a gradient has
    those of Keras' layers, which are numbered, and a rank may have made more of them.
    """
    return call.name and f"{call.name}_Gradient{kind}"


def _scaled(op: int, prescale: float, postscale: float, process_set: ProcessSet,
            ignore_name_scope: bool) -> ops.Arguments:
    return ops.Arguments(op, prescale, postscale, 0, process_set, ignore_name_scope)


def _reduce(kind: str, tensors: tf.Tensor | Sequence[tf.Tensor], name: str | None,
            arguments: ops.Arguments) -> tf.Tensor | List[tf.Tensor]:
    """The op KIND.  Factors of float16 come before and behind it: libberth rounds once, Horovod rounds each
    multiple and the sum, and programs compare with that.
    """
    before, behind = arguments.prescale, arguments.postscale
    if before == behind == 1.0:  # the usual case, in less time
        return ops.run(kind, (tensors,), name, arguments)
    first = tensors[0] if isinstance(tensors, list) else tensors
    if tf.convert_to_tensor(first).dtype != tf.float16:
        return ops.run(kind, (tensors,), name, arguments)
    scaled = arguments._replace(prescale=1.0, postscale=1.0)
    return _times(ops.run(kind, (_times(tensors, before),), name, scaled), behind)


def _times(halves: tf.Tensor | Sequence[tf.Tensor], factor: float) -> tf.Tensor | Sequence[tf.Tensor]:
    if factor == 1.0:
        return halves
    if isinstance(halves, (list, tuple)):
        return [_times(t, factor) for t in halves]
    return tf.cast(tf.cast(halves, tf.float32) * tf.constant(factor, tf.float32), tf.float16)


def size_of(process_set: ProcessSet) -> int | tf.Tensor:
    """The number of its ranks: in a graph, which may run in a later world, when it runs."""
    if tf.executing_eagerly() or ops.is_compiled():
        return process_set.size()
    return size_op(process_set.process_set_id or 0)


def _rank_of(process_set: ProcessSet) -> int | tf.Tensor:
    """This rank's number in the set.  Later worlds have no other set than that of all."""
    if tf.executing_eagerly() or ops.is_compiled() or process_set is not global_process_set:
        return process_set.rank()
    return rank_op()


def _on(device: str) -> ContextManager[object]:
    return cast(ContextManager[object], tf.device(device)) if device else contextlib.nullcontext()


# ---- allreduce ----

def _allreduce(tensor: tf.Tensor, name: str | None = None, op: int = Sum, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0, ignore_name_scope: bool = False,
               process_set: ProcessSet = global_process_set) -> tf.Tensor:
    return _reduce("allreduce", tensor, _name("Allreduce", tensor, name),
                   _scaled(op, prescale_factor, postscale_factor, process_set, ignore_name_scope))


def _grouped_allreduce(tensors: Sequence[tf.Tensor], name: str | None = None, op: int = Sum,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       ignore_name_scope: bool = False,
                       process_set: ProcessSet = global_process_set) -> List[tf.Tensor]:
    return _grouped("grouped_allreduce", "GroupedAllreduce", tensors, name,
                    _scaled(op, prescale_factor, postscale_factor, process_set, ignore_name_scope))


def _grouped(kind: str, label: str, tensors: Sequence[tf.Tensor], name: str | None,
             arguments: ops.Arguments) -> List[tf.Tensor]:
    """One request for all TENSORS of a type, which an op of TensorFlow has for all."""
    tensors = [tf.convert_to_tensor(t) for t in tensors]
    out: List[Any] = [None] * len(tensors)
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        at = [i for i, t in enumerate(tensors) if t.dtype == dtype]
        same = [tensors[i] for i in at]
        for i, made in zip(at, _reduce(kind, same, _name(label, same[0], name), arguments)):
            out[i] = made
    return out


def _slices_allreduce(slices: tf.IndexedSlices, op: int, name: str | None, process_set: ProcessSet,
                      ignore_name_scope: bool) -> tf.IndexedSlices:
    """The slices of all ranks: those of one index are added by what uses them."""
    values, indices = (None, None) if name is None else (f"{name}_values", f"{name}_indices")
    new_values = allgather(slices.values, values, ignore_name_scope, process_set)
    if op == Average:
        new_values = new_values / tf.cast(size_of(process_set), new_values.dtype)  # of integers to floats
    return tf.IndexedSlices(new_values, allgather(slices.indices, indices, ignore_name_scope, process_set),
                            dense_shape=slices.dense_shape)


def allreduce(tensor: tf.Tensor | tf.IndexedSlices, average: bool | None = None, device_dense: str = "",
              device_sparse: str = "", compression: Type[Compressor] = Compression.none,
              op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              name: str | None = None, process_set: ProcessSet = global_process_set,
              ignore_name_scope: bool = False) -> tf.Tensor | tf.IndexedSlices:
    """The average (or OP) of TENSOR over the ranks.  Of tf.IndexedSlices the slices of all ranks, of any
    number each.  Gradient: the same of the gradient.

    >>> hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum).numpy()
    array([1., 2.], dtype=float32)
    """
    op = reduction(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        if op not in (Average, Sum) or prescale_factor != 1.0 or postscale_factor != 1.0:
            raise NotImplementedError("tf.IndexedSlices can be summed and averaged, not scaled, and nothing "
                                      "else: give sparse_as_dense=True to an optimizer, or a dense tensor.")
        with _on(device_sparse):
            return _slices_allreduce(tensor, op, name, process_set, ignore_name_scope)
    if compression is Compression.none and not device_dense:  # the usual case, in less time
        return _allreduce(tensor, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
    with _on(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        return compression.decompress(_allreduce(small, name, op, prescale_factor, postscale_factor,
                                                 ignore_name_scope, process_set), context)


def grouped_allreduce(tensors: Sequence[tf.Tensor | tf.IndexedSlices], average: bool | None = None,
                      device_dense: str = "", device_sparse: str = "",
                      compression: Type[Compressor] = Compression.none, op: int | None = None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                      name: str | None = None) -> List[tf.Tensor | tf.IndexedSlices]:
    """allreduce() of each of TENSORS, together.  Returns a list.  Those of one type are one request.

    >>> [t.numpy().tolist() for t in hvd.grouped_allreduce([tf.ones([1]), tf.zeros([2])])]
    [[1.0], [0.0, 0.0]]
    """
    op = reduction(average, op)
    if any(isinstance(t, tf.IndexedSlices) for t in tensors):
        return [allreduce(t, None, device_dense, device_sparse, compression, op, prescale_factor,
                          postscale_factor, None if name is None else f"{name}_{i}", process_set,
                          ignore_name_scope) for i, t in enumerate(tensors)]
    with _on(device_dense):
        small = [compression.compress(tf.convert_to_tensor(t)) for t in tensors]
        out = _grouped_allreduce([t for t, _ in small], name, op, prescale_factor, postscale_factor,
                                 ignore_name_scope, process_set)
        return [compression.decompress(t, context) for t, (_, context) in zip(out, small)]


@ops.gradient("allreduce")
def _allreduce_gradient(call: ops.Call, grad: tf.Tensor) -> Sequence[tf.Tensor]:
    return [ops.run("allreduce", (grad,), _gradient_name(call, "Allreduce"), call.arguments)]


@ops.gradient("grouped_allreduce")
def _grouped_allreduce_gradient(call: ops.Call, *grads: tf.Tensor) -> Sequence[tf.Tensor]:
    return _grouped("grouped_allreduce", "GroupedAllreduce", grads, _gradient_name(call, "GroupedAllreduce"),
                    call.arguments)


# ---- allgather, alltoall ----

def allgather(tensor: tf.Tensor, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The TENSORs of all ranks, one behind the other along the first dimension, in the order of ranks.  The
    first size may differ between ranks.  Gradient: the average of the gradient, of which each rank takes its
    rows.

    >>> hvd.allgather(tf.ones([1, 2])).numpy()
    array([[1., 1.]], dtype=float32)
    """
    return ops.run("allgather", (tensor,), _name("Allgather", tensor, name),
                   ops.Arguments(process_set=process_set, ignore_name_scope=ignore_name_scope))


def grouped_allgather(tensors: Sequence[tf.Tensor], name: str | None = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> List[tf.Tensor]:
    """allgather() of each of TENSORS, together.  Returns a list.

    >>> [t.numpy().tolist() for t in hvd.grouped_allgather([tf.ones([1]), tf.zeros([2])])]
    [[1.0], [0.0, 0.0]]
    """
    return _grouped("grouped_allgather", "GroupedAllgather", tensors, name,
                    ops.Arguments(process_set=process_set, ignore_name_scope=ignore_name_scope))


def _own_rows(call: ops.Call, i: int, grad: tf.Tensor) -> tf.Tensor:
    """Of GRAD, which has the rows of all ranks, those of this rank's input I."""
    arguments, name = call.arguments, _gradient_name(call, f"Rows{i}")
    me = _rank_of(arguments.process_set)
    if ops.is_compiled():  # all ranks have the same number of rows
        return grad[me * call.inputs[i].shape[0]:(me + 1) * call.inputs[i].shape[0]]
    with tf.device("/cpu:0"):
        rows = allgather(tf.shape(call.inputs[i])[:1], name, arguments.ignore_name_scope,
                         arguments.process_set)
        first = tf.reduce_sum(rows[:me])
        end = first + rows[me]
    return grad[first:end]


@ops.gradient("allgather")
def _allgather_gradient(call: ops.Call, grad: tf.Tensor) -> Sequence[tf.Tensor]:
    grad = ops.run("allreduce", (grad,), _gradient_name(call, "Allreduce"),
                   call.arguments._replace(op=Average))
    return [_own_rows(call, 0, grad)]


@ops.gradient("grouped_allgather")
def _grouped_allgather_gradient(call: ops.Call, *grads: tf.Tensor) -> Sequence[tf.Tensor]:
    reduced = _grouped("grouped_allreduce", "GroupedAllreduce", grads,
                       _gradient_name(call, "GroupedAllreduce"), call.arguments._replace(op=Average))
    return [_own_rows(call, i, grad) for i, grad in enumerate(reduced)]


def alltoall(tensor: tf.Tensor, splits: Splits = None, name: str | None = None,
             ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
             ) -> tf.Tensor | Tuple[tf.Tensor, tf.Tensor]:
    """SPLITS[i] rows of TENSOR go to rank i of the set, without SPLITS an equal share.  The first size may
    differ between ranks.  Returns the rows that came, in the order of ranks; with SPLITS also how many came
    from each (int32).  Gradient: they go back.

    >>> [t.numpy().tolist() for t in hvd.alltoall(tf.ones([2]), splits=[2])]
    [[1.0, 1.0], [2]]
    """
    parts = tf.convert_to_tensor([] if splits is None else splits, dtype=tf.int32)
    out, received = ops.run("alltoall", (tensor, parts), _name("Alltoall", tensor, name),
                            ops.Arguments(process_set=process_set, ignore_name_scope=ignore_name_scope))
    return out if splits is None else (out, received)


@ops.gradient("alltoall")
def _alltoall_gradient(call: ops.Call, grad: tf.Tensor, _: object) -> Sequence[tf.Tensor | None]:
    back, _ = ops.run("alltoall", (grad, call.outputs[1]), _gradient_name(call, "Alltoall"), call.arguments)
    return [back, None]


# ---- broadcast ----

def broadcast(tensor: tf.Tensor, root_rank: int, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The TENSOR of ROOT_RANK (a rank of the world).  Gradient: the average of the gradient on ROOT_RANK,
    zeros elsewhere.

    >>> hvd.broadcast(tf.ones([2]), root_rank=0).numpy()
    array([1., 1.], dtype=float32)
    """
    return ops.run("broadcast", (tensor,), _name("Broadcast", tensor, name),
                   ops.Arguments(root_rank=root_rank, process_set=process_set,
                                 ignore_name_scope=ignore_name_scope))


@ops.gradient("broadcast")
def _broadcast_gradient(call: ops.Call, grad: tf.Tensor) -> Sequence[tf.Tensor]:
    reduced = ops.run("allreduce", (grad,), _gradient_name(call, "Allreduce"),
                      call.arguments._replace(op=Average))
    if isinstance(me := _rank_of(global_process_set), int):
        return [reduced if me == call.arguments.root_rank else reduced * 0]
    return [reduced * tf.cast(tf.equal(me, call.arguments.root_rank), reduced.dtype)]


def broadcast_(variables: Sequence[tf.Variable], root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> List[tf.Variable]:
    """VARIABLES become those of ROOT_RANK (a rank of the world).  Returns what their assign() does.

    >>> v = tf.Variable([1.0, 2.0])
    >>> _ = hvd.broadcast_([v], root_rank=0)
    >>> v.numpy()
    array([1., 2.], dtype=float32)
    """
    names = [None if name is None else f"{name}_{i}" for i in range(len(variables))]
    return [v.assign(broadcast(v, root_rank, n, process_set=process_set))
            for v, n in zip(map(variable_of, variables), names)]


# ---- reducescatter ----

def reducescatter(tensor: tf.Tensor, device_dense: str = "", compression: Type[Compressor] = Compression.none,
                  op: int = Average, name: str | None = None, process_set: ProcessSet = global_process_set,
                  ignore_name_scope: bool = False, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> tf.Tensor:
    """This rank's rows of the average (or OP, but not Adasum): an equal share, and one more on the first
    ranks where that does not come out even.  Gradient: those of all ranks.

    >>> hvd.reducescatter(tf.ones([2]), op=hvd.Sum).numpy()
    array([1., 1.], dtype=float32)
    """
    op = _scattered(op)
    with _on(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        out = _reduce("reducescatter", small, _name("Reducescatter", tensor, name),
                      _scaled(op, prescale_factor, postscale_factor, process_set, ignore_name_scope))
        return compression.decompress(out, context)


def grouped_reducescatter(tensors: Sequence[tf.Tensor], device_dense: str = "",
                          compression: Type[Compressor] = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> List[tf.Tensor]:
    """reducescatter() of each of TENSORS, together.  Returns a list.

    >>> [t.numpy().tolist() for t in hvd.grouped_reducescatter([tf.ones([1]), tf.zeros([2])])]
    [[1.0], [0.0, 0.0]]
    """
    op = _scattered(op)
    with _on(device_dense):
        small = [compression.compress(tf.convert_to_tensor(t)) for t in tensors]
        out = _grouped("grouped_reducescatter", "GroupedReducescatter", [t for t, _ in small], None,
                       _scaled(op, prescale_factor, postscale_factor, process_set, ignore_name_scope))
        return [compression.decompress(t, context) for t, (_, context) in zip(out, small)]


def _scattered(op: int) -> int:
    if op == Adasum:
        raise NotImplementedError("reducescatter does not do Adasum: allreduce does.")
    return reduction(None, op)


def _scatter_scaled(call: ops.Call, grad: tf.Tensor) -> tf.Tensor:
    """Each rank's loss counts, as in an allreduce: a sum counts them all."""
    op, prescale, postscale, _, process_set, _ = call.arguments
    factor = prescale * postscale
    ranks = size_of(process_set) if op == Sum else 1
    if not isinstance(ranks, int):
        return grad * tf.cast(factor * tf.cast(ranks, tf.float64), grad.dtype)
    return grad if factor * ranks == 1 else grad * tf.cast(factor * ranks, grad.dtype)


@ops.gradient("reducescatter")
def _reducescatter_gradient(call: ops.Call, grad: tf.Tensor) -> Sequence[tf.Tensor]:
    return [ops.run("allgather", (_scatter_scaled(call, grad),), _gradient_name(call, "Allgather"),
                    call.arguments)]


@ops.gradient("grouped_reducescatter")
def _grouped_reducescatter_gradient(call: ops.Call, *grads: tf.Tensor) -> Sequence[tf.Tensor]:
    return _grouped("grouped_allgather", "GroupedAllgather", [_scatter_scaled(call, g) for g in grads],
                    _gradient_name(call, "GroupedAllgather"), call.arguments)


# ---- join, numbers ----

def join() -> tf.Tensor:
    """This rank has no more data: until all ranks have joined, it takes part with zeros in each allreduce of
    the others.  Returns the rank that joined last.

    >>> int(hvd.join())
    0
    """
    return ops.join(None)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks of a process set, when the graph runs.

    >>> int(hvd.size_op())
    1
    """
    return ops.scalar("size", process_set_id, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this rank is in the process set, else 0, when the graph runs.

    >>> int(hvd.process_set_included_op())
    1
    """
    return ops.scalar("process_set_included", process_set_id, name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of ranks on this host, when the graph runs.

    >>> int(hvd.local_size_op())
    1
    """
    return ops.scalar("local_size", None, name)


def rank_op(name: str | None = None) -> tf.Tensor:
    """The number of this rank, when the graph runs.

    >>> int(hvd.rank_op())
    0
    """
    return ops.scalar("rank", None, name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """The number of this rank on its host, when the graph runs.

    >>> int(hvd.local_rank_op())
    0
    """
    return ops.scalar("local_rank", None, name)


tf.no_gradient("BerthJoin")
for _kind in ("Size", "LocalSize", "Rank", "LocalRank", "ProcessSetIncluded"):
    tf.no_gradient(f"Berth{_kind}")
