"""What a training program in PyTorch has to keep: models, optimizers, samplers; saved, restored, made equal.
"""
from __future__ import annotations

import copy
from typing import Dict, List, Protocol, Tuple, Type

import torch

from ... import objects
from ...elastic import ObjectState, State  # noqa: F401
from ..functions import broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler


class TorchState(ObjectState):
    """MODEL, OPTIMIZER, and more of the kind by name, as attributes; all other values as in ObjectState.

    >>> model = torch.nn.Linear(2, 1)
    >>> state = hvd.elastic.TorchState(model, torch.optim.SGD(model.parameters(), lr=0.1), epoch=0)
    >>> state.commit()
    """

    def __init__(self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None,
                 **kwargs: object) -> None:
        self._handlers: Dict[str, StateHandler]
        object.__setattr__(self, "_handlers", {})  # __setattr__() asks for it
        values: Dict[str, object] = {}
        given: Dict[str, object] = {"model": model, "optimizer": optimizer, **kwargs}
        for name, value in given.items():
            handler = _handler_of(value)
            if handler is None and (value is not None or name in kwargs):
                values[name] = value
                continue
            setattr(self, name, value)
            if handler is not None:
                self._handlers[name] = handler
        super().__init__(**values)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in self._handlers:
            self._handlers[name].set_value(value)  # type: ignore[arg-type]  # of that kind

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()


# ---- what is more than a value ----

class Stateful(Protocol):
    """What has a state as torch's models, optimizers and samplers have it."""

    def state_dict(self) -> Dict[str, object]:
        """What it is now."""

    def load_state_dict(self, state_dict: Dict[str, object]) -> object:
        """Become what state_dict() returned."""


class StateHandler:
    """Saves VALUE, restores it in place, and makes it equal on all ranks."""

    def __init__(self, value: Stateful) -> None:
        self.value = value
        self.save()

    def set_value(self, value: Stateful) -> None:
        """VALUE takes the place of the other one; restore() brings back what is saved now."""
        self.value = value
        self.save()

    def save(self) -> None:
        self.saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self.saved))

    def sync(self) -> None:
        """Take over what rank 0 has.  The state saves it once it has all."""
        raise NotImplementedError()

    def reset(self) -> None:
        """The world has changed."""


class ModelStateHandler(StateHandler):
    """Of a torch.nn.Module."""
    value: torch.nn.Module

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """Of a torch.optim.Optimizer."""
    value: torch.optim.Optimizer

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)

    def reset(self) -> None:
        """Gradients are of the last world, and ranks that come have none."""
        self.value.zero_grad()


class SamplerStateHandler(StateHandler):
    """Of an ElasticSampler."""
    value: ElasticSampler

    def sync(self) -> None:
        self.value.load_state_dict(objects.broadcast_object(self.value.state_dict()))

    def reset(self) -> None:
        self.value.reset()


Registry = List[Tuple[type, Type[StateHandler]]]
_handlers: Registry = [(torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler),
             (ElasticSampler, SamplerStateHandler)]


def get_handler_registry() -> Registry:
    """(class, its StateHandler) for each; the first that fits a value is taken."""
    return _handlers


def set_handler_registry(registry: Registry) -> None:
    """REGISTRY takes the place of that of get_handler_registry()."""
    global _handlers
    _handlers = registry


def _handler_of(value: object) -> StateHandler | None:
    handler = next((handler for kind, handler in _handlers if isinstance(value, kind)), None)
    return None if handler is None else handler(value)  # type: ignore[arg-type]  # of that kind
