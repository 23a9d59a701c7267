"""Horovod's elastic training for Keras: a state, and callbacks that keep it.

All other names are those of berth.tensorflow.elastic.
"""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..elastic import State
from ..tensorflow.elastic import TensorFlowKerasState
from .callbacks import Logs, _Callback

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback"]


class KerasState(TensorFlowKerasState):
    """MODEL, OPTIMIZER (that of MODEL, if none is given), and values by name, as attributes.

    ValueError: MODEL has no variables yet.

    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    >>> model.build((None, 2))
    >>> state = hvd.elastic.KerasState(model, tf.keras.optimizers.SGD(0.1), batch=0, epoch=0)
    >>> state.commit()
    """

    def __init__(self, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer | None = None,
                 **kwargs: object) -> None:
        super().__init__(model, optimizer, None, **kwargs)


class CommitStateCallback(_Callback):
    """STATE is committed after each epoch, and after each BATCHES_PER_COMMIT batches.

    >>> callbacks = [hvd.elastic.CommitStateCallback(hvd.elastic.ObjectState(), batches_per_commit=10)]
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit

    def commit(self) -> None:
        """Commit it now."""
        self.state.commit()
        self.batches_remaining = self.batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.commit()


class UpdateBatchStateCallback(_Callback):
    """state.batch is the number of the last batch of this epoch, and 0 after an epoch.

    >>> callbacks = [hvd.elastic.UpdateBatchStateCallback(hvd.elastic.ObjectState(batch=0))]
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state: Any = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        steps = self.params.get("steps")
        if steps:
            self.steps_per_epoch = self.steps_per_epoch or steps
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(_Callback):
    """state.epoch is the number of epochs that are done, with those before fit(), as state.epoch was then.

    >>> callbacks = [hvd.elastic.UpdateEpochStateCallback(hvd.elastic.ObjectState(epoch=0))]
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state: Any = state
        self.initial_epoch = self.state.epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1
