"""Sets of real numbers, written as intervals, unions or inequalities, brought to one form.

region(r"x < 4")                     # the same as
region(r"(-\\\\infty, 4)")             # Region(((-inf, True, 4.0, True),))
region(r"x \\\\ne 1") == region(r"(-\\\\infty,1)\\\\cup(1,\\\\infty)")
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from rollick.rewards.math_forms import split

Interval = tuple[float, bool, float, bool]
"""(low, low end excluded, high, high end excluded)"""

_RELATION = re.compile(r"\\le\b|\\ge\b|\\ne\b|<|>")
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?")
_NOT_VARIABLES = frozenset([r"\infty", r"\pi", "e"])
_MEMBER = re.compile(r"^\s*(\\?[A-Za-z])\s*\\in\b\s*")
_BUILDER = re.compile(r"^\\\{\s*(\\?[A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid|:|\|)\s*(.*)\\\}$", re.DOTALL)
_MINUS = re.compile(r"\\setminus|\\backslash|(?<=R\})\s*-\s*(?=\\\{)")

EVERYTHING: Interval = (-math.inf, True, math.inf, True)


@dataclass(frozen=True)
class Region:
    """Disjoint intervals in order; a single point is an interval of length 0. `variable` is the letter of an
    inequality, None where the text names none."""

    intervals: tuple[Interval, ...]
    variable: str | None = None

    def same_as(self, other: Region) -> bool:
        """Equal sets, ends compared to 9 digits; inequalities in different letters differ."""
        if self.variable and other.variable and self.variable != other.variable:
            return False
        return len(self.intervals) == len(other.intervals) and all(
            one[1] == two[1] and one[3] == two[3] and _close(one[0], two[0]) and _close(one[2], two[2])
            for one, two in zip(self.intervals, other.intervals)
        )


def looks_like_region(text: str) -> bool:
    """Whether a normalised text can only mean a set of reals (a plain `(1, 2)` may also be a point)."""
    return bool(_RELATION.search(text) or _MINUS.search(text)) or any(
        word in text for word in (r"\cup", r"\infty)", r"\infty ", r"\mathbb{R}", r"-\infty")
    )


def region(text: str, number: Callable[[str], float | None]) -> Region | None:
    """The set that a normalised text describes, or None when it is no set of reals with constant ends.

    `number` turns an end such as `\\frac{1}{2}` into a float, or None.
    """
    if match := _BUILDER.match(text):
        return region(match[2].strip(), number)
    variable = None
    if match := _MEMBER.match(text):
        variable, text = match[1], text[match.end() :]
    if _RELATION.search(text):
        return _inequalities(text, number)
    intervals: list[Interval] = []
    for part in split(text, r"\cup"):
        piece = _interval(part.strip(), number)
        if piece is None:
            return None
        intervals += piece
    return Region(_merge(intervals), variable)


def _interval(text: str, number: Callable[[str], float | None]) -> list[Interval] | None:
    base, minus, hole = _split_minus(text)
    if minus:
        whole, removed = _interval(base, number), _interval(hole, number)
        return None if whole is None or removed is None else _intersect(whole, _complement(removed))
    if text == r"\mathbb{R}":
        return [EVERYTHING]
    if text == r"\emptyset":
        return []
    if text.startswith("\\{") and text.endswith("\\}"):
        points = [number(item) for item in split(text[2:-2], ",")]
        return None if None in points else [(p, False, p, False) for p in points if p is not None]
    if text[:1] not in ("(", "[", "]") or text[-1:] not in (")", "]", "["):
        return None
    ends = split(text[1:-1], ",")
    if len(ends) != 2:
        return None
    low, high = number(ends[0]), number(ends[1])
    if low is None or high is None or low > high:
        return None
    low_open, high_open = text[0] != "[", text[-1] != "]"
    if low == high:
        return None if low_open or high_open else [(low, False, high, False)]
    return [(low, low_open or math.isinf(low), high, high_open or math.isinf(high))]


def _split_minus(text: str) -> tuple[str, bool, str]:
    match = _MINUS.search(text)
    return (text[: match.start()].strip(), True, text[match.end() :].strip()) if match else (text, False, "")


def _inequalities(text: str, number: Callable[[str], float | None]) -> Region | None:
    """`a < x`, `a < x \\le b`, `x \\ne a`; joined by `or` (union) or `and` (intersection)."""
    variables: set[str] = set()
    union: list[Interval] = []
    for alternative in re.split(r"\bor\b|\\cup\b", text):
        both: list[Interval] = [EVERYTHING]
        for condition in re.split(r"\band\b", alternative):
            read = _chain(condition.strip(), number)
            if read is None:
                return None
            variables.add(read[0])
            both = _intersect(both, read[1])
        union += both
    return Region(_merge(union), variables.pop()) if len(variables) == 1 else None


def _chain(text: str, number: Callable[[str], float | None]) -> tuple[str, list[Interval]] | None:
    terms = [term.strip() for term in _RELATION.split(text)]
    relations = _RELATION.findall(text)
    places = [i for i, term in enumerate(terms) if _VARIABLE.fullmatch(term) and term not in _NOT_VARIABLES]
    if len(places) != 1:
        return None
    at = places[0]
    found: list[Interval] = [EVERYTHING]
    for i, term in enumerate(terms):
        if i == at:
            continue
        end = number(term)
        if end is None or abs(i - at) != 1:
            return None
        relation = relations[at] if i > at else _FLIPPED[relations[i]]
        found = _intersect(found, _half_line(relation, end))
    return terms[at], found


def _half_line(relation: str, end: float) -> list[Interval]:
    if relation == r"\ne":
        return _complement([(end, False, end, False)])
    if relation in ("<", r"\le"):
        return [(-math.inf, True, end, relation == "<" or math.isinf(end))]
    return [(end, relation == ">" or math.isinf(end), math.inf, True)]


def _merge(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for low, low_open, high, high_open in sorted(intervals):
        if merged and (low < merged[-1][2] or (low == merged[-1][2] and not (low_open and merged[-1][3]))):
            last_low, last_open, last_high, last_high_open = merged[-1]
            if high > last_high:
                merged[-1] = (last_low, last_open, high, high_open)
            elif high == last_high:
                merged[-1] = (last_low, last_open, high, high_open and last_high_open)
        else:
            merged.append((low, low_open, high, high_open))
    return tuple(merged)


def _complement(intervals: list[Interval]) -> list[Interval]:
    rest: list[Interval] = []
    low, low_open = -math.inf, True
    for start, start_open, end, end_open in _merge(intervals):
        if start > low or (start == low and not low_open and start_open):
            rest.append((low, low_open, start, not start_open))
        low, low_open = end, not end_open
    if low < math.inf:
        rest.append((low, low_open, math.inf, True))
    return rest


def _intersect(ones: list[Interval], others: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for a in ones:
        for b in others:
            low, low_open = max((a[0], a[1]), (b[0], b[1]))
            high, high_closed = min((a[2], not a[3]), (b[2], not b[3]))
            if low < high or (low == high and not low_open and high_closed):
                found.append((low, low_open, high, not high_closed))
    return found


def _close(one: float, two: float) -> bool:
    return one == two or math.isclose(one, two, rel_tol=1e-9)
