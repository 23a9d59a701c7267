"""The collectives on tensors, under Horovod's names and with its arguments.

Each has a form that begins the operation (X_async: it returns a handle for poll() and synchronize()) and one
that waits.  A form that ends with _ writes its result to its argument.  A grouped form takes a list, of
which either all are done or none.  The forms that wait and make a new tensor can be differentiated.

TENSOR: of any type that tensors.TYPES or PAIRS has, of any layout but sparse, on any device, and of any
shape; all ranks give the same type and shape, unless it is said otherwise.
NAME: the ranks' tensors of one name meet, in any order; those without a name meet in the order of the calls.
OP: Average, Sum, Min, Max, Product or Adasum; without it Average.  AVERAGE=False is the older op=Sum.
PRESCALE_FACTOR, POSTSCALE_FACTOR: each element is multiplied by them, before and behind the reduction.
COMPRESSION: what makes tensors smaller on their way (Compression).
PROCESS_SET: the ranks that do it, all of which call it.

ValueError: an argument is wrong, the process set is not added, or a name is in flight already.
HorovodInternalError: the ranks differ in what they call, one of them was lost, or it took too long.
"""
from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple, Type, Union, cast

import torch

from .. import operations
from ..basics import Average, ProcessSet, Sum, global_process_set
from ..handles import poll, synchronize  # noqa: F401
from ..operations import begin, begin_each, begin_group, names_of, reduction, run
from . import autograd
from . import tensors as adapter
from .compression import Compression, Compressor

Splits = Union[torch.Tensor, Sequence[int], None]

_arrays = operations.Operations[torch.Tensor, torch.Tensor](adapter.plain, adapter.like, adapter.empty_like,
                                              adapter.restore, adapter.adopt, adapter.TYPES)


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


def _wants_grad(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


# ---- allreduce ----

def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
                    op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """Begin allreduce().  Returns a handle for synchronize() and poll().

    >>> handle = hvd.allreduce_async(torch.ones(2), name="w", op=hvd.Sum)
    >>> hvd.synchronize(handle)
    tensor([1., 1.])
    """
    return begin(_arrays.allreduce(tensor, False, reduction(average, op), name, prescale_factor,
                                   postscale_factor, process_set), process_set)


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
              compression: Type[Compressor] = Compression.none, op: int | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The average (or OP) of TENSOR over the ranks, as a new tensor.  Backward: the same of the gradient.

    >>> hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Sum)
    tensor([1., 2.])
    """
    op = reduction(average, op)
    if compression is Compression.none and not _wants_grad(tensor):  # the usual case, in less time
        return run(_arrays.allreduce(tensor, False, op, name, prescale_factor, postscale_factor, process_set))
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = _apply(autograd.Allreduce, small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = run(_arrays.allreduce(small, False, op, name, prescale_factor, postscale_factor, process_set))
    return compression.decompress(out, context)


def allreduce_async_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
                     op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """Begin allreduce_().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.allreduce_async_(torch.ones(2), postscale_factor=0.5))
    tensor([0.5000, 0.5000])
    """
    return begin(_arrays.allreduce(tensor, True, reduction(average, op), name, prescale_factor,
                                   postscale_factor, process_set), process_set)


def allreduce_each_async_(tensors: Sequence[torch.Tensor], names: Sequence[str], average: bool | None = None,
                          op: int | None = None, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0,
                          process_set: ProcessSet = global_process_set) -> list[int]:
    """Begin each of TENSORS in place, with its own name: allreduce_async_() of each one, in less time.
    Returns their handles.
    """
    op = reduction(average, op)
    return begin_each([_arrays.allreduce(tensor, True, op, name, prescale_factor, postscale_factor,
                                         process_set) for tensor, name in zip(tensors, names)], process_set)


def allreduce_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
               op: int | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """allreduce() in place.  Returns TENSOR.

    >>> loss = torch.tensor(3.0)
    >>> hvd.allreduce_(loss)
    tensor(3.)
    """
    return run(_arrays.allreduce(tensor, True, reduction(average, op), name, prescale_factor,
                                 postscale_factor, process_set))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: bool | None = None,
                            name: str | None = None, op: int | None = None, prescale_factor: float = 1.0,
                            postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    """Begin grouped_allreduce().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(1), torch.zeros(2)]))
    [tensor([1.]), tensor([0., 0.])]
    """
    return _arrays.grouped_allreduce(tensors, False, reduction(average, op), name, prescale_factor,
                                     postscale_factor, process_set)


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                      compression: Type[Compressor] = Compression.none, op: int | None = None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """allreduce() of each of TENSORS, together.  Returns a list of new tensors.

    >>> hvd.grouped_allreduce([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """
    op = reduction(average, op)
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    arguments = (op, name, prescale_factor, postscale_factor, process_set)
    if any(map(_wants_grad, small)):
        out = _apply(autograd.GroupedAllreduce, *arguments, *small)
    else:
        out = synchronize(_arrays.grouped_allreduce(small, False, *arguments))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: bool | None = None,
                             name: str | None = None, op: int | None = None, prescale_factor: float = 1.0,
                             postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    """Begin grouped_allreduce_().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.grouped_allreduce_async_([torch.ones(1), torch.zeros(2)]))
    [tensor([1.]), tensor([0., 0.])]
    """
    return _arrays.grouped_allreduce(tensors, True, reduction(average, op), name, prescale_factor,
                                     postscale_factor, process_set)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: bool | None = None,
                       name: str | None = None, op: int | None = None, prescale_factor: float = 1.0,
                       postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """grouped_allreduce() in place.  Returns a list of TENSORS.

    >>> hvd.grouped_allreduce_([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """
    handle = grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                      process_set)
    return cast(List[torch.Tensor], synchronize(handle))


def sparse_allreduce_async(tensor: torch.Tensor, name: str | None, op: int,
                           process_set: ProcessSet = global_process_set) -> Callable[[], torch.Tensor]:
    """Begin the sum or average (OP) of a sparse TENSOR (COO), whose number of elements may differ between
    ranks. Returns a function, which waits and returns it, coalesced.

    >>> tensor = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,))
    >>> hvd.sparse_allreduce_async(tensor, "w", hvd.Sum)().to_dense()
    tensor([1., 0., 2.])
    """
    if op not in (Average, Sum):
        raise ValueError("a sparse allreduce can sum and average, and nothing else.")
    tensor = tensor.coalesce()
    # As rows, so that each rank may have as many as it likes.
    indices = allgather_async(tensor.indices().t().contiguous(), name=_part_name(name, "indices"),
                              process_set=process_set)
    values = allgather_async(tensor.values(), name=_part_name(name, "values"), process_set=process_set)
    ranks = process_set.size()

    def wait() -> torch.Tensor:
        where, what = (cast(torch.Tensor, synchronize(each)) for each in (indices, values))
        if op == Average:
            what = what / ranks
        return torch.sparse_coo_tensor(where.t(), what, tensor.size(), check_invariants=False).coalesce()

    return wait


def _part_name(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"


# ---- allgather, alltoall ----

def allgather_async(tensor: torch.Tensor, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Begin allgather().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.allgather_async(torch.ones(1, 2)))
    tensor([[1., 1.]])
    """
    return begin(_arrays.allgather(tensor, name, process_set), process_set)


def allgather(tensor: torch.Tensor, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The TENSORs of all ranks, one behind the other along the first dimension, in the order of ranks.  The
    first size may differ between ranks.  Backward: the average of the gradient, of which each rank takes its
    rows.

    >>> hvd.allgather(torch.ones(1, 2))
    tensor([[1., 1.]])
    """
    if _wants_grad(tensor):
        return cast(torch.Tensor, _apply(autograd.Allgather, tensor, name, process_set))
    return run(_arrays.allgather(tensor, name, process_set))


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """Begin grouped_allgather().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.grouped_allgather_async([torch.ones(1), torch.zeros(2)]))
    [tensor([1.]), tensor([0., 0.])]
    """
    return begin_group([_arrays.allgather(t, n, process_set)
                        for t, n in zip(tensors, names_of(name, len(tensors)))], process_set)


def grouped_allgather(tensors: Sequence[torch.Tensor], name: str | None = None,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """allgather() of each of TENSORS, together.  Returns a list.

    >>> hvd.grouped_allgather([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """
    if any(map(_wants_grad, tensors)):
        return list(_apply(autograd.GroupedAllgather, name, process_set, *tensors))
    return cast(List[torch.Tensor], synchronize(grouped_allgather_async(tensors, name, process_set)))


def _alltoall(tensor: torch.Tensor, splits: Splits, name: str | None,
              process_set: ProcessSet) -> operations.Work[Any]:
    """A Work."""
    if splits is None:
        return _arrays.alltoall(tensor, None, lambda out, received: out, name, process_set)
    rows = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits, dtype=torch.int32)
    if rows.dtype not in (torch.int32, torch.int64) or rows.dim() != 1:
        raise ValueError("splits is a tensor of one dimension, of int32.")

    def both(out: torch.Tensor, received: List[int]) -> Tuple[torch.Tensor, torch.Tensor]:
        return out, torch.tensor(received, dtype=torch.int32, device=getattr(splits, "device", None))

    return _arrays.alltoall(tensor, rows.tolist(), both, name, process_set)


def alltoall_async(tensor: torch.Tensor, splits: Splits = None, name: str | None = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Begin alltoall().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.alltoall_async(torch.ones(2)))
    tensor([1., 1.])
    """
    return begin(_alltoall(tensor, splits, name, process_set), process_set)


def alltoall(tensor: torch.Tensor, splits: Splits = None, name: str | None = None,
             process_set: ProcessSet = global_process_set
             ) -> torch.Tensor | Tuple[torch.Tensor, torch.Tensor]:
    """SPLITS[i] rows of TENSOR go to rank i of the set, without SPLITS an equal share.  The first size may
    differ between ranks.  Returns the rows that came, in the order of ranks; with SPLITS also how many came
    from each (int32).  Backward: they go back.

    >>> hvd.alltoall(torch.ones(2), splits=[2])
    (tensor([1., 1.]), tensor([2], dtype=torch.int32))
    """
    if _wants_grad(tensor):
        out: torch.Tensor
        received: torch.Tensor
        out, received = _apply(autograd.Alltoall, tensor, splits, name, process_set)
        return out if splits is None else (out, received)
    result: torch.Tensor | Tuple[torch.Tensor, torch.Tensor]
    result = run(_alltoall(tensor, splits, name, process_set))
    return result


# ---- broadcast ----

def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Begin broadcast().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.broadcast_async(torch.ones(2), root_rank=0))
    tensor([1., 1.])
    """
    return begin(_arrays.broadcast(tensor, False, root_rank, name, process_set), process_set)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """A new tensor, the TENSOR of ROOT_RANK (a rank of the world).  Backward: the average of the gradient on
    ROOT_RANK, zeros elsewhere.

    >>> hvd.broadcast(torch.ones(2), root_rank=0)
    tensor([1., 1.])
    """
    if _wants_grad(tensor):
        return cast(torch.Tensor, _apply(autograd.Broadcast, tensor, root_rank, name, process_set))
    return run(_arrays.broadcast(tensor, False, root_rank, name, process_set))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """Begin broadcast_().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.broadcast_async_(torch.ones(2), root_rank=0))
    tensor([1., 1.])
    """
    return begin(_arrays.broadcast(tensor, True, root_rank, name, process_set), process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """TENSOR becomes that of ROOT_RANK (a rank of the world).  Returns it.

    >>> hvd.broadcast_(torch.ones(2), root_rank=0)
    tensor([1., 1.])
    """
    return run(_arrays.broadcast(tensor, True, root_rank, name, process_set))


# ---- reducescatter ----

def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op: int = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> int:
    """Begin reducescatter().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.reducescatter_async(torch.ones(2), op=hvd.Sum))
    tensor([1., 1.])
    """
    return begin(_arrays.reducescatter(tensor, reduction(None, op), name, prescale_factor, postscale_factor,
                                       process_set), process_set)


def reducescatter(tensor: torch.Tensor, name: str | None = None,
                  compression: Type[Compressor] = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's rows of the average (or OP, but not Adasum): an equal share, and one more on the first
    ranks where that does not come out even.  Backward: the gradients of all ranks.

    >>> hvd.reducescatter(torch.ones(2), op=hvd.Sum)
    tensor([1., 1.])
    """
    op = reduction(None, op)
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = _apply(autograd.Reducescatter, small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = run(_arrays.reducescatter(small, op, name, prescale_factor, postscale_factor, process_set))
    return compression.decompress(out, context)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: str | None = None, op: int = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """Begin grouped_reducescatter().  Returns a handle for synchronize() and poll().

    >>> hvd.synchronize(hvd.grouped_reducescatter_async([torch.ones(1), torch.zeros(2)]))
    [tensor([1.]), tensor([0., 0.])]
    """
    op = reduction(None, op)
    return begin_group([_arrays.reducescatter(t, op, n, prescale_factor, postscale_factor, process_set)
                        for t, n in zip(tensors, names_of(name, len(tensors)))], process_set)


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: str | None = None,
                          compression: Type[Compressor] = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """reducescatter() of each of TENSORS, together.  Returns a list.

    >>> hvd.grouped_reducescatter([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    if any(map(_wants_grad, small)):
        out = _apply(autograd.GroupedReducescatter, name, reduction(None, op), process_set, prescale_factor,
                                                  postscale_factor, *small)
    else:
        out = synchronize(grouped_reducescatter_async(small, name, op, process_set, prescale_factor,
                                                      postscale_factor))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


# ---- barrier, join ----

def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of PROCESS_SET have called it.

    >>> hvd.barrier()
    """
    operations.barrier(process_set)


def join(device: int = -1) -> int:
    """This rank has no more data: until all ranks have joined, it takes part with zeros in each allreduce of
    the others.  Returns the rank that joined last.  DEVICE is Horovod's, and says nothing here.

    >>> hvd.join()
    0
    """
    return operations.join()
