"""What a training program has to keep: values, models, optimizers, samplers; saved, restored, made equal."""
import copy

import torch

from ... import basics, objects
from ..functions import broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler


class State:
    """The calls of elastic programs.  A subclass says how to save(), restore() and sync()."""

    def __init__(self, **_):
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """CALLBACKS, without arguments, are called by on_reset(), which no call of this package calls."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """reset(), then the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self):
        """save(), and check_host_updates()."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Does nothing.  In Horovod it raises HostsUpdatedInterrupt if hosts came or went."""

    def save(self):
        """Keep what is now, for restore()."""
        raise NotImplementedError()

    def restore(self):
        """Go back to what was saved last."""
        raise NotImplementedError()

    def sync(self):
        """Take over what rank 0 has."""
        raise NotImplementedError()

    def reset(self):
        """The world has changed."""


class ObjectState(State):
    """Values under the names that they are given with, as attributes: ObjectState(epoch=0).epoch.

    BCAST_OBJECT and GET_RANK stand in for broadcast_object() and rank().
    """

    def __init__(self, bcast_object=objects.broadcast_object, get_rank=basics.rank, **kwargs):
        super().__init__()
        self._bcast_object, self._rank = bcast_object, get_rank
        self._saved_state = copy.deepcopy(kwargs)
        self._set(kwargs)

    def _set(self, values):
        for name, value in values.items():
            setattr(self, name, value)

    def save(self):
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self):
        self._set(copy.deepcopy(self._saved_state))

    def sync(self):
        if self._saved_state:
            self._set(self._bcast_object({name: getattr(self, name) for name in self._saved_state}))
            self.save()


class TorchState(ObjectState):
    """MODEL, OPTIMIZER, and more of the kind by name, as attributes; all other values as in ObjectState.

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        object.__setattr__(self, "_handlers", {})  # __setattr__() asks for it
        values = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = _handler_of(value)
            if handler is None and (value is not None or name in kwargs):
                values[name] = value
                continue
            setattr(self, name, value)
            if handler is not None:
                self._handlers[name] = handler
        super().__init__(**values)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in self._handlers:
            self._handlers[name].set_value(value)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self):
        for handler in self._handlers.values():
            handler.reset()


# ---- what is more than a value ----

class StateHandler:
    """Saves VALUE, restores it in place, and makes it equal on all ranks."""

    def __init__(self, value):
        self.value = value
        self.save()

    def set_value(self, value):
        """VALUE takes the place of the other one; restore() brings back what is saved now."""
        self.value = value
        self.save()

    def save(self):
        self.saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self):
        raise NotImplementedError()

    def reset(self):
        """The world has changed."""


class ModelStateHandler(StateHandler):
    def sync(self):
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(StateHandler):
    def sync(self):
        self.value.load_state_dict(objects.broadcast_object(self.value.state_dict()))
        self.save()

    def reset(self):
        self.value.reset()


_handlers = [(torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler),
             (ElasticSampler, SamplerStateHandler)]


def get_handler_registry():
    """(class, its StateHandler) for each; the first that fits a value is taken."""
    return _handlers


def set_handler_registry(registry):
    global _handlers
    _handlers = registry


def _handler_of(value):
    return next((handler(value) for kind, handler in _handlers if isinstance(value, kind)), None)
