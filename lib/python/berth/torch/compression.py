"""How gradients are made smaller on their way: Compression.none, .fp16, .bf16, or a class of the caller's."""
import torch


class Compressor:
    """Two static functions; a class of the caller's has the same."""

    @staticmethod
    def compress(tensor):
        """What is sent instead of TENSOR, and a context for decompress()."""
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        """TENSOR as it was before compress(), which returned CTX."""
        return tensor


class NoneCompressor(Compressor):
    """Tensors go as they are."""


class _Cast(Compressor):
    """Floats of more than 16 bits go as DTYPE, all others as they are."""
    dtype = None

    @classmethod
    def compress(cls, tensor):
        if tensor.is_floating_point() and tensor.element_size() > 2:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Half the bytes of float32.  Gradients past 65504 become infinite."""
    dtype = torch.float16


class BF16Compressor(_Cast):
    """Half the bytes of float32, with its range and 8 bits of precision."""
    dtype = torch.bfloat16


class Compression:
    """How allreduce() and DistributedOptimizer() send tensors: none, fp16 or bf16."""
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
