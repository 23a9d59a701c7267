"""Horovod's functions for programs of Keras: of values, in graphs of TensorFlow 1 in Keras' session."""
from __future__ import annotations

from typing import Callable, Dict, Mapping, Sequence, Type

import tensorflow as tf

from .. import tensorflow as hvd
from ..basics import Average
from ..tensorflow.compression import Compression, Compressor
from .optimizer import DistributedOptimizer


def _result(tensor: tf.Tensor) -> object:
    """TENSOR, or in a graph of TensorFlow 1 what a session makes of it."""
    return tensor if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session().run(tensor)


def broadcast_global_variables(root_rank: int) -> object:
    """In a graph of TensorFlow 1 all variables become those of ROOT_RANK.

    RuntimeError: in eager mode there is no graph: use callbacks.BroadcastGlobalVariablesCallback().

    >>> hvd.broadcast_global_variables(0)
    Traceback (most recent call last):
    RuntimeError: hvd.broadcast_global_variables() has no graph in eager mode: use \
hvd.broadcast_variables(model.variables, root_rank=0).
    """
    return _result(hvd.broadcast_global_variables(root_rank))


def allreduce(value: object, name: str | None = None, average: bool | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, op: int | None = None,
              compression: Type[Compressor] = Compression.none) -> object:
    """The average (or OP) of VALUE, a number, an array or a tensor, over the ranks.

    >>> hvd.allreduce([1.0, 2.0]).numpy().tolist()
    [1.0, 2.0]
    """
    return _result(hvd.allreduce(tf.convert_to_tensor(value), average, op=op, name=name,
                                 prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                                 compression=compression))


def allgather(value: object, name: str | None = None) -> object:
    """The VALUEs of all ranks, one behind the other along the first dimension.

    >>> hvd.allgather([1.0]).numpy().tolist()
    [1.0]
    """
    return _result(hvd.allgather(tf.convert_to_tensor(value), name))


def broadcast(value: object, root_rank: int, name: str | None = None) -> object:
    """The VALUE of ROOT_RANK.

    >>> hvd.broadcast([1.0], root_rank=0).numpy().tolist()
    [1.0]
    """
    return _result(hvd.broadcast(tf.convert_to_tensor(value), root_rank, name))


def reducescatter(value: object, name: str | None = None, op: int = Average) -> object:
    """This rank's rows of the average (or OP) of VALUE over the ranks.

    >>> hvd.reducescatter([1.0], op=hvd.Sum).numpy().tolist()
    [1.0]
    """
    return _result(hvd.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def load_model(load: Callable[..., object], filepath: object, custom_optimizers: Sequence[type] | None,
               custom_objects: Mapping[str, object] | None, compression: Type[Compressor]) -> object:
    """The model of FILEPATH, as Keras' LOAD reads it; its optimizer reduces gradients."""
    known: Dict[str, object] = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = load(filepath, custom_objects={**known, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        setattr(model, "optimizer", DistributedOptimizer(optimizer, compression=compression))
    return model
