"""Settings of the watch for reward hacking (`logging.hacking_watch`)."""

from __future__ import annotations

from pydantic import Field

from rollick.config.base import Settings


class HackingWatchSettings(Settings):
    """An alarm is raised when the reward rises and, over the same window, something rises that should not need to.
    A threshold of null turns its alarm off."""

    window: int = Field(20, ge=6)
    """Steps that are looked at; the mean of the last third is compared with that of the first."""
    reward_rise: float = Field(0.2, gt=0)
    """How far the mean reward must have risen, in standard deviations of the first third's answers."""
    length_growth: float | None = Field(1.5, gt=1)
    """Alarm `length`: answers are this many times as long."""
    repetition_rise: float | None = Field(0.1, gt=0, le=1)
    """Alarm `repetition`: the share of repeated 4-grams has risen by this much."""
    same_answer_rise: float | None = Field(0.2, gt=0, le=1)
    """Alarm `same_answer`: the share of answers that end in one and the same line has risen by this much."""
    format_rise: float | None = Field(0.1, gt=0)
    """Alarm `format_only`: a reward for the form of an answer has risen by this much and none for its content by even
    a quarter of that."""
