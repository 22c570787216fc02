"""Shuffled order of rows that can be stopped anywhere and resumed exactly there.

A sampler holds positions, never rows: restoring it reads nothing and generates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rollick.errors import DataError
from rollick.state.seeds import derive_seed


class Draw(NamedTuple):
    """One row to use: which source, which pass over it (from 0), which row."""

    source: int
    epoch: int
    row: int


class ShuffledSampler:
    """Every row of a source once per epoch, each epoch in its own order.

    The order of epoch e depends on (seed, e) and the size only, so a batch may span two epochs and a resumed run
    draws what the uninterrupted one would have drawn.

        sampler = ShuffledSampler(size=3, seed=0)
        sampler.next(4)   # [(0, 2), (0, 1), (0, 0), (1, 2)]: (epoch, index)
        sampler.state()   # {"size": 3, "seed": 0, "drawn": 4}
    """

    def __init__(self, size: int, seed: int):
        if size < 1:
            raise ValueError("a sampler needs a source with at least one row")
        self._size = size
        self._seed = seed
        self._drawn = 0
        self._order = (-1, np.zeros(0, np.int64))  # (epoch, its permutation)

    @property
    def drawn(self) -> int:
        """Rows drawn since the start, over all epochs."""
        return self._drawn

    def next(self, count: int) -> list[tuple[int, int]]:
        """The next `count` rows as (epoch, index)."""
        draws = []
        for position in range(self._drawn, self._drawn + count):
            epoch, offset = divmod(position, self._size)
            draws.append((epoch, int(self._permutation(epoch)[offset])))
        self._drawn += count
        return draws

    def state(self) -> dict[str, int]:
        return {"size": self._size, "seed": self._seed, "drawn": self._drawn}

    def restore(self, state: dict[str, int]) -> None:
        """Continue behind the rows that `state` has drawn. Raises DataError when the source or seed is another."""
        for name, now in (("size", self._size), ("seed", self._seed)):
            if state[name] != now:
                raise DataError(
                    f"cannot resume: the checkpoint drew from {state['size']} rows with seed {state['seed']}, "
                    f"the dataset now has {self._size} rows and the seed is {self._seed}"
                )
        self._drawn = state["drawn"]

    def _permutation(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            # RandomState, not Generator: its stream is frozen, so a newer NumPy resumes in the same order.
            random = np.random.RandomState(derive_seed(self._seed, "epoch", epoch) % 2**32)
            self._order = (epoch, random.permutation(self._size))
        return self._order[1]


class MixedSampler:
    """Several sources, mixed so that the weights hold in every batch, not only on average.

    Each draw goes to the source that is furthest behind its share of all draws up to the end of the batch
    (largest remainder); what a batch could not split evenly is carried over to the next. After any number of
    batches a source is less than one draw per other source away from its exact share.

        sampler = MixedSampler(sizes=[100, 10], weights=[3, 1], seed=0)
        [draw.source for draw in sampler.next(4)]   # [0, 0, 0, 1]
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int):
        if len(sizes) != len(weights) or not sizes:
            raise ValueError(f"{len(sizes)} sources need as many weights, got {len(weights)}")
        if min(weights) <= 0:
            raise ValueError(f"weights must be positive, got {list(weights)}")
        self._shares = [weight / sum(weights) for weight in weights]
        self._samplers = [ShuffledSampler(size, derive_seed(seed, "source", i)) for i, size in enumerate(sizes)]

    def next(self, count: int) -> list[Draw]:
        """The next `count` rows, those of the first source first."""
        return [
            Draw(source, epoch, row)
            for source, quota in enumerate(self._quotas(count))
            for epoch, row in self._samplers[source].next(quota)
        ]

    def state(self) -> dict[str, Any]:
        return {"sources": [sampler.state() for sampler in self._samplers]}

    def restore(self, state: dict[str, Any]) -> None:
        """Raises DataError when the sources are not those the state was taken from."""
        if len(state["sources"]) != len(self._samplers):
            raise DataError(
                f"cannot resume: the checkpoint drew from {len(state['sources'])} sources, "
                f"now there are {len(self._samplers)}"
            )
        for sampler, saved in zip(self._samplers, state["sources"]):
            sampler.restore(saved)

    def _quotas(self, count: int) -> list[int]:
        total = count + sum(sampler.drawn for sampler in self._samplers)
        behind = [share * total - sampler.drawn for share, sampler in zip(self._shares, self._samplers)]
        quotas = [0] * len(behind)
        for _ in range(count):
            source = max(range(len(behind)), key=lambda i: (behind[i], -i))
            quotas[source] += 1
            behind[source] -= 1
        return quotas
