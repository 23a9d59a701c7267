"""Operations in functions that XLA compiles for the CPU (jit_compile=True).

    if xla.compiles():
        output = xla.run("allreduce", [tensor], name, Arguments(op=Sum))

XLA knows no ops of others.  An operation there is a custom call to libberth_tf.so (lib/ops/tf_xla.h), which
blocks a thread of XLA's until it is done.  XLA makes calls that do not depend on one another in any order,
and several at a time, as it has threads: two ranks would wait for one another in different operations.  So a
call takes a number that the call before it gives.  The number is in a variable, which TensorFlow hands from
function to function, too.  Then calls have one order, that in which a function is traced, and ranks that
trace the same do the same.

While a compiled function runs, TensorFlow locks its variables: those of one process that have operations run
one after the other.  Threads that call them do so in the same order on all ranks.
"""
from __future__ import annotations

import ctypes
import functools
import threading
from types import ModuleType
from typing import Any, Final, List, Sequence, cast

import numpy as np
import tensorflow as tf

from .. import clib, library
from ..frameworks import FILE
from ..operations import OPS
from . import arrays, ops

try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _in_context
except ImportError:  # a private name
    def _in_context(graph: tf.Graph) -> bool:
        return False

try:
    from tensorflow.python.ops.control_flow_ops import XLAControlFlowContext as _Context
except ImportError:  # a private name
    pass
else:
    # A tf.function that was traced outside of XLA has operations that XLA lacks.  So a function that XLA
    # compiles traces it anew, as one for a TPU does.
    _Context.RequiresUniqueFunctionRetracing = lambda self: True

_NUMBERS: Final = {"allreduce": clib.ALLREDUCE, "allgather": clib.ALLGATHER, "broadcast": clib.BROADCAST,
                   "reducescatter": clib.REDUCESCATTER}
_ROWS: Final = ("allgather", "reducescatter")  # the kinds of which the number of ranks gives sizes
_LAST: Final = "_berth_last"  # of a graph: the number that its last call gives


def compiles() -> bool:
    """Whether the graph that is made now is a part of a function that XLA compiles."""
    return _here.is_gradient or bool(_in_context(tf.compat.v1.get_default_graph()))


class _Here(threading.local):
    """Of a thread: whether it makes the gradient of such a function, whose graph does not say so."""
    is_gradient = False


_here = _Here()


# ---- where it can't be ----

@functools.lru_cache(maxsize=None)
def why_not() -> str:
    """Why XLA can't compile operations here; "" if it can."""
    if ops._module is None:
        return "its operations go by numpy_function"
    try:
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops
        gen_xla_ops.xla_custom_call_v2
        so = ctypes.CDLL(library.beside(FILE))
        so.berth_tf_xla.restype = ctypes.c_char_p
        wrong = so.berth_tf_xla()
    except (ImportError, OSError, AttributeError) as e:
        return str(e)
    return "" if wrong is None else cast(str, wrong.decode(errors="replace"))


def _refusal(kind: str, why: str) -> NotImplementedError:
    return NotImplementedError(f"hvd.{kind} can't be compiled by XLA in TensorFlow {tf.__version__} ({why}): "
                               "compile without it (jit_compile=False).")


def _check(kind: str, tensors: Sequence[tf.Tensor]) -> None:
    """NotImplementedError: KIND can't be compiled."""
    why = why_not()
    if not why and _kind_of(kind) not in _NUMBERS:
        why = "it is none of allreduce, allgather, broadcast and reducescatter"
    for t in tensors:
        if not why and not t.shape.is_fully_defined():
            why = f"the shape of '{t.name}' is not known while it is traced: {t.shape}"
    if why:
        raise _refusal(kind, why)


# ---- calls ----

_lock = threading.Lock()
_variable: tf.Variable | None = None


def _order(kind: str) -> tf.Variable:
    """The variable whose value goes from call to call."""
    global _variable
    with _lock, tf.init_scope():
        if not tf.executing_eagerly():
            raise _refusal(kind, "in a graph of TensorFlow 1")
        if _variable is None:
            with tf.device("/cpu:0"):
                _variable = tf.Variable(0, trainable=False, dtype=tf.int32, name="berth_order")
        return _variable


def _kind_of(kind: str) -> str:
    return kind.replace("grouped_", "")


def _share(rows: int, arguments: ops.Arguments) -> int:
    """Of ROWS, those that a reducescatter gives this rank."""
    ranks = arguments.process_set.size()
    return rows // ranks + (arguments.process_set.rank() < rows % ranks)


def _shape(kind: str, tensor: tf.Tensor, arguments: ops.Arguments) -> List[int]:
    """Of the output for TENSOR."""
    shape = cast(List[int], tensor.shape.as_list())
    if kind in _ROWS:
        if not shape:
            raise ValueError(f"{kind} takes a tensor of one dimension or more: this one has none.")
        rows = shape[0]
        shape[0] = (rows * arguments.process_set.size() if kind == "allgather" else _share(rows, arguments))
    return shape


def _config(kind: str, tensors: Sequence[tf.Tensor], label: str, arguments: ops.Arguments) -> str:
    """As lib/ops/tf_xla.h says."""
    op, prescale, postscale, root_rank, process_set, _ = arguments
    type_ = arrays.TYPES.get(np.dtype(tensors[0].dtype.as_numpy_dtype))
    if type_ is None:
        raise TypeError(f"Tensor type {tensors[0].dtype.name} is not supported.")
    process_set.usable()
    if kind == "broadcast" and root_rank not in process_set.ranks:
        raise ValueError(f"root_rank {root_rank} is not in the process set.")
    root = process_set.ranks.index(root_rank) if kind == "broadcast" else 0
    rank, ranks = (process_set.rank(), process_set.size()) if kind in _ROWS else (0, 0)
    numbers = (_NUMBERS[kind], type_, OPS[op] if kind in ops.SCALED else 0, root,
               process_set.process_set_id or 0, rank, ranks, ops._bits(prescale), ops._bits(postscale),
               len(tensors))
    lines = [" ".join(map(str, numbers)), label]
    for t in tensors:
        shape = t.shape.as_list()
        row = tf.TensorShape(shape[1:]).num_elements()
        lines.append(f"{t.shape.num_elements()} {row} {shape if len(shape) != 1 else ''}")
    return "\n".join(lines)


def _is_on_gpu(tensor: tf.Tensor) -> bool:
    """Whether TENSOR of a compiled function will be there: TensorFlow takes a GPU unless a device is said."""
    if not tf.config.list_logical_devices("GPU"):
        return False
    try:
        from tensorflow.python.eager.context import context
        around = context().device_name
    except (ImportError, AttributeError):  # private names
        around = None
    return bool(tf.DeviceSpec.from_string(tensor.device or around or "").device_type != "CPU")


def _call(kind: str, tensors: Sequence[tf.Tensor], name: str | None, arguments: ops.Arguments
          ) -> List[tf.Tensor]:
    """The outputs of a custom call for TENSORS, which are of one type."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    graph: Any = tf.compat.v1.get_default_graph()
    order, one = _order(kind), _kind_of(kind)
    name = name or f"Horovod{kind}"
    node = graph.unique_name(name, mark_as_used=False)
    label = f"{one}.{node.rsplit('/', 1)[-1] if arguments.ignore_name_scope else node}"
    # The graph of a gradient runs no assignments, so there the tensor gives the order.
    before = [order.read_value(), *([getattr(graph, _LAST)] if hasattr(graph, _LAST) else [])]
    *made, last = gen_xla_ops.xla_custom_call_v2(
        operands=[*tensors, *before], call_target_name="berth",
        backend_config=_config(one, tensors, label, arguments), has_side_effect=True,
        result_dtypes=[*(t.dtype for t in tensors), tf.int32],
        result_shapes=[*(_shape(one, t, arguments) for t in tensors), []], name=name)
    if _is_on_gpu(last):
        raise _refusal(kind, "on a GPU")
    order.assign(last, read_value=False)
    setattr(graph, _LAST, last)
    return cast(List[tf.Tensor], made)


def run(kind: str, inputs: Sequence[object], name: str | None, arguments: ops.Arguments) -> object:
    """As ops.run()."""
    is_group = kind.startswith("grouped_")
    first: Any = inputs[0] if is_group else inputs
    given = [tf.convert_to_tensor(t) for t in first]
    _check(kind, given)

    @tf.custom_gradient  # type: ignore[misc]
    def differentiable(*tensors: tf.Tensor) -> object:
        made = _call(kind, tensors, name, arguments)

        def grad(*upstream: tf.Tensor) -> object:
            was, _here.is_gradient = _here.is_gradient, True
            try:
                return ops.gradients[kind](ops.Call(name, arguments, tensors, made), *upstream)
            finally:
                _here.is_gradient = was

        return made, grad

    result = differentiable(*given)
    result = list(result) if isinstance(result, (list, tuple)) else [result]
    return result if is_group else result[0]


# ---- Keras 3 ----

def never_auto_jit(keras: ModuleType) -> None:
    """From now on models of the package KERAS whose optimizer has the attribute never_auto_jit = True, or
    wraps one, take jit_compile="auto" for False.  On a machine with a GPU Keras 3 would have XLA compile for
    that, where an operation can't be.
    """
    model: Any = keras.Model
    resolve: Any = getattr(model, "_resolve_auto_jit_compile", None)
    if resolve is None or hasattr(resolve, "of_berth"):
        return

    @functools.wraps(resolve)
    def resolved(self: Any) -> bool:
        optimizer = getattr(self, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        return not getattr(optimizer, "never_auto_jit", False) and bool(resolve(self))

    cast(Any, resolved).of_berth = True
    model._resolve_auto_jit_compile = resolved
