"""Variables and objects of one rank for all.

They are the same in eager mode, in a tf.function and in a session, but for SESSION, which Horovod's scripts
give and nothing needs: an object goes at once.
"""
from __future__ import annotations

from typing import Callable, List, Sequence, TypeVar

import tensorflow as tf

from .. import objects
from ..basics import ProcessSet, global_process_set
from . import mpi_ops
from .util import variable_of

T = TypeVar("T")


def broadcast_variables(variables: Sequence[tf.Variable], root_rank: int,
                        process_set: ProcessSet = global_process_set, inplace: bool = False) -> object:
    """VARIABLES become those of ROOT_RANK (a rank of the world).  In a graph it returns the operation that
    does so.  INPLACE is Horovod's, and says nothing here.

    >>> v = tf.Variable(3.0)
    >>> hvd.broadcast_variables([v], root_rank=0)
    >>> float(v)
    3.0
    """
    assigned = mpi_ops.broadcast_(variables, root_rank, process_set=process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> object:
    """An operation by which all variables of the graph become those of ROOT_RANK, for scripts of
    TensorFlow 1.

    RuntimeError: in eager mode there is no graph.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     v = tf.compat.v1.get_variable("v", initializer=3.0)
    ...     everywhere = hvd.broadcast_global_variables(0)
    ...     session.run(tf.compat.v1.global_variables_initializer())
    ...     session.run(everywhere)
    """
    if tf.executing_eagerly():
        raise RuntimeError("hvd.broadcast_global_variables() has no graph in eager mode: use "
                           "hvd.broadcast_variables(model.variables, root_rank=0).")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook of tf.compat.v1.train.MonitoredTrainingSession: when the session begins, all variables become
    those of ROOT_RANK.  DEVICE: where the operations are; none is TensorFlow's choice.

    >>> hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.bcast_op: tf.Operation | None = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: object) -> None:
        session.run(self.bcast_op)


def broadcast_object(obj: T, root_rank: int = 0, session: object = None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> T:
    """OBJ of ROOT_RANK, a rank of the world.  Any object that pickle takes.

    HorovodInternalError: it failed, or the bytes were changed on their way.

    >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank: int = 0, session: object = None, name: str | None = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[T], T]:
    """broadcast_object() with its other arguments: a function of the object.

    >>> hvd.broadcast_object_fn(root_rank=0)("object")
    'object'
    """
    return lambda obj: objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: T, session: object = None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> List[T]:
    """A list of the objects OBJ of all ranks of the set, in their order.  Any objects that pickle takes.

    HorovodInternalError: it failed, or bytes were changed on their way.

    >>> hvd.allgather_object(hvd.rank())
    [0]
    """
    return objects.allgather_object(obj, name, process_set)
