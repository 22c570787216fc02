"""`kind: reasoning_gym`: the score that a generator of reasoning-gym gives to an answer to its own problem.

It goes with `kind: reasoning_gym` environments and is their reward unless they name another.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.environments.reasoning_gym import import_package, make_dataset
from rollick.rewards.base import Abstain, Reward, RewardOptions, Score, Verdict

TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


class Options(RewardOptions):
    kind: Literal["reasoning_gym"] = "reasoning_gym"
    answer: Literal["tags", "number", "text"] = "tags"
    """Where the reply's answer stands: in its last <answer> tags, its last number, or it is the whole reply."""

    @property
    def runs_isolated(self) -> bool:
        """Some generators judge by running a search, without a limit of their own."""
        return True

    def preload(self) -> None:
        import_package()

    def build(self) -> Reward:
        return ReasoningGymReward(self)


class ReasoningGymReward:
    """Between 0.0 and 1.0, by the task's own rule; 0.0 when the reply holds no answer. The part `answered` says
    whether it did."""

    def __init__(self, options: Options):
        self.name = options.label
        self._form = options.answer
        self._datasets: dict[str, Any] = {}

    def score(self, episode: Episode) -> Verdict:
        extra = episode.task.extra
        if "entry" not in extra:
            return Abstain(f"task {episode.task.id} was not made by reasoning_gym")
        answer = extract_answer(episode.response_text, self._form)
        if answer is None:
            return Score(0.0, {"answered": 0.0})
        dataset = self._dataset(extra["task"], extra["config"])
        return Score(float(dataset.score_answer(answer, extra["entry"])), {"answered": 1.0})

    def _dataset(self, task: str, config: dict[str, Any]) -> Any:
        key = json.dumps([task, config], sort_keys=True, default=str)
        if key not in self._datasets:
            self._datasets[key] = make_dataset(task, config, size=1, seed=0)
        return self._datasets[key]


def extract_answer(reply: str, form: Literal["tags", "number", "text"]) -> str | None:
    """The answer in a reply, None when there is none.

    extract_answer("so <answer> 7 </answer>", "tags")  # "7"
    extract_answer("3 + 4 = 1,007.", "number")         # "1007"
    """
    if form == "text":
        return reply.strip() or None
    found = TAGGED.findall(reply) if form == "tags" else NUMBER.findall(reply)
    if not found:
        return None
    return found[-1].strip() if form == "tags" else found[-1].replace(",", "")
