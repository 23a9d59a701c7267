"""The collectives on tensors, under Horovod's names and with its arguments.

Each has a form that begins the operation (NAME_async: it returns a number for poll() and synchronize()) and
one that waits.  A form that ends with _ writes its result to its argument.  A grouped form takes a list, of
which either all are done or none.  The forms that wait and make a new tensor can be differentiated.

NAME: the ranks' tensors of one name meet, in any order; those without a name meet in the order of the calls.
Tensors may be of any type that tensors.TYPES or PAIRS has, of any layout but sparse, on any device.
Errors: ValueError for an argument, HorovodInternalError for an operation that failed.
"""
import torch

from .. import operations
from ..basics import Average, Sum, global_process_set
from ..handles import poll, synchronize  # noqa: F401
from ..operations import begin, begin_each, begin_group, names_of, reduction, run
from . import autograd
from . import tensors as adapter
from .compression import Compression

_arrays = operations.Operations(adapter.plain, adapter.like, adapter.empty_like, adapter.restore,
                                adapter.adopt, adapter.TYPES)


def _wants_grad(tensor):
    return tensor.requires_grad and torch.is_grad_enabled()


# ---- allreduce ----

def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Begin the average (or OP) of TENSOR over the ranks; the result is a new tensor."""
    return begin(_arrays.allreduce(tensor, False, reduction(average, op), name, prescale_factor,
                                   postscale_factor, process_set), process_set)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """The average (or OP) of TENSOR over the ranks, as a new tensor.  Each element is multiplied by
    PRESCALE_FACTOR before, and by POSTSCALE_FACTOR behind.  Backward: the same of the gradient.
    """
    op = reduction(average, op)
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = autograd.Allreduce.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = run(_arrays.allreduce(small, False, op, name, prescale_factor, postscale_factor, process_set))
    return compression.decompress(out, context)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Begin it in place."""
    return begin(_arrays.allreduce(tensor, True, reduction(average, op), name, prescale_factor,
                                   postscale_factor, process_set), process_set)


def allreduce_each_async_(tensors, names, average=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                          process_set=global_process_set):
    """Begin each of TENSORS in place, with its own name: allreduce_async_() of each one, in half the time.
    Returns their handles.
    """
    op = reduction(average, op)
    return begin_each([_arrays.allreduce(tensor, True, op, name, prescale_factor, postscale_factor,
                                         process_set) for tensor, name in zip(tensors, names)], process_set)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """allreduce() in place.  Returns TENSOR."""
    return run(_arrays.allreduce(tensor, True, reduction(average, op), name, prescale_factor,
                                 postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """Begin grouped_allreduce().  Returns a handle for synchronize() and poll()."""
    return _arrays.grouped_allreduce(tensors, False, reduction(average, op), name, prescale_factor,
                                     postscale_factor, process_set)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """allreduce() of each of TENSORS; a list."""
    op = reduction(average, op)
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    arguments = (op, name, prescale_factor, postscale_factor, process_set)
    if any(map(_wants_grad, small)):
        out = autograd.GroupedAllreduce.apply(*arguments, *small)
    else:
        out = synchronize(_arrays.grouped_allreduce(small, False, *arguments))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Begin grouped_allreduce_().  Returns a handle for synchronize() and poll()."""
    return _arrays.grouped_allreduce(tensors, True, reduction(average, op), name, prescale_factor,
                                     postscale_factor, process_set)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """grouped_allreduce() in place.  A list of TENSORS."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                                process_set))


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Begin the sum or average of a sparse TENSOR (COO).  Returns a function, which waits and returns it,
    coalesced.
    """
    if op not in (Average, Sum):
        raise ValueError("a sparse allreduce can sum and average, and nothing else.")
    tensor = tensor.coalesce()
    # As rows, so that each rank may have as many as it likes.
    indices = allgather_async(tensor.indices().t().contiguous(), name=_part_name(name, "indices"),
                              process_set=process_set)
    values = allgather_async(tensor.values(), name=_part_name(name, "values"), process_set=process_set)
    ranks = process_set.size()

    def wait():
        where, what = synchronize(indices), synchronize(values)
        if op == Average:
            what = what / ranks
        return torch.sparse_coo_tensor(where.t(), what, tensor.size(), check_invariants=False).coalesce()

    return wait


def _part_name(name, part):
    return None if name is None else f"{name}.{part}"


# ---- allgather, alltoall ----

def allgather_async(tensor, name=None, process_set=global_process_set):
    """Begin allgather().  Returns a handle for synchronize() and poll()."""
    return begin(_arrays.allgather(tensor, name, process_set), process_set)


def allgather(tensor, name=None, process_set=global_process_set):
    """The TENSORs of all ranks, one behind the other along the first dimension, which may differ between
    ranks.  Backward: the average of the gradient, of which each rank takes its rows.
    """
    if _wants_grad(tensor):
        return autograd.Allgather.apply(tensor, name, process_set)
    return run(_arrays.allgather(tensor, name, process_set))


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Begin grouped_allgather().  Returns a handle for synchronize() and poll()."""
    return begin_group([_arrays.allgather(t, n, process_set)
                        for t, n in zip(tensors, names_of(name, len(tensors)))], process_set)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather() of each of TENSORS; a list."""
    if any(map(_wants_grad, tensors)):
        return list(autograd.GroupedAllgather.apply(name, process_set, *tensors))
    return synchronize(grouped_allgather_async(tensors, name, process_set))


def _alltoall(tensor, splits, name, process_set):
    """A Work."""
    if splits is None:
        return _arrays.alltoall(tensor, None, lambda out, received: out, name, process_set)
    rows = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits, dtype=torch.int32)
    if rows.dtype not in (torch.int32, torch.int64) or rows.dim() != 1:
        raise ValueError("splits is a tensor of one dimension, of int32.")

    def both(out, received):
        return out, torch.tensor(received, dtype=torch.int32, device=getattr(splits, "device", None))

    return _arrays.alltoall(tensor, rows.tolist(), both, name, process_set)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Begin alltoall().  Returns a handle for synchronize() and poll()."""
    return begin(_alltoall(tensor, splits, name, process_set), process_set)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """SPLITS[i] rows of TENSOR go to rank i, without SPLITS an equal share.  Returns the rows that came, in
    the order of ranks; with SPLITS also how many came from each (int32).  Backward: they go back.
    """
    if _wants_grad(tensor):
        out, received = autograd.Alltoall.apply(tensor, splits, name, process_set)
        return out if splits is None else (out, received)
    return run(_alltoall(tensor, splits, name, process_set))


# ---- broadcast ----

def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Begin broadcast().  Returns a handle for synchronize() and poll()."""
    return begin(_arrays.broadcast(tensor, False, root_rank, name, process_set), process_set)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """A new tensor, the TENSOR of ROOT_RANK (a rank of the world).  Backward: the average of the gradient on
    ROOT_RANK, zeros elsewhere.
    """
    if _wants_grad(tensor):
        return autograd.Broadcast.apply(tensor, root_rank, name, process_set)
    return run(_arrays.broadcast(tensor, False, root_rank, name, process_set))


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Begin broadcast_().  Returns a handle for synchronize() and poll()."""
    return begin(_arrays.broadcast(tensor, True, root_rank, name, process_set), process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """TENSOR becomes that of ROOT_RANK.  Returns it."""
    return run(_arrays.broadcast(tensor, True, root_rank, name, process_set))


# ---- reducescatter ----

def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    """Begin reducescatter().  Returns a handle for synchronize() and poll()."""
    return begin(_arrays.reducescatter(tensor, reduction(None, op), name, prescale_factor, postscale_factor,
                                       process_set), process_set)


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the average (or OP): an equal share, and one more on the first ranks where that
    does not come out even.  Backward: the gradients of all ranks.
    """
    op = reduction(None, op)
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = autograd.Reducescatter.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = run(_arrays.reducescatter(small, op, name, prescale_factor, postscale_factor, process_set))
    return compression.decompress(out, context)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Begin grouped_reducescatter().  Returns a handle for synchronize() and poll()."""
    op = reduction(None, op)
    return begin_group([_arrays.reducescatter(t, op, n, prescale_factor, postscale_factor, process_set)
                        for t, n in zip(tensors, names_of(name, len(tensors)))], process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter() of each of TENSORS; a list."""
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    if any(map(_wants_grad, small)):
        out = autograd.GroupedReducescatter.apply(name, reduction(None, op), process_set, prescale_factor,
                                                  postscale_factor, *small)
    else:
        out = synchronize(grouped_reducescatter_async(small, name, op, process_set, prescale_factor,
                                                      postscale_factor))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


# ---- barrier, join ----

def barrier(process_set=global_process_set):
    """Wait until all ranks of PROCESS_SET have called it."""
    operations.barrier(process_set)


def join(device=-1):
    """This rank has no more data: until all ranks have joined, it takes part with zeros in each allreduce of
    the others.  Returns the rank that joined last.  DEVICE is Horovod's, and says nothing here.
    """
    return operations.join()
