"""`kind: format`: whether the whole answer, thinking included, has the shape that was asked for.

{kind: format, tags: [think, answer]}                 <think>…</think><answer>…</answer>, each once, in this order
{kind: format, pattern: '.*\\\\boxed\\{.+\\}.*'}          a regular expression for all of it (`.` matches newlines)
{kind: format, tags: [think], present: 0, missing: -1}     a penalty in place of a bonus
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from rollick.data.records import Episode
from rollick.rewards.base import RewardOptions, Score, Verdict


class FormatReward:
    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._pattern = re.compile(options.pattern, re.DOTALL) if options.pattern else None

    def score(self, episode: Episode) -> Verdict:
        text = episode.response_text
        fits = has_tags(text, self._options.tags, self._options.only_tags)
        if fits and self._pattern is not None:
            fits = self._pattern.fullmatch(text.strip()) is not None
        return Score(self._options.present if fits else self._options.missing)


def has_tags(text: str, tags: tuple[str, ...], only: bool = False) -> bool:
    """Whether each tag opens and closes exactly once, in order, unnested, around something; with `only`, nothing but
    white space stands outside of them."""
    position = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1:
            return False
        start, end = text.index(opening), text.index(closing)
        outside = text[position:start]
        inside = text[start + len(opening) : end]
        if start < position or not inside.strip() or (only and outside.strip()):
            return False
        position = end + len(closing)
    return not (only and text[position:].strip())


class Options(RewardOptions):
    kind: Literal["format"] = "format"
    tags: tuple[str, ...] = ()
    """Names of tags that must each stand once, in this order."""
    only_tags: bool = False
    """Nothing may stand outside the tags."""
    pattern: str | None = None
    """Regular expression that the whole answer must match, white space at the ends aside."""
    present: float = Field(1.0, allow_inf_nan=False)
    missing: float = Field(0.0, allow_inf_nan=False)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _asks_for_something(self) -> Options:
        if not self.tags and not self.pattern:
            raise ValueError("needs tags, pattern or both")
        return self

    @property
    def runs_isolated(self) -> bool:
        # A pattern can backtrack for ever on an answer made for it.
        return self.pattern is not None

    def build(self) -> FormatReward:
        return FormatReward(self)
