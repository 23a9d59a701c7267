"""A process group of torch.distributed over libberth: init_process_group("berth").

The names of its methods are those that torch calls, from Python and from C++, the older ones too.  A call
whose options are not asynchronous is done when it returns.  Tensors that libberth cannot use as they lie are
copied, and copied back when the operation is done.
"""
# mypy: disable-error-code="override, assignment"
# torch calls each method in several ways, and knows it under several names.
from __future__ import annotations

import atexit
import ctypes
import os
import sys
import types
from datetime import timedelta
from typing import Any, Callable, List, Mapping, Protocol, Sequence, Tuple, Type, TypeVar, Union, cast

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import clib, library
from ..build import cuda_built
from ..errors import HorovodInternalError
from . import process_group_world as world
from . import tensors as arrays
from .process_group_arrays import OPS, Area, counts, element, fields_of_sum
from .process_group_works import Done, Work, completer, starter

Tensors = Union[torch.Tensor, List[torch.Tensor]]
Lists = Union[List[torch.Tensor], List[List[torch.Tensor]]]  # of the tensor of an argument, or of each one
Finish = Callable[[], object]
Made = TypeVar("Made")


class Options(Protocol):
    """What all options of torch's have."""
    timeout: timedelta
    asyncOp: bool


_DONE = Done()
_STRIDED = torch.strided
_OPTIONS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def make(options: c10d._DistributedBackendOptions, backend_options: object) -> ProcessGroup:
    """What torch.distributed calls for each new group."""
    _refuse_other_backends(sys._getframe(2))
    everyone = not options.global_ranks_in_group
    exchange = world.Exchange(options.store, options.group_rank, options.group_size)
    if everyone or (dist.is_initialized() and options.group_size == dist.get_world_size()):
        world.join(exchange)
    else:
        world.join_again()
    try:
        handle = world.make_set(exchange)
    except BaseException:
        world.leave()
        raise
    return ProcessGroup(options.group_rank, options.group_size, handle, options.timeout, options.store)


def _refuse_other_backends(caller: types.FrameType) -> None:
    """torch would leave them out without a word: the group that it gets from us is all that it uses."""
    asked = getattr(caller.f_locals.get("backend_config"), "device_backend_map", None) or {}
    if len(set(asked.values() if isinstance(asked, dict) else ())) > 1:
        asked = ",".join(f"{device}:{backend}" for device, backend in asked.items())
        raise ValueError(f'The backend "berth" cannot be in one group with another, as in "{asked}": use '
                         'init_process_group("berth"), and new_group(backend=...) for a group of the other.')


def _options(cls: Type[Made], order: Sequence[str], args: Sequence[object],
             named: Mapping[str, object]) -> Made:
    """An object like CLS: it is the first of ARGS, or NAMED opts, or made of the rest, which are in ORDER."""
    given = args[0] if args else named.get("opts")
    if hasattr(given, "asyncOp"):
        return cast(Made, given)
    made = cls()
    for name, value in [*zip(order, args), *named.items()]:
        if value is not None and name in _OPTIONS:
            setattr(made, _OPTIONS[name], value)
    return made


def _list(tensors: Tensors) -> List[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _lists(lists: Lists, tensors: Tensors) -> List[List[torch.Tensor]]:
    """One for each of TENSORS, the other argument."""
    return cast("List[List[torch.Tensor]]", [lists] if isinstance(tensors, torch.Tensor) else lists)


def _same(text: str, one: int, other: int) -> None:
    if one != other:
        raise ValueError(f"{text}: {one} and {other} elements.")


def _milliseconds(timeout: timedelta) -> int:
    return max(1, int(timeout.total_seconds() * 1000))


class ProcessGroup(dist.ProcessGroup):
    """RANK of SIZE, in the set HANDLE of libberth."""

    def __init__(self, rank: int, size: int, handle: int | None, timeout: timedelta,
                 store: c10d.Store | None) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg, arg-type]
        self._my_rank, self._my_size, self._set, self._store = rank, size, handle, store
        self._timeout_ms = _milliseconds(timeout)
        self._name = self._desc = ""
        # While operations are coalesced: (fields, kept, results, finish).
        self._batch: List[Any] | None = None
        self._parts: List[ProcessGroup] = []  # made by splitGroup(): torch's C++ does not keep them
        _groups.append(self)

    # ---- what it is ----

    def rank(self) -> int:
        return self._my_rank

    def size(self) -> int:
        return self._my_size

    getRank, getSize = rank, size

    def getBackendName(self) -> str:
        return "berth"

    _get_backend_name = name = getBackendName

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu"), *([torch.device("cuda")] if cuda_built() else [])]

    def _get_backend(self, device: object) -> ProcessGroup:
        """This group, which has no backends below it."""
        return self

    supports_splitting = supports_time_estimate = supports_coalescing = False

    def supports_tensor_alloc(self, device: object) -> bool:
        return False

    def get_group_store(self) -> c10d.Store | None:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_ms = _milliseconds(timeout)

    _set_default_timeout = setTimeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        pass

    # ---- its end ----

    def abort(self) -> None:
        """Operations of all ranks in the group end with an error, those that run and those that come."""
        if self._set is not None:
            world.checked(library.get().berth_set_abort(self._set, b"ProcessGroup.abort() was called"))

    def shutdown(self) -> None:
        """Leave the group.  Operations of this rank that still run end with an error."""
        if self._set is None:
            return
        handle, self._set, self._store = self._set, None, None
        _groups.remove(self)
        for part in self._parts:
            part.shutdown()
        library.get().berth_set_remove(handle)
        world.leave()

    def splitGroup(self, new_ranks: Sequence[int], timeout: timedelta | None = None, opts: object = None,
                   group_name: str | None = None, group_desc: str | None = None,
                   device_types: object = None) -> ProcessGroup | None:
        """A group of NEW_RANKS of this group, in their order; None: this rank is in none.  All ranks call it.
        """
        ranks = list(new_ranks)
        inside = self._my_rank in ranks
        handle = world.split_set(self._handle(), min(ranks) if inside else -1,
                                 ranks.index(self._my_rank) if inside else 0)
        if not inside:
            return None
        world.checked(library.get().berth_init(None))
        part = ProcessGroup(ranks.index(self._my_rank), len(ranks), handle,
                            timeout or timedelta(milliseconds=self._timeout_ms), self._store)
        part._name = group_name or f"{self._name}:split:{len(self._parts)}:{min(ranks)}"
        part._desc = group_desc or f"{self._desc}:split"
        self._parts.append(part)
        return part

    split_group = splitGroup

    # ---- how operations are done ----

    def _limit(self, opts: Options) -> int:
        timeout = opts.timeout
        return self._timeout_ms if timeout.days < 0 else _milliseconds(timeout)

    def _handle(self) -> int | None:
        if self._set is None:
            raise world.failure("the process group was shut down")
        return self._set

    def _plain(self, opts: Options, kept: object, results: List[torch.Tensor], kind: int, type_: int, op: int,
               in_: int | None, out: int | None, count: int, root: int = 0,
               finish: Finish | None = None) -> dist.Work:
        """One operation with these fields alone."""
        if self._batch is not None or self._set is None:
            fields = {"kind": kind, "type": type_, "op": op, "in_": in_, "out": out, "count": count,
                      "root": root}
            return self._do(opts, kept, results, [fields], finish)
        call: Any = library.submit if opts.asyncOp else library.run
        try:
            operation = call(kept, (kind, type_, op, in_, out, count, None, self._set, None, root,
                                    self._limit(opts), None))
        except HorovodInternalError as e:
            raise world.failure(e) from None
        if operation is not None:
            return Work(operation, results, finish)
        if finish is not None:
            finish()
        return _DONE

    def _do(self, opts: Options | None, kept: object, results: List[torch.Tensor], operations: Sequence[Any],
            finish: Finish | None = None, source: ctypes.c_int | None = None) -> dist.Work:
        """OPERATIONS, the fields of each, as one request."""
        limit = self._limit(opts) if opts is not None else self._timeout_ms
        operations = [library.fields(set=self._handle(), timeout_ms=limit, **each) for each in operations]
        if self._batch is not None:
            self._batch.append((operations, kept, results, finish))
            return _DONE
        return self._submit(operations, kept, results, finish, source, getattr(opts, "asyncOp", True))

    def _submit(self, operations: Sequence[Any], kept: object, results: List[torch.Tensor],
                finish: Finish | None, source: ctypes.c_int | None = None,
                is_async: bool = True) -> dist.Work:
        try:
            work = Work(library.submit(kept, *operations), results, finish, source)
        except HorovodInternalError as e:
            raise world.failure(e) from None
        if not is_async:
            work.wait()
        return work

    def _start_coalescing(self, device: object = None) -> None:
        """The operations that follow are begun together, by _end_coalescing()."""
        if self._batch is not None:
            raise ValueError("the operations of this process group are coalesced already.")
        self._batch = []

    def _end_coalescing(self, device: object = None) -> dist.Work:
        batch, self._batch = self._batch or [], None
        if not batch:
            return _DONE
        finishes = [finish for _, _, _, finish in batch if finish is not None]
        return self._submit([each for operations, _, _, _ in batch for each in operations],
                            [kept for _, kept, _, _ in batch],
                            [result for _, _, results, _ in batch for result in results],
                            (lambda: [finish() for finish in finishes]) if finishes else None)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing
    startCoalescing, endCoalescing = _start_coalescing, _end_coalescing

    # ---- reductions ----

    def allreduce(self, tensors: Tensors, opts: object = None, *args: object, **named: object) -> dist.Work:
        if type(opts) is c10d.AllreduceOptions and len(tensors) == 1:  # as from all_reduce(): 8 us in all
            tensor = tensors[0]
            type_, op = arrays.TYPES.get(tensor.dtype), OPS.get(hash(opts.reduceOp))
            if type_ is not None and op is not None and tensor.layout is _STRIDED and tensor.is_cpu \
                    and tensor.is_contiguous():
                at = tensor.data_ptr()
                return self._plain(opts, tensor, tensors,  # type: ignore[arg-type]  # a list
                                   clib.ALLREDUCE, type_, op, at, at, tensor.numel())
        if opts is not None:
            args = (opts, *args)
        return self.allreduce_coalesced(_list(tensors), *args, **named)

    def allreduce_coalesced(self, tensors: Tensors, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.AllreduceOptions, ("op", "timeout"), args, named)
        tensors = _list(tensors)
        operations, kept = [], []
        finishes: List[Tuple[torch.Tensor, torch.Tensor]] = []

        def restore() -> None:
            for tensor, plain in finishes:
                arrays.restore(tensor, plain)

        for tensor in tensors:
            place = arrays.place_of(tensor)
            plain = arrays.dense(tensor, place is not None)
            kept.append(plain)
            finishes.append((tensor, plain))
            operations.append(dict(fields_of_sum(tensor, opts.reduceOp), kind=clib.ALLREDUCE, place=place,
                                   count=plain.numel(), in_=plain.data_ptr(), out=plain.data_ptr()))
        return self._do(opts, kept, tensors, operations, restore)

    def reduce(self, tensors: Tensors, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.ReduceOptions, ("root", "op", "timeout"), args, named)
        tensor, = _list(tensors)
        place = arrays.place_of(tensor)
        plain = arrays.dense(tensor, place is not None)
        is_root = opts.rootRank == self._my_rank
        fields = dict(fields_of_sum(tensor, opts.reduceOp), kind=clib.REDUCE, root=opts.rootRank, place=place,
                      in_=plain.data_ptr(), out=plain.data_ptr() if is_root else None, count=plain.numel())
        return self._do(opts, plain, [tensor], [fields],
                        (lambda: arrays.restore(tensor, plain)) if is_root else None)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, *args: object,
                              **named: object) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, ("op", "timeout"), args, named)
        _same("reduce_scatter: the input is not the output times the ranks", input.numel(),
              output.numel() * self._my_size)
        return self._reduce_scatters(opts, [(output, [input], None)])

    _reduce_scatter_base = reduce_scatter_tensor = reduce_scatter_single

    def reduce_scatter(self, outputs: Tensors, inputs: Lists, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, ("op", "timeout"), args, named)
        each = []
        for output, of_ranks in zip(_list(outputs), _lists(inputs, outputs)):
            _same("reduce_scatter: the output is not as this rank's input", output.numel(),
                  of_ranks[self._my_rank].numel())
            numbers = [t.numel() for t in of_ranks]
            each.append((output, of_ranks, None if len(set(numbers)) == 1 else numbers))
        return self._reduce_scatters(opts, each)

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                        *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.ReduceScatterOptions, ("op", "timeout"), args, named)
        return self._reduce_scatters(opts, [(o, [i], None) for o, i in zip(outputs, inputs)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatters(self, opts: c10d.ReduceScatterOptions,
                         each: Sequence[Tuple[torch.Tensor, List[torch.Tensor], List[int] | None]]
                         ) -> dist.Work:
        """EACH: an output, the inputs that make the sum, and the elements of each rank, or None: even."""
        operations, kept, finishes = [], [], []
        for output, inputs, numbers in each:
            whole, part = Area(inputs), Area([output], is_output=True)
            fields = fields_of_sum(output, opts.reduceOp)
            words = element(output)[1]
            _same_types(whole, part)
            fields.update(kind=clib.REDUCESCATTER, in_=whole.address, out=part.address, place=part.place,
                          count=sum(t.numel() for t in inputs) * words)
            if numbers is not None:
                fields["in_counts"] = counts([n * words for n in numbers])
            operations.append(fields)
            kept.append((whole, part))
            finishes.append(part.restore)
        return self._many(opts, kept, [output for output, _, _ in each], operations, finishes)

    def _many(self, opts: Options, kept: object, results: List[torch.Tensor], operations: Sequence[Any],
              finishes: Sequence[Finish | None]) -> dist.Work:
        """Those with few fields go the shorter way."""
        given = [finish for finish in finishes if finish is not None]
        finish = (lambda: [f() for f in given]) if given else None
        if len(operations) == 1 and not operations[0].keys() - _PLAIN and not operations[0].get("place"):
            f = operations[0]
            return self._plain(opts, kept, results, f["kind"], f["type"], f.get("op", 0), f["in_"], f["out"],
                               f["count"], f.get("root", 0), finish)
        return self._do(opts, kept, results, operations, finish)

    # ---- moves ----

    def broadcast(self, tensors: Tensors, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.BroadcastOptions, ("root", "timeout"), args, named)
        tensor = _list(tensors)[getattr(opts, "rootTensor", 0)]
        kind, words = element(tensor)
        area = Area([tensor], is_output=opts.rootRank != self._my_rank)
        fields = {"kind": clib.BROADCAST, "type": kind, "in_": area.address, "out": area.address,
                  "count": tensor.numel() * words, "root": opts.rootRank, "place": area.place}
        return self._many(opts, area, [tensor], [fields],
                          [area.restore] if opts.rootRank != self._my_rank else [])

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, *args: object,
                          **named: object) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, ("timeout",), args, named)
        return self._allgathers(opts, [([output], input, None)], [output])

    _allgather_base = all_gather_into_tensor = all_gather_single

    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                    *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, ("timeout",), args, named)
        return self._allgathers(opts, [([o], i, None) for o, i in zip(outputs, inputs)], outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Lists, inputs: Tensors, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.AllgatherOptions, ("timeout",), args, named)
        each = _lists(outputs, inputs)
        return self._allgathers(opts, [(of_ranks, i, [t.numel() for t in of_ranks])
                                       for of_ranks, i in zip(each, _list(inputs))], each[0])

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                            *args: object, **named: object) -> dist.Work:
        """OUTPUTS: for each rank the list of what it gave."""
        opts = _options(c10d.AllgatherOptions, ("timeout",), args, named)
        each = [[of_rank[k] for of_rank in outputs] for k in range(len(inputs))]
        return self._allgathers(opts, [(of_ranks, i, [t.numel() for t in of_ranks])
                                       for of_ranks, i in zip(each, inputs)],
                                [t for of_rank in outputs for t in of_rank])

    def _allgathers(self, opts: Options,
                    each: Sequence[Tuple[List[torch.Tensor], torch.Tensor, List[int] | None]],
                    results: List[torch.Tensor]) -> dist.Work:
        """EACH: the outputs, side by side, an input, and the elements of each rank, or None: even."""
        operations, kept, finishes = [], [], []
        for outputs, input, numbers in each:
            kind, words = element(input)
            whole, part = Area(outputs, is_output=True), Area([input])
            _same_types(whole, part)
            _same("allgather: the output has not what all ranks give", sum(t.numel() for t in outputs),
                  sum(numbers) if numbers else input.numel() * self._my_size)
            fields = {"kind": clib.ALLGATHER, "type": kind, "in_": part.address, "out": whole.address,
                      "count": input.numel() * words, "place": part.place}
            if numbers and len(set(numbers)) > 1:
                fields["out_counts"] = counts([n * words for n in numbers])
            operations.append(fields)
            kept.append((whole, part))
            finishes.append(whole.restore)
        return self._many(opts, kept, results, operations, finishes)

    def gather(self, outputs: Lists, inputs: Tensors, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.GatherOptions, ("root", "timeout"), args, named)
        input, = _list(inputs)
        is_root = opts.rootRank == self._my_rank
        of_ranks = _lists(outputs, inputs)[0] if is_root else []
        kind, words = element(input)
        whole, part = Area(of_ranks, is_output=True) if is_root else None, Area([input])
        if whole is not None:
            _same_types(whole, part)
            for t in of_ranks:
                _same("gather: an output is not as the input", t.numel(), input.numel())
        fields = {"kind": clib.GATHER, "type": kind, "in_": part.address, "root": opts.rootRank,
                  "out": whole.address if whole else None, "count": input.numel() * words,
                  "place": part.place}
        return self._many(opts, (whole, part), of_ranks, [fields],
                          [whole.restore] if whole else [])

    def scatter(self, outputs: Tensors, inputs: Lists, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.ScatterOptions, ("root", "timeout"), args, named)
        output, = _list(outputs)
        is_root = opts.rootRank == self._my_rank
        of_ranks = _lists(inputs, outputs)[0] if is_root else []
        kind, words = element(output)
        whole, part = Area(of_ranks) if is_root else None, Area([output], is_output=True)
        if whole is not None:
            _same_types(whole, part)
            for t in of_ranks:
                _same("scatter: an input is not as the output", t.numel(), output.numel())
        fields = {"kind": clib.SCATTER, "type": kind, "in_": whole.address if whole else None,
                  "root": opts.rootRank, "out": part.address, "count": output.numel() * words,
                  "place": part.place}
        return self._many(opts, (whole, part), [output], [fields], [part.restore])

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_splits: Sequence[int] | None, input_splits: Sequence[int] | None,
                          *args: object, **named: object) -> dist.Work:
        """The splits are rows of the tensors; none: even ones."""
        opts = _options(c10d.AllToAllOptions, ("timeout",), args, named)
        return self._alltoall(opts, [output], [input], self._elements(output, output_splits),
                              self._elements(input, input_splits))

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                 *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.AllToAllOptions, ("timeout",), args, named)
        return self._alltoall(opts, outputs, inputs, [t.numel() for t in outputs],
                              [t.numel() for t in inputs])

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int] | None) -> List[int]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._my_size:
                raise ValueError(f"all_to_all: {rows} rows cannot be split evenly among {self._my_size} "
                                 "ranks.")
            splits = [rows // self._my_size] * self._my_size
        if sum(splits) != rows or len(splits) != self._my_size:
            raise ValueError(f"all_to_all: the splits {list(splits)} are not those of {rows} rows among "
                             f"{self._my_size} ranks.")
        return [n * (tensor.numel() // rows if rows else 0) for n in splits]

    def _alltoall(self, opts: Options, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                  come: Sequence[int],
                  go: Sequence[int]) -> dist.Work:
        kind, words = element(inputs[0])
        to, of = Area(outputs, is_output=True), Area(inputs)
        _same_types(to, of)
        fields = {"kind": clib.ALLTOALL, "type": kind, "in_": of.address, "out": to.address,
                  "count": sum(go) * words, "place": of.place, "in_counts": counts([n * words for n in go]),
                  "out_counts": counts([n * words for n in come])}
        return self._do(opts, (to, of), outputs, [fields], to.restore)

    def barrier(self, *args: object, **named: object) -> dist.Work:
        opts = _options(c10d.BarrierOptions, ("timeout",), args, named)
        return self._plain(opts, None, [], clib.BARRIER, clib.U8, 0, None, None, 0)

    # ---- messages ----

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        tensor, = _list(tensors)
        kind, words = element(tensor)
        area = Area([tensor])
        fields = {"kind": clib.SEND, "type": kind, "in_": area.address, "root": dst, "tag": tag,
                  "count": tensor.numel() * words, "place": area.place}
        return self._do(None, area, [tensor], [fields])

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> dist.Work:
        tensor, = _list(tensors)
        kind, words = element(tensor)
        area, source = Area([tensor], is_output=True), ctypes.c_int(src)
        fields = {"kind": clib.RECV, "type": kind, "out": area.address, "root": src, "tag": tag,
                  "room": tensor.numel() * words, "from": source, "place": area.place}
        return self._do(None, (area, source), [tensor], [fields], area.restore, source)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        return self.recv(tensors, clib.ANY, tag)

    recvAnysource = recv_anysource


_PLAIN = {"kind", "type", "op", "in_", "out", "count", "root", "place"}


def _same_types(*areas: Area) -> None:
    kinds = {area.tensors[0].dtype for area in areas}
    if len(kinds) > 1:
        raise ValueError("the output and the input have different types: "
                         + ", ".join(sorted(map(str, kinds))))


# ---- torch.compile ----

def _leave_to_python(*classes: type) -> None:
    """torch.compile would trace the methods of CLASSES where C++ calls them in a function that it has
    compiled, as DDP's broadcasts.  (torch.compiler.disable() imports torch._dynamo, which takes seconds.)
    """
    from torch._C._dynamo import eval_frame
    skip = getattr(getattr(eval_frame, "_FrameAction", None), "SKIP", None)
    if skip is None:
        return  # not the torch of which this is known
    strategy = eval_frame._FrameExecStrategy(skip, skip)  # for it, and for all that it calls
    for each in classes:
        for function in vars(each).values():
            if isinstance(function, types.FunctionType):
                eval_frame.set_code_exec_strategy(function.__code__, strategy)


_leave_to_python(ProcessGroup, Work, Done)


# ---- at the end of the process ----

_groups: List[ProcessGroup] = []
_process = os.getpid()


@atexit.register
def _shut_down_at_exit() -> None:
    if os.getpid() != _process:
        return
    completer.stop()
    starter.stop()
    for group in list(_groups):
        group.shutdown()
