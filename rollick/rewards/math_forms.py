"""LaTeX and plain mathematics brought to one spelling, and taken apart by outer form.

normalize(r"\\\\left( \\\\dfrac12 ,\\\\, 3 \\\\right)")    # "(\\\\frac12 , 3 )"
form(r"\\\\{1, 2\\\\}")                             # Form("set", ["1", "2"])
form("x=2 or x=3")                              # Form("list", ["x=2", "x=3"])
quantity(r"5\\\\text{ cm}")                       # ("5", "cm")
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

_SYMBOLS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ",
    "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "ℝ": r"\mathbb{R}", "°": r"^\circ ",
    "²": "^2", "³": "^3", "±": r"\pm ", "∅": r"\emptyset ", "∀": r"\forall ", "∃": r"\exists ", "√": r"\sqrt ",
    "½": r"\frac{1}{2}", "θ": r"\theta ", "\u00a0": " ",
}  # fmt: skip
_SPELLINGS = [
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac\s+(\d)\s+(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr)(?![A-Za-z])\s*\.?"), ""),
    (re.compile(r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])"), ""),
    (re.compile(r"(?<!\\)\\!\s*|(?<!\\)\\,|\{,\}(?=\d)"), ""),
    (re.compile(r"(?<!\\)\\(?:[;: ]|quad(?![A-Za-z])|qquad(?![A-Za-z]))|(?<!\\)~"), " "),
    (re.compile(r"\\(?:leq|leqslant|le)(?![A-Za-z])|<=|=<"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant|ge)(?![A-Za-z])|>="), r"\\ge "),
    (re.compile(r"\\(?:neq|ne)(?![A-Za-z])|!="), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
    (re.compile(r"\\(?:lor|vee)(?![A-Za-z])"), " or "),
    (re.compile(r"\\(?:land|wedge)(?![A-Za-z])"), " and "),
    (re.compile(r"\\(?:varnothing|emptyset)(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\^\{?\s*\\(?:circ|degree)\s*\}?|\\degree(?![A-Za-z])"), r"\\text{degree}"),
    (re.compile(r"\\mathbb\s*\{?\s*R\s*\}?|\\R(?![A-Za-z])|\\Reals"), r"\\mathbb{R}"),
    (re.compile(r"\*\*(?=\s|$)|^\*\*"), ""),
]  # fmt: skip
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|operatorname\*?)"
    r"\s*\{([^{}]*)\}"
)
FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "log", "ln",
    "lg", "exp", "sqrt", "mod", "max", "min", "gcd", "lcm", "det", "inf",
))  # fmt: skip
_WORDY = re.compile(r"[A-Za-z]{2,}|^\s*[A-Za-z]\s*$")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d,])")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MATRIX = re.compile(
    r"\\begin\{(?:[pbvVB]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(.*?)\\end\{(?:[pbvVB]?matrix|smallmatrix|array)\}"
    r"\s*(\^\s*\{?\s*(?:T|\\top|\\intercal)\s*\}?)?",
    re.DOTALL,
)
_TRANSPOSED = re.compile(r"(?<=[)\]])\s*\^\s*\{?\s*(?:T|\\top|\\intercal)\s*\}?$")
_ASSIGNED = re.compile(
    r"^\s*(\\?[A-Za-z]+(?:_(?:\{[^{}]*\}|\w))?(?:\([^()]*\))?|\([A-Za-z](?:\s*,\s*[A-Za-z])+\))\s*(?:=|\\in\b)"
)

FormKind = Literal["value", "list", "set", "tuple", "matrix", "equation"]


@dataclass(frozen=True)
class Form:
    """A text's outer shape. `brackets` are those of a tuple, such as "(]"; `rows` those of a matrix."""

    kind: FormKind
    items: list[str] = field(default_factory=list)
    brackets: str = ""
    rows: list[list[str]] = field(default_factory=list)


def normalize(text: str) -> str:
    """One spelling: no delimiters, sizes, thin spaces, markdown or inner boxes; text commands around numbers gone."""
    for symbol, command in _SYMBOLS.items():
        text = text.replace(symbol, command)
    text = text.strip().strip("*`").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
    while (unboxed := _BOXED.sub(r"\1", text)) != text:
        text = unboxed
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    text = _TEXT.sub(_plain_text, text).strip()
    text = re.sub(r"(?<!\\)[.,;:]+$", "", text).strip()
    if not text.startswith(("(", "[", "\\{")):
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)


def _plain_text(match: re.Match[str]) -> str:
    content = match[1].strip()
    if content.lower() in ("and", "or"):
        return f" {content.lower()} "
    if content in FUNCTIONS:
        return rf"\{content} "
    bold = match[0].startswith(("\\mathbf", "\\bold", "\\bm", "\\mathit"))
    if len(content) == 1 and (bold or not re.search(r"[\d})]\s*$", match.string[: match.start()])):
        return f"{content} "
    return rf"\text{{{content}}}" if _WORDY.search(content) else content


def squash(text: str) -> str:
    """For comparison as text: without braces around single characters and white space, except between digits."""
    return re.sub(r"\{(\w)\}", r"\1", re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text))


def words(text: str) -> str | None:
    """The words of a text that is nothing but one text command, or None: `\\text{Even}` gives "even"."""
    match = re.fullmatch(r"\\text\{([^{}]*)\}", text)
    return re.sub(r"[\s.()]+", " ", match[1]).strip().lower() if match else None


def form(text: str) -> Form:
    """The outer shape of a normalised text."""
    if match := _MATRIX.fullmatch(text):
        return _matrix(match[1], transposed=bool(match[2]))
    if transposed := _TRANSPOSED.search(text):
        inner = form(text[: transposed.start()].strip())
        if inner.kind == "tuple":
            return Form("matrix", rows=[[item] for item in inner.items])
    if text.startswith("\\{") and _closes(text, 2, "\\}"):
        return Form("set", split(text[2:-2], ","))
    if text == "\\emptyset":
        return Form("set", [])
    if text[:1] in ("(", "[", "]") and text[-1:] in (")", "]", "[") and _closes(text, 1, text[-1]):
        items = split(text[1:-1], ",")
        if len(items) > 1:
            return Form("tuple", items, text[0] + text[-1])
    items = [part for piece in split(text, ",") for part in split_words(piece)]
    if len(items) > 1:
        return Form("list", items)
    sides = split(text, "=")
    if len(sides) > 1:
        return Form("equation", sides)
    if "\\pm" in text:
        return Form("list", [text.replace("\\pm", "+"), text.replace("\\pm", "-")])
    return Form("value", [text])


def _matrix(body: str, *, transposed: bool) -> Form:
    lines = re.split(r"\\\\(?:\s*\[[^\]]*\])?|\\cr\b", body.strip())
    rows = [[cell.strip() for cell in line.split("&")] for line in lines if line.strip()]
    if transposed and len({len(row) for row in rows}) == 1:
        rows = [list(column) for column in zip(*rows)]
    return Form("matrix", rows=rows)


def split(text: str, separator: str) -> list[str]:
    """Parts of `text` between separators that stand outside all brackets."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        character = text[position]
        if text.startswith(separator, position) and depth == 0:
            parts.append(text[start:position].strip())
            start = position = position + len(separator)
            continue
        if character == "\\" and text[position + 1 : position + 2] not in ("{", "}"):
            position += 2
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        position += 1
    parts.append(text[start:].strip())
    return [part for part in parts if part] if len(parts) > 1 else parts


def split_words(text: str) -> list[str]:
    """Parts between the words `and` and `or`."""
    return [part for piece in re.split(r"\b(?:and|or)\b|;", text) if (part := piece.strip())]


def _closes(text: str, start: int, end: str) -> bool:
    """Whether the bracket that ends `text` is the one opened before `start`."""
    depth = 0
    inside = text[start : len(text) - len(end)]
    for character in inside.replace("\\{", "{").replace("\\}", "}"):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0 and text.endswith(end)


def assigned_name(text: str) -> str | None:
    """The name on the left of `x = …`, `f(t) = …`, `(a, b) = …` or `x \\in …`."""
    match = _ASSIGNED.match(text)
    return squash(match[1]) if match else None


def without_name(text: str) -> str:
    """`text` without a leading `x =` or `x \\in`; a chain of equations stays as it is."""
    match = _ASSIGNED.match(text)
    return text[match.end() :].strip() if match and len(split(text, "=")) <= 2 else text


_UNIT_NAMES = {
    "%": "% percent", "degree": "degree degrees deg", "$": "$ dollar dollars usd", "cent": "cent cents",
    "m": "m meter meters metre metres", "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters", "km": "km kilometer kilometers kilometre kilometres",
    "in": "inch inches", "ft": "ft foot feet", "yd": "yd yard yards", "mi": "mi mile miles",
    "g": "g gram grams", "kg": "kg kilogram kilograms", "lb": "lb lbs pound pounds", "oz": "oz ounce ounces",
    "l": "l liter liters litre litres", "ml": "ml milliliter milliliters", "s": "s sec second seconds",
    "min": "min minute minutes", "h": "h hr hrs hour hours", "mph": "mph", "": "unit units",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}
_TEXT_UNIT = re.compile(r"^(.*\S)\s*\\text\{([^{}]+)\}\s*(?:\^\s*\{?\s*([23])\s*\}?)?$", re.DOTALL)
_WORD_UNIT = re.compile(
    r"^([-+]?[\d.,/ ]*\d|.*[})])\s*([A-Za-z][A-Za-z /]*?)\s*(?:\^\s*\{?\s*([23])\s*\}?)?$", re.DOTALL
)


def quantity(text: str) -> tuple[str, str]:
    """(number, unit): the unit is "" when there is none, "%" for per cent, "$" for dollars, else its short name.

    Words after a number are a unit when they are known (`5 cm`) or have three letters (`5 apples`); a single letter
    is a variable (`5 m`) unless it stands in a text command (`5\\text{ m}`).
    """
    text = text.strip()
    if match := re.fullmatch(r"([-+]?)\\?\$\s*(.+)", text):
        return match[1] + match[2], "$"
    if match := re.fullmatch(r"(.*?\S)\s*\\?%", text, re.DOTALL):
        return match[1], "%"
    if match := _TEXT_UNIT.match(text):
        return match[1].strip(), _unit(match[2], match[3])
    if (match := _WORD_UNIT.match(text)) and "\\" not in match[2]:
        names = match[2].lower().split()
        known = len(match[2]) > 1 and names[-1] in _UNITS
        if known or (len(names[0]) >= 3 and not FUNCTIONS & set(names)):
            return match[1].strip(), _unit(match[2], match[3])
    return text, ""


def _unit(name: str, power: str | None) -> str:
    name = name.strip().lower().rstrip(".")
    for prefix, exponent in (("square ", "2"), ("sq ", "2"), ("cubic ", "3")):
        if name.startswith(prefix):
            name, power = name.removeprefix(prefix), exponent
    short = _UNITS.get(name)
    if short is None:
        short = name[:-1] if len(name) > 3 and name.endswith("s") else name
    return f"{short}^{power}" if power else short
