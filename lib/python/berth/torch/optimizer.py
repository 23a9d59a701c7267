"""DistributedOptimizer: gradients are reduced while backward() still computes others."""
from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple, Type,
                    TypeVar, Union, cast)

import torch

from .. import basics
from ..basics import Adasum, Average, ProcessSet, Sum, global_process_set
from ..handles import synchronize
from ..operations import find_duplicates, given_names, grouped, largest, number_of_groups
from .adasum_optimizer import DeltaOptimizer
from .collectives import allreduce, allreduce_each_async_, grouped_allreduce_async_, sparse_allreduce_async
from .compression import Compression, Compressor

# Small gradients are begun many at a time: each of a burst costs 2.4 us (one by one 4), and one that comes
# alone wakes threads for 20 us.
BURST_BYTES = 1 << 14


# ---- names of parameters ----

Names = Dict[torch.Tensor, str]

def _names(optimizer: torch.optim.Optimizer, given: Names | None) -> Names:
    """{parameter: name} of all parameters of OPTIMIZER."""
    names: Names = {}
    for i, group in enumerate(optimizer.param_groups):
        for j, p in enumerate(group["params"]):
            if given and p not in given:
                raise ValueError(f"named_parameters has no name for parameter {j} of group {i}, of the shape "
                                 f"{list(p.shape)}: name all of them, or leave named_parameters out.")
            names[p] = given[p] if given else f"noname.{i}.{j}"
    return names


# ---- one gradient ----

Wait = Union[None, int, Callable[[], torch.Tensor]]  # a handle, or what waits

def _is_packed(tensor: torch.Tensor) -> bool:
    """Its elements fill its memory, in some order of its dimensions."""
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


def _sparse_dim(grad: torch.Tensor | None) -> int:
    return grad.sparse_dim() if grad is not None and grad.is_sparse else 0


class _Gradient:
    """That of PARAM.  SPARSE_DIM: 0 until the ranks agree that it is sparse on one of them."""
    __slots__ = ("param", "name", "bytes", "strides", "passes", "group", "wait", "sent", "context",
                 "sparse_dim", "hook")

    def __init__(self, param: torch.Tensor, name: str, passes: int) -> None:
        self.param, self.name, self.passes, self.sparse_dim = param, name, passes, 0
        self.group: _Group | None = None
        self.wait: Wait = None
        self.sent: torch.Tensor | None = None
        self.context: object = None
        self.hook: Any = None
        self.bytes = param.numel() * param.element_size()
        self.strides = param.stride() if param.layout is torch.strided and _is_packed(param) else None

    def dense(self) -> torch.Tensor:
        """The gradient, zeros if backward() did not come to it."""
        grad = self.param.grad
        if grad is None:
            grad = self.param.grad = torch.zeros_like(self.param)
        return grad.to_dense() if grad.is_sparse else grad.detach() if grad.requires_grad else grad

    def sparse(self) -> torch.Tensor:
        grad = self.param.grad
        if grad is None:
            rows = self.param.new_zeros((0, *self.param.shape[self.sparse_dim:]))
            grad = torch.sparse_coo_tensor(rows.new_zeros((self.sparse_dim, 0), dtype=torch.int64), rows,
                                           self.param.shape, check_invariants=False)
        return grad if grad.is_sparse else grad.to_sparse(self.sparse_dim)

    def in_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """TENSOR, of the gradient's shape, as its memory has it: that of convolutions may be permuted, on
        all ranks alike.
        """
        if tensor.stride() == self.strides and not tensor.is_contiguous():
            return tensor.as_strided((tensor.numel(),), (1,))
        return tensor

    def write(self, out: torch.Tensor) -> None:
        """OUT is what the gradient has become; it may be its memory."""
        grad = self.param.grad
        if out.is_sparse:
            self.param.grad = out
            return
        assert grad is not None
        if grad.is_sparse or self.sparse_dim:
            self.param.grad = out.to_sparse(self.sparse_dim or grad.sparse_dim())
        elif out is not grad:
            grad.detach().copy_(out)


def _end(wait: Wait) -> object:
    return wait() if callable(wait) else synchronize(wait)


class _Group:
    def __init__(self, members: List[_Gradient], name: str) -> None:
        self.members, self.name, self.missing = members, name, len(members)
        self.wait: Wait = None


def _on_gradient(reducer: weakref.ref[_Reducer], gradient: _Gradient, _: torch.Tensor) -> None:
    """A hook.  It keeps nothing alive but GRADIENT."""
    living = reducer()
    if living is not None:
        living.arrived(gradient)


# ---- all of them ----

_reducers: weakref.WeakSet[_Reducer] = weakref.WeakSet()


@basics.at_leave
def _leave_world() -> None:
    for reducer in list(_reducers):
        reducer.leave_world()


class _Reducer:
    """Begins the reduction of each gradient when it is there, and waits for all of them."""

    def __init__(self, compression: Type[Compressor], passes: int, op: int, predivide: float,
                 sparse_as_dense: bool, process_set: ProcessSet) -> None:
        self.compression, self.passes, self.sparse_as_dense = compression, passes, sparse_as_dense
        self.arguments: Dict[str, Any] = {"op": op, "process_set": process_set}
        if predivide != 1.0:
            self.arguments.update(prescale_factor=1 / predivide, postscale_factor=predivide)
        self.op, self.process_set = op, process_set
        self.gradients: Dict[torch.Tensor, _Gradient] = {}
        self.groups: List[_Group] = []
        self.frozen: Names = {}
        self.begun = 0  # since the last finish()
        self.ready: List[_Gradient] = []
        self.ready_bytes = 0
        self.agreed = False  # which gradients are sparse
        _reducers.add(self)

    def watch(self, names: Names) -> None:
        """The parameters in NAMES; those without gradients once they have some."""
        for p, name in names.items():
            if p in self.gradients:
                continue
            if not p.requires_grad:
                self.frozen[p] = name
                continue
            self.frozen.pop(p, None)
            gradient = self.gradients[p] = _Gradient(p, name, self.passes)
            on_gradient = functools.partial(_on_gradient, weakref.ref(self), gradient)
            gradient.hook = p.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]

    def set_groups(self, groups: Sequence[Sequence[torch.Tensor]]) -> None:
        for i, params in enumerate(groups):
            members = [self.gradients[p] for p in params if p in self.gradients]
            if members:
                self.groups.append(_Group(members, f"group{i}.{members[0].name}"))
                for gradient in members:
                    gradient.group = self.groups[-1]

    def __del__(self) -> None:
        for gradient in self.gradients.values():
            gradient.hook.remove()

    # -- begin --

    def arrived(self, gradient: _Gradient) -> None:
        """backward() has added to GRADIENT."""
        if gradient.passes <= 0:
            raise AssertionError(
                f"backward() came to {gradient.name} more than backward_passes_per_step ({self.passes}) "
                "times before step(): raise backward_passes_per_step to add up gradients before they "
                "are reduced.")
        gradient.passes -= 1
        self.begun += 1
        if gradient.passes:
            return
        if not self.agreed and _sparse_dim(gradient.param.grad):
            return  # finish() begins it, once it knows how
        group = gradient.group
        if group is None or self.is_sent_sparse(gradient):
            self.ready.append(gradient)
            self.ready_bytes += gradient.bytes
            if self.ready_bytes >= BURST_BYTES:
                self.begin_ready()
        else:
            group.missing -= 1
            if not group.missing:
                self.begin_group(group)

    def is_sent_sparse(self, gradient: _Gradient) -> bool:
        return gradient.sparse_dim > 0 and not self.sparse_as_dense

    def begin_ready(self) -> None:
        ready, self.ready, self.ready_bytes = self.ready, [], 0
        self.begin(ready)

    def begin(self, gradients: Sequence[_Gradient]) -> None:
        dense, sent = [], []
        for gradient in gradients:
            if self.is_sent_sparse(gradient):
                gradient.wait = sparse_allreduce_async(gradient.sparse(), name=gradient.name, op=self.op,
                                                       process_set=self.process_set)
            else:
                dense.append(gradient)
                sent.append(self.pack(gradient))
        handles = allreduce_each_async_(sent, [g.name for g in dense], **self.arguments)
        for gradient, handle in zip(dense, handles):
            gradient.wait = handle

    def begin_group(self, group: _Group) -> None:
        members = [g for g in group.members if not self.is_sent_sparse(g)]
        group.wait = grouped_allreduce_async_([self.pack(g) for g in members], name=group.name,
                                              **self.arguments)

    def pack(self, gradient: _Gradient) -> torch.Tensor:
        """What is sent of GRADIENT, as its memory has it."""
        gradient.sent = gradient.dense()
        if self.compression is not Compression.none:
            gradient.sent, gradient.context = self.compression.compress(gradient.sent)
        return gradient.in_memory(gradient.sent)

    # -- end --

    def finish(self) -> None:
        """Each gradient becomes the average (or sum) over the ranks; of a rank without it, zeros count."""
        if self.frozen:
            self.watch({p: name for p, name in self.frozen.items() if p.requires_grad})
        try:
            self.begin_rest()
            self.wait()
        except Exception:
            self.drop()
            raise
        self.forget()

    def begin_rest(self) -> None:
        self.begin_ready()
        if not self.agreed:
            self.agree()
        for group in self.groups:
            if group.wait is None:
                self.begin_group(group)
        self.begin([g for g in self.gradients.values()
                    if g.wait is None and (g.group is None or self.is_sent_sparse(g))])

    def agree(self) -> None:
        """Which gradients are sparse, as the first step shows.  Others that are it later are sent dense: a
        rank that leaves them out could not know.
        """
        gradients = self.gradients.values()
        dims = [_sparse_dim(g.param.grad) for g in gradients]
        if dims:
            dims = largest(dims, f"sparse.{next(iter(gradients)).name}", self.process_set)
        for gradient, dim in zip(gradients, dims):
            gradient.sparse_dim = dim
        self.agreed = True

    def wait(self) -> None:
        for group in self.groups:
            _end(group.wait)
            group.wait = None
        for gradient in self.gradients.values():
            out = _end(gradient.wait)
            if callable(gradient.wait):
                gradient.write(cast(torch.Tensor, out))
            elif gradient.sent is not None and gradient.sent is not gradient.param.grad:
                gradient.write(self.compression.decompress(gradient.sent, gradient.context))
            gradient.wait = None

    def drop(self) -> None:
        """An operation failed: those that were begun with it end, too."""
        for item in self.items():
            with contextlib.suppress(Exception):
                _end(item.wait)
            item.wait = None
        self.forget()

    def forget(self) -> None:
        """The next step begins."""
        self.begun, self.ready, self.ready_bytes = 0, [], 0
        for gradient in self.gradients.values():
            gradient.passes, gradient.sent = self.passes, None
        for group in self.groups:
            group.missing = sum(not self.is_sent_sparse(g) for g in group.members)

    def leave_world(self) -> None:
        """Its operations have ended.  Ranks that come have agreed on nothing yet."""
        for item in self.items():
            item.wait = None
        self.agreed = False
        for gradient in self.gradients.values():
            gradient.sparse_dim = 0
        self.forget()

    def items(self) -> List[_Group | _Gradient]:
        """All that is waited for."""
        return [*self.groups, *self.gradients.values()]

    def is_busy(self) -> bool:
        """Operations on gradients are in flight."""
        return any(item.wait is not None for item in self.items())


# ---- the optimizer ----

# To a type checker; in fact the class of the user's optimizer comes behind.
if TYPE_CHECKING:
    from torch.optim import Optimizer as _Base
else:
    _Base = object

Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)

class _Distributed(_Base):
    """Comes before the class of the user's optimizer.  Without other ranks _reducer is None."""

    find_duplicates = staticmethod(find_duplicates)

    _parameter_names: Names
    _passes: int
    _reducer: _Reducer | None
    _synchronized: bool
    _scaled: bool
    _should_synchronize: bool

    @property
    def backward_passes_per_step(self) -> int:
        """How often backward() comes to a parameter before a step."""
        return self._passes

    def add_param_group(self, param_group: Dict[str, object]) -> None:
        """As that of the user's optimizer; new parameters are reduced, too."""
        super().add_param_group(param_group)
        self._parameter_names = {**_names(self, None), **self._parameter_names}
        if self._reducer is not None:
            self._reducer.watch(self._parameter_names)

    def load_state_dict(self, *args: object, **kwargs: object) -> None:
        """As that of the user's optimizer; what is begun is dropped."""
        if self._reducer is not None:
            self._reducer.drop()
        self._synchronized, self._scaled, self._should_synchronize = False, False, True
        super().load_state_dict(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on, gradients are reduced when PASSES calls of backward() have come to them."""
        self._passes = _check_passes(passes)
        if self._reducer is not None:
            self._reducer.passes = passes
            for gradient in self._reducer.gradients.values():
                gradient.passes = passes

    def synchronize(self) -> None:
        """Wait until all gradients are reduced, to look at them or to clip them before step()."""
        if self._reducer is not None:
            self._reducer.finish()
            self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() in it takes the gradients as they are."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True
            self._synchronized = False  # also where GradScaler leaves out the step

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """The step of the user's optimizer, with reduced gradients.

        CLOSURE computes the gradients anew: they are reduced behind each call of it.  The loss that it
        returns becomes the average over the ranks (with op=Sum the sum), so that all ranks do the same with
        it.
        """
        reducer = self._reducer
        if reducer is None:
            return super().step(closure)
        if self._should_synchronize:
            if closure is not None:
                closure = functools.partial(self._reduced, closure)
            elif reducer.begun or not (self._synchronized or self._scaled):
                reducer.finish()
            elif self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() after "
                              "optimizer.synchronize(): the gradients are not reduced again.", stacklevel=2)
        self._synchronized = self._scaled = False
        return super().step(closure)

    # torch need not wrap it: the step of the user's optimizer is.
    step.hooked = True  # type: ignore[attr-defined]

    def _reduced(self, closure: Callable[[], Any]) -> Any:
        """What CLOSURE returns, for all ranks together."""
        loss, reducer = closure(), self._reducer
        assert reducer is not None
        reducer.finish()
        if loss is None:
            return None
        tensor = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
        tensor = allreduce(tensor, op=Sum if reducer.op == Sum else Average, name="loss",
                           process_set=reducer.process_set)
        return tensor if isinstance(loss, torch.Tensor) else tensor.item()

    def zero_grad(self, *args: object, **kwargs: object) -> None:
        """AssertionError: gradients are being reduced."""
        if self._reducer is not None:
            if self._reducer.begun and self._reducer.is_busy():
                raise AssertionError("optimizer.zero_grad() between backward() and optimizer.step() would "
                                     "change gradients that are being reduced: call step() or synchronize() "
                                     "before.")
            if self._reducer.begun:
                self._reducer.forget()
            self._synchronized = self._scaled = False
        super().zero_grad(*args, **kwargs)

    # GradScaler.step() reads this, and then looks for infinite gradients: they have to be reduced by then,
    # so that all ranks leave out the same steps.
    @property
    def _step_supports_amp_scaling(self) -> bool:
        if self._reducer is not None and self._should_synchronize and self._reducer.begun:
            self._reducer.finish()
            self._scaled = True
        return self.__dict__.get("_step_supports_amp_scaling",
                                 getattr(super(), "_step_supports_amp_scaling", False))


def _check_passes(passes: int) -> int:
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}: it has to be 1 or more.")
    return passes


def _derive(before: type, optimizer: torch.optim.Optimizer) -> Any:
    """OPTIMIZER with its state, options and hooks, of a class with BEFORE in front of its own."""
    cls: Any = type(type(optimizer).__name__, (before, type(optimizer)), {})
    made = cls.__new__(cls)
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("step", None)  # a scheduler's wrapper: it would call the step of OPTIMIZER
    return made


def DistributedOptimizer(optimizer: Optimizer,
                         named_parameters: Iterable[Tuple[str, torch.Tensor]] | None = None,
                         compression: Type[Compressor] = Compression.none,
                         backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
                         sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> Optimizer:
    """OPTIMIZER, which reduces its gradients over the ranks before each step.

    The result is of a subclass of its class, and has its state; use it instead of OPTIMIZER.  A gradient is
    reduced as soon as backward() has it.  A rank that has none for a parameter adds zeros.

    NAMED_PARAMETERS: pairs (name, parameter); None: they are numbered.
    COMPRESSION: what makes gradients smaller on their way (Compression).
    BACKWARD_PASSES_PER_STEP: backward() comes so often to each parameter before a step.
    OP: Average, Sum, Min, Max, Product; Adasum: each rank does its step, and these are combined.
    GRADIENT_PREDIVIDE_FACTOR: an average is divided by it before it is summed, and the rest behind.
    GROUPS: a number of groups, or lists of parameters: those of one group are reduced together.  NUM_GROUPS
    is its older name.
    SPARSE_AS_DENSE: sparse gradients are reduced as dense ones, and are sparse again for the step.
    PROCESS_SET: the ranks; to others OPTIMIZER stays as it is.

    It has three methods more: synchronize() waits until the gradients are reduced, to look at them or to
    clip them before step(); step() in `with optimizer.skip_synchronize():` takes them as they are;
    set_backward_passes_per_step(PASSES) holds from the next step on.

    ValueError: an argument is wrong.  step() raises HorovodInternalError, zero_grad() between backward() and
    step() AssertionError.

    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.synchronize()
    >>> _ = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    >>> with optimizer.skip_synchronize():
    ...     optimizer.step()
    """
    if isinstance(optimizer, (_Distributed, DeltaOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already: give the one that it was made of.")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average only.")
    groups = number_of_groups(num_groups, groups)
    given: Names = given_names(named_parameters)
    names = _names(optimizer, given)
    listed = grouped(groups, [p for p in names if p.requires_grad])
    _check_passes(backward_passes_per_step)
    alone = not process_set.included() or (process_set.size() == 1 and not basics.may_grow())

    made: Any = _derive(DeltaOptimizer if op == Adasum and not alone else _Distributed, optimizer)
    made._parameter_names, made._passes = names, backward_passes_per_step
    if op == Adasum and not alone:
        made._compression, made._process_set = compression, process_set
        return cast(Optimizer, made)
    made._synchronized, made._scaled, made._should_synchronize, made._reducer = False, False, True, None
    if not alone:
        made._reducer = _Reducer(compression, backward_passes_per_step, op, gradient_predivide_factor,
                                 sparse_as_dense, process_set)
        made._reducer.watch(names)
        made._reducer.set_groups(listed)
    return cast(Optimizer, made)
