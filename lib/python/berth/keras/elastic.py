"""Horovod's elastic training for Keras: a state, callbacks on its class that keep it, and run()."""
from __future__ import annotations

import keras

from .._keras import elastic as _of
from .._keras.callbacks import over
from .._keras.elastic import KerasState
from ..tensorflow.elastic import (HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run,
                                  run_fn)

__all__ = [*_of.__all__, "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run",
           "run_fn"]

_Base = keras.callbacks.Callback

CommitStateCallback = over(_Base, _of.CommitStateCallback, __name__)
UpdateBatchStateCallback = over(_Base, _of.UpdateBatchStateCallback, __name__)
UpdateEpochStateCallback = over(_Base, _of.UpdateEpochStateCallback, __name__)
