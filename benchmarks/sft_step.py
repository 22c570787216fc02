"""Fine-tuning steps against TRL's SFTTrainer on ragged rows: real tokens per second and peak memory.

    python -m benchmarks.sft_step        (needs the extra [bench])

Both sides start from the same ~19M-parameter model with a 49k vocabulary and see the same rows of plain text, whose
lengths are log-normal (median 80, 8..512 tokens): 32 rows per update, every token trained, float32, AdamW. TRL pads
each micro-batch of --trl-micro-batch rows to its longest row; padding is not counted for either side. Gradient
checkpointing is off on both.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import report
from benchmarks.sides import compare, hand_back, train_ours
from benchmarks.tiny_policy import ANSWER_WORDS, make_policy, read_jsonl, word, write_jsonl

LEARNING_RATE = 1e-5
MEDIAN_LENGTH, SPREAD, SHORTEST, LONGEST = 80, 0.8, 8, 512


def main() -> None:
    options = read_arguments()
    if options.side:
        {"ours": run_ours, "trl": run_trl}[options.side](options)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_policy(Path(folder) / "model", MEDIAN_LENGTH)
        make_rows(Path(folder) / "rows.jsonl", options.rows * (options.steps + 1))
        names = ("steps", "rows", "trl_micro_batch")
        passed = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]
        measured = compare(
            "benchmarks.sft_step",
            ["--folder", folder, *passed],
            figure="tokens_per_s",
            rounds=options.rounds,
            threads=options.threads,
            timeout=1800,
        )
    report("sft_step", summary(measured, options))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4, help="measured optimiser updates, after one that is not")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32, help="rows per update")
    parser.add_argument("--trl-micro-batch", type=int, default=8)
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_rows(path: Path, count: int) -> None:
    source = random.Random(2)
    lengths = [round(source.lognormvariate(math.log(MEDIAN_LENGTH), SPREAD)) for _ in range(count)]
    clipped = [min(max(length, SHORTEST), LONGEST) for length in lengths]
    write_jsonl(path, [{"text": " ".join(word(source, ANSWER_WORDS) for _ in range(n - 1))} for n in clipped])


def summary(measured: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    ours, theirs = measured["ours"], measured["trl"]
    return {
        "ours": ours["tokens_per_s"],
        "theirs": theirs["tokens_per_s"],
        "ratio": round(ours["tokens_per_s"] / theirs["tokens_per_s"], 3),
        "unit": "real tokens/s",
        "memory_ratio": round(ours["peak_memory_gb"] / theirs["peak_memory_gb"], 3),
        "sides": measured,
        "settings": {key: value for key, value in vars(options).items() if key not in ("side", "folder")},
    }


def run_trl(options: argparse.Namespace) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    settings = SFTConfig(
        output_dir=str(options.folder / "trl"),
        max_steps=options.steps + 1,
        per_device_train_batch_size=options.trl_micro_batch,
        gradient_accumulation_steps=options.rows // options.trl_micro_batch,
        max_length=LONGEST,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.folder / "model", dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(options.folder / "model"),
        args=settings,
        train_dataset=Dataset.from_list(read_jsonl(options.folder / "rows.jsonl")),
        callbacks=[Clock()],
    )
    trainer.train()
    seen = [row["num_tokens"] for row in trainer.state.log_history if "loss" in row]
    hand_back(measurement(seen[-1] - seen[0], ends[-1] - ends[0]))


def run_ours(options: argparse.Namespace) -> None:
    """An ordinary job, run as `rollick run` would."""
    job = {
        "pipeline": "sft",
        "name": "ours",
        "steps": options.steps + 1,
        "samples_per_update": options.rows,
        "max_length": LONGEST,
        "train_on": "all",
        "model": {"path": str(options.folder / "model")},
        "dataset": {"path": str(options.folder / "rows.jsonl")},
        "trainer": {"learning_rate": LEARNING_RATE},
    }
    steps = [row for row in read_jsonl(train_ours(job, options.folder) / "metrics.jsonl") if "loss" in row]
    hand_back(measurement(sum(row["tokens"] for row in steps[1:]), steps[-1]["time"] - steps[0]["time"]))


def measurement(tokens: float, seconds: float) -> dict[str, float]:
    return {"tokens_per_s": tokens / seconds, "tokens": tokens, "seconds": seconds}


if __name__ == "__main__":
    main()
