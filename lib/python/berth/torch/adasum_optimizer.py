"""DistributedOptimizer(op=Adasum): each rank does its own step, and the steps are combined."""
import contextlib

import torch

from ..basics import Adasum
from .collectives import allreduce_async_
from .handles import synchronize


class DeltaOptimizer:
    """Comes before the class of the user's optimizer."""

    @property
    def backward_passes_per_step(self):
        return self._passes

    def set_backward_passes_per_step(self, passes):
        """Nothing is reduced before step(), so that any number of backward() may come before it."""
        self._passes = passes

    def synchronize(self):
        """Does nothing: there are no reduced gradients."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("skip_synchronize() is not for op=Adasum, which reduces steps, not gradients.")
        yield

    def _moving(self):
        """The parameters that a step may change, on whichever rank; in the order of their names' numbers."""
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self._parameter_names:
                    self._parameter_names[p] = f"noname.added.{len(self._parameter_names)}"
        return [p for p in self._parameter_names if p.is_floating_point()]

    @torch.no_grad()
    def step(self, closure=None):
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

    step.hooked = True  # torch need not wrap it: the step of the user's optimizer is

    def _combine(self, params, before):
        deltas = torch._foreach_sub(params, before)
        sent, contexts = zip(*map(self._compression.compress, deltas)) if deltas else ((), ())
        handles = [allreduce_async_(delta, name=self._parameter_names[p], op=Adasum,
                                    process_set=self._process_set) for p, delta in zip(params, sent)]
        for p, start, handle, context in zip(params, before, handles, contexts):
            torch.add(start, self._compression.decompress(synchronize(handle), context), out=p)
