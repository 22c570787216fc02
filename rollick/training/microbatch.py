"""Cutting a rank's rows into micro-batches of bounded size."""

from __future__ import annotations

from collections.abc import Sequence


def plan_packed(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Row indices per micro-batch so that the lengths in each add up to at most `budget` tokens.

    First-fit decreasing: within 11/9 of the fewest micro-batches possible. A row longer than the budget gets a
    micro-batch of its own. Order inside a micro-batch is the given one.

    Lengths 5, 3, 5, 3 and budget 8 give [[0, 1], [2, 3]]; four rows of 5 give four micro-batches.
    """
    batches: list[list[int]] = []
    loads: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        slot = next((i for i, load in enumerate(loads) if load + lengths[row] <= budget), None)
        if slot is None:
            batches.append([row])
            loads.append(lengths[row])
        else:
            batches[slot].append(row)
            loads[slot] += lengths[row]
    return [sorted(rows) for rows in batches]


def plan_padded(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Row indices per micro-batch so that rows × longest row is at most `budget` tokens.

    Rows of similar length go together. A row longer than the budget gets a micro-batch of its own.

    Lengths 5, 3, 5, 3 and budget 10 give [[0, 2], [1, 3]].
    """
    batches: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
            longest = lengths[row]
    return [sorted(rows) for rows in batches]
