"""Horovod's callbacks for Keras.

They do the same in Keras 2 and 3.  DEVICE is where TensorFlow has the operation; none is its own choice.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Type, TypeVar, Union

import numpy as np
import tensorflow as tf

from .. import basics, operations
from ..basics import Average, global_process_set
from ..tensorflow import arrays
from ..tensorflow.util import optimizer_variables, variable_of
from . import variables

__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
           "LearningRateWarmupCallback", "MetricAverageCallback"]

Logs = Optional[Dict[str, object]]
M = TypeVar("M")


def over(base: type, callback: Type[M], module: str) -> Type[M]:
    """CALLBACK on BASE, a Keras' class, as a class of MODULE."""
    made: Any = type(callback.__name__, (callback, base),
                     {"__doc__": callback.__doc__, "__module__": module})
    return made  # type: ignore[no-any-return]  # it is a subclass


class _Callback:
    """What Keras gives its callbacks.  It is not their base class, which over() adds."""
    model: Any
    params: Dict[str, Any]


# ---- variables ----

class BroadcastGlobalVariablesCallback(_Callback):
    """After the first batch the variables of the model and of its optimizer, which has made them by then,
    become those of ROOT_RANK; but not LOCAL_VARIABLES, one or several.

    >>> callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    """

    def __init__(self, root_rank: int, device: str = "",
                 local_variables: tf.Variable | Iterable[tf.Variable] | None = None) -> None:
        super().__init__()
        self.root_rank, self.device, self.broadcast_done = root_rank, device, False
        self._local: Dict[int, tf.Variable] = {}
        if isinstance(local_variables, tf.Variable):
            local_variables = [local_variables]
        for variable in local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: tf.Variable) -> None:
        """VAR, too, stays each rank's own."""
        self._local[id(variable_of(var))] = var

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.broadcast_done:
            return
        of_all = [*self.model.weights, *optimizer_variables(self.model.optimizer)]
        with tf.device(self.device or None):
            variables.broadcast([v for v in of_all if id(variable_of(v)) not in self._local], self.root_rank)
        self.broadcast_done = True


# ---- metrics ----

class MetricAverageCallback(_Callback):
    """After each epoch the numbers in its logs become their averages over all ranks; what is no number stays.
    Give it before callbacks that read them.  DEVICE is Horovod's, and says nothing here.

    >>> logs = {"loss": 0.5}
    >>> hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    >>> logs
    {'loss': 0.5}
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs = logs or {}
        names = sorted(name for name, value in logs.items() if _is_number(value))
        logs.update(zip(names, _averages([float(logs[name]) for name in names])))  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    if isinstance(value, (np.ndarray, tf.Tensor)):
        value = np.asarray(value)[()]  # of no dimensions, it is one
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _averages(numbers: List[float]) -> List[float]:
    if not numbers:
        return []
    work = arrays.OPERATIONS.allreduce(np.array(numbers, np.float64), False, Average, None, 1.0, 1.0,
                                       global_process_set)
    return [float(number) for number in operations.run(work)]


# ---- learning rates ----

class LearningRateScheduleCallback(_Callback):
    """In the epochs from START_EPOCH until before END_EPOCH the learning rate is INITIAL_LR *
    MULTIPLIER(epoch).  A MULTIPLIER that is a number counts once for each epoch since START_EPOCH.

    STAIRCASE: it is set when an epoch begins; else before each batch, and `epoch` has a fraction.
    MOMENTUM_CORRECTION: what a momentum has gathered grows and shrinks with the rate, as in "Accurate, Large
    Minibatch SGD".
    STEPS_PER_EPOCH: if Keras does not know it.
    ValueError: Keras does not know it, or there is no INITIAL_LR.

    >>> callbacks = [hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5 ** epoch)]
    """

    def __init__(self, initial_lr: float, multiplier: Union[float, Callable[[float], float]],
                 start_epoch: int = 0, end_epoch: int | None = None, staircase: bool = True,
                 momentum_correction: bool = True, steps_per_epoch: int | None = None) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr, the learning rate to begin with.")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = multiplier
            self.multiplier = lambda epoch: float(factor ** (epoch - start_epoch))

    def _steps(self) -> int:
        steps = self.steps_per_epoch or self.params.get("steps")
        if not steps:
            raise ValueError(f"Keras does not know how many batches an epoch has: give {type(self).__name__} "
                             "steps_per_epoch.")
        return int(steps)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before, now = variables.learning_rate(optimizer), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = now
        if self.momentum_correction and before not in (0.0, now):
            variables.scale_velocities(optimizer, now / before)

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.staircase:
            self.steps_per_epoch = self._steps()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or self.end_epoch is not None and epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._adjust(epoch + batch / self._steps())
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs["lr"] = variables.learning_rate(self.model.optimizer)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """In the first WARMUP_EPOCHS the learning rate grows with each batch, from INITIAL_LR / hvd.size() to
    INITIAL_LR.  VERBOSE: rank 0 says when it is there.  The others are as in LearningRateScheduleCallback.

    >>> callbacks = [hvd.callbacks.LearningRateWarmupCallback(0.1 * hvd.size(), warmup_epochs=3)]
    """

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True,
                 steps_per_epoch: int | None = None, verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            after = epoch + 1 / self._steps()  # the batch: so that an epoch ends at a round number
            return 1 / basics.size() * (after * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction,
                         steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and epoch + 1 == self.end_epoch and basics.rank() == 0:
            rate = variables.learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


# ---- checkpoints ----

class BestModelCheckpoint(_Callback):
    """Keras' ModelCheckpoint with save_best_only, on rank 0 alone.  Set its filepath before fit().

    >>> checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    >>> checkpoint.filepath = "best.keras"
    """

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False,
                 mode: str = "auto", save_freq: Union[int, str] = "epoch") -> None:
        of_its_kind = "best.weights.h5" if save_weights_only else "best.keras"  # Keras 3 wants to see one
        super().__init__(filepath=of_its_kind, monitor=monitor,  # type: ignore[call-arg]
                         verbose=verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode,
                         save_freq=save_freq)
        self.filepath: str | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.filepath:
            raise ValueError("BestModelCheckpoint has no path: set its filepath before fit().")
        super().on_train_begin(logs)  # type: ignore[misc]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if basics.rank() == 0:
            super().on_train_batch_end(batch, logs)  # type: ignore[misc]

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if basics.rank() == 0:
            super().on_epoch_end(epoch, logs)  # type: ignore[misc]
