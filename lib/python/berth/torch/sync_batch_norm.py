"""Batch normalization over the batches of all ranks."""
from __future__ import annotations

from typing import Any, Tuple, cast

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from .. import basics
from ..basics import Sum
from .collectives import allgather, allreduce


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d in one, with the mean and the variance of the batches of all ranks, of
    any sizes.  Input: [N, NUM_FEATURES, ...], on any device, of any type of float; sums are of 32 bits or
    more.  In eval mode it does no communication.

    ValueError: the input has less than 2 dimensions, or all ranks together have one value for a feature.

    >>> hvd.SyncBatchNorm(3)(torch.randn(8, 3, 5)).shape
    torch.Size([8, 3, 5])
    """

    def __init__(self, num_features: int, eps: float = 1e-05, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """INPUT, normalized."""
        if not self.training or basics.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        weight, bias = self.weight, self.bias
        out, mean, variance, n = _normalize(input, weight, bias, self.eps)
        if self.track_running_stats and self.running_mean is not None:
            self._update(mean, variance * (n / (n - 1)))
        return out

    @torch.no_grad()
    def _update(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        factor = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(variance.to(self.running_var.dtype), factor)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """16-bit floats as float32."""
    return tensor.float() if tensor.element_size() < 4 else tensor


def _as_columns(values: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """VALUES, one for each feature, in the shape that goes with INPUT."""
    return values.view(1, -1, *[1] * (input.dim() - 2))


def _statistics(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and variance of each feature over all ranks, and the number of their elements."""
    features, n = x.shape[1], x.numel() // x.shape[1]
    dims = [d for d in range(x.dim()) if d != 1]
    if n:
        variance, mean = torch.var_mean(x, dims, correction=0)
    else:
        variance = mean = x.new_zeros(features)
    own = torch.cat([mean.double(), variance.double(), mean.new_tensor([n], dtype=torch.float64)])
    of_all = allgather(own.unsqueeze(0), name="sync_batch_norm.statistics")
    means, variances, counts = of_all[:, :features], of_all[:, features:-1], of_all[:, -1:]
    total = float(counts.sum())
    if total <= 1:
        raise ValueError("Expected more than 1 value per channel when training, got input size "
                         f"{tuple(x.shape)} here, and no more elsewhere")
    mean = (means * counts).sum(0) / total
    variance = ((variances + (means - mean) ** 2) * counts).sum(0) / total
    return mean.to(x.dtype), variance.to(x.dtype), total


class _Normalize(torch.autograd.Function):
    """Out: the normalized INPUT; mean, variance and n of all ranks, which have no gradients."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                eps: float) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
        x = _wide(input)
        mean, variance, total = _statistics(x)
        ctx.save_for_backward(input, weight, mean, torch.rsqrt(variance + eps))
        ctx.total = total
        out = F.batch_norm(x, mean, variance, _like(weight, x), _like(bias, x), False, 0.0, eps)
        ctx.mark_non_differentiable(mean, variance)
        return out.to(input.dtype), mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor,  # type: ignore[override]
                 *_: object) -> Tuple[torch.Tensor | None, ...]:
        input, weight, mean, scale = ctx.saved_tensors
        grad, centred = _wide(grad), _wide(input) - _as_columns(mean, input)
        dims = [d for d in range(grad.dim()) if d != 1]
        sums = torch.stack([grad.sum(dims), (grad * centred).sum(dims)])
        of_weight = (sums[1] * scale).to(weight.dtype) if weight is not None else None
        of_bias = sums[0].to(weight.dtype) if weight is not None else None
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = allreduce(sums, op=Sum, name="sync_batch_norm.gradients") / ctx.total
            factor = scale if weight is None else scale * weight.to(scale.dtype)
            slope = _as_columns(sums[1] * scale * scale, input)
            of_input = grad - _as_columns(sums[0], input) - centred * slope
            of_input = (of_input * _as_columns(factor, input)).to(input.dtype)
        return of_input, of_weight, of_bias, None


def _normalize(*arguments: object) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    out: Any = _Normalize.apply(*arguments)  # type: ignore[no-untyped-call]
    return cast(Tuple[torch.Tensor, torch.Tensor, torch.Tensor, float], out)


def _like(tensor: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(x.dtype)
