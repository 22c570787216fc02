"""Stop strings in token space, whatever way the tokens cut them."""

import pytest

from rollick.engines.base import Sampling
from rollick.engines.stopping import StopRule
from tests.models.tiny import tiny_tokenizer


class Pieces:
    """A tokenizer whose tokens are the given strings."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def decode(self, token_ids, clean_up_tokenization_spaces=True):
        assert clean_up_tokenization_spaces is False
        return "".join(self.pieces[i] for i in token_ids)


def run(tokenizer, token_ids, eos=(), **sampling):
    """Number of tokens kept, finish reason and what stopped it."""
    rule = StopRule(Sampling(**{"max_new_tokens": 64, **sampling}), eos, tokenizer)
    for n in range(1, len(token_ids) + 1):
        ending = rule.check(token_ids[:n])
        if ending:
            return n, *ending
    return None


@pytest.mark.parametrize(
    "split",
    [
        ["look ", "</search>", " on"],
        ["look ", "</", "search", ">", " on"],
        ["look</s", "ear", "ch>", " on"],
        ["look <", "/search", "> and more in the same token", " on"],
        [*"look </search>", " on"],
    ],
)
def test_the_first_complete_marker_stops_in_every_split(split):
    """Case 99: the last token is kept whole."""
    kept, reason, by = run(Pieces(*split), list(range(len(split))), stop=("</search>",))
    assert (reason, by) == ("stop", "</search>")
    assert kept == len(split) - 1
    assert "</search>" in "".join(split[:kept])
    assert "</search>" not in "".join(split[: kept - 1])


def test_of_several_markers_the_one_that_ends_first_is_reported():
    assert run(Pieces("a", "bSTOP2 END1"), [0, 1], stop=("END1", "STOP2"))[1:] == ("stop", "STOP2")


def test_a_marker_far_back_in_a_long_answer_is_not_searched_again_and_a_late_one_is_found():
    pieces = Pieces("x", "<e", "nd>")
    assert run(pieces, [0] * 40 + [1, 2], stop=("<end>",)) == (42, "stop", "<end>")


def test_characters_of_several_bytes_complete_over_tokens():
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("ok 🙂 then")
    kept, reason, by = run(tokenizer, ids, stop=("🙂",))
    assert (reason, by) == ("stop", "🙂")
    assert tokenizer.decode(ids[:kept]).endswith("🙂")


def test_end_ids_win_over_length_and_strings():
    """Case 92: ends {2, 7}; answers 5 6 7, 5 6 2 and 5 6 9 9 cut at 4."""
    for answer, expected in [
        ([5, 6, 7], (3, "stop", 7)),
        ([5, 6, 2], (3, "stop", 2)),
        ([5, 6, 9, 9], (4, "length", None)),
        ([5, 6, 9, 2], (4, "stop", 2)),
    ]:
        assert run(None, answer, eos=(2, 7), max_new_tokens=4) == expected
