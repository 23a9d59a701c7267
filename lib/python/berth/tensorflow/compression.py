"""How gradients are made smaller on their way: Compression.none, .fp16, .bf16, or a class of the caller's."""
from __future__ import annotations

from typing import Tuple

import tensorflow as tf


class Compressor:
    """Two static functions; a class of the caller's has the same."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, object]:
        """What is sent instead of TENSOR, and a context for decompress()."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """TENSOR as it was before compress(), which returned CTX."""
        return tensor


class NoneCompressor(Compressor):
    """Tensors go as they are."""


class _Cast(Compressor):
    """Floats of more than 16 bits go as DTYPE, all others as they are."""
    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> Tuple[tf.Tensor, object]:
        if tensor.dtype.is_floating and tensor.dtype.size > 2:
            return tf.cast(tensor, cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Cast):
    """Half the bytes of float32.  Gradients past 65504 become infinite."""
    dtype = tf.float16


class BF16Compressor(_Cast):
    """Half the bytes of float32, with its range and 8 bits of precision."""
    dtype = tf.bfloat16


class Compression:
    """How allreduce() sends tensors: none, fp16 or bf16.  A class of the caller's with compress() and
    decompress() may take its place.

    >>> hvd.allreduce(tf.ones(2), compression=hvd.Compression.fp16).numpy()
    array([1., 1.], dtype=float32)
    """
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
