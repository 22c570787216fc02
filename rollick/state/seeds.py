"""Every seed of a run derives from the run's one seed and a path of names."""

from __future__ import annotations

import hashlib

SEED_BITS = 63
"""Fits a signed 64-bit integer, as `torch.Generator.manual_seed` and JSON readers want it."""


def derive_seed(run_seed: int, *names: str | int) -> int:
    """A seed in [0, 2**63) for one purpose: equal for equal arguments on every machine and process.

    The names are a path ("episode", step, group, member). Their order and type matter, and they cannot run into
    each other: ("a", "b") is not ("ab",), and 1 is not "1".

        derive_seed(7, "episode", 3, 0)  # 8539443541235431798
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (run_seed, *names):
        tag = "i" if isinstance(part, int) else "s"
        text = str(int(part)) if isinstance(part, int) else part
        encoded = text.encode("utf-8")
        digest.update(f"{tag}{len(encoded)}:".encode("ascii"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "big") >> (64 - SEED_BITS)
