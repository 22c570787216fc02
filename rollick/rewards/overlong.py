"""`kind: overlong`: a penalty that grows over the last tokens before the limit (DAPO, arXiv 2503.14476).

    {kind: overlong, max_length: 20480, buffer: 4096}
    # tokens   16000  16384  18432  20480  24576
    # reward       0      0   -0.5     -1     -1

0 up to max_length - buffer, then down in a straight line to -1 at max_length and no further. `unfinished` is added
when the answer was cut by a length or turn limit before the policy ended it (ProRL's "stop properly").
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from rollick.data.records import Episode
from rollick.rewards.base import RewardOptions, Score, Verdict


class OverlongReward:
    """The part `excess` is the share of the buffer that was used, 0 to 1."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        excess = excess_share(episode.response_length, self._options.max_length, self._options.buffer)
        value = 0.0 - excess + (self._options.unfinished if episode.truncated else 0.0)
        return Score(value, {"excess": excess})


def excess_share(length: int, max_length: int, buffer: int) -> float:
    """Share of the last `buffer` tokens before `max_length` that an answer of `length` tokens used, 0 to 1."""
    return min(1.0, max(0.0, (length - (max_length - buffer)) / buffer))


class Options(RewardOptions):
    kind: Literal["overlong"] = "overlong"
    max_length: PositiveInt
    """Sampled tokens of all turns at which the penalty is whole; usually `rollout.max_new_tokens`."""
    buffer: PositiveInt
    """Tokens before `max_length` over which it grows."""
    unfinished: float = Field(0.0, le=0, allow_inf_nan=False)
    """Added when the answer was cut."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Options:
        if self.buffer > self.max_length:
            raise ValueError(f"buffer {self.buffer} is larger than max_length {self.max_length}")
        return self

    @property
    def counts_tokens(self) -> bool:
        return True

    def build(self) -> OverlongReward:
        return OverlongReward(self)
