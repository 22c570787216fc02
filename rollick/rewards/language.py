"""`kind: language`: whether the answer is written in the wanted scripts (a guard against language mixing).

    {kind: language, scripts: [latin]}                  the share of letters of that script
    {kind: language, scripts: [han], threshold: 0.9}     1.0 when at least 90 % of the letters are, else 0.0

Scripts are told apart by the Unicode names of letters; languages that share one (English, French) are not. Code blocks,
LaTeX commands and text without letters do not count: an answer without letters scores 1.0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from pydantic import Field

from rollick.data.records import Episode
from rollick.rewards.base import RewardOptions, Score, Verdict

Script = Literal["latin", "han", "kana", "hangul", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "thai"]
_NAMES: dict[str, tuple[str, ...]] = {
    "han": ("CJK",),
    "kana": ("HIRAGANA", "KATAKANA"),
    "latin": ("LATIN", "FULLWIDTH LATIN"),
}
_NOT_PROSE = re.compile(r"```.*?(?:```|\Z)|\\[A-Za-z]+|<[^<>\s]{1,50}>", re.DOTALL)


class LanguageReward:
    """The part `share` is the share of letters in these scripts."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        share = script_share(episode.response_text, self._options.scripts)
        threshold = self._options.threshold
        return Score(share if threshold is None else float(share >= threshold), {"share": share})


def script_share(text: str, scripts: Sequence[Script]) -> float:
    """Share of the letters of `text` that belong to one of `scripts`; 1.0 when it has no letters."""
    letters = [character for character in _NOT_PROSE.sub(" ", text) if character.isalpha()]
    if not letters:
        return 1.0
    return sum(any(_belongs(character, script) for script in scripts) for character in letters) / len(letters)


@lru_cache(maxsize=65536)
def _belongs(character: str, script: str) -> bool:
    return unicodedata.name(character, "").startswith(_NAMES.get(script, (script.upper(),)))


class Options(RewardOptions):
    kind: Literal["language"] = "language"
    scripts: tuple[Script, ...] = Field(min_length=1)
    """Letters of any of these count as right; Japanese is `[han, kana]`."""
    threshold: float | None = Field(None, gt=0, le=1)
    """Left out, the reward is the share itself."""

    def build(self) -> LanguageReward:
        return LanguageReward(self)
