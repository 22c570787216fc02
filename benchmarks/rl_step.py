"""GRPO steps against TRL's GRPOTrainer: samples per second and peak memory of the whole step.

    python -m benchmarks.rl_step --against trl        (needs the extra [bench])

Both sides start from the same warmed ~19M-parameter model with a 49k vocabulary and take the same number of
optimiser updates on the same prompts: 8 prompts × 8 answers of at most 128 tokens, one update per batch, token-mean
loss, no KL, float32, AdamW, temperature 1. The learning rate is so small that answer lengths stay what they are.
TRL runs with transformers generation, without gradient checkpointing, at the micro-batch given by
--trl-micro-batch (its rows pad to the longest answer).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import report
from benchmarks.sides import compare, hand_back, train_ours
from benchmarks.tiny_policy import make_policy, read_jsonl, word, write_jsonl

LEARNING_RATE = 1e-6
LONGEST_PROMPT = 24


def parity(episode: Any) -> float:
    """A reward that costs nothing and differs between the answers of nearly every group."""
    return score_ids(episode.turns[-1].completion.token_ids)


def score_ids(token_ids: Sequence[int]) -> float:
    return (sum(token_ids) % 8) / 8


def main() -> None:
    options = read_arguments()
    if options.side:
        {"ours": run_ours, "trl": run_trl}[options.side](options)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_policy(Path(folder) / "model", options.mean_length)
        make_prompts(Path(folder) / "prompts.jsonl", options.prompts * (options.steps + 1))
        measured = compare(
            "benchmarks.rl_step",
            ["--folder", folder, *passed_on(options)],
            figure="samples_per_s",
            rounds=options.rounds,
            threads=options.threads,
            timeout=1800,
        )
    report("rl_step", summary(measured, options))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=["trl"], default="trl")
    parser.add_argument("--steps", type=int, default=2, help="measured optimiser updates, after one that is not")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--mean-length", type=int, default=40)
    parser.add_argument("--trl-micro-batch", type=int, default=8)
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def passed_on(options: argparse.Namespace) -> list[str]:
    names = ("steps", "prompts", "group", "max_new_tokens", "trl_micro_batch")
    return [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]


def make_prompts(path: Path, count: int) -> None:
    source = random.Random(1)
    write_jsonl(
        path,
        [{"prompt": " ".join(word(source) for _ in range(source.randint(8, LONGEST_PROMPT)))} for _ in range(count)],
    )


def summary(measured: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    ours, theirs = measured["ours"], measured["trl"]
    return {
        "ours": ours["samples_per_s"],
        "theirs": theirs["samples_per_s"],
        "ratio": round(ours["samples_per_s"] / theirs["samples_per_s"], 3),
        "unit": "samples/s",
        "memory_ratio": round(ours["peak_memory_gb"] / theirs["peak_memory_gb"], 3),
        "sides": measured,
        "settings": {key: value for key, value in vars(options).items() if key not in ("side", "folder")},
    }


def run_trl(options: argparse.Namespace) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    ends: list[float] = []
    lengths: list[list[int]] = []

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.append([len(ids) for ids in completion_ids])
        return [score_ids(ids) for ids in completion_ids]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    rows = options.prompts * options.group
    settings = GRPOConfig(
        output_dir=str(options.folder / "trl"),
        max_steps=options.steps + 1,
        per_device_train_batch_size=options.trl_micro_batch,
        gradient_accumulation_steps=rows // options.trl_micro_batch,
        num_generations=options.group,
        max_completion_length=options.max_new_tokens,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        temperature=1.0,
        top_k=0,
        beta=0.0,
        num_iterations=1,
        loss_type="dapo",
        scale_rewards="group",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        shuffle_dataset=False,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.folder / "model", dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(options.folder / "model"),
        reward_funcs=[reward],
        args=settings,
        train_dataset=Dataset.from_list(read_jsonl(options.folder / "prompts.jsonl")),
        callbacks=[Clock()],
    )
    trainer.train()
    seconds = ends[-1] - ends[0]
    hand_back(measurement(rows * options.steps, seconds, [length for call in lengths for length in call]))


def measurement(samples: int, seconds: float, lengths: Sequence[float]) -> dict[str, float]:
    return {
        "samples_per_s": samples / seconds,
        "seconds": seconds,
        "mean_length": sum(lengths) / len(lengths),
        "longest": max(lengths),
        "shortest": min(lengths),
    }


def run_ours(options: argparse.Namespace) -> None:
    """An ordinary job, run as `rollick run` would."""
    run, rows = train_ours(job_settings(options), options.folder), options.prompts * options.group
    steps = [row for row in read_jsonl(run / "metrics.jsonl") if "loss" in row]
    written = [sample for file in sorted((run / "samples").iterdir()) for sample in read_jsonl(file)]
    lengths = [sum(sample["loss_mask"]) for sample in written]
    hand_back(measurement(rows * options.steps, steps[-1]["time"] - steps[0]["time"], lengths))


def job_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Forward passes are as large as TRL's: the tokens of its micro-batch, prompts and answers at full length."""
    pass_tokens = options.trl_micro_batch * (LONGEST_PROMPT + options.max_new_tokens)
    return {
        "pipeline": "rl",
        "name": "ours",
        "steps": options.steps + 1,
        "model": {"path": str(options.folder / "model")},
        "environments": [
            {
                "kind": "tasks",
                "prompt_is": "text",
                "dataset": {"path": str(options.folder / "prompts.jsonl")},
                "rewards": [{"kind": "function", "path": "benchmarks.rl_step:parity"}],
            }
        ],
        "algorithm": {"preset": "grpo", "group_size": options.group},
        "rollout": {
            "prompts_per_step": options.prompts,
            "max_prompt_tokens": LONGEST_PROMPT,
            "max_new_tokens": options.max_new_tokens,
            "temperature": 1.0,
        },
        "trainer": {"learning_rate": LEARNING_RATE, "tokens_per_micro_batch": pass_tokens},
        "logging": {"sample_groups": options.prompts},
    }


if __name__ == "__main__":
    main()
