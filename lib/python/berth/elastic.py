"""Horovod's elastic training, for any framework: what a script commits and restores, and run(), which calls
its function in one world after another.
"""
from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import sys
import time
from typing import Callable, ContextManager, Dict, Iterable, List, Mapping, TypeVar

from . import basics, clib, library, objects, operations
from .errors import HorovodInternalError, HostsUpdatedInterrupt

R = TypeVar("R")
Values = Dict[str, object]

NEWS_S = 3.0  # an error may come first: other ranks, and this one, hear of a loss up to 2 s later
# operations.largest() of one number, made once: it takes 20 us, and the allreduce 60
_why = (ctypes.c_uint8 * 1)()
_AGREE = library.fields(clib.ALLREDUCE, clib.U8, clib.MAX, ctypes.addressof(_why), ctypes.addressof(_why), 1)


# ---- run ----

def run(func: Callable[..., R]) -> Callable[..., R]:
    """A decorator: FUNC(state, ...) is called when all ranks have the STATE of rank 0, and again in each
    world that follows.

    If a rank is lost, FUNC ends with HorovodInternalError.  The others restore() what was committed last,
    join the next world, and call on_reset() and sync().  If ranks come, state.commit() raises
    HostsUpdatedInterrupt: the same, but nothing is restored.  Rank 0 of the next world was in the last one,
    if any rank of it is left.  runner's --restarts starts ranks that fail again, with --keep-going the others
    go on without them.  Without runner FUNC is called once.

    Before this, a program calls no collectives: a rank that starts again finds the others in sync().
    HorovodInternalError: an operation failed, and no rank was lost.

    >>> @hvd.elastic.run
    ... def train(state):
    ...     return state.epoch
    >>> train(hvd.elastic.ObjectState(epoch=3))
    3
    """
    return running(func, contextlib.nullcontext)


def running(func: Callable[..., R], telling: Callable[[], ContextManager[object]]) -> Callable[..., R]:
    """run(FUNC).  In the context TELLING() errors of a framework become HorovodInternalError."""
    @functools.wraps(func)
    def wrapper(state: State, *args: object, **kwargs: object) -> R:
        if not basics.is_of_runner() and basics.rank() == 0:
            print("berth: elastic.run: the function runs once, and is not repeated after an error: runner "
                  "did not start this program", file=sys.stderr, flush=True)
        basics.elastic(True)
        try:
            return _worlds(state, lambda: func(state, *args, **kwargs), telling)
        finally:
            # From now on a failure is one: no rank starts again for what is done.
            if basics.is_initialized():
                basics.elastic(False)

    return wrapper


def _worlds(state: State, call: Callable[[], R], telling: Callable[[], ContextManager[object]]) -> R:
    """CALL(), in one world after another."""
    follows, has_state, wants_sync = False, False, True
    while True:
        error: Exception
        try:
            with telling():
                if follows:
                    state.on_reset()
                if _sync_is_due(wants_sync, follows, has_state):
                    state.sync()
                has_state = True
                return call()
        except HorovodInternalError as e:
            if not _is_loss(e):
                raise
            state.restore()
            error, wants_sync = e, True
        except HostsUpdatedInterrupt as e:
            error, wants_sync = e, not e.skip_sync
        _next_world(error)
        follows = True


def _sync_is_due(wanted: bool, follows: bool, has_state: bool) -> bool:
    """Whether one rank wants it: those that start again do, also where the others would leave it out.
    FOLLOWS: this rank was in a world before.  HAS_STATE: it has what all had, in one of them.
    """
    if not follows and not basics.may_grow():
        return True
    wanted_, had = operations.largest([wanted, has_state], None, basics.global_process_set)
    if follows and not had and basics.rank() == 0:
        print("berth: elastic.run: all ranks that had the state are lost: it begins anew", file=sys.stderr,
              flush=True)
    return bool(wanted_)


def _is_loss(error: HorovodInternalError) -> bool:
    """Whether ranks are lost, so that ERROR is no fault of the program."""
    if not basics.is_of_runner() or not basics.is_initialized():
        return False
    if error.result == clib.PEER_LOST:
        return True
    if error.result not in (None, clib.ABORTED, clib.TIMEOUT):
        return False
    until = time.monotonic() + NEWS_S
    while not basics.changed():
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True


def _next_world(why: Exception) -> None:
    """WHY: the error that has ended this one; it is raised if no other can follow."""
    if not basics.is_of_runner():
        raise why
    try:
        basics.change()
    except HorovodInternalError as e:
        if e.result == clib.UNSUPPORTED:
            raise why from None
        raise e from why


def run_fn(func: Callable[..., R], reset: Callable[[], object]) -> Callable[..., R]:
    """run(FUNC).  RESET is Horovod's, to join the next world: run() does that, and calls no RESET.

    >>> hvd.elastic.run_fn(lambda state: state.epoch, reset=hvd.init)(hvd.elastic.ObjectState(epoch=3))
    3
    """
    return run(func)


# ---- states ----

class State:
    """The calls of elastic programs.  A subclass says how to save(), restore() and sync().

    >>> issubclass(hvd.elastic.ObjectState, hvd.elastic.State)
    True
    """

    def __init__(self, **_: object) -> None:
        self._reset_callbacks: List[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """CALLBACKS, without arguments, are called by on_reset()."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """A world has followed: reset(), then the callbacks.  run() calls it, before sync(), on the ranks
        that were in the last world.
        """
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """save(), and check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if ranks wait for the next world, or have ended.

        It is an allreduce of a byte where ranks may come, as with runner's --restarts, and nothing elsewhere:
        a rank that has only ended is known by the error of the next operation.
        """
        if basics.is_initialized() and basics.may_grow():
            _why[0] = basics.changed()
            library.run(_why, _AGREE)
            if _why[0]:
                raise HostsUpdatedInterrupt(skip_sync=_why[0] == clib.RANKS_LOST)

    def save(self) -> None:
        """Keep what is now, for restore()."""
        raise NotImplementedError()

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError()

    def sync(self) -> None:
        """Take over what rank 0 has, and save() it: if it fails, restore() goes back to what was before."""
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
