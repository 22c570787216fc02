"""`make demo`: a tiny model learns to add by reinforcement, offline, on any laptop.

Two ordinary jobs, `warm_up.yaml` (SFT) and `grpo.yaml` (RL), run one after the other as `rollick run` would; the
rest of this file makes the material before them and reads their run directories after them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from learning_curve import ACCURACY, draw_curve, read_jsonl
from material import write_material

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEMO = Path("runs/demo")
SHOWN = 6


def main() -> None:
    os.chdir(ROOT)
    started = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    say("A tiny model, its tokenizer and a few thousand sums are made from scratch")
    write_material(DEMO)
    say("Warm-up: it copies homework of which three quarters are wrong (SFT)")
    rollick("run", "examples/demo/warm_up.yaml")
    say("Reinforcement: it answers sums, and right answers pay (GRPO)")
    rollick("run", "examples/demo/grpo.yaml")
    run = DEMO / "grpo"
    curve = run / "learning_curve.png"
    draw_curve(run, curve, title="Learning to add from rewards alone")
    say(f"Done in {time.monotonic() - started:.0f} s")
    print(summary(run))
    print(NEXT.format(curve=curve))


NEXT = """
The learning curve is in {curve}. What to try next:

  rollick chat runs/demo/grpo --prompt 27+58= --temperature 0     ask the model
  rollick run examples/demo/grpo.yaml name=again steps=20         any key can be overridden
  rollick init rl                                                 a commented job file to start from
  make smollm2 && rollick run examples/rlvr_smollm2.yaml          a real pretrained model

`rollick` is in .venv/bin; `source .venv/bin/activate` puts it on your path."""


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


def summary(run: Path) -> str:
    """Held-out accuracy before and after, and a few problems that were wrong before."""
    measured = [row for row in read_jsonl(run / "metrics.jsonl") if ACCURACY in row]
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
