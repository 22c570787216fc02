"""Importance ratios that neither overflow nor hide NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.segments import segment_mean, segment_sum

MAX_LOG_RATIO = 20.0
"""exp(20) = 4.9e8 stays finite in float32 through products and squares. A log-ratio beyond it gets this value and
no gradient; within it the guard changes no bit."""


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision values as float32 (exp(20) overflows float16); others unchanged."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def guarded_exp(log_ratio: Tensor) -> Tensor:
    """exp of the log-ratio clamped to ±MAX_LOG_RATIO. NaN stays NaN."""
    return at_least_float32(log_ratio).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def importance_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """[M]: π_θ/π_old of each sampled token."""
    return guarded_exp(at_least_float32(logprobs) - at_least_float32(old_logprobs))


def geometric_ratio(logprobs: Tensor, old_logprobs: Tensor, segments: Tensor, count: int) -> Tensor:
    """[count]: exp of the mean log-ratio of each segment (row, chunk, turn); 1 for an empty one.

    Unlike the product it does not explode with length: 2000 tokens of log-ratio 0.002 give 1.002, not 54.6.
    """
    log_ratio = at_least_float32(logprobs) - at_least_float32(old_logprobs)
    return guarded_exp(segment_mean(log_ratio, segments, count))


def product_ratio(logprobs: Tensor, old_logprobs: Tensor, segments: Tensor, count: int) -> Tensor:
    """[count]: the ratio of the whole segment's probability, exp of the summed log-ratio; 1 for an empty one."""
    log_ratio = at_least_float32(logprobs) - at_least_float32(old_logprobs)
    return guarded_exp(segment_sum(log_ratio, segments, count))
