"""The collectives in torch's autograd: what a gradient goes through on its way back."""
from __future__ import annotations

from typing import List, Protocol, Tuple, TypeVar

import torch

from ..basics import Average, ProcessSet, Sum
from . import collectives

A = TypeVar("A")
_Gradients = Tuple["torch.Tensor | None", ...]
_Scaled = Tuple[int, float, float, ProcessSet]
_Gathered = Tuple[int, float, ProcessSet]
_Rows = Tuple[List[int], ProcessSet]
_RowsOfEach = Tuple[List[List[int]], ProcessSet]
_Received = Tuple[torch.Tensor, ProcessSet]
_Root = Tuple[int, ProcessSet]


class Context(Protocol[A]):
    """What torch gives to forward(), and later to backward(), which needs ARGUMENTS."""
    arguments: A

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        """TENSORS, which forward() returns, get no gradients."""


class Allreduce(torch.autograd.Function):
    """allreduce(); its gradient goes through the same."""
    @staticmethod
    def forward(ctx: Context[_Scaled], tensor: torch.Tensor, op: int, name: str | None, prescale: float,
                postscale: float, process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = op, prescale, postscale, process_set
        return collectives.allreduce(tensor.detach(), name=name, op=op, prescale_factor=prescale,
                                     postscale_factor=postscale, process_set=process_set)

    @staticmethod
    def backward(ctx: Context[_Scaled], grad: torch.Tensor) -> _Gradients:  # type: ignore[override]
        op, prescale, postscale, process_set = ctx.arguments
        grad = collectives.allreduce(grad, op=op, prescale_factor=prescale, postscale_factor=postscale,
                                     process_set=process_set)
        return grad, None, None, None, None, None


class GroupedAllreduce(torch.autograd.Function):
    """grouped_allreduce(); its gradients go through the same."""
    @staticmethod
    def forward(ctx: Context[_Scaled], op: int, name: str | None, prescale: float, postscale: float,
                process_set: ProcessSet, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.arguments = op, prescale, postscale, process_set
        return tuple(collectives.grouped_allreduce([t.detach() for t in tensors], name=name, op=op,
                                                   prescale_factor=prescale, postscale_factor=postscale,
                                                   process_set=process_set))

    @staticmethod
    def backward(ctx: Context[_Scaled], *grads: torch.Tensor) -> _Gradients:
        op, prescale, postscale, process_set = ctx.arguments
        reduced = collectives.grouped_allreduce(grads, op=op, prescale_factor=prescale,
                                                postscale_factor=postscale, process_set=process_set)
        return (None, None, None, None, None, *reduced)


def _rows_of(tensor: torch.Tensor, process_set: ProcessSet) -> List[int]:
    """The rows of each rank."""
    rows = torch.tensor([tensor.shape[0]], dtype=torch.int64)
    return collectives.allgather(rows, process_set=process_set).tolist()


def _own_rows(grad: torch.Tensor, rows: List[int], process_set: ProcessSet) -> torch.Tensor:
    me = process_set.rank()
    return grad.narrow(0, sum(rows[:me]), rows[me])


class Allgather(torch.autograd.Function):
    """allgather(); of the average of its gradients each rank takes its rows."""
    @staticmethod
    def forward(ctx: Context[_Rows], tensor: torch.Tensor, name: str | None,
                process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = _rows_of(tensor, process_set), process_set
        return collectives.allgather(tensor.detach(), name, process_set)

    @staticmethod
    def backward(ctx: Context[_Rows], grad: torch.Tensor) -> _Gradients:  # type: ignore[override]
        rows, process_set = ctx.arguments
        grad = collectives.allreduce(grad, op=Average, process_set=process_set)
        return _own_rows(grad, rows, process_set), None, None


class GroupedAllgather(torch.autograd.Function):
    """grouped_allgather(); as Allgather."""
    @staticmethod
    def forward(ctx: Context[_RowsOfEach], name: str | None, process_set: ProcessSet,
                *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.arguments = [_rows_of(t, process_set) for t in tensors], process_set
        return tuple(collectives.grouped_allgather([t.detach() for t in tensors], name, process_set))

    @staticmethod
    def backward(ctx: Context[_RowsOfEach], *grads: torch.Tensor) -> _Gradients:
        rows, process_set = ctx.arguments
        reduced = collectives.grouped_allreduce(grads, op=Average, process_set=process_set)
        return (None, None, *(_own_rows(g, n, process_set) for g, n in zip(reduced, rows)))


class Broadcast(torch.autograd.Function):
    """broadcast(); its gradient is the average on the root, zeros elsewhere."""
    @staticmethod
    def forward(ctx: Context[_Root], tensor: torch.Tensor, root_rank: int, name: str | None,
                process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = root_rank, process_set
        return collectives.broadcast(tensor.detach(), root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Context[_Root], grad: torch.Tensor) -> _Gradients:  # type: ignore[override]
        root_rank, process_set = ctx.arguments
        grad = collectives.allreduce(grad, op=Average, process_set=process_set)
        if process_set.ranks[process_set.rank()] != root_rank:
            grad = torch.zeros_like(grad)
        return grad, None, None, None


class Alltoall(torch.autograd.Function):
    """alltoall(); its gradient goes back by the rows that came."""
    @staticmethod
    def forward(ctx: Context[_Received], tensor: torch.Tensor, splits: torch.Tensor | None, name: str | None,
                process_set: ProcessSet) -> Tuple[torch.Tensor, ...]:
        ranks = process_set.size()
        if splits is None:  # so that the rows that came are known
            splits = torch.full((ranks,), tensor.shape[0] // ranks, dtype=torch.int32)
        out, received = collectives.alltoall(tensor.detach(), splits, name, process_set)
        ctx.arguments = received, process_set
        ctx.mark_non_differentiable(received)
        return out, received

    @staticmethod
    def backward(ctx: Context[_Received], grad: torch.Tensor,  # type: ignore[override]
                 _: object) -> _Gradients:
        received, process_set = ctx.arguments
        grad, _ = collectives.alltoall(grad.contiguous(), received, process_set=process_set)
        return grad, None, None, None


def _gathered(grad: torch.Tensor, op: int, factor: float, process_set: ProcessSet) -> torch.Tensor:
    """The gradients of all ranks.  Each rank's loss counts, as in an allreduce: a sum counts them all."""
    if op == Sum:
        factor *= process_set.size()
    return collectives.allgather(grad * factor if factor != 1 else grad, process_set=process_set)


class Reducescatter(torch.autograd.Function):
    """reducescatter(); its gradient is that of all ranks."""
    @staticmethod
    def forward(ctx: Context[_Gathered], tensor: torch.Tensor, op: int, name: str | None, prescale: float,
                postscale: float, process_set: ProcessSet) -> torch.Tensor:
        ctx.arguments = op, prescale * postscale, process_set
        return collectives.reducescatter(tensor.detach(), name, op=op, process_set=process_set,
                                         prescale_factor=prescale, postscale_factor=postscale)

    @staticmethod
    def backward(ctx: Context[_Gathered], grad: torch.Tensor) -> _Gradients:  # type: ignore[override]
        return _gathered(grad, *ctx.arguments), None, None, None, None, None


class GroupedReducescatter(torch.autograd.Function):
    """grouped_reducescatter(); as Reducescatter."""
    @staticmethod
    def forward(ctx: Context[_Gathered], name: str | None, op: int, process_set: ProcessSet, prescale: float,
                postscale: float, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.arguments = op, prescale * postscale, process_set
        return tuple(collectives.grouped_reducescatter([t.detach() for t in tensors], name, op=op,
                                                       process_set=process_set, prescale_factor=prescale,
                                                       postscale_factor=postscale))

    @staticmethod
    def backward(ctx: Context[_Gathered], *grads: torch.Tensor) -> _Gradients:
        return (None, None, None, None, None, *(_gathered(g, *ctx.arguments) for g in grads))
