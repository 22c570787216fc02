"""Fine-tuning rows: what is trained, where it ends, and what happens to rows that do not fit."""

import numpy as np
import pytest

from rollick.config.job import DatasetSettings
from rollick.config.sft import SftJob
from rollick.data.batch import Batch
from rollick.data.datasets import load_rows
from rollick.data.records import NO_VERSION
from rollick.data.sft_rows import prepare_sft_rows
from rollick.errors import DataError
from rollick.models.chat import prompt_ids
from tests.models.tiny import CHATML, tiny_tokenizer, write_jsonl

EOS = 2


def chat(*contents):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]}


@pytest.fixture
def prepare(tmp_path):
    def prepare(rows, tokenizer=None, **settings):
        path = write_jsonl(tmp_path / "train.jsonl", rows)
        job = SftJob(
            pipeline="sft",
            name="test",
            model={"path": "unused"},
            dataset=DatasetSettings(path=str(path)),
            **{"epochs": 1, **settings},
        )
        return prepare_sft_rows(load_rows(job.dataset), tokenizer or tiny_tokenizer(), job, [EOS])

    return prepare


def trained_text(sample):
    return tiny_tokenizer().decode(sample.token_ids[sample.loss_mask])


def text(sample):
    return tiny_tokenizer().decode(sample.token_ids)


def test_a_conversation_becomes_a_sample_with_loss_on_assistant_turns(prepare):
    rows = prepare([chat("1+1=", "2", "2+2=", "4")])
    [sample] = rows
    assert trained_text(sample) == "2<|im_end|>4<|im_end|>"
    assert sample.id == "train/0"
    assert not sample.loss_mask[0]
    assert sample.token_ids.dtype == np.int64
    assert set(sample.versions.tolist()) == {NO_VERSION}
    assert Batch.from_samples(list(rows)).num_tokens == len(sample) == rows.report.tokens
    assert rows.report.trained_tokens == sample.loss_mask.sum()


def test_train_on_chooses_turns(prepare):
    row = chat("1+1=", "2", "2+2=", "4")
    assert trained_text(prepare([row], train_on="completion")[0]) == "4<|im_end|>"
    everything = prepare([row], train_on="all")[0]
    assert everything.loss_mask.tolist() == [False] + [True] * (len(everything) - 1)


def test_packed_rows_train_their_own_positions(prepare):
    """Case 27: an answer's place in a batch starts at its row's offset, not at the answer before it."""
    rows = prepare([chat("1+1=", "2"), chat("2+2=", "4", "3+3=", "6"), chat("a", "b")])
    batch = Batch.from_samples(list(rows))
    live = batch.tokens["loss_mask"].nonzero()[:, 0].tolist()
    assert live == [
        int(offset) + position for offset, row in zip(batch.offsets, rows) for position in row.loss_mask.nonzero()[0]
    ]
    assert tiny_tokenizer().decode(batch.tokens["token_ids"][live]) == "2<|im_end|>4<|im_end|>6<|im_end|>b<|im_end|>"


def test_prompt_and_completion_as_messages_or_as_text_are_the_same_row(prepare):
    as_text = {"prompt": "1+1=", "completion": "2"}
    as_messages = {"prompt": chat("1+1=")["messages"], "completion": [{"role": "assistant", "content": "2"}]}
    both = prepare([as_text, as_messages, chat("1+1=", "2")])
    assert {tuple(sample.token_ids.tolist()) for sample in both} == {tuple(both[0].token_ids.tolist())}
    assert [trained_text(sample) for sample in both] == ["2<|im_end|>"] * 3


def test_answers_inside_the_prompt_are_not_trained(prepare):
    row = {"prompt": chat("1+1=", "2", "2+2=")["messages"], "completion": "4"}
    assert trained_text(prepare([row])[0]) == "4<|im_end|>"


def test_message_rows_end_with_exactly_one_end_token(prepare):
    """Case 17, with pad = EOS as well (case 32: nothing is read off the pad id)."""
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    for rows in (prepare([chat("1+1=", "2")]), prepare([chat("1+1=", "2")], tokenizer)):
        ids, mask = rows[0].token_ids, rows[0].loss_mask
        assert ids[mask].tolist().count(EOS) == 1
        assert ids[-1] == EOS
        assert mask[-1]


@pytest.mark.parametrize("content", ["a b c", "a b c<|im_end|>"])
def test_plain_text_is_taught_to_stop_exactly_once(prepare, content):
    """Cases 17 and 21."""
    [sample] = prepare([{"text": content}], train_on="all")
    assert text(sample) == "a b c<|im_end|>"
    assert sample.loss_mask[-1]
    [bare] = prepare([{"text": "a b c"}], train_on="all", append_eos=False)
    assert text(bare) == "a b c"


def test_a_truncated_text_row_has_no_end_token(prepare):
    """Case 21."""
    rows = prepare([{"text": "a b c d e f g h"}, {"text": "a"}], train_on="all", max_length=4)
    assert EOS not in rows[0].token_ids
    assert len(rows[0]) == 4
    assert rows.report.truncated == rows.report.without_end_token == 1


def test_raw_prompt_and_completion(prepare):
    row = {"prompt": "1+1=", "completion": "2"}
    [sample] = prepare([row], tiny_tokenizer(chat_template=None), prompt_is="text")
    assert text(sample) == "1+1=2<|im_end|>"
    assert trained_text(sample) == "2<|im_end|>"
    assert sample.token_ids[~sample.loss_mask].tolist() == prompt_ids(tiny_tokenizer(), "1+1=")
    [everything] = prepare([row], prompt_is="text", train_on="all")
    assert everything.loss_mask.sum() == len(everything) - 1


def test_what_is_cut_off_never_becomes_a_row(prepare):
    """Case 26: two long conversations give two rows of 8 tokens and no third."""
    rows = prepare([chat("abcdefgh", "b" * 20), chat("ab", "1+1=2")], train_on="all", max_length=8)
    assert [len(sample) for sample in rows] == [8, 8]
    whole = prepare([chat("abcdefgh", "b" * 20), chat("ab", "1+1=2")], train_on="all")
    assert rows.report.dropped_tokens == whole.report.tokens - 16
    assert all((cut.token_ids == full.token_ids[:8]).all() for cut, full in zip(rows, whole))
    dropped = prepare([chat("ab", "1+1=2" * 9), chat("a", "b")], over_long_rows="drop", max_length=40)
    assert [sample.id for sample in dropped] == ["train/1"]
    assert dropped.report.dropped_over_long == 1
    with pytest.raises(DataError, match=r"train.jsonl:1: the row has \d+ tokens, more than max_length = 8"):
        prepare([chat("ab", "c")], over_long_rows="refuse", max_length=8)


def test_rows_whose_prompt_reaches_the_limit_are_dropped_and_counted(prepare):
    """Cases 23 and 24: never a row without a trained token, never silent."""
    rows = prepare([chat("x" * 40, "2"), chat("x", "2"), chat("y" * 40, "2")], max_length=20)
    assert [sample.id for sample in rows] == ["train/1"]
    assert rows.report.dropped_untrained == 2
    assert "2 dropped without a trained token" in rows.report.summary()
    with pytest.raises(DataError, match=r"none of its 2 rows has a token to train on.*2 with no trained token left"):
        prepare([chat("x" * 40, "2"), chat("y" * 40, "2")], max_length=20)


def test_a_template_that_rewrites_history_gives_rows_with_their_own_ids(prepare):
    """Case 127."""
    drops_answers = CHATML.replace(
        "message['content'] +", "(message['content'] if loop.last or message['role'] == 'user' else '') +"
    )
    rows = prepare([chat("1+1=", "2", "2+2=", "4")], tiny_tokenizer(chat_template=drops_answers))
    assert [(sample.id, trained_text(sample)) for sample in rows] == [
        ("train/0", "2<|im_end|>"),
        ("train/0#1", "4<|im_end|>"),
    ]


def test_tools_reach_the_template_as_a_list_or_as_json_text(prepare):
    template = "{{ tools | tojson if tools else '' }}" + CHATML
    row = chat("go", "ok")
    tools = '[{"type": "function", "function": {"name": "f"}}]'
    rows = prepare(
        [
            row | {"tools": tools},
            row | {"tools": [{"type": "function", "function": {"name": "f"}}]},
            row | {"tools": []},
        ],
        tiny_tokenizer(chat_template=template),
    )
    assert (rows[0].token_ids == rows[1].token_ids).all()
    assert '"name": "f"' in text(rows[0])
    assert "tools" not in text(rows[2])
    assert text(rows[2]).startswith("<|im_start|>user")


@pytest.mark.parametrize(
    ("row", "settings", "part"),
    [
        ({"question": "a"}, {}, "no column 'prompt' or 'messages' or 'text' (columns of this row: question)"),
        ({"prompt": "a"}, {}, "no column 'completion'"),
        ({"prompt": "a", "completion": None}, {}, "column 'completion' is null"),
        ({"messages": []}, {}, "'messages' must be a list of messages"),
        ({"messages": "[{"}, {}, "'messages' is text but not JSON"),
        ({"messages": [{"role": "user", "content": "a"}]}, {}, "no assistant message to train on"),
        ({"text": "a"}, {}, "'text' has no assistant part to train on; set train_on: all"),
        ({"text": 3}, {"train_on": "all"}, "'text' must be a string, not int"),
        ({"text": "a", "prompt": "b"}, {}, "has both 'prompt' and 'text'"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, {}, "starts with an assistant turn"),
    ],
)
def test_a_row_of_no_known_shape_is_named(prepare, row, settings, part):
    with pytest.raises(DataError) as caught:
        prepare([chat("a", "b") if "train_on" not in settings else {"text": "a"}, row], **settings)
    assert part in str(caught.value)
    assert "train.jsonl:2: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_messages_without_a_chat_template_are_refused(prepare):
    with pytest.raises(DataError, match=r"train.jsonl:1: the tokenizer of .* has no chat template"):
        prepare([chat("a", "b")], tiny_tokenizer(chat_template=None))
