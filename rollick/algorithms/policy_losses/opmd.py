"""Mirror descent: Kimi k1.5 (arXiv 2501.12599) and OPMD (Trinity-RFT). Advantages come from `opmd_advantages`."""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.segments import segment_sum


def kimi_sequence_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, rows: Tensor, num_rows: int, *, tau: float = 0.1
) -> Tensor:
    """[M]: −Σ_t A·log π + tau/2·(Σ_t ℓ)² of the answer. Carried by each of its tokens (`sequence_mean_token_mean` gives
    the mean over answers). The paper's form.

    Toy batch of the tests with A = ±0.5: −0.304128.
    """
    likelihood = segment_sum(advantages * logprobs, rows, num_rows)
    drift = segment_sum(logprobs - old_logprobs, rows, num_rows)
    return (0.5 * tau * drift.square() - likelihood)[rows]


def kimi_token_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, tau: float = 0.1) -> Tensor:
    """[M]: −A·log π + tau/2·ℓ², ℓ the log-ratio.

    The same token by token (ROLL). Toy batch with A = ±0.5: −0.095159 by `token_mean`."""
    return 0.5 * tau * (logprobs - old_logprobs).square() - advantages * logprobs


def opmd_loss(logprobs: Tensor, advantages: Tensor, *, tau: float = 1.0) -> Tensor:
    """[M]: −A·log π/(1 + tau). The old policy takes no part. Toy batch with A = ±0.5: −0.055417 by `token_mean`."""
    return -advantages * logprobs / (1 + tau)
