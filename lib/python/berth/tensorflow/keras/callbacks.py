"""Horovod's callbacks for tf.keras: those of berth._keras on its class."""
from __future__ import annotations

import tensorflow as tf

from ..._keras import callbacks as _of

__all__ = [*_of.__all__]

_Base = tf.keras.callbacks.Callback

BroadcastGlobalVariablesCallback = _of.over(_Base, _of.BroadcastGlobalVariablesCallback, __name__)
MetricAverageCallback = _of.over(_Base, _of.MetricAverageCallback, __name__)
LearningRateScheduleCallback = _of.over(_Base, _of.LearningRateScheduleCallback, __name__)
LearningRateWarmupCallback = _of.over(_Base, _of.LearningRateWarmupCallback, __name__)
BestModelCheckpoint = _of.over(tf.keras.callbacks.ModelCheckpoint, _of.BestModelCheckpoint, __name__)
