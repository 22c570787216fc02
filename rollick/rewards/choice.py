"""`kind: choice`: 1.0 when the chosen letter is the ground truth's, else 0.0.

    {kind: choice}                        \\boxed{C}, \\boxed{\\text{(C)}}, \\boxed{C: the third}, "The answer is C."
    {kind: choice, extract: [boxed]}      strict: the letter must be boxed
    {kind: choice, match_text: true}      the text of an option (`choices` of the row) counts as its letter

The last statement counts. Two letters are no choice, and neither is a letter inside a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, find_answer, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.math_forms import normalize, words

Place = Literal["boxed", "phrase", "bare"]

_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\]]?(?:\s*[.:)]\s*(?:\s.*|$)|\s*$)", re.DOTALL)
_PHRASE = re.compile(
    r"\b(?:answer|choice|option)\b[*_\s]*(?:is\b|:|=)?[*_\s:]*(?:option\b|choice\b)?[*_\s$]*(?=[(\[]?[A-Z](?![A-Za-z0-9']))",
    re.IGNORECASE,
)
_STATED = re.compile(r"[(\[]?([A-Z])(?:[)\]]|(?=\s*$|[.,;:!?*$])|(?=\s+(?:because|since|as|due|for|with)\b))")
_SEVERAL = re.compile(r"^[(\[]?[A-Z][)\]]?\s*(?:,|/|&|and\b|or\b)\s*[(\[]?[A-Z]\b")


class ChoiceReward:
    """The part `answered` says whether a single choice was stated."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        problem = self._options.ground_truth_problem(episode.task.ground_truth)
        if problem:
            return Abstain(problem)
        text = visible(episode.response_text, self._options.thinking)
        choices = episode.task.extra.get("choices") if self._options.match_text else None
        letter = None if text is None else find_letter(text, self._options.extract, choices or ())
        right = letter is not None and letter == letter_of(str(episode.task.ground_truth))
        return Score(float(right), {"answered": float(letter is not None)})


def find_letter(text: str, places: Sequence[Place], choices: Sequence[str] = ()) -> str | None:
    """The letter stated at the first of `places` that states anything.

    boxed: the last box (boxes side by side that differ choose nothing); phrase: what follows the last "answer is",
    "Answer:", "option"; bare: the whole answer.
    """
    for place in places:
        if place == "phrase":
            stated = _phrases(text)[-1:]
        else:
            stated = find_answer(text, (place,)) if place == "boxed" else [text.strip()]
        if not stated or not stated[0]:
            continue
        letters = {letter_of(one, choices) for one in stated}
        letter = letters.pop() if len(letters) == 1 else None
        if letter is not None or place == "boxed":
            return letter
    return None


def _phrases(text: str) -> list[str]:
    """The letters that follow "answer is" and the like, in order; "?" where several letters follow one."""
    found = []
    for match in _PHRASE.finditer(text):
        tail = text[match.end() : match.end() + 50].partition("\n")[0]
        if stated := _STATED.match(tail):
            found.append("?" if _SEVERAL.match(tail) else stated[1])
    return found


def letter_of(text: str, choices: Sequence[str] = ()) -> str | None:
    """The capital letter in `C`, `(C)`, `C.`, `C: the third`, or of the option whose text this is; else None."""
    plain = text.strip().strip("*`$ ")
    plain = words(plain) or re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", normalize(plain))
    for index, choice in enumerate(choices):
        if str(choice).strip().casefold() == plain.strip().casefold():
            return chr(ord("A") + index)
    match = _LETTER.match(plain.strip())
    return match[1].upper() if match and not _SEVERAL.match(plain) else None


class Options(RewardOptions):
    kind: Literal["choice"] = "choice"
    thinking: Thinking = "auto"
    """As for `math`."""
    extract: tuple[Place, ...] = Field(("boxed", "phrase", "bare"), min_length=1)
    """Places a choice is looked for, in this order; `[boxed]` is the strict mode."""
    match_text: bool = False
    """Accept an option's text in place of its letter; the row's column `choices` lists the texts, A first."""

    def build(self) -> ChoiceReward:
        return ChoiceReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        if isinstance(ground_truth, str) and letter_of(ground_truth) is not None:
            return None
        return f"{ground_truth!r:.100} names no choice such as 'C'"
