"""What all ranks begin with: parameters, and the state of an optimizer, of one of them."""
from __future__ import annotations

import collections.abc
from typing import Any, Callable, Dict, Hashable, Iterable, List, Mapping, Sequence, Tuple, Union, cast

import torch

from .. import basics, objects
from ..handles import synchronize
from .collectives import broadcast_async_

Pair = Tuple[Union[str, None], torch.Tensor]
Params = Union[Mapping[str, torch.Tensor], Iterable[Tuple[str, torch.Tensor]], Iterable[torch.Tensor]]
Keys = Dict[torch.Tensor, Hashable]
_Skeleton = Tuple[List[Tuple[Any, Any]], List[Tuple[List[Hashable], Dict[str, Any]]]]  # state, groups


def broadcast_parameters(params: Params, root_rank: int) -> None:
    """PARAMS become those of ROOT_RANK (a rank of the world), in place.

    PARAMS: model.state_dict(), or (name, tensor) pairs such as model.named_parameters(), or a list of
    tensors. All ranks have the same names and shapes.
    ValueError: something else than a tensor.  HorovodInternalError: the ranks have different shapes.

    >>> hvd.broadcast_parameters(torch.nn.Linear(2, 1).state_dict(), root_rank=0)
    """
    if isinstance(params, dict):
        params = sorted(params.items())
    elif not isinstance(params, (list, tuple, collections.abc.Iterator)):
        raise ValueError(f"invalid params of type {type(params)}: give model.state_dict() or "
                         "model.named_parameters().")
    given = [p if isinstance(p, tuple) else (None, p) for p in params]
    pairs = [(name, p) for name, p in given if p is not None]
    for name, p in pairs:
        if not isinstance(p, torch.Tensor):
            raise ValueError(f"{name} is no tensor but a {type(p).__name__}: load_state_dict() what "
                             "hvd.broadcast_object(model.state_dict()) returns.")
    _broadcast(pairs, root_rank)


def _broadcast(pairs: Sequence[Pair], root_rank: int) -> None:
    """The tensors of PAIRS (name, tensor) go together."""
    wait_all([broadcast_async_(tensor, root_rank, name=name) for name, tensor in pairs])


def wait_all(handles: Iterable[int]) -> List[torch.Tensor]:
    """A list of the results, tensors.  If there is an error, all of them have ended when it is raised."""
    results = []
    error: Exception | None = None
    for handle in handles:
        try:
            results.append(cast(torch.Tensor, synchronize(handle)))
        except Exception as e:
            error = error or e
    if error:
        raise error
    return results


# ---- the state of an optimizer ----

class _Tensor:
    """Stands for a tensor in what is sent as an object; the tensor itself goes by NAME."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.shape, self.dtype, self.on_host = name, tensor.shape, tensor.dtype, tensor.is_cpu


def _map(value: Any, take: type, make: Callable[[Any], Any]) -> Any:
    """VALUE, in which MAKE(x) takes the place of each x of type TAKE, within containers too."""
    if isinstance(value, take):
        return make(value)
    if isinstance(value, dict):
        return {key: _map(v, take, make) for key, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map(v, take, make) for v in value)
    return value


def _params(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _skeleton(optimizer: torch.optim.Optimizer, keys: Keys, pairs: List[Pair]) -> _Skeleton:
    """The state and the options of OPTIMIZER with KEYS instead of parameters and _Tensor instead of tensors,
    which go to PAIRS.
    """
    def put(prefix: str, value: object) -> Any:
        def take(tensor: torch.Tensor) -> _Tensor:
            stand_in = _Tensor(f"{prefix}.{len(pairs)}", tensor)
            pairs.append((stand_in.name, tensor))
            return stand_in

        return _map(value, torch.Tensor, take)

    state = [(keys.get(p, p), put(f"optimizer.{keys.get(p, p)}", value))
             for p, value in optimizer.state.items()]
    groups = [([keys[p] for p in group["params"]],
               put(f"optimizer.group{i}", {name: v for name, v in group.items() if name != "params"}))
              for i, group in enumerate(optimizer.param_groups)]
    return state, groups


def _take_over(optimizer: torch.optim.Optimizer, skeleton: _Skeleton, keys: Keys,
               pairs: List[Pair]) -> None:
    """OPTIMIZER gets what _skeleton() returned elsewhere.  PAIRS get its tensors, still without contents."""
    state, groups = skeleton
    by_key = {key: p for p, key in keys.items()}

    def maker(p: torch.Tensor | None) -> Callable[[_Tensor], torch.Tensor]:
        def make(stand_in: _Tensor) -> torch.Tensor:
            device = "cpu" if stand_in.on_host or p is None else p.device
            tensor = torch.empty(stand_in.shape, dtype=stand_in.dtype, device=device)
            pairs.append((stand_in.name, tensor))
            return tensor

        return make

    optimizer.state.clear()
    for key, value in state:
        p = by_key.get(key)
        optimizer.state[key if p is None else p] = _map(value, _Tensor, maker(p))
    for group, (_, options) in zip(optimizer.param_groups, groups):
        first = group["params"][0] if group["params"] else None
        group.update(_map(options, _Tensor, maker(first)))


def _check_parameters(optimizer: torch.optim.Optimizer, keys: Keys, skeleton: _Skeleton) -> None:
    """The same on all ranks, or an error on all."""
    own = [[keys[p] for p in group["params"]] for group in optimizer.param_groups]
    of_all = objects.allgather_object(own == [names for names, _ in skeleton[1]], name="optimizer.parameters")
    if not all(of_all):
        raise ValueError("the ranks' optimizers have different parameters or groups of them: ranks "
                         f"{[r for r, same in enumerate(of_all) if not same]} have others than the root.")


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int,
                              model: torch.nn.Module | None = None) -> None:
    """OPTIMIZER gets the state and the options of ROOT_RANK's, for the parameters in its order.  The others
    may have no state, or another.

    One object goes to all ranks, with the structure and everything that is no tensor; then the tensors, by
    names, for which MODEL gives those of its parameters.  A rank whose optimizer has no state gets gradients
    of zeros where it has none, as scripts of Horovod expect.

    ValueError: LBFGS, or different parameters.

    >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast the state of torch.optim.LBFGS: it belongs to no parameter.")
    if not optimizer.state:
        for p in _params(optimizer):
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
    names: Dict[torch.Tensor, str] = {}
    if model is not None:
        names = {p: name for name, p in model.named_parameters()}
    keys: Keys = {p: names.get(p, i) for i, p in enumerate(_params(optimizer))}
    pairs: List[Pair] = []
    is_root = basics.rank() == root_rank
    skeleton = _skeleton(optimizer, keys, pairs) if is_root else None
    skeleton = objects.broadcast_object(skeleton, root_rank, name="optimizer")
    assert skeleton is not None
    _check_parameters(optimizer, keys, skeleton)
    if not is_root:
        _take_over(optimizer, skeleton, keys, pairs)
    _broadcast(pairs, root_rank)
