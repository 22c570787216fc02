"""A content hash of tensors that is cheap enough to run on every weight of every sync, on any device."""

from __future__ import annotations

import hashlib

import torch

_COLUMNS = 4096
_ROWS_AT_ONCE = 64  # 1 MB of products: they stay in the cache of the processor


def tensor_hash(tensor: torch.Tensor) -> str:
    """16 hex digits that depend on every bit of the tensor, its dtype and its shape, and not on its device.

    The words w of 32 bits, laid in rows of 4096, are summed as Σ_r B_r · (Σ_c a_c · w_rc mod 2³²) mod 2⁶⁴ with fixed
    odd a and B. An odd factor is invertible, so any change within one word changes the sum, and words that trade
    places are seen too; larger damage goes unseen with a chance of about 2⁻³². It is meant for accidents (a
    weight that is stale, truncated, cast or in the wrong place), not for adversaries. About 8 GB/s on one core.

        tensor_hash(torch.zeros(2)) == tensor_hash(torch.zeros(2))
        tensor_hash(torch.zeros(2)) != tensor_hash(torch.zeros(1, 2))
    """
    words = _words(tensor.detach())
    columns, rows = _factors(-(-words.numel() // _COLUMNS), tensor.device)
    whole = words.numel() // _COLUMNS
    body = words[: whole * _COLUMNS].view(whole, _COLUMNS)
    sums = [
        (body[start : start + _ROWS_AT_ONCE] * columns).sum(-1, dtype=torch.int32)
        for start in range(0, whole, _ROWS_AT_ONCE)
    ]
    tail = words[whole * _COLUMNS :]
    if tail.numel():
        sums.append((tail * columns[: tail.numel()]).sum(dtype=torch.int32).view(1))
    total = int((torch.cat(sums).long() * rows).sum()) if sums else 0
    text = f"{tensor.dtype} {tuple(tensor.shape)} {total}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes as int32[n], zeros appended up to a whole word."""
    octets = tensor.contiguous().reshape(-1).view(torch.uint8)
    missing = -octets.numel() % 4
    if missing:
        octets = torch.nn.functional.pad(octets, (0, missing))
    if octets.storage_offset() % 4:
        octets = octets.clone()
    return octets.view(torch.int32)


def _factors(rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Odd factors a int32[4096] and B int64[rows]: multiples of the golden ratio, scrambled once."""
    a = torch.arange(1, _COLUMNS + 1, device=device) * -7046029254386353131
    a = (a ^ (a >> 29)) * -4658895280553007687
    b = torch.arange(1, rows + 1, device=device) * -7723592293110705685
    return ((a >> 32).to(torch.int32) | 1), (b ^ (b >> 31)) | 1
