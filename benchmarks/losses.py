"""What the mathematics costs: advantages and losses of a million tokens, `python -m benchmarks.losses`.

Prints seconds per million trained tokens for advantages, and for the loss with its backward pass to the log-probs, of
every preset. `--tokens` takes fewer.
"""

from __future__ import annotations

import argparse
import time

import torch
from tensordict import TensorDict

from rollick.config.algorithm import AlgorithmSettings, preset_names
from rollick.data.batch import Batch
from rollick.training.base import TokenOutputs, Totals
from rollick.training.policy_loss import PolicyLoss

LENGTH, GROUP = 500, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = options.tokens // LENGTH
    print(f"{'preset':<24}{'advantages s':>14}{'loss s':>10}   ({rows} answers of {LENGTH} tokens)")
    for preset in preset_names():
        algorithm = AlgorithmSettings(preset=preset)
        advantages = _seconds(lambda a=algorithm: estimate(a, rows), options.repeats)
        batch, logprobs = live_batch(rows)
        loss = PolicyLoss.from_settings(algorithm, temperature=1.0, max_new_tokens=LENGTH)
        totals = Totals(rows * LENGTH, rows)
        step = lambda f=loss, b=batch, lp=logprobs, t=totals: f(TokenOutputs(lp), b, t).loss.backward()
        print(f"{preset:<24}{advantages:>14.3f}{_seconds(step, options.repeats):>10.3f}")


def estimate(algorithm: AlgorithmSettings, rows: int) -> torch.Tensor:
    part = algorithm.part("advantage")
    if part is None:
        raise ValueError("every algorithm has an advantage")
    rewards = torch.rand(rows, dtype=torch.float64).round()
    of_token = torch.arange(rows).repeat_interleave(LENGTH)
    token_rewards = torch.zeros(rows * LENGTH, dtype=torch.float64)
    token_rewards[LENGTH - 1 :: LENGTH] = rewards
    given = {
        "rewards": rewards,
        "groups": torch.arange(rows) // GROUP,
        "valid": torch.ones(rows, dtype=torch.bool),
        "lengths": torch.full((rows,), LENGTH),
        "rows": of_token,
        "token_rewards": token_rewards,
    }
    return part.load()(*(given[name] for name in part.inputs), **algorithm.options_of(part))


def live_batch(rows: int) -> tuple[Batch, torch.Tensor]:
    tokens = rows * LENGTH
    draw = lambda: -1 - torch.rand(tokens)
    names = ("old_logprobs", "behaviour_logprobs", "ref_logprobs", "advantages")
    columns = TensorDict({name: draw() for name in names}, batch_size=[tokens])
    offsets = torch.arange(0, tokens + 1, LENGTH)
    batch = Batch(columns, TensorDict({}, batch_size=[rows]), offsets, [str(row) for row in range(rows)])
    return batch, draw().requires_grad_()


def _seconds(call, repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
