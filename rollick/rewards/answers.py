"""Finding the answer in what a policy said: thinking aside, then by declared priority. Linear in the text's length.

visible("<think>maybe 8</think> It is \\\\boxed{9}.", "auto")   # " It is \\\\boxed{9}."
find_answer("… so \\\\boxed{3}; no, \\\\boxed{5}.", ("boxed",))   # ["5"]
find_answer("Final Answer: **58**", ("boxed", "phrase"))     # ["58"]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rollick.rewards.math_forms import FUNCTIONS

Thinking = Literal["auto", "require", "keep"]
Place = Literal["boxed", "hashes", "phrase", "bare", "last"]
PLACES: tuple[Place, ...] = ("boxed", "hashes", "phrase", "bare", "last")

MAX_ANSWER_CHARS = 2000
"""Nothing longer is taken for an answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BARE_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_BETWEEN_ADJACENT = re.compile(r"(?:[\s$,;.&*]|\\[,;:!() \[\]]|\\quad|\\qquad|\\text\{\s*(?:and|or)\s*\}|and|or)*")
_PHRASE = re.compile(
    r"\b(?:final\s+answer|answer|result)\b[*_`\s]*(?:is\b|equals\b|=|:)[*_`\s:=]*"
    r"|\*\*\s*final\s+answer\s*\*\*\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\\?\$\s?)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?(?:\s?\\?%)?"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|\*|$)")
_TEXT_GROUP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{[^{}]*\}")
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_SHORT_WORD = re.compile(r"(?<![\\A-Za-z])(?:is|in|it|so|to|of|we|he|my|an|as|at|be|by|do|go|if|no|on|up|us)\b", re.I)


def visible(text: str, thinking: Thinking) -> str | None:
    """What is left for the reader, or None when the reasoning never ended.

    auto: what stands behind the last `</think>`; a `<think>` that is still open there means no answer; text without
    these tags is visible as it is. require: as auto, but without a finished thought there is no answer. keep: all.
    """
    if thinking == "keep":
        return text
    _, closed, rest = text.rpartition("</think>")
    if "<think>" in rest or (thinking == "require" and not closed):
        return None
    return rest


def find_answer(text: str, places: Sequence[Place]) -> list[str]:
    """The answer at the first of `places` that has one; [] when none has.

    boxed   the last balanced, non-empty \\boxed{…} or \\fbox{…} (or `\\boxed 7`), and with it the boxes that stand
            directly before it (only white space, punctuation, `and`, `or` between): these are several strings.
            A box that was opened and never closed is an answer that was not finished: nothing else is looked at
    hashes  what follows the last `####`, to the end of the line
    phrase  what follows the last "answer is", "Final Answer:" or the like
    bare    the whole text, when it is one line of mathematics without prose
    last    the last $…$, \\(…\\), \\[…\\] or the last number, whichever stands later
    """
    finders = {"boxed": _boxed, "hashes": _hashes, "phrase": _phrase, "bare": _bare, "last": _last}
    for place in places:
        if found := [one for one in finders[place](text) if len(one) <= MAX_ANSWER_CHARS]:
            return found
        if place == "boxed" and _has_unclosed_box(text):
            return []
    return []


def has_prose(text: str) -> bool:
    """Whether ordinary words stand in a text that should be mathematics (text commands and points ABC do not count)."""
    rest = _COMMAND.sub(" ", _TEXT_GROUP.sub(" ", text))
    found = [word for word in _WORD.findall(rest) if not (word.isupper() and len(word) <= 4)]
    return any(word.lower() not in FUNCTIONS and word.lower() != "and" for word in found)


def boxes(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of the outermost balanced, non-empty boxes, in order."""
    closing = _matching_braces(text)
    found: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        if found and match.start() < found[-1][1]:
            continue
        start = match.end()
        if start in closing:
            content, end = text[start + 1 : closing[start]], closing[start] + 1
        elif number := _BARE_NUMBER.match(text, start):
            content, end = number[0], number.end()
        else:
            continue
        if content.strip():
            found.append((match.start(), end, content.strip()))
    return found


def _matching_braces(text: str) -> dict[int, int]:
    """Position of the closing brace of every balanced opening one; `\\{` and `\\}` are no braces."""
    pairs: dict[int, int] = {}
    open_at: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "{":
            open_at.append(match.start())
        elif match[0] == "}" and open_at:
            pairs[open_at.pop()] = match.start()
    return pairs


def _boxed(text: str) -> list[str]:
    found = boxes(text)
    first = len(found) - 1
    while first > 0 and _BETWEEN_ADJACENT.fullmatch(text, found[first - 1][1], found[first][0]):
        first -= 1
    return [content for _, _, content in found[max(first, 0) :]]


def _has_unclosed_box(text: str) -> bool:
    closing = _matching_braces(text)
    ends = [match.end() for match in _BOX.finditer(text)]
    return any(text.startswith("{", end) and end not in closing for end in ends)


def _hashes(text: str) -> list[str]:
    _, marker, rest = text.rpartition("####")
    line = rest.strip().partition("\n")[0].strip(" *")
    return [line] if marker and line else []


def _phrase(text: str) -> list[str]:
    last = None
    for match in _PHRASE.finditer(text):
        last = match
    if last is None:
        return []
    rest = text[last.end() : last.end() + MAX_ANSWER_CHARS]
    display = _delimited(rest, first=True) if rest.startswith(("$$", "\\[")) else None
    line = rest.partition("\n")[0]
    inner = display or _delimited(line, first=True)
    if inner and not _NUMBER.search(line[: line.find(inner)]):
        return [inner]
    sentence = _SENTENCE_END.split(line.partition("**")[0], maxsplit=1)[0].strip(" *_`:$")
    if sentence and not has_prose(sentence):
        return [sentence]
    number = _NUMBER.search(sentence)
    return [number[0]] if number else []


def _bare(text: str) -> list[str]:
    line = text.strip().removesuffix(".").strip("*` ")
    if not line or "\n" in line or len(line) > 500 or has_prose(line) or _SHORT_WORD.search(line) or _BOX.search(line):
        return []
    return [line]


def _last(text: str) -> list[str]:
    span = _delimited(text, first=False)
    numbers = list(_NUMBER.finditer(text[-100_000:]))
    number = numbers[-1][0] if numbers else None
    if span is None or number is None:
        return [one for one in (span, number) if one is not None]
    return [span if text.rfind(span) + len(span) >= text.rfind(number) + len(number) else number]


def _delimited(text: str, *, first: bool) -> str | None:
    """The first or last stretch between mathematics delimiters that holds no prose (prices are no delimiters)."""
    best: tuple[int, str] | None = None
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if first:
            start = text.find(opening)
            end = text.find(closing, start + len(opening)) if start >= 0 else -1
        else:
            end = text.rfind(closing)
            start = text.rfind(opening, 0, end) if end >= 0 else -1
        inner = text[start + len(opening) : end].strip() if 0 <= start < end else ""
        if not inner or len(inner) > MAX_ANSWER_CHARS or has_prose(inner):
            continue
        if best is None or (start < best[0] if first else start > best[0]):
            best = (start, inner)
    return best[1] if best else None
