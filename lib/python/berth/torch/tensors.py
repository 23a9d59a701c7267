"""Tensors of torch as libberth's arrays: their types, where they lie, and what has to be copied."""
from __future__ import annotations

import ctypes
import math
import warnings
import weakref
from typing import Callable, Tuple

import torch

from .. import clib
from ..operations import Array
from . import cuda

# What sums and moves know.
TYPES = {
    torch.uint8: clib.U8, torch.int8: clib.I8, torch.uint16: clib.U16, torch.int16: clib.I16,
    torch.int32: clib.I32, torch.uint32: clib.U32, torch.int64: clib.I64, torch.uint64: clib.U64,
    torch.float16: clib.F16, torch.bfloat16: clib.BF16, torch.float32: clib.F32, torch.float64: clib.F64,
    torch.bool: clib.BOOL, torch.float8_e4m3fn: clib.F8_E4M3, torch.float8_e5m2: clib.F8_E5M2,
}
# Pairs of their parts: they can be added, and moved.
PAIRS = {torch.complex64: torch.float32, torch.complex128: torch.float64}

_STRIDED, _empty_like = torch.strided, torch.empty_like  # to look them up takes time
_told: set[str] = set()


def tell_once(text: str) -> None:
    """A warning that comes once in a process, where rank 0 is."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=3)


def type_of(tensor: torch.Tensor) -> int:
    """libberth's type of TENSOR, which is no pair.  ValueError: there is none."""
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    return found


def place_of(tensor: torch.Tensor) -> cuda.Gpu | None:
    """Of a TENSOR that libberth can use on its device; else None."""
    return None if tensor.is_cpu else cuda.place_of(tensor)


def plain(tensor: torch.Tensor) -> Array[torch.Tensor]:
    """As operations.py says.  TENSOR, or a dense copy."""
    is_here = tensor.is_cpu
    place = None if is_here else cuda.place_of(tensor)
    if (is_here or place) and tensor.layout is _STRIDED and tensor.is_contiguous() and not tensor.is_neg():
        type_ = TYPES.get(tensor.dtype)
        if type_ is not None:
            return tensor, type_, tensor.data_ptr(), tensor.numel(), tensor.shape, place
    tensor = dense(tensor, place is not None)
    return tensor, TYPES[tensor.dtype], tensor.data_ptr(), tensor.numel(), tensor.shape, place


def dense(tensor: torch.Tensor, there: bool = False) -> torch.Tensor:
    """TENSOR, or a copy of it, in memory that libberth can use; THERE: that of its device is.  A pair has a
    dimension more, of 2.
    """
    if tensor.layout is not torch.strided:
        raise ValueError(f"a {tensor.layout} tensor is not supported here: only dense ones are.")
    tensor = tensor.detach()
    if not tensor.is_cpu and not there:
        tell_once(f"berth: tensors of {tensor.device.type} are copied to the host and back" + (
            ": BERTH_DEVICE=nccl hands them to NCCL as they are" if tensor.is_cuda else
            ": libberth has no back end for them"))
        tensor = tensor.cpu()
    if tensor.dtype in PAIRS:
        tensor = torch.view_as_real(tensor.resolve_conj())
    type_of(tensor)
    return tensor.resolve_neg().contiguous()


def restore(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """Write RESULT, in the layout of dense(TENSOR), to TENSOR, unless it is TENSOR itself."""
    if result is tensor or result.numel() == 0:
        return
    if tensor.dtype in PAIRS:
        result = torch.view_as_complex(result)
    with torch.no_grad():
        tensor.copy_(result)


def like(tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """RESULT, in the layout of dense(TENSOR), with the type and on the device of TENSOR."""
    if tensor.dtype in PAIRS:
        result = torch.view_as_complex(result)
    return result if tensor.is_cpu else result.to(tensor.device)


def empty_like(array: Array[torch.Tensor], rows: int | None) -> Tuple[torch.Tensor, int]:
    """As operations.py says."""
    tensor = array[0]
    made = _empty_like(tensor) if rows is None else torch.empty((rows, *array[4][1:]), dtype=tensor.dtype,
                                                                device=tensor.device)
    return made, made.data_ptr()


def adopt(address: int, rows: int, array: Array[torch.Tensor], let_go: Callable[[int], None]) -> torch.Tensor:
    """ROWS rows like those of ARRAY, at ADDRESS, as a tensor; LET_GO is called with ADDRESS when nothing uses
    them any more.
    """
    dtype, sizes = array[0].dtype, (rows, *array[4][1:])
    if not rows:
        let_go(address)
        return torch.empty(sizes, dtype=dtype)
    buffer = (ctypes.c_char * (math.prod(sizes) * dtype.itemsize)).from_address(address)
    weakref.finalize(buffer, let_go, address).atexit = False
    return torch.frombuffer(buffer, dtype=dtype).view(sizes)
