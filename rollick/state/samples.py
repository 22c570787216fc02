"""Samples on disk: what was sampled and trained, for people, the viewer and replay."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rollick.state.jsonl import write_atomically

FLOAT32_DIGITS = 9
"""Significant digits from which a float32 is read back exactly."""


@dataclass(frozen=True)
class SampleRecord:
    """One trained row, aligned with its tokens (the lists have one entry per token).

    SampleRecord(
        id="s3/p5/m1", group_id="s3/p5", task_id="train/17", domain="arithmetic", prompt="3+4=", response="7",
        token_ids=[5, 6, 7, 9, 2], loss_mask=[0, 0, 0, 1, 1], behaviour_logprobs=[0, 0, 0, -0.7, -0.1],
        versions=[-1, -1, -1, 4, 4], advantages=[0, 0, 0, 1.2, 1.2], reward=1.0, reward_parts={"math": 1.0},
    )
    """

    id: str
    group_id: str
    task_id: str
    domain: str
    prompt: str
    response: str
    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    behaviour_logprobs: Sequence[float]
    versions: Sequence[int]
    advantages: Sequence[float] | None = None
    reward: float | None = None
    reward_parts: dict[str, float] = field(default_factory=dict)
    status: str = "finished"
    reason: str = ""
    ground_truth: Any = None


def sample_path(folder: Path, step: int) -> Path:
    """`samples/step_000010.jsonl` holds samples of step 10."""
    return folder / f"step_{step:06d}.jsonl"


def sample_step(path: Path) -> int:
    """The inverse of `sample_path`."""
    return int(path.stem.removeprefix("step_"))


def write_samples(folder: Path, step: int, records: Iterable[SampleRecord], max_groups: int) -> Path:
    """Write the rows of the first `max_groups` groups, in the given order, as one file that appears whole."""
    order: dict[str, int] = {}
    lines = []
    for record in records:
        if order.setdefault(record.group_id, len(order)) < max_groups:
            lines.append(json.dumps({"step": step, **_plain(asdict(record))}, ensure_ascii=False, default=_to_plain))
    folder.mkdir(parents=True, exist_ok=True)
    path = sample_path(folder, step)
    write_atomically(path, "".join(line + "\n" for line in lines))
    return path


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    fields["token_ids"] = [int(value) for value in fields["token_ids"]]
    fields["loss_mask"] = [int(value) for value in fields["loss_mask"]]
    fields["versions"] = [int(value) for value in fields["versions"]]
    for name in ("behaviour_logprobs", "advantages"):
        if fields[name] is not None:
            fields[name] = [_round(value) for value in fields[name]]
    return fields


def _round(value: float) -> float | None:
    """null for NaN and infinity, which JSON cannot hold."""
    rounded = float(f"{float(value):.{FLOAT32_DIGITS}g}")
    return rounded if abs(rounded) < float("inf") else None


def _to_plain(value: Any) -> Any:
    """Graders' ground truths may be anything; what JSON does not know is shown as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
