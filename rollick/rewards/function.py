"""`kind: function`: any Python function as a reward.

    # rewards.py beside the job file                     {kind: function, path: "rewards:brevity"}
    def brevity(response, extra):
        return 1.0 if len(response) <= extra["limit"] else 0.0

The function takes, by name, any of `prompt`, `response`, `ground_truth`, `extra`, `episode`. It may return a bool,
int or float; a dict with `score` (or `value`), whose other numbers become parts and whose texts are ignored; None
(nothing to say: Abstain); or a Score, Abstain or Failed. Everything else, NaN and infinity are its failure.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import numbers
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from rollick.data.records import Episode
from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Failed, RewardOptions, Score, Verdict

ARGUMENTS = ("prompt", "response", "ground_truth", "extra", "episode")


class FunctionReward:
    def __init__(self, name: str, path: str):
        self.name = name
        self._path = path
        self._function = load_function(path)
        self._arguments = _argument_names(self._function, path)

    def score(self, episode: Episode) -> Verdict:
        known = {
            "prompt": episode.task.prompt,
            "response": episode.response_text,
            "ground_truth": episode.task.ground_truth,
            "extra": episode.task.extra,
            "episode": episode,
        }
        result = self._function(**{name: known[name] for name in self._arguments})
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return to_verdict(result, self._path)


def load_function(path: str) -> Callable[..., Any]:
    """The function that `package.module:name` points at; modules of the working directory count.

    Raises ConfigError, in one sentence, when it cannot be imported or is no function.
    """
    module_name, _, name = path.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"reward function '{path}': importing '{module_name}' failed with {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"reward function '{path}': module '{module_name}' has no function '{name}'")
    return function


def _argument_names(function: Callable[..., Any], path: str) -> list[str]:
    """The known arguments the function declares; ConfigError when it needs one that does not exist."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reward function '{path}' has no readable signature: {error}") from error
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return list(ARGUMENTS)
    for parameter in parameters:
        unknown = parameter.name not in ARGUMENTS or parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        required = parameter.default is inspect.Parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        if unknown and required:
            raise ConfigError(
                f"reward function '{path}' asks for '{parameter.name}'; it can take, by name: {', '.join(ARGUMENTS)}"
            )
    return [parameter.name for parameter in parameters if parameter.name in ARGUMENTS]


def to_verdict(result: Any, path: str) -> Verdict:
    """What a function's return value means (see the top of this module)."""
    if result is None:
        return Abstain(f"reward function '{path}' returned None")
    if isinstance(result, Score | Abstain | Failed):
        return result
    if not isinstance(result, dict):
        return _score(result, {}, path)
    key = next((name for name in ("score", "value") if name in result), None)
    if key is None:
        return Failed(f"reward function '{path}' returned a dict without 'score': {result!r:.200}")
    if result[key] is None:
        return Abstain(f"reward function '{path}' returned {key} None")
    parts = {
        str(name): number for name, value in result.items() if name != key and (number := _number(value)) is not None
    }
    return _score(result[key], parts, path)


def _score(value: Any, parts: dict[str, float], path: str) -> Verdict:
    number = _number(value)
    if number is None or not math.isfinite(number):
        return Failed(f"reward function '{path}' returned {value!r:.200}; a finite number was expected")
    for name, part in parts.items():
        if not math.isfinite(part):
            return Failed(f"reward function '{path}' returned {name} = {part}; a finite number was expected")
    return Score(number, parts)


def _number(value: Any) -> float | None:
    """Python and numpy numbers and one-element tensors as float; None for anything else."""
    if not isinstance(value, numbers.Number) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, numbers.Real):
        return float(value)
    return None


class Options(RewardOptions):
    kind: Literal["function"] = "function"
    path: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """`package.module:function`, importable from the working directory or PYTHONPATH."""
    isolated: bool = True
    """Call it in a worker process that can be killed; `false` calls it in the trainer's process, without limit."""

    @property
    def label(self) -> str:
        return self.name or self.path.partition(":")[2]

    @property
    def runs_isolated(self) -> bool:
        return self.isolated

    def build(self) -> FunctionReward:
        return FunctionReward(self.label, self.path)
