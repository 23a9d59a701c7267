"""How gradients are made smaller on their way: Compression.none, .fp16, .bf16, or a class of the caller's."""
from __future__ import annotations

from typing import Tuple

import torch


class Compressor:
    """Two static functions; a class of the caller's has the same."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, object]:
        """What is sent instead of TENSOR, and a context for decompress()."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """TENSOR as it was before compress(), which returned CTX."""
        return tensor


class NoneCompressor(Compressor):
    """Tensors go as they are."""


class _Cast(Compressor):
    """Floats of more than 16 bits go as DTYPE, all others as they are."""
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, object]:
        if tensor.is_floating_point() and tensor.element_size() > 2:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        return tensor.to(ctx) if isinstance(ctx, torch.dtype) else tensor


class FP16Compressor(_Cast):
    """Half the bytes of float32.  Gradients past 65504 become infinite."""
    dtype = torch.float16


class BF16Compressor(_Cast):
    """Half the bytes of float32, with its range and 8 bits of precision."""
    dtype = torch.bfloat16


class Compression:
    """How allreduce() and DistributedOptimizer() send tensors: none, fp16 or bf16.  A class of the caller's
    with compress() and decompress() may take its place.

    >>> hvd.allreduce(torch.ones(2), compression=hvd.Compression.fp16)
    tensor([1., 1.])
    """
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
