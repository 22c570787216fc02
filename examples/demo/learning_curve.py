"""Draw a run's rewards and held-out accuracy: `python examples/demo/learning_curve.py runs/demo/grpo curve.png`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ACCURACY = "evaluation/accuracy"
LINES = (
    ("reward/mean", "reward of sampled answers", {"alpha": 0.6}),
    (ACCURACY, "accuracy on held-out problems", {"marker": "o", "linewidth": 2}),
)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def draw_curve(run: Path, picture: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metrics = read_jsonl(run / "metrics.jsonl")
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, label, style in LINES:
        points = [(row["step"], row[name]) for row in metrics if name in row]
        axes.plot(*zip(*points), label=label, **style)
    axes.set(xlabel="step", ylim=(0, 1.02), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    draw_curve(Path(sys.argv[1]), Path(sys.argv[2]), title=Path(sys.argv[1]).name)
