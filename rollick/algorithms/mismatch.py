"""How far the rollout engine's distribution is from the trainer's, from log-probs of the sampled tokens.

With x = log μ − log π (μ the engine, π the trainer at the weights that sampled), ρ = exp(−x), on live tokens;
inner means and sums run over a row's tokens:

| name | value |
|---|---|
| `kl` | mean x, the k1 estimate of KL(μ‖π); may be negative |
| `k3` | mean (ρ − 1 + x) ≥ 0 |
| `chi2_token` | mean ρ² − 1 |
| `chi2_sequence` | mean over rows of exp(−2 Σx) − 1 |
| `prob_diff` | mean abs(p_π − p_μ) of the sampled tokens |
| `ppl_rollout`, `ppl_trainer` | mean over rows of exp(−mean log-prob) |
| `ppl_ratio` | mean over rows of ppl_trainer / ppl_rollout |
| `log_ppl_diff` | mean over rows of its log |
| `effective_sample_size` | (Σρ)² / (M·Σρ²), 1 when nothing differs |
| `prob_diff_max` | the largest abs(p_π − p_μ) |
| `prob_correlation` | Pearson's correlation of p_π and p_μ |

Both log-probs are of the temperature-scaled full softmax; top-p and the like are no part of this comparison.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import at_least_float32, guarded_exp
from rollick.algorithms.segments import segment_count, segment_mean, segment_sum


def mismatch_terms(
    behaviour_logprobs: Tensor, trainer_logprobs: Tensor, rows: Tensor, num_rows: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """The metrics that are means, as (sum, weight), so that parts of a batch can be added up. Inputs [M]."""
    behaviour = at_least_float32(behaviour_logprobs.detach())
    trainer = at_least_float32(trainer_logprobs.detach())
    gap = behaviour - trainer
    ratio = guarded_exp(-gap)
    per_token = {
        "kl": gap,
        "k3": ratio - 1 + gap,
        "chi2_token": ratio.square() - 1,
        "prob_diff": (trainer.exp() - behaviour.exp()).abs(),
    }
    rollout_mean = segment_mean(behaviour, rows, num_rows)
    trainer_mean = segment_mean(trainer, rows, num_rows)
    per_row = {
        "chi2_sequence": guarded_exp(-segment_sum(gap, rows, num_rows)).square() - 1,
        "ppl_rollout": guarded_exp(-rollout_mean),
        "ppl_trainer": guarded_exp(-trainer_mean),
        "ppl_ratio": guarded_exp(rollout_mean - trainer_mean),
        "log_ppl_diff": rollout_mean - trainer_mean,
    }
    live = segment_count(rows, num_rows) > 0
    tokens, sequences = gap.new_tensor(float(len(gap))), live.sum().to(gap.dtype)
    terms = {name: (value.sum(), tokens) for name, value in per_token.items()}
    terms |= {name: (torch.where(live, value, 0.0).sum(), sequences) for name, value in per_row.items()}
    return terms


def mismatch_metrics(
    behaviour_logprobs: Tensor, trainer_logprobs: Tensor, rows: Tensor, num_rows: int
) -> dict[str, float]:
    """Every metric of the table over a whole batch with at least one token. Inputs [M]."""
    terms = mismatch_terms(behaviour_logprobs, trainer_logprobs, rows, num_rows)
    metrics = {name: float(total / weight) for name, (total, weight) in terms.items()}
    behaviour, trainer = behaviour_logprobs.detach().double(), trainer_logprobs.detach().double()
    ratio = guarded_exp(trainer - behaviour)
    probs = torch.stack([trainer.exp(), behaviour.exp()])
    metrics["effective_sample_size"] = float(ratio.sum().square() / (len(ratio) * ratio.square().sum()))
    metrics["prob_diff_max"] = float((probs[0] - probs[1]).abs().max())
    metrics["prob_correlation"] = _correlation(probs)
    return metrics


def _correlation(pair: Tensor) -> float:
    """Pearson's correlation of the two rows of `pair`; 1 when neither varies (there is nothing to differ in)."""
    centred = pair - pair.mean(1, keepdim=True)
    spread = centred.square().sum(1).prod().sqrt()
    return float((centred[0] * centred[1]).sum() / spread) if spread > 0 else 1.0
