"""`kind: ifeval`: whether the answer follows the instructions of its task (kinds: `rollick.rewards.instructions`).

The ground truth lists them, several and repeated kinds alike, in one of these forms (or as JSON text of it):

    [{"id": "punctuation:no_comma"}, {"id": "keywords:existence", "keywords": ["sea"]}]
    {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}

An unknown kind and a missing or wrong argument are reported when data is loaded; such a task is abstained on.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.instructions import follows, follows_loosely, problem


class IfevalReward:
    """The part `fraction` is the share of instructions that were followed."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        reason = self._options.ground_truth_problem(episode.task.ground_truth)
        if reason:
            return Abstain(reason)
        instructions = read_instructions(episode.task.ground_truth)
        text = visible(episode.response_text, self._options.thinking) or ""
        check = follows if self._options.mode == "strict" else follows_loosely
        followed = [check(text, instruction) for instruction in instructions]
        fraction = sum(followed) / len(followed)
        return Score(fraction if self._options.credit == "fraction" else float(all(followed)), {"fraction": fraction})


def read_instructions(ground_truth: Any) -> list[dict[str, Any]]:
    """Instructions as {"id": …, **arguments}; raises ValueError in one sentence when there are none to be read."""
    value = ground_truth
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"{ground_truth!r:.100} is no JSON") from error
    if isinstance(value, dict) and "instruction_id_list" in value:
        ids, arguments = value["instruction_id_list"], value.get("kwargs") or [{}] * len(value["instruction_id_list"])
        if len(ids) != len(arguments):
            raise ValueError(f"{len(ids)} instruction ids stand beside {len(arguments)} kwargs")
        value = [{**(one or {}), "id": id} for id, one in zip(ids, arguments)]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"{ground_truth!r:.100} is no list of instructions")
    return value


class Options(RewardOptions):
    kind: Literal["ifeval"] = "ifeval"
    mode: Literal["strict", "loose"] = "strict"
    """loose: the answer may also follow an instruction without its asterisks, first or last line."""
    credit: Literal["all", "fraction"] = "all"
    """all: 1.0 only when every instruction is followed; fraction: the share that is."""
    thinking: Thinking = "auto"
    """As for `math`."""

    def build(self) -> IfevalReward:
        return IfevalReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        try:
            instructions = read_instructions(ground_truth)
        except ValueError as error:
            return str(error)
        return next((reason for one in instructions if (reason := problem(one)) is not None), None)
