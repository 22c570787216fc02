"""Whether what a program printed, or what its function returned, is what was expected."""

from __future__ import annotations

import math
from typing import Any

UNKNOWN = object()
"""Stands for a value that is no plain data; equal to nothing."""


def same_output(expected: str, printed: str, tolerance: float | None = None) -> bool:
    """Line by line, without white space at ends of lines and without empty lines at the end; nothing else is
    forgiven. An empty expected output is met by an empty one only. With a tolerance lines are compared word by word,
    numbers as numbers."""
    wanted, got = _lines(expected), _lines(printed)
    if tolerance is None:
        return wanted == got
    return len(wanted) == len(got) and all(_same_words(a.split(), b.split(), tolerance) for a, b in zip(wanted, got))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_words(wanted: list[str], got: list[str], tolerance: float) -> bool:
    return len(wanted) == len(got) and all(a == b or _close_words(a, b, tolerance) for a, b in zip(wanted, got))


def _close_words(a: str, b: str, tolerance: float) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def same_value(expected: Any, got: Any, tolerance: float, from_json: bool) -> bool:
    """Python's `==`, except that floats may differ by `tolerance`, relatively or absolutely, and that lists and tuples
    differ as types.

    `from_json`: `expected` was written in JSON, which has no tuples and only text as keys; there a tuple equals its
    list and the key 1 equals "1".
    """
    if isinstance(expected, int | float) and isinstance(got, int | float):
        if isinstance(expected, float) or isinstance(got, float):
            return expected == got or _close(expected, got, tolerance)
        return expected == got
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        if not from_json and type(expected) is not type(got):
            return False
        return len(expected) == len(got) and all(
            same_value(a, b, tolerance, from_json) for a, b in zip(expected, got, strict=True)
        )
    if isinstance(expected, dict) and isinstance(got, dict):
        if from_json:
            expected, got = ({str(key): value for key, value in one.items()} for one in (expected, got))
        return expected.keys() == got.keys() and all(
            same_value(value, got[key], tolerance, from_json) for key, value in expected.items()
        )
    return bool(expected == got)


def _close(a: float, b: float, tolerance: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:
        return False


def decode_value(form: Any) -> Any:
    """Undo `plain` of `rollick.sandbox.harness`. Raises ValueError or TypeError for what it never writes."""
    if form is None or isinstance(form, bool | int | str):
        return form
    if not (isinstance(form, dict) and len(form) == 1):
        raise ValueError("no encoded value")
    [(kind, content)] = form.items()
    if kind == "other":
        return UNKNOWN
    if kind == "int":
        return int(content, 16)
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(*map(float, content))
    if kind == "dict":
        return {decode_value(key): decode_value(value) for key, value in content}
    makers = {"list": list, "tuple": tuple, "set": frozenset}
    if kind not in makers:
        raise ValueError(f"no encoded value: {kind!r:.50}")
    return makers[kind](decode_value(one) for one in content)
