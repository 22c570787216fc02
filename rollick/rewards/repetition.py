"""`kind: repetition`: a penalty for saying the same again: -max_penalty · (1 - different n-grams / all n-grams).

    {kind: repetition, ngram: 3, max_penalty: 0.1}                 "a b c a b c a b c": -0.1 · (1 - 3/7) = -0.0571
    {kind: repetition, ngram: 2, max_penalty: 1, unit: tokens}     [5, 5, 5, 5, 5]: -1 · (1 - 1/4) = -0.75

Words are lower-cased and split at white space; answers with fewer than `ngram` of them are not penalised.
`longest_word` guards against endless unbroken strings: a word with more characters costs `max_penalty` as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rollick.data.records import Episode
from rollick.rewards.base import RewardOptions, Score, Verdict


class RepetitionReward:
    """The part `repeated` is the share of n-grams that had been said before."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        options = self._options
        words = episode.response_text.lower().split()
        if options.unit == "tokens":
            units: Sequence[Any] = [id for turn in episode.turns for id in turn.completion.token_ids]
        else:
            units = words
        share = repeated_share(units, options.ngram)
        unbroken = options.longest_word is not None and any(len(word) > options.longest_word for word in words)
        return Score(0.0 - options.max_penalty * (1.0 if unbroken else share), {"repeated": share})


def repeated_share(units: Sequence[Any], ngram: int) -> float:
    """1 - different / all n-grams; 0 for fewer than `ngram` units."""
    total = len(units) - ngram + 1
    if total <= 0:
        return 0.0
    return 1.0 - len({tuple(units[i : i + ngram]) for i in range(total)}) / total


class Options(RewardOptions):
    kind: Literal["repetition"] = "repetition"
    ngram: PositiveInt = 3
    max_penalty: PositiveFloat = Field(0.1, allow_inf_nan=False)
    unit: Literal["words", "tokens"] = "words"
    longest_word: PositiveInt | None = None
    """Characters; left out, words of any length."""

    @property
    def counts_tokens(self) -> bool:
        return self.unit == "tokens"

    def build(self) -> RepetitionReward:
        return RepetitionReward(self)
