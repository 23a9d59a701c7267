"""Tensors of torch as libberth's arrays: their types, where they lie, and what has to be copied."""
import ctypes
import warnings
import weakref

import torch

from .. import clib

# What sums and moves know.
TYPES = {
    torch.uint8: clib.U8, torch.int8: clib.I8, torch.uint16: clib.U16, torch.int16: clib.I16,
    torch.int32: clib.I32, torch.uint32: clib.U32, torch.int64: clib.I64, torch.uint64: clib.U64,
    torch.float16: clib.F16, torch.bfloat16: clib.BF16, torch.float32: clib.F32, torch.float64: clib.F64,
    torch.bool: clib.BOOL, torch.float8_e4m3fn: clib.F8_E4M3, torch.float8_e5m2: clib.F8_E5M2,
}
# Pairs of their parts: they can be added, and moved.
PAIRS = {torch.complex64: torch.float32, torch.complex128: torch.float64}

_STRIDED = torch.strided
_told = set()


def tell_once(text):
    """A warning that comes once in a process, where rank 0 is."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=3)


def type_of(tensor):
    """libberth's type of TENSOR, which is no pair.  ValueError: there is none."""
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    return found


def plain_type(tensor):
    """libberth's type of TENSOR; None: libberth can't use its memory as it is."""
    if tensor.is_cpu and tensor.layout is _STRIDED and tensor.is_contiguous() and not tensor.is_neg():
        return TYPES.get(tensor.dtype)
    return None


def is_plain(tensor):
    """Can libberth use its memory as it is?"""
    return plain_type(tensor) is not None


def plain(tensor):
    """TENSOR, or a copy of its contents, so that is_plain().  A pair has a dimension more, of 2."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"a {tensor.layout} tensor is not supported here: only dense ones are.")
    tensor = tensor.detach()
    if not tensor.is_cpu:
        tell_once(f"berth: tensors of {tensor.device.type} are copied to the host and back: libberth has no "
                  "back end for them")
        tensor = tensor.cpu()
    if tensor.dtype in PAIRS:
        tensor = torch.view_as_real(tensor.resolve_conj())
    type_of(tensor)
    return tensor.resolve_neg().contiguous()


def restore(tensor, result):
    """Write RESULT, in the layout of plain(TENSOR), to TENSOR, unless it is TENSOR itself."""
    if result is tensor or result.numel() == 0:
        return
    if tensor.dtype in PAIRS:
        result = torch.view_as_complex(result)
    with torch.no_grad():
        tensor.copy_(result)


def like(tensor, result):
    """RESULT, in the layout of plain(TENSOR), with the type and on the device of TENSOR."""
    if tensor.dtype in PAIRS:
        result = torch.view_as_complex(result)
    return result if tensor.is_cpu else result.to(tensor.device)


def adopt(address, count, dtype, let_go):
    """The COUNT elements at ADDRESS as a tensor of one dimension; LET_GO is called with ADDRESS when nothing
    uses them any more.
    """
    if not count:
        let_go(address)
        return torch.empty(0, dtype=dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    weakref.finalize(buffer, let_go, address).atexit = False
    return torch.frombuffer(buffer, dtype=dtype)


_shapes = {}  # sizes: the text of them


def shape_text(sizes):
    """SIZES as bytes for a descriptor; None for one dimension, of which the count says all."""
    if len(sizes) == 1:
        return None
    text = _shapes.get(sizes)
    if text is None:
        if len(_shapes) >= 4096:
            _shapes.clear()
        text = _shapes[sizes] = str(list(sizes)).encode()
    return text


def rows_text(sizes):
    """The same, where the first dimension may differ."""
    return None if len(sizes) == 1 else ("[*" + "".join(f", {n}" for n in sizes[1:]) + "]").encode()
