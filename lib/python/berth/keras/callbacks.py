"""Horovod's callbacks for Keras: those of berth._keras on its class."""
from __future__ import annotations

import keras

from .._keras import callbacks as _of

__all__ = [*_of.__all__]

_Base = keras.callbacks.Callback

BroadcastGlobalVariablesCallback = _of.over(_Base, _of.BroadcastGlobalVariablesCallback, __name__)
MetricAverageCallback = _of.over(_Base, _of.MetricAverageCallback, __name__)
LearningRateScheduleCallback = _of.over(_Base, _of.LearningRateScheduleCallback, __name__)
LearningRateWarmupCallback = _of.over(_Base, _of.LearningRateWarmupCallback, __name__)
BestModelCheckpoint = _of.over(keras.callbacks.ModelCheckpoint, _of.BestModelCheckpoint, __name__)
