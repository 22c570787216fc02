"""Packed rows with offsets: what goes from the controller to a train backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict

from rollick.data.records import Sample


@dataclass
class Batch:
    """R rows of ragged length laid end to end; N is the sum of their lengths.

    `tokens` is a TensorDict of batch size [N]: token_ids int64, loss_mask bool, behaviour_logprobs float32,
    kept_logmass float32, versions int64, and whatever scoring added (old_logprobs, ref_logprobs, advantages).
    `rows` is a TensorDict of batch size [R]: reward float32 (NaN where there is none), truncated bool,
    group int64 (index of the group inside this batch). `offsets` int64[R+1]. `row_ids` are the samples' ids.

    Two rows `[5, 6, 9]` and `[7, 2]` give token_ids `[5, 6, 9, 7, 2]`, offsets `[0, 3, 5]` and
    `row_index()` `[0, 0, 0, 1, 1]`.
    """

    tokens: TensorDict
    rows: TensorDict
    offsets: torch.Tensor
    row_ids: list[str]

    @classmethod
    def from_samples(cls, samples: Sequence[Sample]) -> Batch:
        """Pack samples in the given order. Raises ValueError when there are none."""
        if not samples:
            raise ValueError("a batch needs at least one sample")
        groups: dict[str, int] = {}
        lengths = torch.tensor([len(s) for s in samples])
        join = lambda name: torch.from_numpy(np.concatenate([getattr(s, name) for s in samples]))
        names = ("token_ids", "loss_mask", "behaviour_logprobs", "kept_logmass", "versions")
        tokens = TensorDict({name: join(name) for name in names}, batch_size=[int(lengths.sum())])
        rows = TensorDict(
            {
                "reward": torch.tensor([float("nan") if s.reward is None else s.reward for s in samples]),
                "truncated": torch.tensor([s.truncated for s in samples]),
                "group": torch.tensor([groups.setdefault(s.group_id, len(groups)) for s in samples]),
            },
            batch_size=[len(samples)],
        )
        return cls(tokens, rows, _offsets(lengths), [s.id for s in samples])

    @property
    def num_rows(self) -> int:
        return len(self.row_ids)

    @property
    def num_tokens(self) -> int:
        return int(self.offsets[-1])

    @property
    def lengths(self) -> torch.Tensor:
        """int64[R]"""
        return self.offsets.diff()

    def row_index(self) -> torch.Tensor:
        """int64[N]: the row each token belongs to."""
        return torch.repeat_interleave(torch.arange(self.num_rows, device=self.offsets.device), self.lengths)

    def select(self, indices: Sequence[int]) -> Batch:
        """A new batch of these rows, in this order (group indices are kept as they are)."""
        picked = torch.as_tensor(list(indices), dtype=torch.long)
        lengths = self.lengths[picked]
        positions = torch.cat([torch.arange(int(self.offsets[i]), int(self.offsets[i + 1])) for i in picked.tolist()])
        return Batch(
            self.tokens[positions], self.rows[picked], _offsets(lengths), [self.row_ids[i] for i in picked.tolist()]
        )

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.tokens.to(device), self.rows.to(device), self.offsets.to(device), self.row_ids)


def _offsets(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
