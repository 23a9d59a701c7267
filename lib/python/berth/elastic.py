"""Horovod's elastic training, for any framework: what a script commits and restores, and run(), which calls
its function once.
"""
from __future__ import annotations

import copy
import functools
import sys
from typing import Callable, Dict, Iterable, List, Mapping, TypeVar

from . import basics, objects

R = TypeVar("R")
Values = Dict[str, object]


def run(func: Callable[..., R]) -> Callable[..., R]:
    """A decorator: FUNC(state, ...) is called once, when all ranks have the STATE of rank 0.  Its errors are
    the caller's: it is not called again.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     return state.epoch
    >>> train(hvd.elastic.ObjectState(epoch=3))
    3
    """
    @functools.wraps(func)
    def wrapper(state: State, *args: object, **kwargs: object) -> R:
        if basics.rank() == 0:
            print("berth: elastic.run: the function runs once, and is not repeated after an error",
                  file=sys.stderr, flush=True)
        state.sync()
        return func(state, *args, **kwargs)

    return wrapper


def run_fn(func: Callable[..., R], reset: Callable[[], object]) -> Callable[..., R]:
    """run(FUNC).  RESET is Horovod's, for a world that has changed: no call of this package calls it.

    >>> hvd.elastic.run_fn(lambda state: state.epoch, reset=hvd.init)(hvd.elastic.ObjectState(epoch=3))
    3
    """
    return run(func)


class State:
    """The calls of elastic programs.  A subclass says how to save(), restore() and sync().

    >>> issubclass(hvd.elastic.ObjectState, hvd.elastic.State)
    True
    """

    def __init__(self, **_: object) -> None:
        self._reset_callbacks: List[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """CALLBACKS, without arguments, are called by on_reset(), which no call of this package calls."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """reset(), then the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """save(), and check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Does nothing.  In Horovod it raises HostsUpdatedInterrupt if hosts came or went."""

    def save(self) -> None:
        """Keep what is now, for restore()."""
        raise NotImplementedError()

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError()

    def sync(self) -> None:
        """Take over what rank 0 has."""
        raise NotImplementedError()

    def reset(self) -> None:
        """The world has changed."""


class ObjectState(State):
    """Values under the names that they are given with, as attributes.

    BCAST_OBJECT and GET_RANK stand in for broadcast_object() and rank().

    >>> state = hvd.elastic.ObjectState(epoch=0)
    >>> state.epoch = 5
    >>> state.restore()
    >>> state.epoch
    0
    """

    def __init__(self, bcast_object: Callable[[Values], Values] = objects.broadcast_object,
                 get_rank: Callable[[], int] = basics.rank, **kwargs: object) -> None:
        super().__init__()
        self._bcast_object, self._rank = bcast_object, get_rank
        self._saved_state = copy.deepcopy(kwargs)
        self._set(kwargs)

    def _set(self, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._set(copy.deepcopy(self._saved_state))

    def sync(self) -> None:
        if self._saved_state:
            self._set(self._bcast_object({name: getattr(self, name) for name in self._saved_state}))
        self.save()
