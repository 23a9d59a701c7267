"""The collectives in torch's autograd: what a gradient goes through on its way back."""
import torch

from ..basics import Average, Sum
from . import collectives


class Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op, name, prescale, postscale, process_set):
        ctx.arguments = op, prescale, postscale, process_set
        return collectives.allreduce(tensor.detach(), name=name, op=op, prescale_factor=prescale,
                                     postscale_factor=postscale, process_set=process_set)

    @staticmethod
    def backward(ctx, grad):
        op, prescale, postscale, process_set = ctx.arguments
        grad = collectives.allreduce(grad, op=op, prescale_factor=prescale, postscale_factor=postscale,
                                     process_set=process_set)
        return grad, None, None, None, None, None


class GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, op, name, prescale, postscale, process_set, *tensors):
        ctx.arguments = op, prescale, postscale, process_set
        return tuple(collectives.grouped_allreduce([t.detach() for t in tensors], name=name, op=op,
                                                   prescale_factor=prescale, postscale_factor=postscale,
                                                   process_set=process_set))

    @staticmethod
    def backward(ctx, *grads):
        op, prescale, postscale, process_set = ctx.arguments
        grads = collectives.grouped_allreduce(grads, op=op, prescale_factor=prescale,
                                              postscale_factor=postscale, process_set=process_set)
        return (None, None, None, None, None, *grads)


def _rows_of(tensor, process_set):
    """The rows of each rank."""
    rows = torch.tensor([tensor.shape[0]], dtype=torch.int64)
    return collectives.allgather(rows, process_set=process_set).tolist()


def _own_rows(grad, rows, process_set):
    me = process_set.rank()
    return grad.narrow(0, sum(rows[:me]), rows[me])


class Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.process_set, ctx.rows = process_set, _rows_of(tensor, process_set)
        return collectives.allgather(tensor.detach(), name, process_set)

    @staticmethod
    def backward(ctx, grad):
        grad = collectives.allreduce(grad, op=Average, process_set=ctx.process_set)
        return _own_rows(grad, ctx.rows, ctx.process_set), None, None


class GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set, ctx.rows = process_set, [_rows_of(t, process_set) for t in tensors]
        return tuple(collectives.grouped_allgather([t.detach() for t in tensors], name, process_set))

    @staticmethod
    def backward(ctx, *grads):
        grads = collectives.grouped_allreduce(grads, op=Average, process_set=ctx.process_set)
        return (None, None, *(_own_rows(g, rows, ctx.process_set) for g, rows in zip(grads, ctx.rows)))


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.arguments = root_rank, process_set
        return collectives.broadcast(tensor.detach(), root_rank, name, process_set)

    @staticmethod
    def backward(ctx, grad):
        root_rank, process_set = ctx.arguments
        grad = collectives.allreduce(grad, op=Average, process_set=process_set)
        if process_set.ranks[process_set.rank()] != root_rank:
            grad = torch.zeros_like(grad)
        return grad, None, None, None


class Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        ranks = process_set.size()
        if splits is None:  # so that the rows that came are known
            splits = torch.full((ranks,), tensor.shape[0] // ranks, dtype=torch.int32)
        out, received = collectives.alltoall(tensor.detach(), splits, name, process_set)
        ctx.arguments = received, process_set
        ctx.mark_non_differentiable(received)
        return out, received

    @staticmethod
    def backward(ctx, grad, _):
        received, process_set = ctx.arguments
        grad, _ = collectives.alltoall(grad.contiguous(), received, process_set=process_set)
        return grad, None, None, None


def _gathered(grad, op, factor, process_set):
    """The gradients of all ranks.  Each rank's loss counts, as in an allreduce: a sum counts them all."""
    if op == Sum:
        factor *= process_set.size()
    return collectives.allgather(grad * factor if factor != 1 else grad, process_set=process_set)


class Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op, name, prescale, postscale, process_set):
        ctx.arguments = op, prescale * postscale, process_set
        return collectives.reducescatter(tensor.detach(), name, op=op, process_set=process_set,
                                         prescale_factor=prescale, postscale_factor=postscale)

    @staticmethod
    def backward(ctx, grad):
        return _gathered(grad, *ctx.arguments), None, None, None, None, None


class GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale, postscale, *tensors):
        ctx.arguments = op, prescale * postscale, process_set
        return tuple(collectives.grouped_reducescatter([t.detach() for t in tensors], name, op=op,
                                                       process_set=process_set, prescale_factor=prescale,
                                                       postscale_factor=postscale))

    @staticmethod
    def backward(ctx, *grads):
        return (None, None, None, None, None, *(_gathered(g, *ctx.arguments) for g in grads))
