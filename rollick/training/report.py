"""What one update has to say: metrics summed over micro-batches and ranks, and rows that broke it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rollick.data.batch import Batch
from rollick.training.base import LossOutput, TokenOutputs

NAMED_ROWS = 8
"""Row ids that an error message spells out; the exception carries all of them."""


@dataclass(frozen=True)
class RankSummary:
    """Plain numbers of one rank: `sums` maps a metric to (sum, weight)."""

    loss: float
    sums: dict[str, tuple[float, float]]
    bad_rows: list[str]
    row_ids: list[str]


@dataclass(frozen=True)
class Merged:
    metrics: dict[str, float]
    bad_rows: list[str]
    problem: str


@dataclass
class _Pass:
    live: Batch
    loss: Tensor
    bad_tokens: Tensor


@dataclass
class RankReport:
    """Collects on the device while micro-batches run; `close` reads everything back at once.

    `watch` comes before the backward pass of each micro-batch: it also looks at the gradient that reaches each
    token's log-prob, which tells a row with a bad advantage from its neighbours.
    """

    passes: list[_Pass] = field(default_factory=list)
    sums: dict[str, list[Tensor]] = field(default_factory=dict)

    def watch(self, live: Batch, outputs: TokenOutputs, result: LossOutput) -> None:
        bad = ~torch.isfinite(outputs.logprobs.detach())

        def look(gradient: Tensor) -> None:
            bad.logical_or_(~torch.isfinite(gradient))

        for tensor in (outputs.logprobs, outputs.entropy):
            if tensor is not None and tensor.requires_grad:
                tensor.register_hook(look)
        self.passes.append(_Pass(live, result.loss.detach().double(), bad))
        for name, pair in result.metrics.items():
            total, weight = (torch.as_tensor(value).detach().double() for value in pair)
            known = self.sums.setdefault(name, [torch.zeros_like(total), torch.zeros_like(weight)])
            known[0] = known[0] + total
            known[1] = known[1] + weight

    def close(self) -> RankSummary:
        return RankSummary(
            loss=math.fsum(float(p.loss) for p in self.passes),
            sums={name: (float(total), float(weight)) for name, (total, weight) in self.sums.items()},
            bad_rows=[row for p in self.passes for row in _bad_rows(p)],
            row_ids=[row for p in self.passes for row in p.live.row_ids],
        )


def merge_reports(summaries: Sequence[RankSummary], gradient_norm: float) -> Merged:
    """Metrics Σsum / Σweight over ranks and `loss`, the sum of all shares; rows that hold NaN or infinity.

    A metric whose weights add up to 0 was measured nowhere and is left out. When only the gradient norm is not
    finite, no single row can be blamed and all are named.
    """
    bad_rows = [row for summary in summaries for row in summary.bad_rows]
    problem = ""
    if bad_rows:
        problem = f"NaN or infinity in log-prob, loss or gradient of {_naming(bad_rows)}; the update was not made"
    elif not math.isfinite(gradient_norm):
        bad_rows = [row for summary in summaries for row in summary.row_ids]
        problem = f"the gradient norm is {gradient_norm} in an update of {_naming(bad_rows)}; it was not made"
    totals: dict[str, tuple[float, float]] = {}
    for summary in summaries:
        for name, (total, weight) in summary.sums.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + weight)
    metrics = {name: total / weight for name, (total, weight) in totals.items() if weight != 0}
    return Merged(metrics | {"loss": math.fsum(summary.loss for summary in summaries)}, bad_rows, problem)


def _bad_rows(one: _Pass) -> list[str]:
    rows = torch.unique(one.live.row_index()[one.bad_tokens]).tolist()
    if not rows and not torch.isfinite(one.loss):
        return list(one.live.row_ids)
    return [one.live.row_ids[row] for row in rows]


def _naming(rows: Sequence[str]) -> str:
    named = ", ".join(rows[:NAMED_ROWS])
    return f"{len(rows)} row{'s' * (len(rows) != 1)}: {named}{', …' if len(rows) > NAMED_ROWS else ''}"
