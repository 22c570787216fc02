"""`make demo`: a tiny model learns to add by reinforcement, offline, on any laptop.

Two ordinary jobs, `warm_up.yaml` (SFT) and `grpo.yaml` (RL), run one after the other as `rollick run` would; the
rest of this file makes the material before them and reads their run directories after them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEMO = Path("runs/demo")
ACCURACY = "evaluation/accuracy"
SHOWN = 6


def main() -> None:
    os.chdir(ROOT)
    started = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    say("A tiny model, its tokenizer and a few thousand sums are made from scratch")
    make_material()
    say("Warm-up: it copies homework of which three quarters are wrong (SFT)")
    rollick("run", "examples/demo/warm_up.yaml")
    say("Reinforcement: it answers sums, and right answers pay (GRPO)")
    rollick("run", "examples/demo/grpo.yaml")
    run = DEMO / "grpo"
    metrics = read_jsonl(run / "metrics.jsonl")
    curve = draw_curve(metrics, run / "learning_curve.png")
    say(f"Done in {time.monotonic() - started:.0f} s")
    print(summary(run, metrics))
    print(NEXT.format(curve=curve))


NEXT = """
The learning curve is in {curve}. What to try next:

  rollick chat runs/demo/grpo --prompt 27+58= --temperature 0     ask the model
  rollick run examples/demo/grpo.yaml name=again steps=20         any key can be overridden
  rollick init rl                                                 a commented job file to start from
  make smollm2 && rollick run examples/rlvr_smollm2.yaml          a real pretrained model

`rollick` is in .venv/bin; `source .venv/bin/activate` puts it on your path."""


def make_material() -> None:
    sys.path.insert(0, str(HERE))
    from material import write_material

    write_material(DEMO)


def rollick(*arguments: str) -> None:
    """Run the command line as a user would, and end with its exit code when it fails.

    One thread: for matrices this small more threads only wait for each other.
    """
    print("$ rollick", *arguments, flush=True)
    command = [Path(sys.executable).with_name("rollick"), *arguments]
    done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(done.returncode)


def say(text: str) -> None:
    print(f"\n── {text}", flush=True)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def draw_curve(metrics: list[dict[str, Any]], path: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, label, style in (
        ("reward/mean", "reward of sampled answers", {"alpha": 0.6}),
        (ACCURACY, "accuracy on held-out sums (greedy)", {"marker": "o", "linewidth": 2}),
    ):
        points = [(row["step"], row[name]) for row in metrics if name in row]
        axes.plot(*zip(*points), label=label, **style)
    axes.set(xlabel="GRPO step", ylim=(0, 1.02), title="Learning to add from rewards alone")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    return path


def summary(run: Path, metrics: list[dict[str, Any]]) -> str:
    """Held-out accuracy before and after, and a few problems that were wrong before."""
    measured = [row for row in metrics if ACCURACY in row]
    first, last = measured[0], measured[-1]
    before, after = answers(run, first["step"]), answers(run, last["step"])
    problems = [problem for problem in before if before[problem][0] != before[problem][1]][:SHOWN]
    lines = [f"{'held-out sum':<14}{'before':<12}{'after':<12}right"]
    for problem in problems:
        said, truth = after[problem]
        lines.append(f"{problem:<14}{before[problem][0]:<12}{said:<12}{truth}")
    lines.append(f"\nheld-out accuracy: {first[ACCURACY]:.2f} before, {last[ACCURACY]:.2f} after")
    return "\n".join(lines)


def answers(run: Path, step: int) -> dict[str, tuple[str, str]]:
    """What was answered to every held-out sum after `step`, beside the truth."""
    rows = read_jsonl(run / "evaluation" / f"step_{step:06d}.jsonl")
    return {row["prompt"].removeprefix("user: "): (row["response"], row["ground_truth"]) for row in rows}


if __name__ == "__main__":
    main()
