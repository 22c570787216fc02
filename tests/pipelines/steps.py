"""A step of scored answers with log-probs, made up but fixed, and the loss that an algorithm makes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rollick.config.algorithm import AlgorithmSettings
from rollick.data.batch import Batch
from rollick.data.records import Completion, Episode, Group, Task, Turn
from rollick.pipelines.policy_batch import PolicyBatch, PolicyBatches, ScoredRows, scored_rows
from rollick.training.base import LossOutput, TokenOutputs, Totals
from rollick.training.policy_loss import PolicyLoss

MAX_NEW_TOKENS = 8
REWARDS = {"a": [1.0, 0.0, 0.0, 0.5], "b": [1.0, 1.0, 0.0, 1.0], "c": [1.0, 1.0, 1.0, 1.0], "d": [0.0, 2.0, 0.0, 0.0]}
LENGTHS = {"a": [2, 5, 8, 3], "b": [1, 4, 6, 2], "c": [3, 3, 8, 1], "d": [7, 2, 4, 5]}
DOMAINS = {"a": "sums", "b": "sums", "c": "words", "d": "words"}


def episode(group: str, member: int, reward: float | None, length: int, **changes: Any) -> Episode:
    ids = [7 + (member + place) % 3 for place in range(length)]
    completion = Completion(ids, [-1.0] * length, [0.0] * length, [0] * length, "stop")
    task = Task(group, DOMAINS.get(group, "sums"), prompt="1+1=")
    status = "truncated" if length >= MAX_NEW_TOKENS else "finished"
    parts = {} if reward is None else {"right": reward, "short": 1.0 / (length + 1)}
    values = {"status": status, "reward": reward, "reward_parts": parts, **changes}
    return Episode(f"{group}/{member}", group, member, task, seed=member, turns=[Turn([3, 4], completion)], **values)


def groups() -> list[Group]:
    members = {name: [episode(name, i, r, LENGTHS[name][i]) for i, r in enumerate(REWARDS[name])] for name in REWARDS}
    return [Group(name, episodes[0].task, episodes) for name, episodes in members.items()]


def step_rows(spread: float = 0.3) -> ScoredRows:
    """All log-probs are there, float64, different from each other by about `spread`."""
    rows = scored_rows(groups())
    batch = rows.batch
    assert batch is not None
    generator = torch.Generator().manual_seed(1)
    draw = lambda scale: scale * torch.randn(batch.num_tokens, generator=generator, dtype=torch.float64)
    base = -1.5 - draw(0.5).abs()
    for name in ("old_logprobs", "ref_logprobs", "behaviour_logprobs", "new_logprobs"):
        batch.tokens[name] = base + draw(spread)
    return rows


def learn(algorithm: AlgorithmSettings, rows: ScoredRows | None = None) -> PolicyBatch:
    weights = {"sums": {"right": 1.0, "short": 0.5}, "words": {"right": 1.0, "short": 0.5}}
    return PolicyBatches(algorithm, MAX_NEW_TOKENS, weights, seed=3).make(rows or step_rows())


def composed_loss(algorithm: AlgorithmSettings, rows: ScoredRows | None = None) -> LossOutput:
    """The loss of the whole step in one micro-batch."""
    return _run(algorithm, rows)[0]


def loss_and_gradient(algorithm: AlgorithmSettings, rows: ScoredRows | None = None) -> tuple[Tensor, Tensor]:
    output, logprobs = _run(algorithm, rows)
    return output.loss.detach(), torch.autograd.grad(output.loss, logprobs)[0]


def _run(algorithm: AlgorithmSettings, rows: ScoredRows | None) -> tuple[LossOutput, Tensor]:
    batch = learn(algorithm, rows).batch
    assert batch is not None
    live = _live(batch)
    totals = Totals(tokens=live.num_tokens, sequences=batch.num_rows)
    loss = PolicyLoss.from_settings(algorithm, temperature=1.0, max_new_tokens=MAX_NEW_TOKENS)
    logprobs = live.tokens["new_logprobs"].clone().requires_grad_()
    return loss(TokenOutputs(logprobs, -0.3 * logprobs.detach()), live, totals), logprobs


def _live(batch: Batch) -> Batch:
    mask = batch.tokens["loss_mask"]
    per_row = torch.zeros(batch.num_rows, dtype=torch.long).index_add(0, batch.row_index(), mask.long())
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), per_row.cumsum(0)])
    return Batch(batch.tokens[mask], batch.rows, offsets, batch.row_ids)
