"""Horovod's elastic training for TensorFlow: what a script commits and restores, and run(), which calls its
function in one world after another.

The states work in eager mode, and in sessions of TensorFlow 1.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Sequence, Tuple, TypeVar

import tensorflow as tf

from .. import elastic
from ..elastic import ObjectState, State
from ..errors import HorovodInternalError, HostsUpdatedInterrupt
from .functions import broadcast_variables
from .util import optimizer_variables, variable_of

R = TypeVar("R")

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState",
           "TensorFlowState", "run", "run_fn"]

# What TensorFlow's text has if an operation of Berth's failed: see tf_status.c, and for numpy_function.
_OURS = ("libberth: ", HorovodInternalError.__name__)


def run(func: Callable[..., R]) -> Callable[..., R]:
    """A decorator: FUNC(state, ...) is called when all ranks have the STATE of rank 0, and again in each
    world that follows.

    If a rank is lost, FUNC ends with HorovodInternalError (which TensorFlow's UnknownError becomes, and
    InternalError, of functions that XLA has compiled).  The others restore() what was committed last, join
    the next world, and call on_reset() and sync().  If ranks come, state.commit() raises
    HostsUpdatedInterrupt: the same, but nothing is restored.  Rank 0 of the next world was in the last one,
    if any rank of it is left.  runner's --restarts starts ranks that fail again, with --keep-going the others
    go on without them.  Without runner FUNC is called once.

    Before this, a program calls no collectives: a rank that starts again finds the others in sync().  A
    tf.function that was traced in one world is right in the next; but one that XLA compiles
    (jit_compile=True) raises an error if it has an allgather or a reducescatter.
    HorovodInternalError: an operation failed, and no rank was lost.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     return state.epoch
    >>> train(hvd.elastic.ObjectState(epoch=3))
    3
    """
    return elastic.running(func, _telling)


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InternalError) as e:
        if any(mark in e.message for mark in _OURS):
            raise HorovodInternalError(e.message) from e
        raise


def run_fn(func: Callable[..., R], reset: Callable[[], object]) -> Callable[..., R]:
    """run(FUNC).  RESET is Horovod's, to join the next world: run() does that, and calls no RESET.

    >>> hvd.elastic.run_fn(lambda state: state.epoch, reset=hvd.init)(hvd.elastic.ObjectState(epoch=3))
    3
    """
    return run(func)


class _Kept:
    """The values of variables, and rank 0's for all.  SESSION(): where they are, unless in eager mode."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._values: List[Tuple[tf.Variable, object]] = []
        self._everywhere: Tuple[List[int], Any] = ([], None)  # the variables, and the operation for them

    def save(self, variables: Sequence[tf.Variable]) -> None:
        if tf.executing_eagerly():
            self._values = [(v, v.numpy()) for v in variables]
        else:
            self._values = list(zip(variables, self._session().run(list(variables))))
            self._prepare(variables)

    def restore(self) -> None:
        if tf.executing_eagerly():
            for variable, value in self._values:
                variable.assign(value)
        else:  # no new operations: the graph may be complete
            given = {v.initializer.inputs[1]: value for v, value in self._values}
            self._session().run([v.initializer for v, _ in self._values], given)

    def sync(self, variables: Sequence[tf.Variable]) -> None:
        if tf.executing_eagerly():
            broadcast_variables(variables, root_rank=0)
        else:
            self._session().run(self._prepare(variables))

    def _prepare(self, variables: Sequence[tf.Variable]) -> Any:
        """The operation of sync(), which is made once."""
        known, operation = self._everywhere
        if known != list(map(id, variables)):
            with self._session().graph.as_default():
                operation = broadcast_variables(variables, root_rank=0)
            self._everywhere = list(map(id, variables)), operation
        return operation


class _VariablesState(ObjectState):
    """The variables that _variables() names; all other values as in ObjectState."""

    def __init__(self, session: Callable[[], Any], **kwargs: object) -> None:
        self._kept = _Kept(session)
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self._kept.save(self._variables())

    def _variables(self) -> List[tf.Variable]:
        raise NotImplementedError()

    def save(self) -> None:
        self._kept.save(self._variables())
        super().save()

    def restore(self) -> None:
        self._kept.restore()
        super().restore()

    def sync(self) -> None:
        self._kept.sync(self._variables())
        super().sync()


class TensorFlowState(_VariablesState):
    """VARIABLES (those of the graph, if none are given), and values by name, as attributes.

    SESSION: where the variables are, in a graph of TensorFlow 1; without it the default one.

    >>> v = tf.Variable(1.0)
    >>> state = hvd.elastic.TensorFlowState([v], epoch=0)
    >>> _ = v.assign(2.0)
    >>> state.restore()
    >>> float(v)
    1.0
    """

    def __init__(self, variables: Sequence[tf.Variable] | None = None,
                 session: tf.compat.v1.Session | None = None, **kwargs: object) -> None:
        self.variables = variables or tf.compat.v1.global_variables()
        self.session = session
        super().__init__(self._current_session, **kwargs)

    def _current_session(self) -> Any:
        session = self.session or tf.compat.v1.get_default_session()
        if session is None:
            raise ValueError("TensorFlowState has no session to read its variables in: give session=, or use "
                             "it inside `with session.as_default():`.")
        return session

    def _variables(self) -> List[tf.Variable]:
        return list(map(variable_of, self.variables))


class TensorFlowKerasState(_VariablesState):
    """MODEL, OPTIMIZER (that of MODEL, if none is given), and values by name, as attributes.

    sync() makes the variables that an optimizer would make in its first step, but not those of Keras 2's
    legacy ones: with these train one batch before, without collectives, as scripts for Horovod do.
    BACKEND: Keras', whose session is taken in a graph of TensorFlow 1.
    ValueError: MODEL has no variables yet.

    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    >>> model.build((None, 2))
    >>> state = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(0.1), epoch=0)
    >>> state.commit()
    """

    def __init__(self, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer | None = None,
                 backend: object = None, **kwargs: object) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: call model.build(input_shape) before.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self.backend = backend
        super().__init__(self._current_session, **kwargs)

    def _current_session(self) -> Any:
        backend: Any = self.backend or tf.compat.v1.keras.backend
        return backend.get_session()

    def sync(self) -> None:
        """Ranks that come have done no step, and others have."""
        build = getattr(self.optimizer, "build", None)
        if build is not None and tf.executing_eagerly() and not getattr(self.optimizer, "built", False):
            build(self.model.trainable_variables)
        super().sync()

    def _variables(self) -> List[tf.Variable]:
        return [variable_of(v) for v in (*self.model.weights, *optimizer_variables(self.optimizer))]
