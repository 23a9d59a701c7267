"""The ops of libberth_tf.so, called; where TensorFlow does not load it, numpy_function does the same.

    outputs = ops.run("allreduce", [tensor], name, Arguments(op=Sum))

KIND is the name of an op in lib/ops/tf_ops.def, in small letters.  In eager mode the op blocks; in graphs it
is asynchronous, and ranks meet by the names of nodes.  XLA compiles no ops: see xla.py.

BERTH_TENSORFLOW in the environment: "op" makes it an error if the ops do not load, "numpy" does without them.
"""
from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any, Callable, Final, NamedTuple, Sequence

import tensorflow as tf

from .. import basics, frameworks, library
from ..basics import ProcessSet, Sum, global_process_set
from ..frameworks import FILE
from ..operations import OPS

SCALED: Final = ("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
KINDS: Final = (*SCALED, "allgather", "grouped_allgather", "broadcast", "alltoall", "join")
SCALARS: Final = ("size", "local_size", "rank", "local_rank", "process_set_included")


class Arguments(NamedTuple):
    """Those of an operation that are no tensors.  OP, ROOT_RANK: of the kinds that have one."""
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root_rank: int = 0
    process_set: ProcessSet = global_process_set
    ignore_name_scope: bool = False


class Call(NamedTuple):
    """An operation that has outputs, for its gradient.  NAME: of the node, without its scopes; None in eager
    mode.
    """
    name: str | None
    arguments: Arguments
    inputs: Sequence[tf.Tensor]
    outputs: Sequence[tf.Tensor]


Gradient = Callable[..., Sequence["tf.Tensor | None"]]
gradients: dict[str, Gradient] = {}  # by kind


# ---- the file ----

def _load() -> Any:
    """The module that TensorFlow makes of the file; None: it is not used."""
    way = os.environ.get("BERTH_TENSORFLOW")
    if way == "numpy":
        frameworks.unused = "BERTH_TENSORFLOW=numpy"
        return None
    try:
        path = library.beside(FILE)
        module = tf.load_op_library(path)
        so = ctypes.CDLL(path)
        why = frameworks.wrong(so)
        if why is None:
            basics.tell_of_sets(_teller(so))
            return module
    except (tf.errors.OpError, ImportError, OSError, AttributeError) as e:
        why = str(e)
    frameworks.unused = why
    if way == "op":
        raise ImportError(f"{FILE} can't be used: {why}")
    if os.environ.get("RANK", "0") == "0":
        print(f"berth: tensors go by numpy_function, which is slower: {FILE} can't be used in TensorFlow "
              f"{tf.__version__}: {why}".replace("\n", " "), file=sys.stderr)
    return None


def _teller(so: ctypes.CDLL) -> basics.Tell:
    so.berth_tf_set.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_int

    def tell(number: int, handle: int | None, is_there: bool) -> None:
        if number:
            so.berth_tf_set(number, handle, is_there)

    return tell


_module = _load()
_in_graph = {kind: getattr(_module, f"berth_{kind}") for kind in (*KINDS, *SCALARS)} if _module else {}
_now = {kind: getattr(_module, f"berth_{kind}_now") for kind in KINDS} if _module else {}


# ---- calls ----

def _bits(x: float) -> int:
    """Of a double, for an attribute; TensorFlow's floats are of 32 bits."""
    return int(struct.unpack("q", struct.pack("d", x))[0])


_ONE: Final = _bits(1.0)


def _attributes(kind: str, arguments: Arguments) -> dict[str, int]:
    op, prescale, postscale, root_rank, process_set, ignore_name_scope = arguments
    process_set.usable()
    attributes = {"process_set_id": process_set.process_set_id or 0,
                  "ignore_name_scope": int(ignore_name_scope)}
    if kind in SCALED:
        attributes["reduce_op"] = OPS[op]
        attributes["prescale_bits"] = _ONE if prescale == 1.0 else _bits(prescale)
        attributes["postscale_bits"] = _ONE if postscale == 1.0 else _bits(postscale)
    elif kind == "broadcast":
        attributes["root_rank"] = root_rank
    return attributes


def is_compiled() -> bool:
    """Whether what is called now is a part of a function that XLA compiles."""
    if tf.executing_eagerly():
        return False
    from . import xla
    return xla.compiles()


def run(kind: str, inputs: Sequence[object], name: str | None, arguments: Arguments) -> tf.Tensor:
    """The output of the op KIND for INPUTS, or its outputs."""
    is_eager = tf.executing_eagerly()
    if not is_eager and is_compiled():
        from . import xla
        return xla.run(kind, inputs, name, arguments)
    if _module is None:
        from . import fallback
        return fallback.run(kind, inputs, name, arguments)
    if is_eager:
        return _now[kind](*inputs, **_attributes(kind, arguments))
    return _in_graph[kind](*inputs, name=name, **_attributes(kind, arguments))


def join(name: str | None) -> tf.Tensor:
    """The last rank to join."""
    if is_compiled():
        return run("join", (), name, Arguments())
    if _module is None:
        from . import fallback
        return fallback.join()
    return _now["join"]() if tf.executing_eagerly() else _in_graph["join"](name=name)


def scalar(kind: str, process_set_id: int | None, name: str | None) -> tf.Tensor:
    """A number of the world, or of the process set, when the graph runs."""
    if is_compiled():
        return run(f"{kind}_op", (), name, Arguments())
    if _module is None:
        from . import fallback
        return fallback.scalar(kind, process_set_id)
    if process_set_id is None:
        return _in_graph[kind](name=name)
    return _in_graph[kind](process_set_id=process_set_id, name=name)


# ---- gradients ----

def _call_of(kind: str, op: tf.Operation) -> Call:
    of = op.get_attr
    arguments: dict[str, Any] = {"process_set": basics.process_set_of(of("process_set_id")),
                                 "ignore_name_scope": bool(of("ignore_name_scope"))}
    if kind in SCALED:
        arguments["op"] = OPS.index(of("reduce_op"))
        for end in ("prescale", "postscale"):
            arguments[end] = struct.unpack("d", struct.pack("q", of(f"{end}_bits")))[0]
    elif kind == "broadcast":
        arguments["root_rank"] = of("root_rank")
    name: str | None = getattr(op, "name", None)
    return Call(name and name.rsplit("/", 1)[-1], Arguments(**arguments), op.inputs, op.outputs)


def gradient(kind: str) -> Callable[[Gradient], Gradient]:
    """Register a function, GRADIENT(call, *gradients of the outputs) -> gradients of the inputs, for KIND."""
    def register(function: Gradient) -> Gradient:
        gradients[kind] = function
        name = "Berth" + "".join(word.capitalize() for word in kind.split("_"))
        for each in (name, name + "Now"):
            tf.RegisterGradient(each)(lambda op, *grads: function(_call_of(kind, op), *grads))
        return function

    return register
