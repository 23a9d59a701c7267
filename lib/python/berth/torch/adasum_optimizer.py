"""DistributedOptimizer(op=Adasum): each rank does its own step, and the steps are combined."""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Type

import torch

from ..basics import Adasum, ProcessSet
from .collectives import allreduce_async_
from .compression import Compressor
from .functions import wait_all


# To a type checker; in fact the class of the user's optimizer comes behind.
if TYPE_CHECKING:
    from torch.optim import Optimizer as Base
else:
    Base = object


class DeltaOptimizer(Base):
    """Comes before the class of the user's optimizer."""
    _parameter_names: Dict[torch.Tensor, str]
    _passes: int
    _compression: Type[Compressor]
    _process_set: ProcessSet

    @property
    def backward_passes_per_step(self) -> int:
        """How often backward() comes before a step."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Nothing is reduced before step(), so that any number of backward() may come before it."""
        self._passes = passes

    def synchronize(self) -> None:
        """Does nothing: there are no reduced gradients."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """AssertionError: there is nothing to skip."""
        raise AssertionError("skip_synchronize() is not for op=Adasum, which reduces steps, not gradients.")
        yield

    def _moving(self) -> List[torch.Tensor]:
        """The parameters that a step may change, on whichever rank; in the order of their names' numbers."""
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self._parameter_names:
                    self._parameter_names[p] = f"noname.added.{len(self._parameter_names)}"
        return [p for p in self._parameter_names if p.is_floating_point()]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """The step of the user's optimizer on each rank, from here to there; all ranks go to the Adasum of
        these ways.  Returns the loss of this rank.
        """
        params = self._moving()
        before = [p.detach().clone() for p in params]
        loss = super().step(closure)
        try:
            self._combine(params, before)
        except BaseException:
            torch._foreach_copy_(params, before)
            raise
        return loss

    # torch need not wrap it: the step of the user's optimizer is.
    step.hooked = True  # type: ignore[attr-defined]

    def _combine(self, params: List[torch.Tensor], before: List[torch.Tensor]) -> None:
        deltas = torch._foreach_sub(params, before)
        sent, contexts = zip(*map(self._compression.compress, deltas)) if deltas else ((), ())
        handles = [allreduce_async_(delta, name=self._parameter_names[p], op=Adasum,
                                    process_set=self._process_set) for p, delta in zip(params, sent)]
        for p, start, out, context in zip(params, before, wait_all(handles), contexts):
            torch.add(start, self._compression.decompress(out, context), out=p)
