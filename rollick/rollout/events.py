"""The event log: every step of every episode's life, from which all counters can be rebuilt.

One JSON object per line:

    {"time": 12.5, "step": 3, "version": 3, "episode": "s3/p5/m0", "from": "queued", "to": "running", "reason": ""}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

EpisodeState = Literal[
    "queued", "running", "aborted", "generated", "scoring", "scored", "admitted", "filtered", "failed", "consumed"
]
FINAL_STATES: tuple[EpisodeState, ...] = ("consumed", "filtered", "failed")


@dataclass(frozen=True)
class Transition:
    """An episode moved from one state to another under the weights `version`.

    `source` is None when the episode is created. A result that came too late or twice moves nothing: source and
    target are equal and `reason` says what was ignored.

        Transition(12.5, step=3, version=3, episode="s3/p5/m0", source="queued", target="running")
    """

    time: float
    step: int
    version: int
    episode: str
    source: EpisodeState | None
    target: EpisodeState
    reason: str = ""

    def to_row(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "step": self.step,
            "version": self.version,
            "episode": self.episode,
            "from": self.source,
            "to": self.target,
            "reason": self.reason,
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Transition:
        fields = {key: value for key, value in row.items() if key not in ("from", "to")}
        return cls(**fields, source=row["from"], target=row["to"])


@dataclass
class Tally:
    """How many episodes were started and where they are now; at every moment
    `started == consumed + filtered + failed + in_flight`.

        tally = Tally()
        tally.add(Transition(0.0, 0, 0, "s0/p0/m0", None, "queued"))
        tally.counters()["in_flight"]  # 1
    """

    started: int = 0
    ignored_results: int = 0
    retries: int = 0
    states: Counter[str] = field(default_factory=Counter)

    def add(self, transition: Transition) -> None:
        source, target = transition.source, transition.target
        if source == target:
            self.ignored_results += 1
            return
        if source is None:
            self.started += 1
        else:
            self.states[source] -= 1
        self.states[target] += 1
        self.retries += (source, target) in (("running", "queued"), ("scoring", "generated"))

    def state(self) -> dict[str, Any]:
        return {**vars(self), "states": dict(self.states)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tally:
        return cls(**{**state, "states": Counter(state["states"])})

    def counters(self) -> dict[str, int]:
        final: dict[str, int] = {state: self.states[state] for state in FINAL_STATES}
        in_flight = sum(count for state, count in self.states.items() if state not in FINAL_STATES)
        return {
            "started": self.started,
            **final,
            "in_flight": in_flight,
            "retries": self.retries,
            "ignored_results": self.ignored_results,
        }


def event_log(write: Callable[[dict[str, Any]], object]) -> Callable[[Transition], None]:
    """A recorder for the scheduler that hands one row per transition to `write` (a JSON Lines file's)."""

    def record(transition: Transition) -> None:
        write(transition.to_row())

    return record


def replay(rows: Iterable[dict[str, Any]]) -> Tally:
    """The counters of a run from its event log alone."""
    tally = Tally()
    for row in rows:
        if "episode" in row:  # an alarm of the hacking watch belongs to no episode
            tally.add(Transition.from_row(row))
    return tally
