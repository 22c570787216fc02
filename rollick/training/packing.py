"""From ragged rows to what a model's forward takes; the only place where rows are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollick.data.batch import Batch
from rollick.models.attention import RowLayout


@dataclass(frozen=True)
class ModelInputs:
    """One forward pass. `input_ids` and `position_ids` int64 [B, S] (B = 1 when packed, then with `row_layout`);
    `predictors` int64[M]: place, in the states laid flat [B·S], of the state that predicts each live token;
    `targets` int64[M]: the live tokens.

    Rows [5, 6, 9] and [7, 2] whose last tokens are live need the inputs 5, 6 and 7 only. Packed: input_ids
    [[5, 6, 7]], position_ids [[0, 1, 0]], predictors [1, 2], targets [9, 2]. Padded: [[5, 6], [7, 0]],
    [[0, 1], [0, 1]], [1, 2], [9, 2]. Packed rows of one group share what they have in common: beside [5, 6, 9], a
    row [5, 6, 4] adds no input at all, and its target 4 has predictor 1 too.
    """

    input_ids: Tensor
    position_ids: Tensor
    predictors: Tensor
    targets: Tensor
    row_layout: RowLayout | None = None

    def to(self, device: torch.device | str) -> ModelInputs:
        layout = None if self.row_layout is None else self.row_layout.to(device)
        ids, positions = self.input_ids.to(device), self.position_ids.to(device)
        return ModelInputs(ids, positions, self.predictors.to(device), self.targets.to(device), layout)


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a batch, laid out. `live` is the rows' batch restricted to live tokens (what a loss sees);
    `positions` int64[M] says where those tokens lie in the whole batch."""

    inputs: ModelInputs
    live: Batch
    positions: Tensor


def input_lengths(batch: Batch) -> list[int]:
    """Tokens that must be computed per row: those before its last live token (nothing behind it is trained on).

    A mask 0 0 1 1 0 0 gives 3; a row without live tokens gives 0. Raises ValueError when a first token is live,
    since no state predicts it.
    """
    mask = batch.tokens["loss_mask"]
    place = _places(batch)
    first = mask & (place == 0)
    if first.any():
        row = int(batch.row_index()[first][0])
        raise ValueError(f"row {batch.row_ids[row]}: its first token has loss_mask True, but nothing predicts it")
    last = torch.zeros(batch.num_rows, dtype=torch.long)
    return last.scatter_reduce(0, batch.row_index(), torch.where(mask, place, 0), "amax").tolist()


def shared_prefixes(batch: Batch) -> list[int]:
    """Per row, how many of its first tokens equal those of the first row of its group (for that row: all of them).

    Rows [5, 6, 9] and [5, 6, 7, 7] of one group give [3, 2].
    """
    leaders: dict[int, Tensor] = {}
    shared = []
    rows = batch.tokens["token_ids"].split(batch.lengths.tolist())
    for ids, group in zip(rows, batch.rows["group"].tolist()):
        leader = leaders.setdefault(group, ids)
        common = min(len(ids), len(leader))
        differs = (ids[:common] != leader[:common]).nonzero()
        shared.append(int(differs[0]) if len(differs) else common)
    return shared


def lay_out(batch: Batch, rows: Sequence[int], packed: bool, pad_id: int = 0) -> MicroBatch:
    """A micro-batch of these rows, each of which has a live token. `pad_id` fills padded places: any id does,
    since attention is causal and padding stands behind everything that counts."""
    part = batch.select(rows)
    lengths = torch.tensor(input_lengths(part))
    place, row = _places(part), part.row_index()
    mask = part.tokens["loss_mask"]
    kept = place < lengths[row]
    live_places = mask.nonzero()[:, 0]
    live_lengths = torch.zeros(part.num_rows, dtype=torch.long).index_add_(0, row, mask.long())
    targets = part.tokens["token_ids"][live_places]
    if packed:
        inputs = _packed_inputs(part, kept, lengths, live_places, targets)
    else:
        inputs = _padded_inputs(part, kept, lengths, live_places, targets, pad_id)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), live_lengths.cumsum(0)])
    live = Batch(part.tokens[live_places], part.rows, offsets, part.row_ids)
    starts = batch.offsets[torch.as_tensor(list(rows), dtype=torch.long)]
    return MicroBatch(inputs, live, (starts[row] + place)[live_places])


def filler(packed: bool) -> ModelInputs:
    """One token that predicts nothing: for a rank that must take part in a forward without a row of its own."""
    zero, none = torch.zeros((1, 1), dtype=torch.long), torch.zeros(0, dtype=torch.long)
    return ModelInputs(zero, zero, none, none, RowLayout.of([torch.zeros(1, dtype=torch.long)], 1) if packed else None)


def _places(batch: Batch) -> Tensor:
    """int64[N]: each token's place in its row."""
    return torch.arange(batch.num_tokens) - batch.offsets[:-1][batch.row_index()]


def _packed_inputs(part: Batch, kept: Tensor, lengths: Tensor, live_places: Tensor, targets: Tensor) -> ModelInputs:
    """A prefix that a row has in common with the first row of its group is not repeated: the states of its tokens
    depend on nothing behind them, so the row reads them where that first row computes them."""
    place, row = _places(part), part.row_index()
    group = part.rows["group"]
    leader = (group[:, None] == group[None, :]).int().argmax(1)
    shared = torch.tensor(shared_prefixes(part)).minimum(lengths[leader])
    borrowed = (place < shared[row]) & (leader != torch.arange(part.num_rows))[row]
    own = kept & ~borrowed
    source = torch.where(borrowed, part.offsets[leader[row]] + place, torch.arange(part.num_tokens))
    packed_index = (own.cumsum(0) - 1)[source]
    return ModelInputs(
        part.tokens["token_ids"][own][None],
        place[own][None],
        packed_index[live_places - 1],
        targets,
        RowLayout.of(packed_index[kept].split(lengths.tolist()), int(own.sum())),
    )


def _padded_inputs(
    part: Batch, kept: Tensor, lengths: Tensor, live_places: Tensor, targets: Tensor, pad_id: int
) -> ModelInputs:
    longest = int(lengths.max())
    slots = part.row_index() * longest + _places(part)
    input_ids = torch.full((part.num_rows * longest,), pad_id, dtype=torch.long)
    input_ids[slots[kept]] = part.tokens["token_ids"][kept]
    shape = (part.num_rows, longest)
    return ModelInputs(input_ids.view(shape), torch.arange(longest).expand(shape), slots[live_places - 1], targets)
