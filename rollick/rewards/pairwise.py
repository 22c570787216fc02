"""`kind: pairwise`: a language model compares the answer with a given one: 1 when it is better, 0.5 tie, 0 worse.

    {kind: pairwise, url: "http://localhost:8000/v1", model: qwen3-32b, against: chosen}

Judges prefer whatever stands first (or second), so every pair is asked in both orders; only a preference that
survives the swap counts, and a contradiction is a tie. `against` names the data set's column with the answer to
compare with, or a list of several (the value is then the mean); left out, it is the ground truth.
"""

from __future__ import annotations

from typing import Any, Literal

from rollick.data.records import Episode
from rollick.rewards.base import Abstain, Failed, Score, Verdict
from rollick.rewards.judge_call import JudgeClient, JudgeOptions
from rollick.rewards.remote_http import HttpFailure

DEFAULT_CRITERIA = "Which answer is more correct, complete and to the point?"
Choice = Literal["first", "second", "tie"]
CHOICES: tuple[Choice, ...] = ("first", "second", "tie")


class PairwiseReward:
    """The part `disagreement` is the share of pairs on which the two orders contradicted each other."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._client = JudgeClient(options)

    def score(self, episode: Episode) -> Verdict:
        rivals = self._rivals(episode)
        if not rivals:
            return Abstain(f"reward '{self.name}': no answer to compare with in '{self._column}'")
        outcomes = []
        try:
            for rival in rivals:
                forward = self._ask(episode, episode.response_text, rival)
                backward = self._ask(episode, rival, episode.response_text)
                outcomes.append(settle(forward, backward))
        except HttpFailure as failure:
            return Failed(f"reward '{self.name}': {failure}")
        values, contradictions = zip(*outcomes)
        return Score(sum(values) / len(values), {"disagreement": sum(contradictions) / len(values)})

    def stats(self) -> dict[str, float]:
        return self._client.stats()

    @property
    def _column(self) -> str:
        return self._options.against or "ground_truth"

    def _rivals(self, episode: Episode) -> list[str]:
        task = episode.task
        written = task.extra.get(self._options.against) if self._options.against else task.ground_truth
        if written is None:
            return []
        return [str(one) for one in written] if isinstance(written, list) else [str(written)]

    def _ask(self, episode: Episode, first: str, second: str) -> Choice:
        task = (
            f"Compare two answers to the question, 'first' and 'second'.\nCriteria: {self._options.criteria}\n"
            "Their order says nothing. Give, in reason, why in one sentence, and then in better: first, second or tie."
        )
        work = {"question": episode.task.prompt, "first": first, "second": second}
        if self._options.against and self._options.reference and episode.task.ground_truth is not None:
            work["reference"] = episode.task.ground_truth
        fields: dict[str, Any] = {
            "reason": {"type": "string"},
            "better": {"type": "string", "enum": list(CHOICES)},
        }
        return self._client.ask(task, work, fields, lambda reply: _choice(reply["better"]))


def settle(forward: Choice, backward: Choice) -> tuple[float, bool]:
    """(value, whether the orders contradict) of the answer that stands first going forward and second going back.

    settle("first", "second")  # (1.0, False): better both times
    settle("first", "first")   # (0.5, True): the judge likes the first place
    """
    ours, theirs = (forward, backward) == ("first", "second"), (forward, backward) == ("second", "first")
    if ours or theirs:
        return float(ours), False
    return 0.5, forward != "tie" or backward != "tie"


def _choice(value: Any) -> Choice:
    if value not in CHOICES:
        raise HttpFailure(f"the judge's better is {value!r:.40}, not one of {', '.join(CHOICES)}", retryable=True)
    return value  # type: ignore[no-any-return]


class Options(JudgeOptions):
    kind: Literal["pairwise"] = "pairwise"
    criteria: str = DEFAULT_CRITERIA
    """What makes an answer better, in words."""
    against: str | None = None
    """Column with the answer, or the list of answers, to compare with; left out, the ground truth."""

    def build(self) -> PairwiseReward:
        return PairwiseReward(self)
