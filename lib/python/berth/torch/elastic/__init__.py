"""Horovod's elastic training: states and samplers work; run() calls its function once."""
import functools
import sys

from ... import basics
from .sampler import ElasticSampler
from .state import ObjectState, State, TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


def run(func):
    """A decorator: FUNC(state, ...) is called once, when all ranks have the STATE of rank 0.  Its errors are
    the caller's: it is not called again.
    """
    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        if basics.rank() == 0:
            print("berth: elastic.run: the function runs once, and is not repeated after an error",
                  file=sys.stderr, flush=True)
        state.sync()
        return func(state, *args, **kwargs)

    return wrapper
