"""The spec's padded toy batch B0 (two answers of 2 and 4 tokens) in flat form, float64, and what tests share."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = torch.tensor([0, 0, 1, 1, 1, 1])
NUM_ROWS = 2
ADVANTAGES = torch.tensor([1, 1, -1, -1, -1, -1], dtype=torch.float64)
OLD = torch.tensor([-1.00, -0.50, -0.70, -1.20, -0.30, -1.50], dtype=torch.float64)
NEW = torch.tensor([-0.72, -0.60, -0.60, -1.50, -0.35, -0.20], dtype=torch.float64)
REF = torch.tensor([-1.10, -0.60, -0.90, -1.10, -0.25, -1.40], dtype=torch.float64)
INF = torch.tensor([-1.05, -0.45, -0.75, -1.60, -0.30, -1.45], dtype=torch.float64)
TOTALS = {"tokens": 6, "sequences": 2}


def close(actual: Tensor | float, expected: Tensor | list | float, atol: float = 1e-6) -> None:
    """Equality to the six decimals that worked examples are printed with."""
    actual = torch.as_tensor(actual, dtype=torch.float64)
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
