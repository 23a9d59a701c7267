"""The collectives on tensors, under Horovod's names and with its arguments.

Each has a form that begins the operation (NAME_async: it returns a number for poll() and synchronize()) and
one that waits.  A form that ends with _ writes its result to its argument.  A grouped form takes a list, of
which either all are done or none.  The forms that wait and make a new tensor can be differentiated.

NAME: the ranks' tensors of one name meet, in any order; those without a name meet in the order of the calls.
Tensors may be of any type that tensors.TYPES or PAIRS has, of any layout but sparse, on any device.
Errors: ValueError for an argument, HorovodInternalError for an operation that failed.
"""
import ctypes
import threading

import torch

from .. import basics, clib, library
from ..basics import Adasum, Average, Sum, global_process_set
from ..errors import HorovodInternalError
from . import autograd, handles, tensors
from .compression import Compression
from .handles import poll, synchronize  # noqa: F401

_OPS = (clib.AVG, clib.SUM, clib.ADASUM, clib.MIN, clib.MAX, clib.PRODUCT)  # by Horovod's numbers


# ---- arguments ----

def _reduction(average, op):
    """Horovod's number of the op.  AVERAGE is its older form."""
    if op is None:
        return Sum if average is False else Average
    if average is not None:
        raise ValueError("op and average are the same argument: give op alone.")
    if op not in range(len(_OPS)):
        raise ValueError(f"op is {op!r}: it has to be hvd.Average, Sum, Adasum, Min, Max or Product.")
    return op


def _dense(tensor):
    return tensor if tensors.is_plain(tensor) else tensors.plain(tensor)


def _check_op(tensor, op):
    if tensor.dtype in tensors.PAIRS and op not in (Average, Sum):
        raise ValueError(f"{tensor.dtype} can be summed and averaged, and nothing else.")


def _check_rows(tensor, what):
    if not tensor.dim():
        raise ValueError(f"{what} takes a tensor of one dimension or more: this one has none.")


def _name(kind, name):
    return f"{kind}.{name}".encode() if name is not None else None


def _scale(factor):
    return ctypes.c_double(factor) if factor != 1.0 else None


def _wants_grad(tensor):
    return tensor.requires_grad and torch.is_grad_enabled()


def _fields(**fields):
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class _Work:
    """An operation to be begun: its descriptor's FIELDS, the tensors that it KEEPs, and FINISH, which makes
    the result.
    """
    __slots__ = ("keep", "fields", "finish")

    def __init__(self, keep, finish, **fields):
        self.keep, self.finish, self.fields = keep, finish, _fields(**fields)


def _run(work):
    library.run(work.keep, **work.fields)
    return work.finish()


def _begin(works, result, process_set):
    """Submit WORKS as one request.  Its handle."""
    names = [(w.fields["name"], process_set.process_set_id) for w in works if "name" in w.fields]
    handles.claim(names)
    try:
        operation = library.submit([w.keep for w in works], *(clib.desc(**w.fields) for w in works))
    except BaseException:
        handles.release(names)
        raise
    return handles.add(operation, result, names)


def _begin_one(work, process_set):
    return _begin([work], work.finish, process_set)


def _begin_group(works, process_set):
    if not works:
        return handles.add(library.Operation(None, None), list)
    return _begin(works, lambda: [work.finish() for work in works], process_set)


def _names_of(kind, name, n):
    return [_name(kind, None if name is None else f"{name}_{i + 1}of{n}") for i in range(n)]


# ---- allreduce ----

def _sum_work(tensor, out, op, name, prescale, postscale, process_set):
    """OUT, or a new tensor, becomes the sum of TENSOR."""
    set_ = process_set.usable()
    _check_op(tensor, op)
    dense = _dense(tensor)
    to = dense if out is tensor else torch.empty_like(dense)

    def finish():
        if out is not None:
            tensors.restore(out, to)
            return out
        return tensors.like(tensor, to)

    return _Work((dense, to), finish, kind=clib.ALLREDUCE, type=tensors.TYPES[dense.dtype], op=_OPS[op],
                 in_=dense.data_ptr(), out=to.data_ptr(), count=dense.numel(), name=name, set=set_,
                 shape=tensors.shape_text(dense.shape), prescale=_scale(prescale),
                 postscale=_scale(postscale))


def _sum(tensor, out, op, name, prescale, postscale, process_set):
    type_ = tensors.plain_type(tensor) if prescale == postscale == 1.0 else None
    name = _name("allreduce", name)
    if type_ is None:
        return _run(_sum_work(tensor, out, op, name, prescale, postscale, process_set))
    to = torch.empty_like(tensor) if out is None else tensor
    shape = tensor.shape
    library.run_plain((tensor, to), clib.ALLREDUCE, type_, _OPS[op], tensor.data_ptr(), to.data_ptr(),
                      tensor.numel(), name, process_set.usable(),
                      None if len(shape) == 1 else tensors.shape_text(shape))
    return to


def _sum_async(tensor, out, op, name, prescale, postscale, process_set):
    """Here gradients come, 64 of them before the first is waited for: so it has few calls."""
    type_ = tensors.plain_type(tensor) if prescale == postscale == 1.0 else None
    name = _name("allreduce", name)
    if type_ is None:
        return _begin_one(_sum_work(tensor, out, op, name, prescale, postscale, process_set), process_set)
    to = torch.empty_like(tensor) if out is None else tensor
    shape = tensor.shape
    names = ((name, process_set.process_set_id),) if name else ()
    if names:
        handles.claim(names)
    try:
        operation = library.submit_plain(
            (tensor, to), clib.ALLREDUCE, type_, _OPS[op], tensor.data_ptr(), to.data_ptr(), tensor.numel(),
            name, process_set.usable(), None if len(shape) == 1 else tensors.shape_text(shape))
    except BaseException:
        handles.release(names)
        raise
    return handles.add(operation, to, names)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """Begin the average (or OP) of TENSOR over the ranks; the result is a new tensor."""
    return _sum_async(tensor, None, _reduction(average, op), name, prescale_factor, postscale_factor,
                      process_set)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """The average (or OP) of TENSOR over the ranks, as a new tensor.  Each element is multiplied by
    PRESCALE_FACTOR before, and by POSTSCALE_FACTOR behind.  Backward: the same of the gradient.
    """
    op = _reduction(average, op)
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = autograd.Allreduce.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = _sum(small, None, op, name, prescale_factor, postscale_factor, process_set)
    return compression.decompress(out, context)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """Begin it in place."""
    return _sum_async(tensor, tensor, _reduction(average, op), name, prescale_factor, postscale_factor,
                      process_set)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """allreduce() in place.  Returns TENSOR."""
    return _sum(tensor, tensor, _reduction(average, op), name, prescale_factor, postscale_factor, process_set)


def _grouped_sum(tensors_, in_place, op, name, prescale, postscale, process_set):
    names = _names_of("allreduce", name, len(tensors_))
    return _begin_group([_sum_work(t, t if in_place else None, op, n, prescale, postscale, process_set)
                         for t, n in zip(tensors_, names)], process_set)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """Begin grouped_allreduce().  Returns a handle for synchronize() and poll()."""
    return _grouped_sum(tensors, False, _reduction(average, op), name, prescale_factor, postscale_factor,
                        process_set)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """allreduce() of each of TENSORS; a list."""
    op = _reduction(average, op)
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    arguments = (op, name, prescale_factor, postscale_factor, process_set)
    if any(map(_wants_grad, small)):
        out = autograd.GroupedAllreduce.apply(*arguments, *small)
    else:
        out = synchronize(_grouped_sum(small, False, *arguments))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Begin grouped_allreduce_().  Returns a handle for synchronize() and poll()."""
    return _grouped_sum(tensors, True, _reduction(average, op), name, prescale_factor, postscale_factor,
                        process_set)


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


# ---- what learns its size: allgather, alltoall ----

class _Rows:
    """Rows that come from each rank, in memory of libberth's until take()."""

    def __init__(self, dense, ranks):
        self.received = (ctypes.c_uint64 * ranks)()
        self.made = ctypes.c_void_p()
        self.dense = dense
        self.row = dense[0].numel() if len(dense) else dense.shape[1:].numel()

    def __del__(self):
        if self.made:
            library.get().berth_free(self.made)

    def take(self):
        """The rows, and how many come from each rank."""
        counts = [n // (self.row or 1) for n in self.received]
        address, self.made = self.made.value, ctypes.c_void_p()
        flat = tensors.adopt(address, sum(self.received), self.dense.dtype, library.get().berth_free)
        return flat.view(sum(counts), *self.dense.shape[1:]), counts


def _check_row(dense, what):
    if not dense.shape[1:].numel():
        raise ValueError(f"{what} of rows without elements is not supported: the shape is "
                         f"{list(dense.shape)}.")


def _gather_work(tensor, name, process_set):
    set_ = process_set.usable()
    _check_rows(tensor, "allgather")
    dense = _dense(tensor)
    _check_row(dense, "allgather")
    rows = _Rows(dense, process_set.size())
    return _Work((dense, rows), lambda: tensors.like(tensor, rows.take()[0]), kind=clib.ALLGATHER,
                 type=tensors.TYPES[dense.dtype], in_=dense.data_ptr(), count=dense.numel(), name=name,
                 set=set_, shape=tensors.rows_text(dense.shape), received=rows.received, made=rows.made)


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Begin allgather().  Returns a handle for synchronize() and poll()."""
    return _begin_one(_gather_work(tensor, _name("allgather", name), process_set), process_set)


def allgather(tensor, name=None, process_set=global_process_set):
    """The TENSORs of all ranks, one behind the other along the first dimension, which may differ between
    ranks.  Backward: the average of the gradient, of which each rank takes its rows.
    """
    if _wants_grad(tensor):
        return autograd.Allgather.apply(tensor, name, process_set)
    return _run(_gather_work(tensor, _name("allgather", name), process_set))


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Begin grouped_allgather().  Returns a handle for synchronize() and poll()."""
    names = _names_of("allgather", name, len(tensors))
    return _begin_group([_gather_work(t, n, process_set) for t, n in zip(tensors, names)], process_set)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather() of each of TENSORS; a list."""
    if any(map(_wants_grad, tensors)):
        return list(autograd.GroupedAllgather.apply(name, process_set, *tensors))
    return synchronize(grouped_allgather_async(tensors, name, process_set))


def _splits(tensor, splits, ranks):
    """A list of the rows for each rank."""
    rows = tensor.shape[0]
    if splits is None:
        if rows % ranks:
            raise ValueError(f"alltoall without splits takes a multiple of {ranks} rows, and the tensor has "
                             f"{rows}.")
        return [rows // ranks] * ranks
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dtype not in (torch.int32, torch.int64) or splits.dim() != 1:
        raise ValueError("splits is a tensor of one dimension, of int32.")
    parts = splits.tolist()
    if len(parts) != ranks:
        raise ValueError(f"splits has {len(parts)} entries: it has to have one for each of {ranks} ranks.")
    if min(parts) < 0 or sum(parts) != rows:
        raise ValueError(f"the entries of splits have to be 0 or more, and sum up to the {rows} rows of the "
                         f"tensor: they are {parts}.")
    return parts


def _exchange_work(tensor, splits, name, process_set):
    set_ = process_set.usable()
    _check_rows(tensor, "alltoall")
    dense = _dense(tensor)
    _check_row(dense, "alltoall")
    ranks = process_set.size()
    parts = _splits(dense, splits, ranks)
    rows = _Rows(dense, ranks)
    counts = (ctypes.c_uint64 * ranks)(*(n * rows.row for n in parts))

    def finish():
        out, received = rows.take()
        out = tensors.like(tensor, out)
        if splits is None:
            return out
        return out, torch.tensor(received, dtype=torch.int32, device=getattr(splits, "device", None))

    return _Work((dense, rows), finish, kind=clib.ALLTOALL, type=tensors.TYPES[dense.dtype],
                 in_=dense.data_ptr(), count=dense.numel(), in_counts=counts, name=name, set=set_,
                 shape=tensors.rows_text(dense.shape), received=rows.received, made=rows.made)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Begin alltoall().  Returns a handle for synchronize() and poll()."""
    return _begin_one(_exchange_work(tensor, splits, _name("alltoall", name), process_set), process_set)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """SPLITS[i] rows of TENSOR go to rank i, without SPLITS an equal share.  Returns the rows that came, in
    the order of ranks; with SPLITS also how many came from each (int32).  Backward: they go back.
    """
    if _wants_grad(tensor):
        out, received = autograd.Alltoall.apply(tensor, splits, name, process_set)
        return out if splits is None else (out, received)
    return _run(_exchange_work(tensor, splits, _name("alltoall", name), process_set))


# ---- broadcast ----

def _broadcast_work(tensor, in_place, root_rank, name, process_set):
    set_ = process_set.usable()
    if root_rank not in process_set.ranks:
        raise ValueError(f"root_rank {root_rank} is not in the process set, which has {process_set.ranks}.")
    root = process_set.ranks.index(root_rank)
    if in_place:
        dense = _dense(tensor)
    elif basics.rank() == root_rank:
        dense = tensors.plain(tensor).clone()
    else:
        dense = torch.empty_like(_dense(tensor))

    def finish():
        if in_place:
            tensors.restore(tensor, dense)
            return tensor
        return tensors.like(tensor, dense)

    at = dense.data_ptr()
    return _Work(dense, finish, kind=clib.BROADCAST, type=tensors.TYPES[dense.dtype], root=root, in_=at,
                 out=at, count=dense.numel(), name=name, set=set_, shape=tensors.shape_text(dense.shape))


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Begin broadcast().  Returns a handle for synchronize() and poll()."""
    work = _broadcast_work(tensor, False, root_rank, _name("broadcast", name), process_set)
    return _begin_one(work, process_set)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """A new tensor, the TENSOR of ROOT_RANK (a rank of the world).  Backward: the average of the gradient on
    ROOT_RANK, zeros elsewhere.
    """
    if _wants_grad(tensor):
        return autograd.Broadcast.apply(tensor, root_rank, name, process_set)
    return _run(_broadcast_work(tensor, False, root_rank, _name("broadcast", name), process_set))


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Begin broadcast_().  Returns a handle for synchronize() and poll()."""
    work = _broadcast_work(tensor, True, root_rank, _name("broadcast", name), process_set)
    return _begin_one(work, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """TENSOR becomes that of ROOT_RANK.  Returns it."""
    return _run(_broadcast_work(tensor, True, root_rank, _name("broadcast", name), process_set))


# ---- reducescatter ----

def _scatter_work(tensor, op, name, prescale, postscale, process_set):
    set_ = process_set.usable()
    _check_rows(tensor, "reducescatter")
    if op == Adasum:
        raise HorovodInternalError("reducescatter does not do Adasum: allreduce does.")
    _check_op(tensor, op)
    dense = _dense(tensor)
    ranks, row = process_set.size(), dense.shape[1:].numel()
    share, more = divmod(len(dense), ranks)
    parts = [share + (r < more) for r in range(ranks)]
    mine = parts[process_set.rank()] if process_set.included() else 0
    out = torch.empty((mine, *dense.shape[1:]), dtype=dense.dtype)
    counts = (ctypes.c_uint64 * ranks)(*(n * row for n in parts)) if more else None
    return _Work((dense, out), lambda: tensors.like(tensor, out), kind=clib.REDUCESCATTER,
                 type=tensors.TYPES[dense.dtype], op=_OPS[op], in_=dense.data_ptr(), out=out.data_ptr(),
                 count=dense.numel(), in_counts=counts, name=name, set=set_,
                 shape=tensors.shape_text(dense.shape), prescale=_scale(prescale),
                 postscale=_scale(postscale))


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    """Begin reducescatter().  Returns a handle for synchronize() and poll()."""
    work = _scatter_work(tensor, _reduction(None, op), _name("reducescatter", name), prescale_factor,
                         postscale_factor, process_set)
    return _begin_one(work, process_set)


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the average (or OP): an equal share, and one more on the first ranks where that
    does not come out even.  Backward: the gradients of all ranks.
    """
    op = _reduction(None, op)
    small, context = compression.compress(tensor)
    if _wants_grad(small):
        out = autograd.Reducescatter.apply(small, op, name, prescale_factor, postscale_factor, process_set)
    else:
        out = _run(_scatter_work(small, op, _name("reducescatter", name), prescale_factor, postscale_factor,
                                 process_set))
    return compression.decompress(out, context)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Begin grouped_reducescatter().  Returns a handle for synchronize() and poll()."""
    op = _reduction(None, op)
    names = _names_of("reducescatter", name, len(tensors))
    return _begin_group([_scatter_work(t, op, n, prescale_factor, postscale_factor, process_set)
                         for t, n in zip(tensors, names)], process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter() of each of TENSORS; a list."""
    small, contexts = zip(*map(compression.compress, tensors)) if tensors else ((), ())
    if any(map(_wants_grad, small)):
        out = autograd.GroupedReducescatter.apply(name, _reduction(None, op), process_set, prescale_factor,
                                                  postscale_factor, *small)
    else:
        out = synchronize(grouped_reducescatter_async(small, name, op, process_set, prescale_factor,
                                                      postscale_factor))
    return [compression.decompress(t, context) for t, context in zip(out, contexts)]


# ---- barrier, join ----

def barrier(process_set=global_process_set):
    """Wait until all ranks of PROCESS_SET have called it."""
    library.run_plain(None, clib.BARRIER, 0, 0, None, None, 0, None, process_set.usable())


def join(device=-1):
    """This rank has no more data: until all ranks have joined, it takes part with zeros in each allreduce of
    the others.  Returns the rank that joined last.  DEVICE is Horovod's, and says nothing here.
    """
    global_process_set.usable()
    last, errors, ended = ctypes.c_int(-1), [], threading.Event()

    def wait():
        try:
            library.check(library.get().berth_join(None, ctypes.byref(last)))
        except Exception as e:
            errors.append(e)
        ended.set()

    # berth_join() waits in one piece; a wait for an event can be interrupted.  (Not so one for the thread: in
    # Python 3.11 it then counts as ended.)
    threading.Thread(target=wait, name="berth join", daemon=True).start()
    while not ended.wait(library.SLICE_MS / 1000):
        pass
    if errors:
        raise errors[0]
    return last.value
