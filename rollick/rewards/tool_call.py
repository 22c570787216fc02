"""`kind: tool_call`: 1.0 when the answer calls the right tools with the right arguments, else 0.0.

    {kind: tool_call}                          all calls right, in order, and no other
    {kind: tool_call, order: any}              in any order
    {kind: tool_call, credit: fraction}        2 · right calls / (calls made + calls wanted)

Calls stand in the answer as Hermes and Qwen write them, one JSON object between tags:

    <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>

The ground truth is a call or a list of calls in the same form (an empty list: none must be made). A block that holds no
call counts as a call that is wrong; a tag that never closes was cut off and counts so too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.json_schema import read_json

Call = tuple[str, dict[str, Any]]
_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)


class ToolCallReward:
    """Parts: `names`, the share as by `credit: fraction` when arguments are not looked at, and `malformed`, blocks
    that hold no call."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        wanted = wanted_calls(episode.task.ground_truth)
        if wanted is None:
            return Abstain(self._options.ground_truth_problem(episode.task.ground_truth) or "")
        text = visible(episode.response_text, self._options.thinking)
        made = calls_in(text or "")
        ordered = self._options.order == "given"
        right = matches(made, wanted, same_call, ordered)
        share = _share(right, len(made), len(wanted))
        parts = {
            "names": _share(matches(made, wanted, _same_name, ordered), len(made), len(wanted)),
            "malformed": float(sum(call is None for call in made)),
        }
        return Score(share if self._options.credit == "fraction" else float(share == 1.0), parts)


def calls_in(text: str) -> list[Call | None]:
    """The calls of an answer in order; None for a block that holds none."""
    return [_read_call(block) for block in _BLOCK.findall(text)]


def wanted_calls(ground_truth: Any) -> list[Call] | None:
    """The calls that a ground truth asks for, None when it does not say."""
    try:
        value = read_json(ground_truth) if isinstance(ground_truth, str) else ground_truth
    except ValueError:
        return None
    calls = [_as_call(one) for one in (value if isinstance(value, list) else [value])]
    return None if None in calls else [call for call in calls if call is not None]


def same_call(made: Call | None, wanted: Call) -> bool:
    """Equal names and arguments: 1 and 1.0 are one number, 1 and true and "1" are three things; the order of keys does
    not count, that of lists does."""
    return _same_name(made, wanted) and made is not None and _same(made[1], wanted[1])


def matches(
    made: list[Call | None], wanted: list[Call], same: Callable[[Call | None, Call], bool], ordered: bool
) -> int:
    """How many wanted calls were made, each call counting once: at its place, or anywhere."""
    if ordered:
        return sum(map(same, made, wanted))
    left, found = list(made), 0
    for call in wanted:
        place = next((index for index, one in enumerate(left) if same(one, call)), None)
        if place is not None:
            del left[place]
            found += 1
    return found


def _read_call(block: str) -> Call | None:
    try:
        return _as_call(read_json(block.strip()))
    except ValueError:
        return None


def _as_call(value: Any) -> Call | None:
    """A name and a mapping of arguments (or the JSON text of one, as some models write it; left out: none)."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            return None
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _same_name(made: Call | None, wanted: Call) -> bool:
    return made is not None and made[0] == wanted[0]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _share(right: int, made: int, wanted: int) -> float:
    return 2.0 * right / (made + wanted) if made + wanted else 1.0


class Options(RewardOptions):
    kind: Literal["tool_call"] = "tool_call"
    thinking: Thinking = "auto"
    """As for `math`; a call inside of the reasoning is none."""
    order: Literal["given", "any"] = "given"
    """Whether calls must come in the order of the ground truth."""
    credit: Literal["all", "fraction"] = "all"
    """All or nothing, or the share of right calls among those made and wanted (F1)."""

    def build(self) -> ToolCallReward:
        return ToolCallReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        if wanted_calls(ground_truth) is not None:
            return None
        return f'{ground_truth!r:.100} is no call {{"name": …, "arguments": {{…}}}} and no list of calls'
