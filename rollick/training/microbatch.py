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


def plan_sharing(lengths: Sequence[int], shared: Sequence[int], groups: Sequence[int], budget: int) -> list[list[int]]:
    """Like `plan_packed`, where rows of one group that meet in a micro-batch share their common prefix.

    `shared` counts the tokens that a row has in common with the first row of its group (for that row: all).
    Groups stay together as far as the budget allows; each part of a cut group computes the prefix once.

    Lengths 6, 5, 5, shared 6, 4, 4, one group: the three rows cost 6 + 1 + 1 tokens; a budget of 7 gives [[0, 1], [2]].
    """
    pieces: list[list[int]] = []
    costs: list[int] = []
    latest: dict[int, int] = {}
    for row, group in enumerate(groups):
        piece = latest.get(group)
        if piece is not None:
            first = pieces[piece][0]
            own = lengths[row] - min(shared[first], shared[row], lengths[first], lengths[row])
            if costs[piece] + own <= budget:
                pieces[piece].append(row)
                costs[piece] += own
                continue
        latest[group] = len(pieces)
        pieces.append([row])
        costs.append(lengths[row])
    return [sorted(row for i in part for row in pieces[i]) for part in plan_packed(costs, budget)]


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
