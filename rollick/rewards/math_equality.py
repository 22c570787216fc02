"""Whether an answer equals the ground truth, as mathematics. The rules, in the order they are applied:

text        Equal texts are equal. `\\text{Even}` equals "even". A quantified statement (∀, ∃) equals only itself.
region      Intervals, unions and inequalities in one letter compare as sets of reals, in both directions:
            `x < 4` = `(-∞, 4)`; every end and its openness count. `x > 2` and `y > 2` differ.
equation    `x = 5` equals `5`, whichever side wrote the name, but not `y = 5`. Two equations are equal when one is
            a multiple of the other. In a chain such as `2 + 3 = 5` all sides must be equal.
set         {1, 2} = {2, 1}: unordered, repetitions aside. (1, 2) is ordered and its brackets count. They differ.
            A bare list "1, 2" (also "1 and 2", `±1`) may stand for a set or for a tuple.
matrix      Same rows and columns, cell by cell. (a, b)^T is the column vector; (a, b) is no matrix.
unit        A unit on one side only is ignored; on both sides it must be the same one.
percent     50% = 0.5, and as with units 50% = 50. 50 and 0.5 differ.
number      Exact numbers compare exactly. If one was written as a decimal: equal to a relative 1e-6.
            1,234 is one number (a comma and three digits, outside brackets); 3 1/2 is 3.5.
expression  Equal at several positive points (so √(1/m) = 1/√m): letters stand for positive numbers, `i` for √-1.
other       What remains is put to math-verify, ground truth first.

Numbers too large to write out and nesting too deep to read are equal only as text.
"""

from __future__ import annotations

import logging
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rollick.rewards.math_forms import (
    Form,
    assigned_name,
    form,
    normalize,
    quantity,
    split,
    split_words,
    squash,
    without_name,
    words,
)
from rollick.rewards.math_regions import looks_like_region, region

RELATIVE_TOLERANCE = 1e-6

_NUMERAL = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,3})?")
_RATIO = re.compile(r"([-+]?)\s*(?:(\d{1,300})[\s+]+)?(\d{1,300})\s*/\s*(\d{1,300})")
_FRAC = re.compile(
    r"([-+]?)\s*(\d{1,300})?\s*\\frac\s*(?:\{\s*(-?\d{1,300})\s*\}|(\d))\s*(?:\{\s*(-?\d{1,300})\s*\}|(\d))"
)
_NOT_VALUES = re.compile(r"(?<![_^\d])\d+\s+\d|\d\s*_")
"""Two numbers side by side, and numbers in another base: equal only as text."""
_BASED = re.compile(r"[\dA-F]+\s*_\s*(?:\d|\{\d+\})")
_REPEATING = re.compile(r"([-+]?\d{0,300}\.\d{0,300})\s*\\overline\s*\{?(\d{1,100})\}?")
_TOWER = re.compile(r"\d+(?:\^\d+)+")
_MAX_EXPONENT = 10_000
_MAX_DEPTH = 40
_SYMPY_ERRORS = (
    ValueError, TypeError, ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError,
    MemoryError, AssertionError,
)  # fmt: skip
_POINTS = (("37/23", "11/7"), ("19/31", "29/13"), ("53/29", "17/41"), ("7/11", "43/37"))
"""Start and step of the values that an expression's letters take, in alphabetical order."""


def equal(truth: str, answer: str) -> bool:
    """Whether `answer` equals `truth` under the rules above. May run long on hostile input: call it where it can be
    killed."""
    return _equal(normalize(truth), normalize(answer), depth=0)


def is_readable(text: str) -> bool:
    """Whether `equal` can do more with this text than compare it letter by letter."""
    text = normalize(text)
    if words(text) or _BASED.fullmatch(text):
        return True
    if not text or too_large(text):
        return False
    if region(text, _constant) is not None:
        return True
    shape = form(text)
    items = [cell for row in shape.rows for cell in row] if shape.kind == "matrix" else shape.items
    if shape.kind == "value":
        return _readable_value(text)
    return all(is_readable(item) for item in items)


def holds_several(text: str) -> bool:
    """Whether a ground truth consists of several values (a set, a list or a tuple)."""
    shape = form(without_name(normalize(text)))
    return shape.kind in ("set", "list", "tuple") and len(shape.items) > 1


def too_large(text: str) -> bool:
    """Whether reading or evaluating `text` could take for ever: power towers, huge factorials, deep nesting."""
    depth = deepest = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH or len(text) > 4000:
        return True
    flat = re.sub(r"[{}()\s]", "", text)
    if any(int(digits) > 5000 for digits in re.findall(r"(\d{1,300})!", flat)) or "!!" in flat:
        return True
    if re.search(r"\\binom\s*\{?\s*\d{6}", text) or re.search(r"\d{301}", flat.replace(".", "")):
        return True
    return any(_tower_exponent(tower) > _MAX_EXPONENT for tower in _TOWER.findall(flat))


def _tower_exponent(tower: str) -> float:
    """The exponent of `a^b^c` = a^(b^c), capped."""
    exponent = 1.0
    for digits in reversed(tower.split("^")[1:]):
        base = float(digits[:20])
        if exponent > 20 and base > 1:
            return math.inf
        exponent = base**exponent
    return exponent


def warm_up() -> None:
    """Load math-verify and its grammar tables, so that a forked worker starts with both."""
    for text in (r"\frac{x^2+1}{\sqrt{2y}}-3\pi", r"\sin(2x)+\log_2 8", r"|a|-5!\cdot 2^{10}", r"\binom{5}{2}", "x=1"):
        _parse(text)
    equal(r"\sqrt{\frac1m}", r"\frac{1}{\sqrt{m}}")


def _equal(truth: str, answer: str, depth: int) -> bool:
    if squash(truth) == squash(answer):
        return True
    named, said = words(truth), words(answer)
    if named or said:
        return (named or truth.lower()) == (said or answer.lower())
    quantified = (r"\forall", r"\exists")
    if depth > 5 or too_large(truth) or too_large(answer) or any(q in truth + answer for q in quantified):
        return False
    if looks_like_region(truth) or looks_like_region(answer):
        one, two = region(truth, _constant), region(answer, _constant)
        if one is not None and two is not None:
            return one.same_as(two)
        if bool(re.search(r"<|>|\\[lg]e\b|\\ne\b", truth + answer)):
            return _same_by_math_verify(truth, answer)
    return _equal_forms(truth, answer, depth)


def _equal_forms(truth: str, answer: str, depth: int) -> bool:
    expected, given = form(truth), form(answer)
    if "equation" in (expected.kind, given.kind):
        return _equal_equations(truth, answer, expected, given, depth)
    if "matrix" in (expected.kind, given.kind):
        return _equal_matrices(expected, given, depth)
    kinds = {expected.kind, given.kind}
    if "value" in kinds and (assigned_name(truth) or assigned_name(answer)):
        return _equal(without_name(truth), without_name(answer), depth + 1)
    if kinds == {"value"}:
        return _equal_values(truth, answer)
    if kinds == {"tuple"}:
        return expected.brackets == given.brackets and _pairwise(expected.items, given.items, depth)
    if kinds == {"tuple", "list"}:
        return _pairwise(expected.items, given.items, depth)
    if kinds <= {"set", "list"}:
        return _unordered(expected.items, given.items, depth)
    return False


def _pairwise(expected: list[str], given: list[str], depth: int) -> bool:
    return len(expected) == len(given) and all(_equal(a, b, depth + 1) for a, b in zip(expected, given))


def _unordered(expected: list[str], given: list[str], depth: int) -> bool:
    """Each of the expected has an equal among the given, and the other way round."""
    if not expected or not given or len(given) > 100:
        return not expected and not given
    equals = [[_equal(a, b, depth + 1) for b in given] for a in expected]
    return all(any(row) for row in equals) and all(any(column) for column in zip(*equals))


def _equal_matrices(expected: Form, given: Form, depth: int) -> bool:
    if expected.kind != given.kind or len(expected.rows) != len(given.rows):
        return False
    return all(_pairwise(a, b, depth) for a, b in zip(expected.rows, given.rows))


def _equal_equations(truth: str, answer: str, expected: Form, given: Form, depth: int) -> bool:
    names = assigned_name(truth), assigned_name(answer)
    if expected.kind == given.kind:
        if all(names) and names[0] == names[1]:
            return _equal(without_name(truth), without_name(answer), depth + 1)
        return len(expected.items) == len(given.items) == 2 and _proportional(expected.items, given.items)
    other, sides = (answer, expected.items) if expected.kind == "equation" else (truth, given.items)
    name = names[0] if expected.kind == "equation" else names[1]
    if name and len(sides) == 2:
        return _equal(*((sides[1], other) if expected.kind == "equation" else (other, sides[1])), depth + 1)
    return all(_constant(side) is not None and _equal(side, other, depth + 1) for side in sides)


def _equal_values(truth: str, answer: str) -> bool:
    (expected, expected_unit), (given, given_unit) = quantity(truth), quantity(answer)
    if expected_unit and given_unit and expected_unit != given_unit:
        return False
    if _same_number(expected, given):
        return True
    if expected_unit == "%" and not given_unit:
        return _same_number(rf"({expected})/100", given)
    if given_unit == "%" and not expected_unit:
        return _same_number(expected, rf"({given})/100")
    return False


def _same_number(truth: str, answer: str) -> bool:
    one, two = numeral(truth), numeral(answer)
    inexact = "." in truth or "." in answer
    if one is not None and two is not None:
        return one == two or (inexact and abs(one - two) <= RELATIVE_TOLERANCE * max(abs(one), abs(two)))
    verdict = _same_expression(_parse(truth), _parse(answer), RELATIVE_TOLERANCE if inexact else 1e-12)
    return _same_by_math_verify(truth, answer) if verdict is None else verdict


@lru_cache(maxsize=4096)
def numeral(text: str) -> Fraction | None:
    """The exact value of a plain, scientific, mixed or fractional number; None for everything else."""
    text = text.strip()
    if re.fullmatch(r"\([^()]*\)/100", text):
        inner = numeral(text[1:-5])
        return None if inner is None else inner / 100
    if _NUMERAL.fullmatch(text):
        return Fraction(text.rstrip(".") if text.endswith(".") else text)
    if match := _REPEATING.fullmatch(text):
        return _repeating(match[1], match[2])
    if match := _RATIO.fullmatch(text):
        sign, whole, top, bottom = match.groups()
    elif match := _FRAC.fullmatch(text):
        sign, whole, long_top, top, long_bottom, bottom = match.groups()
        top, bottom = long_top or top, long_bottom or bottom
    else:
        return None
    if int(bottom) == 0 or (whole and top.startswith("-")):
        return None
    value = int(whole or 0) + Fraction(int(top), int(bottom))
    return -value if sign == "-" else value


def _repeating(start: str, period: str) -> Fraction:
    """0.1 with period 6 is 1/6."""
    scale = 10 ** len(start.partition(".")[2])
    tail = Fraction(int(period), (10 ** len(period) - 1) * scale)
    head = Fraction(start + "0")
    return head - tail if start.startswith("-") else head + tail


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """A sympy object by math-verify's LaTeX parser, or None.

    Not by `math_verify.parse`: where it takes a text for a plain expression, it hands it to Python's `eval`.
    """
    if not text.strip() or too_large(text) or _NOT_VALUES.search(text):
        return None
    exact = numeral(text)
    if exact is not None:
        import sympy

        return sympy.Rational(exact.numerator, exact.denominator)
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    spelling = NormalizationConfig(malformed_operators=True, boxed="none")
    try:
        return latex2sympy(
            text, normalization_config=spelling, conversion_config=ConversionConfig(lowercase_symbols=False)
        )
    except Exception:  # noqa: BLE001 - the parser raises bare Exception for what it does not understand
        return None


def _same_expression(truth: Any, answer: Any, tolerance: float) -> bool | None:
    """Equality at several points; None when either is no expression or nothing could be evaluated."""
    import sympy

    if not (isinstance(truth, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return None if truth is not None and answer is not None else False
    names = sorted({symbol.name for symbol in truth.free_symbols | answer.free_symbols if hasattr(symbol, "name")})
    agreed = 0
    for start, step in _POINTS if names else _POINTS[:1]:
        values = _values(names, start, step)
        one, two = _evaluate(truth, values), _evaluate(answer, values)
        if one is None or two is None:
            continue
        if abs(one - two) > tolerance * max(abs(one), abs(two)):
            return False
        agreed += 1
    return True if agreed >= min(3, len(_POINTS) if names else 1) else None


def _values(names: list[str], start: str, step: str) -> dict[str, Any]:
    import sympy

    values = {name: sympy.Rational(start) + k * sympy.Rational(step) for k, name in enumerate(names)}
    return {**values, "i": sympy.I}


def _evaluate(expression: Any, values: dict[str, Any]) -> Any:
    """An mpmath number with 30 digits, or None."""
    import mpmath

    try:
        bound = {symbol: values[symbol.name] for symbol in expression.free_symbols}
        number = expression.xreplace(bound).evalf(30)
        with mpmath.workdps(30):
            value = mpmath.mpmathify(number)
    except _SYMPY_ERRORS:
        return None
    return value if mpmath.isfinite(value) else None


def _proportional(expected: list[str], given: list[str]) -> bool:
    """Whether two equations, as left - right, differ by a constant factor only."""
    import sympy

    parsed = [_parse(side) for side in (*expected, *given)]
    if not all(isinstance(side, sympy.Expr) for side in parsed):
        return False
    one, two = parsed[0] - parsed[1], parsed[2] - parsed[3]
    names = sorted({symbol.name for symbol in one.free_symbols | two.free_symbols})
    ratios = []
    for start, step in _POINTS:
        values = _values(names, start, step)
        a, b = _evaluate(one, values), _evaluate(two, values)
        if a is None or b is None:
            continue
        if abs(a) < 1e-20 or abs(b) < 1e-20:
            return False
        ratios.append(a / b)
    return len(ratios) >= 3 and all(abs(ratio - ratios[0]) < 1e-12 * abs(ratios[0]) for ratio in ratios)


@lru_cache(maxsize=4096)
def _constant(text: str) -> float | None:
    """A real number or ±infinity as float, or None."""
    text = text.strip()
    if re.fullmatch(r"[-+]?\s*\\infty", text):
        return -math.inf if text.startswith("-") else math.inf
    exact = numeral(text)
    try:
        if exact is not None:
            return float(exact)
        parsed = _parse(text)
        if parsed is None or not hasattr(parsed, "free_symbols") or parsed.free_symbols:
            return None
        evaluated = _evaluate(parsed, {})
        if evaluated is None:
            return None
        value = complex(evaluated)
    except _SYMPY_ERRORS:
        return None
    return value.real if math.isfinite(value.real) and abs(value.imag) < 1e-12 else None


def _same_by_math_verify(truth: str, answer: str) -> bool:
    from math_verify import verify

    expected, given = _parse(truth), _parse(answer)
    if expected is None or given is None:
        return False
    # No timeout here: math-verify's is a signal, which only a main thread may use. The worker process is the limit.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return bool(verify([expected], [given], float_rounding=6, strict=True, timeout_seconds=None))


def _readable_value(text: str) -> bool:
    number, unit = quantity(text)
    if unit:
        return is_readable(number)
    if assigned_name(text):
        return is_readable(without_name(text))
    parts = [part for piece in split(text, ",") for part in split_words(piece)]
    return len(parts) == 1 and (_constant(text) is not None or _parse(text) is not None)
