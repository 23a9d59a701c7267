"""Horovod's elastic training: states and samplers work; run() calls its function once."""
from __future__ import annotations

import functools
import sys
from typing import Callable, TypeVar

from ... import basics
from .sampler import ElasticSampler
from .state import ObjectState, State, TorchState

R = TypeVar("R")

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


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
