"""What every environment promises, checked without a model: `check_environment(options)` plays episodes with random
and scripted policies in several threads and raises AssertionError naming the promise that was broken."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rollick.environments.base import EnvironmentOptions, Observation, StepResult

Policy = Callable[[int], str]
WORDS = ("yes", "7", "<answer>3</answer>", "", "left\n", "日本 🙂", "<|im_end|>", "x" * 500)
MAX_TURNS = 200


def random_policy(seed: int) -> Policy:
    source = random.Random(seed)
    return lambda turn: source.choice(WORDS)


def scripted_policy(seed: int) -> Policy:
    return lambda turn: WORDS[turn % len(WORDS)]


def check_environment(options: EnvironmentOptions, episodes: int = 20, threads: int = 4) -> None:
    """Case 11 of the failure cases."""
    for policy in (random_policy, scripted_policy):
        policies = [policy(seed) for seed in range(episodes)]
        with ThreadPoolExecutor(threads) as pool:
            first = list(pool.map(play, [options] * episodes, policies, range(episodes)))
        again = [play(options, policy(seed), seed) for seed in range(episodes)]
        assert first == again, "the same task, seed and actions must give the same trajectory"
    check_tasks(options)


def play(options: EnvironmentOptions, policy: Policy, seed: int) -> list[StepResult | Observation]:
    source = options.tasks()
    task = source[seed % len(source)]
    environment = options.environment()
    try:
        trajectory: list[StepResult | Observation] = [check_observation(environment.reset(task, seed))]
        for turn in range(MAX_TURNS):
            result = environment.step(policy(turn))
            check_step(result)
            trajectory.append(result)
            if result.terminated or result.truncated:
                # The same object must be good for another episode: reset after the end.
                assert check_observation(environment.reset(task, seed)) == trajectory[0]
                return trajectory
    finally:
        environment.close()
        environment.close()  # twice does no harm
    raise AssertionError(f"no end after {MAX_TURNS} turns")


def check_observation(observation: Observation) -> Observation:
    messages = observation.messages
    if isinstance(messages, str):
        assert messages, "an observation of plain text must not be empty"
    else:
        for message in messages:
            assert isinstance(message["role"], str) and isinstance(message["content"], str | list), message
    return observation


def check_step(result: StepResult) -> None:
    check_observation(result.observation)
    assert isinstance(result.reward, int | float) and math.isfinite(result.reward), "reward must be a finite number"
    if not (result.terminated or result.truncated):
        assert result.observation.messages, "an episode that goes on must show the policy something"


def check_tasks(options: EnvironmentOptions) -> None:
    one, other = options.tasks(), options.tasks()
    assert len(one) == len(other) > 0
    for index in (0, len(one) - 1):
        assert one[index] == other[index], "loading twice must give the same tasks"
        assert one[index].domain == options.domain and one.where(index)
