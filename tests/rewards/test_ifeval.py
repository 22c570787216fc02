import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.base import Abstain, Score
from rollick.rewards.ifeval import Options
from rollick.rewards.instructions import follows, follows_loosely, kinds, problem, sentences
from rollick.rewards.language_id import guess
from tests.rewards.episodes import episode

ENGLISH = "this is what we say to you and to the others"

CASES = {
    "keywords:existence": ({"keywords": ["sea", "old man"]}, "The Old Man and the sea.", "The old man and the seal."),
    "keywords:frequency": ({"keyword": "sea", "frequency": 2, "relation": "at least"}, "Sea, sea.", "Sea, seas."),
    "keywords:forbidden_words": ({"forbidden_words": ["sea"]}, "the seal", "the SEA"),
    "keywords:letter_frequency": ({"letter": "q", "let_frequency": 2, "let_relation": "less than"}, "one q", "Q and q"),
    "language:response_language": ({"language": "de"}, "das ist nicht der Hund", ENGLISH),
    "length_constraints:number_sentences": ({"num_sentences": 2, "relation": "less than"}, "Mr. X won.", "One. Two!"),
    "length_constraints:number_words": ({"num_words": 3, "relation": "at least"}, "one two three", "one two"),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "a\n***\nb", "a\n***\nb\n***\nc"),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        "First.\n\n'Then' it was.",
        "Then.\n\nFirst.",
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[name] lives in [city]", "[name] lives in []"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Hi.\nP. S. I forgot", "Hi.\nP.S."),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    "detectable_format:constrained_response": (
        {},
        "My answer is no.",
        "My answer is yes. My answer is no. My answer is maybe.",
    ),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, "*one* and **two**", "*one* and ****"),
    "detectable_format:multiple_sections": (
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        "SECTION 1\na\nSECTION b",
    ),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', '{"a": 1} as asked'),
    "detectable_format:title": ({}, "<<A song>>\nla", "<< >>\nla"),
    "combination:two_responses": ({}, "one ****** two", "one ****** one"),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Say  hi"}, "say hi\nhi", "hi"),
    "startend:end_checker": ({"end_phrase": "Is that all?"}, "So. Is that all?**", "Is that all? Yes."),
    "startend:quotation": ({}, '"so it is"', '"so" it is'),
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"},
        "THIS is FINE",
        "This Is FINE",
    ),
    "change_case:english_capital": ({}, "THIS IS FINE", "This Is Title Case"),
    "change_case:english_lowercase": ({}, "this is fine", "This is fine"),
    "punctuation:no_comma": ({}, "one and two", "one, two"),
    "count:word_count_range": ({"min_words": 2, "max_words": 3}, "one two", "one two three four"),
    "count:unique_word_count": ({"num_words": 3}, "one two three", "one two One"),
    "count:numbers": ({"num_numbers": 2}, "1,234.5 and 7", "1 and 2 and 3"),
    "words:start_with": ({"letter": "s"}, "six Small 'ships'", "six big ships"),
    "sentence:alphabet": ({}, "Yes. \"Zoos\" are open. A cat.", "Yes. No."),
    "copy:word_span": (
        {"text_to_copy": "a b c d e f g h i j", "first_word": 2, "last_word": 5},
        "b c d e",
        "a b c d e",
    ),
}  # fmt: skip


def test_every_kind_has_a_case_and_ifeval_is_whole():
    assert set(CASES) == set(kinds())
    assert sum(not id.startswith(("count:", "words:", "sentence:", "copy:")) for id in CASES) == 25


@pytest.mark.parametrize("id", CASES)
def test_followed_and_not_followed(id):
    """Cases 89 and 91."""
    arguments, good, bad = CASES[id]
    instruction = {"id": id, **arguments}
    assert problem(instruction) is None
    assert follows(good, instruction)
    assert not follows(bad, instruction)
    assert not follows("", instruction) and not follows(" \n", instruction)


@pytest.mark.parametrize("id", CASES)
def test_arguments_are_checked_when_data_is_loaded(id):
    """Case 90: a missing argument is an error, never drawn at random."""
    arguments = CASES[id][0]
    for name in arguments:
        assert f"needs '{name}'" in problem({"id": id, **{**arguments, name: None}})
        assert problem({"id": id, **{**arguments, name: {"a": 1}}})
    assert "takes no 'other'" in problem({"id": id, **arguments, "other": 1})
    assert problem({"id": id, **arguments, "other": None}) is None


def _score_all(_):
    return [follows(CASES[id][1], {"id": id, **CASES[id][0]}) for id in CASES]


def test_scores_are_the_same_in_every_process():
    """Case 90."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        results = list(processes.map(_score_all, range(4), timeout=60))
    assert results == [_score_all(0)] * 4


@given(st.text(alphabet='ab* .,\n"Z[]<>{}1-'), st.sampled_from(sorted(CASES)))
def test_loose_is_never_stricter_than_strict(text, id):
    """Case 90."""
    instruction = {"id": id, **CASES[id][0]}
    assert follows_loosely(text, instruction) >= follows(text, instruction)


def test_loose_forgives_a_first_or_last_line_and_asterisks():
    no_comma = {"id": "punctuation:no_comma"}
    assert follows_loosely("Sure, here it is:\none and two", no_comma)
    assert follows_loosely("one and two\nBye, friend", no_comma)
    assert not follows_loosely("a, b\nc, d\ne, f", no_comma)
    assert follows_loosely('**"quoted"**', {"id": "startend:quotation"})


def value(response, truth, **options):
    verdict = Options(**options).build().score(episode(response, truth))
    assert isinstance(verdict, Score)
    return verdict.value


def test_several_and_repeated_instructions():
    truth = [{"id": "punctuation:no_comma"}] + [{"id": "keywords:existence", "keywords": [w]} for w in ("a", "b", "c")]
    assert value("a b c", truth) == 1.0
    assert value("a b, c", truth) == 0.0
    assert value("a b, c", truth, credit="fraction") == 0.75
    assert value("<think>x, y</think>a b c", truth) == 1.0
    assert value("<think>a b c", truth, credit="fraction") == 0.0


def test_forms_of_the_ground_truth():
    listed = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{"letter": None}, {}]}
    for truth in (listed, json.dumps(listed), {"id": "punctuation:no_comma"}, '[{"id": "punctuation:no_comma"}]'):
        assert value('"fine"', truth) == 1.0
        assert value("a, b", truth) == 0.0


@pytest.mark.parametrize(
    "truth",
    [
        None,
        "",
        "no json",
        [],
        {},
        ["x"],
        [{"id": "language:unknown_kind"}],
        [{"id": {"a": 1}}],
        [{"id": "language:response_language", "language": "xx"}],
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}, {}]},
    ],
)
def test_what_cannot_be_checked_is_abstained_on_and_reported(truth):
    """Case 87: an unknown check has a verdict of its own and shifts nobody's."""
    assert Options().ground_truth_problem(truth)
    assert isinstance(Options().build().score(episode("text", truth)), Abstain)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        ("El gato no está en la casa", "es"),
        ("O gato não está em casa, mas é um bom dia para você", "pt"),
        ("Le chat n'est pas dans la maison", "fr"),
        ("Der Hund ist nicht auf dem Dach", "de"),
        ("Il gatto non è nella casa, ma anche la sera", "it"),
        ("To jest pies, który nie śpi na łóżku", "pl"),
        ("Tôi không có một con mèo trong nhà của người", "vi"),
        ("Hii ni nyumba ya mtoto na paka wa jirani", "sw"),
        ("Tämä on talo ja se ei ole suuri", "fi"),
        ("Это не то, что он видел на улице", "ru"),
        ("Він не знає, що це за будинок, але він є", "uk"),
        ("Той не знае че това е къща", "bg"),
        ("यह एक घर है और वह बड़ा नहीं है", "hi"),
        ("हे घर आहे आणि ते मोठे नाही", "mr"),
        ("यो घर ठूलो छ र राम्रो पनि छ", "ne"),
        ("هذا البيت في المدينة التي كان من قبل", "ar"),
        ("این خانه را برای خود از آن است", "fa"),
        ("یہ گھر بڑا ہے اور اس میں پانی نہیں", "ur"),
        ("これは猫です", "ja"),
        ("这是一只猫", "zh"),
        ("이것은 고양이입니다", "ko"),
        ("বাড়ি", "bn"),
        ("123", None),
    ],
)
def test_languages_are_told_apart(text, language):
    assert guess(text) == language


def test_sentences():
    assert sentences("Dr. Who met J. Smith. He said \"No!\" Then he left... Really?") == [
        "Dr. Who met J. Smith.", "He said \"No!", "Then he left...", "Really?"
    ]  # fmt: skip
    assert len(sentences("It costs 3.5 dollars. Fine")) == 2
