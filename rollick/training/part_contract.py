"""The promises of a loss, an advantage or a sample filter, whoever wrote it: `rollick algorithms check`.

| part | promises |
|---|---|
| policy_loss | one finite value per token; a gradient; the same for a row whatever rows stand beside it |
| advantage | one finite value per answer or token, without gradient; independent of the order of answers and groups |
| sample_filter | a bool per answer, False where it is not valid; independent of the order of answers and groups |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rollick.algorithms.ratios import importance_ratio
from rollick.config.algorithm_parts import REQUIRED, Part

LENGTHS = (3, 1, 4, 2, 5, 1)
GROUPS = (0, 0, 1, 1, 2, 2)
REQUIRED_VALUE = 0.5
"""Given to options that have no default."""


def broken_promises(part: Part) -> list[str]:
    """What the function does that its family must not, one sentence each; an empty list when it is good."""
    checks = {"policy_loss": _loss, "advantage": _advantage, "sample_filter": _filter}
    try:
        return list(checks[part.family](part))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return [f"fails on ordinary input with {type(error).__name__}: {error}"]


def _loss(part: Part) -> Iterator[str]:
    tokens = _tokens()
    logprobs = tokens["logprobs"].requires_grad_()
    whole = _call(part, tokens)
    if not isinstance(whole, Tensor) or whole.shape != logprobs.shape:
        yield f"must give one value per token {tuple(logprobs.shape)}, gives {_shape(whole)}"
        return
    if not whole.isfinite().all():
        yield "gives NaN or infinity for ordinary log-probs and advantages"
    if not whole.requires_grad:
        yield "has no gradient with respect to logprobs"
    alone = [_call(part, _tokens([row])) for row in range(len(LENGTHS))]
    if not torch.allclose(torch.cat(alone), whole, atol=1e-9):
        yield "depends on the rows that stand beside a row, so the cut into micro-batches would change the gradient"


def _advantage(part: Part) -> Iterator[str]:
    values = _call(part, _answers())
    answers, tokens = len(LENGTHS), sum(LENGTHS)
    expected = tokens if "rows" in part.inputs else answers
    if not isinstance(values, Tensor) or values.shape != (expected,):
        yield f"must give {expected} values (one per {'token' if expected == tokens else 'answer'}), {_shape(values)}"
        return
    if not values.isfinite().all():
        yield "gives NaN or infinity for ordinary rewards"
    if values.requires_grad:
        yield "must be a constant, but carries a gradient"
    order = [4, 1, 5, 0, 3, 2]
    moved = _call(part, _answers(order))
    places = _token_places(order) if expected == tokens else torch.tensor(order)
    if not torch.allclose(moved, values[places], atol=1e-9):
        yield "depends on the order of answers, which is the order in which they happened to be finished"


def _filter(part: Part) -> Iterator[str]:
    keep = _call(part, _answers())
    if not isinstance(keep, Tensor) or keep.dtype != torch.bool or keep.shape != (len(LENGTHS),):
        yield f"must give one bool per answer ({len(LENGTHS)}), gives {_shape(keep)}"
        return
    order = [4, 1, 5, 0, 3, 2]
    if not torch.equal(_call(part, _answers(order)), keep[order]):
        yield "depends on the order of answers, which is the order in which they happened to be finished"
    invalid = _answers() | {"valid": torch.zeros(len(LENGTHS), dtype=torch.bool)}
    if _call(part, invalid).any():
        yield "keeps answers that were not scored"


def _call(part: Part, given: dict[str, Any]) -> Any:
    options = {name: REQUIRED_VALUE if default is REQUIRED else default for name, default in part.options.items()}
    return part.load()(*(given[name] for name in part.inputs), **options)


def _tokens(rows: list[int] | None = None) -> dict[str, Any]:
    """What losses are given, for all rows or only these."""
    generator = torch.Generator().manual_seed(0)
    count = sum(LENGTHS)
    draw = lambda: 0.2 * torch.randn(count, generator=generator, dtype=torch.float64)
    base = -1 - draw().abs()
    values: dict[str, Any] = {name: base + draw() for name in ("logprobs", "old_logprobs", "behaviour_logprobs")}
    values["advantages"] = torch.randn(len(LENGTHS), generator=generator, dtype=torch.float64)[_row_of_token()]
    values["selected"] = torch.rand(count, generator=generator) < 0.3
    picked = _token_places(rows or list(range(len(LENGTHS))))
    values = {name: value[picked] for name, value in values.items()}
    lengths = torch.tensor([LENGTHS[row] for row in rows] if rows else LENGTHS)
    values["rows"], values["num_rows"] = torch.repeat_interleave(torch.arange(len(lengths)), lengths), len(lengths)
    values["proximal_logprobs"] = values["old_logprobs"]
    values["ratio"] = importance_ratio(values["logprobs"].requires_grad_(), values["old_logprobs"])
    return values


def _answers(order: list[int] | None = None) -> dict[str, Any]:
    """What advantages and filters are given, answers in this order."""
    order = order or list(range(len(LENGTHS)))
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.5, 0.2, 1.0], dtype=torch.float64)[order]
    lengths = torch.tensor(LENGTHS)[order]
    rows = torch.repeat_interleave(torch.arange(len(order)), lengths)
    last = torch.cat([rows[1:] != rows[:-1], torch.tensor([True])])
    return {
        "rewards": rewards,
        "groups": torch.tensor(GROUPS)[order],
        "valid": torch.ones(len(order), dtype=torch.bool),
        "lengths": lengths,
        "rows": rows,
        "token_rewards": torch.where(last, rewards[rows], 0.0),
        "reward_parts": torch.stack([rewards, 1 - rewards]),
        "reward_weights": torch.tensor([1.0, 0.5], dtype=torch.float64),
    }


def _row_of_token() -> Tensor:
    return torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))


def _token_places(order: list[int]) -> Tensor:
    """Where the tokens of these rows stand in the whole."""
    of_token = _row_of_token()
    return torch.cat([(of_token == row).nonzero().flatten() for row in order])


def _shape(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
