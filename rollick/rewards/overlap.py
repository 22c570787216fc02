"""`kind: overlap`: how much of a reference text the answer has, between 0 and 1.

    f1        words as a bag, articles and punctuation aside (SQuAD, arXiv 1606.05250)
    exact     1.0 when these words are the same, in order
    rouge1, rouge2, rougeL
              F-measure of words, word pairs, longest common subsequence (Lin 2004; no stemming)
    wer       1 - word error rate (insertions, deletions, substitutions per reference word), at least 0

With several references (a list as ground truth) the best counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict

Metric = Literal["f1", "exact", "rouge1", "rouge2", "rougeL", "wer"]
MAX_WORDS = 5000
"""Longer answers are cut here: their overlap is low already, and comparing costs the product of both lengths."""

_WORD = re.compile(r"\w+(?:['’]\w+)?")
_ARTICLES = frozenset(("a", "an", "the"))


class OverlapReward:
    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        problem = self._options.ground_truth_problem(episode.task.ground_truth)
        if problem:
            return Abstain(problem)
        text = visible(episode.response_text, self._options.thinking)
        if text is None:
            return Score(0.0)
        references = episode.task.ground_truth
        references = [references] if isinstance(references, str) else references
        return Score(max(overlap(text, reference, self._options.metric) for reference in references))


def overlap(text: str, reference: str, metric: Metric) -> float:
    """One value between 0 and 1.

    overlap("the cat sat", "a cat sat down", "f1")      # 0.8: 2 of 2 words are right, 2 of 3 are found
    overlap("the cat sat", "the cat sat down", "wer")   # 0.75
    """
    given, wanted = _words(text, metric), _words(reference, metric)
    if metric == "exact":
        return float(given == wanted)
    if metric == "wer":
        return max(0.0, 1.0 - edit_distance(given, wanted) / len(wanted)) if wanted else float(not given)
    if metric == "rougeL":
        return _f_measure(common_subsequence(given, wanted), len(given), len(wanted))
    size = 2 if metric == "rouge2" else 1
    mine, theirs = _grams(given, size), _grams(wanted, size)
    return _f_measure((mine & theirs).total(), mine.total(), theirs.total())


def _words(text: str, metric: Metric) -> list[str]:
    found = _WORD.findall(text.lower())[:MAX_WORDS]
    return [word for word in found if word not in _ARTICLES] if metric in ("f1", "exact") else found


def _grams(tokens: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1))


def _f_measure(common: int, given: int, wanted: int) -> float:
    return 2 * common / (given + wanted) if common else 0.0


def edit_distance(given: Sequence[str], wanted: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions (Levenshtein), in the length of one row of memory."""
    row = list(range(len(wanted) + 1))
    for i, word in enumerate(given, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(wanted, 1):
            diagonal, row[j] = row[j], min(diagonal + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def common_subsequence(given: Sequence[str], wanted: Sequence[str]) -> int:
    """Length of the longest common subsequence, with the rows of the table held as bits (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for i, word in enumerate(wanted):
        places[word] = places.get(word, 0) | 1 << i
    all_bits = (1 << len(wanted)) - 1
    row = all_bits
    for word in given:
        hits = row & places.get(word, 0)
        row = (row + hits | row - hits) & all_bits
    return (all_bits & ~row).bit_count()


class Options(RewardOptions):
    kind: Literal["overlap"] = "overlap"
    metric: Metric = "f1"
    thinking: Thinking = "auto"
    """As for `math`."""

    @property
    def runs_isolated(self) -> bool:
        # Word error rate of two long texts takes seconds.
        return self.metric == "wer"

    def build(self) -> OverlapReward:
        return OverlapReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        references = [ground_truth] if isinstance(ground_truth, str) else ground_truth
        texts = isinstance(references, list | tuple) and references
        if texts and all(isinstance(one, str) and one.strip() for one in references):
            return None
        return f"{ground_truth!r:.100} is no reference text (or list of such)"
