"""Instructions that can be checked by rule: the 25 kinds of IFEval (arXiv 2311.07911) and some in the style of IFBench.

    problem({"id": "keywords:frequency", "keyword": "sea"})   # "… needs 'frequency' …"
    follows("No sea here.", {"id": "punctuation:no_comma"})   # True

A checker is a pure function of the answer and the instruction's own arguments: nothing is drawn at scoring time, and a
missing argument is an error when data is loaded. Units, here as in IFEval: a word is a run of letters, digits and
underscores; keywords are whole words or phrases, in any case; `relation` is "at least" or "less than".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from rollick.rewards.language_id import LANGUAGES, guess

Relation = Literal["at least", "less than"]


@dataclass(frozen=True)
class _Kind:
    check: Callable[..., bool]
    arguments: dict[str, type]


_KINDS: dict[str, _Kind] = {}


def _kind(id: str, **arguments: type) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Register a checker `f(text, **arguments)`; `Relation` stands for the type of a relation."""

    def register(check: Callable[..., bool]) -> Callable[..., bool]:
        _KINDS[id] = _Kind(check, arguments)
        return check

    return register


def kinds() -> list[str]:
    """Ids of all instructions that can be checked."""
    return sorted(_KINDS)


def problem(instruction: dict[str, Any]) -> str | None:
    """Why an instruction cannot be checked, or None. Arguments that are None count as left out (files with columns
    fill the arguments of other kinds with null)."""
    id = instruction.get("id")
    if not isinstance(id, str) or id not in _KINDS:
        return f"no instruction kind {id!r:.60}"
    expected = _KINDS[id].arguments
    given = _arguments(instruction)
    if missing := sorted(expected.keys() - given.keys()):
        return f"instruction '{id}' needs '{missing[0]}'"
    if unknown := sorted(given.keys() - expected.keys()):
        return f"instruction '{id}' takes no '{unknown[0]}'"
    for name, value in given.items():
        if reason := _type_problem(name, value, expected[name]):
            return f"instruction '{id}': {reason}"
    return None


def follows(text: str, instruction: dict[str, Any]) -> bool:
    """Whether an answer follows one instruction (one without a `problem`). An empty answer follows none."""
    return bool(text.strip()) and _KINDS[instruction["id"]].check(text, **_arguments(instruction))


def follows_loosely(text: str, instruction: dict[str, Any]) -> bool:
    """As `follows`, or when it does so without asterisks, first line, last line, or several of these."""
    lines = text.split("\n")
    variants = [text, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()]
    return any(follows(one, instruction) for variant in variants for one in (variant, variant.replace("*", "")))


def _arguments(instruction: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in instruction.items() if name != "id" and value is not None}


def _type_problem(name: str, value: Any, expected: type) -> str | None:
    if expected is Relation:
        return None if value in get_args(Relation) else f"'{name}' is {value!r:.60}, not 'at least' or 'less than'"
    if expected is list:
        fine = isinstance(value, list | tuple) and value and all(isinstance(one, str) and one for one in value)
        return None if fine else f"'{name}' is {value!r:.60}, not a list of words"
    if expected is int:
        fine = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        return None if fine else f"'{name}' is {value!r:.60}, not a whole number"
    if not isinstance(value, str) or not value.strip():
        return f"'{name}' is {value!r:.60}, not a text"
    if name == "language" and value not in LANGUAGES:
        return f"language '{value}' is unknown (known: {', '.join(sorted(LANGUAGES))})"
    return None


def _holds(count: int, relation: str, wanted: float) -> bool:
    return count >= wanted if relation == "at least" else count < wanted


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def sentences(text: str) -> list[str]:
    """Split behind . ! ? … where white space follows; common abbreviations and initials end no sentence."""
    guarded = re.sub(r"\b(Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|[A-Z])\.(?=\s)", r"\1\0", text)
    parts = re.split(r"(?<=[.!?…。！？])[\"'”’)\]*]*\s+|(?<=[。！？])", guarded)
    return [part.replace("\0", ".").strip() for part in parts if words(part)]


def _occurrences(text: str, phrase: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(phrase.strip())}(?!\w)", text, re.IGNORECASE))


@_kind("keywords:existence", keywords=list)
def _keywords_existence(text: str, keywords: Sequence[str]) -> bool:
    return all(_occurrences(text, keyword) for keyword in keywords)


@_kind("keywords:frequency", keyword=str, frequency=int, relation=Relation)  # type: ignore[arg-type]
def _keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _holds(_occurrences(text, keyword), relation, frequency)


@_kind("keywords:forbidden_words", forbidden_words=list)
def _forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(_occurrences(text, word) for word in forbidden_words)


@_kind("keywords:letter_frequency", letter=str, let_frequency=int, let_relation=Relation)  # type: ignore[arg-type]
def _letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _holds(text.lower().count(letter.lower()), let_relation, let_frequency)


@_kind("language:response_language", language=str)
def _response_language(text: str, language: str) -> bool:
    return guess(text) == language


@_kind("length_constraints:number_sentences", num_sentences=int, relation=Relation)  # type: ignore[arg-type]
def _number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return _holds(len(sentences(text)), relation, num_sentences)


@_kind("length_constraints:number_words", num_words=int, relation=Relation)  # type: ignore[arg-type]
def _number_words(text: str, num_words: int, relation: str) -> bool:
    return _holds(len(words(text)), relation, num_words)


@_kind("length_constraints:number_paragraphs", num_paragraphs=int)
def _number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many, divided by lines of `***`; an empty one between dividers does not count as followed."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text.strip().strip("*").strip())]
    return all(parts) and len(parts) == num_paragraphs


@_kind("length_constraints:nth_paragraph_first_word", num_paragraphs=int, nth_paragraph=int, first_word=str)
def _nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs divided by empty lines, the nth (from 1) starting with this word."""
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) != num_paragraphs or not 1 <= nth_paragraph <= len(parts):
        return False
    return [word.lower() for word in words(parts[nth_paragraph - 1])[:1]] == [first_word.strip().lower()]


@_kind("detectable_content:number_placeholders", num_placeholders=int)
def _number_placeholders(text: str, num_placeholders: int) -> bool:
    return len(re.findall(r"\[[^\[\]\n]*\w[^\[\]\n]*\]", text)) >= num_placeholders


@_kind("detectable_content:postscript", postscript_marker=str)
def _postscript(text: str, postscript_marker: str) -> bool:
    """A line that starts with the marker (spaces between its letters aside) and says something."""
    letters = r"\s?".join(re.escape(character) for character in postscript_marker.replace(" ", ""))
    return re.search(rf"^\s*{letters}\W*\w", text, re.IGNORECASE | re.MULTILINE) is not None


@_kind("detectable_format:number_bullet_lists", num_bullets=int)
def _number_bullets(text: str, num_bullets: int) -> bool:
    return len(re.findall(r"^[ \t]*[*-][ \t]+\S", text, re.MULTILINE)) == num_bullets


@_kind("detectable_format:constrained_response")
def _constrained_response(text: str) -> bool:
    """Exactly one of the three; an answer that lists them all has chosen none."""
    return sum(f"My answer is {choice}." in text for choice in ("yes", "no", "maybe")) == 1


@_kind("detectable_format:number_highlighted_sections", num_highlights=int)
def _highlighted_sections(text: str, num_highlights: int) -> bool:
    return len(re.findall(r"\*\*[^*\n]*\w[^*\n]*\*\*|\*[^*\n]*\w[^*\n]*\*", text)) >= num_highlights


@_kind("detectable_format:multiple_sections", section_spliter=str, num_sections=int)
def _multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"(?<!\w){re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


@_kind("detectable_format:json_format")
def _json_format(text: str) -> bool:
    fenced = re.fullmatch(r"\s*```(?:json|JSON)?\s*(.*?)\s*```\s*", text, re.DOTALL)
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


@_kind("detectable_format:title")
def _title(text: str) -> bool:
    return re.search(r"<<[^<>\n]*\w[^<>\n]*>>", text) is not None


@_kind("combination:two_responses")
def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


@_kind("combination:repeat_prompt", prompt_to_repeat=str)
def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The answer starts with the sentence and goes on after it."""
    wanted, given = " ".join(prompt_to_repeat.lower().split()), " ".join(text.lower().split())
    return given.startswith(wanted) and len(given) > len(wanted)


@_kind("startend:end_checker", end_phrase=str)
def _end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip("\"'*").rstrip().lower().endswith(end_phrase.strip().lower())


@_kind("startend:quotation")
def _quotation(text: str) -> bool:
    return re.fullmatch(r"\s*\".+\"\s*", text, re.DOTALL) is not None


@_kind("change_case:capital_word_frequency", capital_frequency=int, capital_relation=Relation)  # type: ignore[arg-type]
def _capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return _holds(sum(word.isupper() for word in words(text)), capital_relation, capital_frequency)


@_kind("change_case:english_capital")
def _english_capital(text: str) -> bool:
    return text.isupper() and guess(text) == "en"


@_kind("change_case:english_lowercase")
def _english_lowercase(text: str) -> bool:
    return text.islower() and guess(text) == "en"


@_kind("punctuation:no_comma")
def _no_comma(text: str) -> bool:
    return "," not in text


@_kind("count:word_count_range", min_words=int, max_words=int)
def _word_count_range(text: str, min_words: int, max_words: int) -> bool:
    return min_words <= len(words(text)) <= max_words


@_kind("count:unique_word_count", num_words=int)
def _unique_words(text: str, num_words: int) -> bool:
    return len({word.lower() for word in words(text)}) >= num_words


@_kind("count:numbers", num_numbers=int)
def _numbers(text: str, num_numbers: int) -> bool:
    """Exactly so many numbers; 1,234.5 is one."""
    return len(re.findall(r"(?<!\w)\d+(?:[.,]\d+)*(?!\w)", text)) == num_numbers


@_kind("words:start_with", letter=str)
def _words_start_with(text: str, letter: str) -> bool:
    return all(word.lower().startswith(letter.lower()) for word in words(text))


@_kind("sentence:alphabet")
def _sentence_alphabet(text: str) -> bool:
    """Each sentence starts with the letter behind the one before (z is followed by a); quotes and brackets aside."""
    first = [found[0].lower() for part in sentences(text) if (found := re.search(r"[A-Za-z]", part))]
    return bool(first) and all((ord(b) - ord(a)) % 26 == 1 for a, b in pairwise(first))


@_kind("copy:word_span", text_to_copy=str, first_word=int, last_word=int)
def _copy_span(text: str, text_to_copy: str, first_word: int, last_word: int) -> bool:
    """The answer is words first to last (from 1, both included) of a text, and nothing else."""
    span = text_to_copy.split()[first_word - 1 : last_word]
    return bool(span) and text.split() == span
