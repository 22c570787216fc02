"""Rewards that are called with lists of episodes, as plug-ins: `kind: tests.rewards.batch_rewards`."""

import os
import threading
import time
from collections.abc import Sequence
from typing import Literal

from rollick.data.records import Episode
from rollick.rewards.base import Batching, RewardOptions, Score, Verdict


class Length:
    """Pays the length of each answer. `sizes` are those of the calls; `release` holds them up until it is set."""

    def __init__(self, name: str):
        self.name = name
        self.sizes: list[int] = []
        self.loaded = 0
        self.running = self.most_running = 0
        self.release = threading.Event()
        self._lock = threading.Lock()

    def load(self) -> None:
        self.loaded += 1

    def score_batch(self, episodes: Sequence[Episode]) -> list[Verdict]:
        with self._lock:
            self.sizes.append(len(episodes))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        texts = [episode.response_text for episode in episodes]
        if "wait" in texts:
            self.release.wait(20.0)
        if "hang" in texts:
            time.sleep(3600)
        if "die" in texts:
            os._exit(3)
        with self._lock:
            self.running -= 1
        if "raise" in texts:
            raise OSError("no connection")
        if "short" in texts:
            return []
        return [Score(len(text), {"loaded": self.loaded, "calls": len(self.sizes)}) for text in texts]

    def stats(self) -> dict[str, float]:
        return {"requests": float(len(self.sizes))}


class Options(RewardOptions):
    kind: Literal["tests.rewards.batch_rewards"] = "tests.rewards.batch_rewards"
    size: int = 4
    in_flight: int = 1
    own_process: bool = False

    @property
    def label(self) -> str:
        return self.name or "length"

    @property
    def batching(self) -> Batching:
        return Batching(self.size, self.in_flight, self.own_process)

    def build(self) -> Length:
        return Length(self.label)
