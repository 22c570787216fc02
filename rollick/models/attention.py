"""Attention for rows packed end to end: everything but attention sees one long sequence, attention sees the rows.

Registered with transformers under the name `ROW_ATTENTION`, so that any model whose attention goes through its
attention interface can use it. A dense mask over the packed sequence would cost (sum of lengths)²; this costs the
sum of length² and runs the ordinary causal kernels, on CPU and GPU alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROW_ATTENTION = "rollick_rows"
BLOCK_FILL = 0.75
"""Rows share a block while they are at least this fraction of its longest row."""


@dataclass(frozen=True)
class RowLayout:
    """Where the rows lie in a packed sequence of N tokens.

    `blocks`: int64 [rows, length] each, rows of similar length; entry (r, t) is the packed index of row r's t-th
    token (past the row's end: any token, nothing that counts attends to it). `home` int64[N]: for each packed
    token its place in the blocks laid flat, one after the other.

    Rows of 3 and 1 tokens: blocks ([[0, 1, 2]], [[3]]), home [0, 1, 2, 3].
    """

    blocks: tuple[Tensor, ...]
    home: Tensor

    @classmethod
    def of(cls, rows: Sequence[Tensor], num_tokens: int) -> RowLayout:
        """From each row's packed indices, int64[length]. A token may belong to several rows (a shared prompt):
        it must then have the same history in each, and its result is taken from one of them."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        members: list[list[Tensor]] = []
        for row in order:
            if members and len(rows[row]) >= BLOCK_FILL * len(members[-1][0]):
                members[-1].append(rows[row])
            else:
                members.append([rows[row]])
        slots = sum(len(block) * len(block[0]) for block in members)
        home = torch.full((num_tokens,), slots)
        blocks, start = [], 0
        for block in members:
            index = nn.utils.rnn.pad_sequence(block, batch_first=True)
            filled = torch.arange(index.shape[1]) < torch.tensor([len(row) for row in block])[:, None]
            places = start + filled.flatten().nonzero()[:, 0]
            home.scatter_reduce_(0, index[filled], places, "amin")  # the first of several, always the same one
            blocks.append(index)
            start += index.numel()
        return cls(tuple(blocks), home)

    def to(self, device: torch.device | str) -> RowLayout:
        return RowLayout(tuple(block.to(device) for block in self.blocks), self.home.to(device))


def row_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    row_layout: RowLayout | None = None,
    **unsupported: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each row of `row_layout`; query, key, value are [1, heads, N, head_dim].

    Returns [1, N, heads, head_dim], as transformers' attention interface asks. Raises ValueError for variants of
    attention that it does not know, instead of ignoring them.
    """
    extras = sorted(name for name in ("softcap", "s_aux", "position_bias") if unsupported.get(name) is not None)
    if extras or dropout or attention_mask is not None or row_layout is None:
        raise ValueError(
            f"packed rows support no attention mask, dropout or {', '.join(extras) or 'call without rows'}"
        )
    states = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for block in row_layout.blocks:
        q, k, v = (x.index_select(0, block.flatten()).unflatten(0, block.shape).transpose(1, 2) for x in states)
        mask = _window_mask(block.shape[1], sliding_window, block.device)
        attended = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=grouped
        )
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs).index_select(0, row_layout.home)[None], None


def _window_mask(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """bool[length, length], True where attended; None when the window covers the whole row."""
    if window is None or length <= window:
        return None
    places = torch.arange(length, device=device)
    distance = places[:, None] - places[None, :]
    return (distance >= 0) & (distance < window)


def can_pack(model: Any) -> bool:
    """Whether the model's layers mix tokens by attention alone, through transformers' attention interface."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    softcap = getattr(config, "attn_logit_softcapping", None)
    return (
        kinds <= {"full_attention", "sliding_attention"}
        and softcap is None
        and bool(model._supports_sdpa)
        and bool(model._can_set_attn_implementation())
    )


def use_row_attention(model: Any) -> None:
    """Switch a model that `can_pack` to row attention; its forward then needs the keyword `row_layout`."""
    from transformers import AttentionInterface

    AttentionInterface.register(ROW_ATTENTION, row_attention)
    model.set_attn_implementation(ROW_ATTENTION)
