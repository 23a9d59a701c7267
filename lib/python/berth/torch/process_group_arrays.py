"""Tensors of torch.distributed as libberth's arrays: one address for a list of them, and their reductions."""
from __future__ import annotations

import ctypes
from typing import Callable, Dict, Sequence, Tuple, cast

import torch
import torch.distributed as dist

from .. import clib
from . import tensors

_RED = dist.ReduceOp
# By hash(), which is the least that Python can ask of one: to compare two takes 0.5 us more.
OPS = {hash(_RED(op)): number for op, number in (
    (_RED.SUM, clib.SUM), (_RED.AVG, clib.AVG), (_RED.MIN, clib.MIN), (_RED.MAX, clib.MAX),
    (_RED.PRODUCT, clib.PRODUCT), (_RED.BAND, clib.BAND), (_RED.BOR, clib.BOR), (_RED.BXOR, clib.BXOR))}


def _name_of(op: dist.ReduceOp) -> object:
    return op.op  # type: ignore[attr-defined]  # torch's own types lack it


def reduction(op: dist.ReduceOp) -> Tuple[int, ctypes.c_double | None]:
    """libberth's number of OP, a ReduceOp, and what to prescale by, or None."""
    found = OPS.get(hash(op))
    if found is not None:
        return found, None
    if op == cast(object, _RED.PREMUL_SUM):
        return clib.SUM, ctypes.c_double(float(op.factor))
    raise ValueError(f"berth has no reduction {_name_of(op)}.")


def fields_of_sum(tensor: torch.Tensor, op: dist.ReduceOp) -> Dict[str, object]:
    """The fields "type", "op" and "prescale" to add elements as TENSOR has."""
    number, scale = reduction(op)
    if tensor.dtype in tensors.PAIRS and number not in (clib.SUM, clib.AVG):
        raise ValueError(f"{tensor.dtype} has no {_name_of(op)}: only sums and averages.")
    fields: Dict[str, object] = {
        "type": tensors.TYPES.get(tensors.PAIRS.get(tensor.dtype, tensor.dtype)), "op": number}
    if fields["type"] is None:
        tensors.type_of(tensor)  # says so
    if scale is not None:
        fields["prescale"] = scale
    return fields


def element(tensor: torch.Tensor) -> Tuple[int, int]:
    """libberth's type to move TENSOR in, and the number of those in one element.  A type that it does not
    know goes as bytes.
    """
    known = tensors.TYPES.get(tensor.dtype)
    if known is not None:
        return known, 1
    part = tensors.PAIRS.get(tensor.dtype)
    if part is not None:
        return tensors.TYPES[part], 2
    return clib.U8, tensor.element_size()


class Area:
    """The memory of TENSORS, of one type, side by side, at PLACE, that of a device, or None.  An output is
    put there by restore().
    """
    __slots__ = ("tensors", "flat", "address", "place")

    def __init__(self, list_of_tensors: Sequence[torch.Tensor], is_output: bool = False) -> None:
        self.tensors = list_of_tensors
        self.flat: torch.Tensor | None = None
        first = list_of_tensors[0]
        self.place = tensors.place_of(first)
        if any(t.dtype != first.dtype for t in list_of_tensors):
            raise ValueError("the tensors of one operation have different types: "
                             + ", ".join(sorted({str(t.dtype) for t in list_of_tensors})))
        address = self._address()
        if address is None:
            if is_output:
                self.flat = torch.empty(sum(t.numel() for t in list_of_tensors), dtype=first.dtype,
                                        device=first.device if self.place else None)
            else:
                self.flat = torch.cat([self._usable(t).reshape(-1) for t in list_of_tensors])
            address = self.flat.data_ptr()
        self.address = address

    def _address(self) -> int | None:
        """Where they begin, if they follow one another in memory; else None."""
        begin = end = None
        for t in self.tensors:
            if not t.numel():
                continue
            if t.layout is not torch.strided or not (t.is_cpu or self.place) or not t.is_contiguous() \
                    or t.is_conj() or t.is_neg() or end not in (None, t.data_ptr()):
                return None
            begin = t.data_ptr() if begin is None else begin
            end = t.data_ptr() + t.numel() * t.element_size()
        return begin or 0

    def _usable(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if tensor.layout is not torch.strided or not (tensor.is_cpu or self.place):
            tensor = tensors.dense(tensor)  # refuses it, or warns and copies
        return tensor.resolve_conj().resolve_neg()

    @property
    def restore(self) -> Callable[[], None] | None:
        """What puts an output where it belongs; None: it is there."""
        return None if self.flat is None else self._restore

    def _restore(self) -> None:
        assert self.flat is not None
        with torch.no_grad():
            parts = torch.split(self.flat, [t.numel() for t in self.tensors])
            for tensor, part in zip(self.tensors, parts):
                tensor.copy_(part.view(tensor.shape))


def counts(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    """NUMBERS for a descriptor."""
    return (ctypes.c_uint64 * len(numbers))(*numbers)
