"""Only the model's own words are trained, behind what a rollout would have been given."""

import json

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rollick.errors import DataError
from rollick.models import turns
from rollick.models.chat import prompt_ids, text_ids, turn_end_id
from rollick.models.turns import completion_ids, conversation_rows
from tests.models.conversations import (
    GENERATION,
    REASONING,
    THINKING_PROMPT,
    assistant,
    bos_tokenizer,
    ids_of,
    trained_text,
    user,
)
from tests.models.tiny import CHATML, CORPUS, SPECIAL_TOKENS, tiny_tokenizer

EOS = 2
CONTENT = st.text(st.sampled_from("a 1\n+\r\tü🙂"), max_size=12)


def test_the_mask_starts_behind_the_header_and_ends_with_the_end_token():
    """Case 20: trained = tokens of the answer + 1."""
    tokenizer = tiny_tokenizer()
    messages = [user("What is 3+4?"), assistant("The answer is 7")]
    [row] = conversation_rows(tokenizer, messages, [1])
    assert trained_text(tokenizer, row) == "The answer is 7<|im_end|>"
    assert sum(row.loss_mask) == len(ids_of(tokenizer, "The answer is 7")) + 1
    assert row.token_ids[-1] == EOS
    assert row.token_ids[: row.loss_mask.index(True)] == prompt_ids(tokenizer, messages[:1])


def test_an_empty_think_block_that_the_template_inserts_is_part_of_the_answer():
    """Case 20, reasoning template: behind the generation prompt the model has to write it itself."""
    tokenizer = tiny_tokenizer(chat_template=REASONING)
    [row] = conversation_rows(tokenizer, [user("3+4"), assistant("7")], [1])
    assert trained_text(tokenizer, row) == "<think>\n\n</think>\n\n7<|im_end|>"


def test_what_the_generation_prompt_opens_is_context():
    """Case 20: a prompt that ends with `<think>` is given, the rest of the think block is trained."""
    tokenizer = tiny_tokenizer(chat_template=THINKING_PROMPT)
    messages = [user("3+4"), assistant("7")]
    [row] = conversation_rows(tokenizer, messages, [1])
    start = row.loss_mask.index(True)
    assert row.token_ids[:start] == prompt_ids(tokenizer, messages[:1])
    assert trained_text(tokenizer, row) == "\n</think>\n\n7<|im_end|>"
    assert tokenizer.decode(row.token_ids) + "\n" == tokenizer.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize("template", [CHATML, GENERATION])
def test_an_answer_that_begins_inside_a_token_keeps_the_rollouts_prompt(template):
    """Case 19: the header's line end and the answer's are one token in the whole rendering."""
    tokenizer = tiny_tokenizer(chat_template=template)
    messages = [user("3+4"), assistant("\n\n\n7")]
    prompt = prompt_ids(tokenizer, messages[:1])
    whole = ids_of(tokenizer, tokenizer.apply_chat_template(messages, tokenize=False))
    assert whole[: len(prompt)] != prompt
    [row] = conversation_rows(tokenizer, messages, [1])
    assert row.token_ids[: row.loss_mask.index(True)] == prompt
    assert trained_text(tokenizer, row) == "\n\n\n7<|im_end|>"


def test_all_turns_share_a_row_when_the_template_appends():
    """Case 126: the row equals the full rendering, separators and structure carry no loss."""
    tokenizer = tiny_tokenizer()
    messages = [user("1+1"), assistant("2"), user("2+2"), assistant("4"), user("3+3"), assistant("6")]
    [row] = conversation_rows(tokenizer, messages, [1, 3, 5])
    whole = ids_of(tokenizer, tokenizer.apply_chat_template(messages, tokenize=False))
    assert row.token_ids == whole[:-1]
    assert tokenizer.decode(whole[-1:]) == "\n"
    assert trained_text(tokenizer, row) == "2<|im_end|>4<|im_end|>6<|im_end|>"
    [only_last] = conversation_rows(tokenizer, messages, [5])
    assert only_last.token_ids == row.token_ids
    assert trained_text(tokenizer, only_last) == "6<|im_end|>"


def test_a_template_that_drops_earlier_thoughts_gives_a_row_per_context():
    """Case 127: every trained answer stands behind exactly what a rollout would have been given."""
    tokenizer = tiny_tokenizer(chat_template=REASONING)
    turns = [(f"{i}+{i}", f"<think>\nt{i}\n</think>\n\n{2 * i}") for i in range(3)]
    messages = [m for question, answer in turns for m in (user(question), assistant(answer))]
    rows = conversation_rows(tokenizer, messages, [1, 3, 5])
    assert len(rows) == 3
    for turn, row in enumerate(rows):
        start = row.loss_mask.index(True)
        assert row.token_ids[:start] == prompt_ids(tokenizer, messages[: 2 * turn + 1])
        assert trained_text(tokenizer, row) == turns[turn][1] + "<|im_end|>"
        assert all(row.loss_mask[start:])


def test_generation_markers_decide_and_agree_with_the_prefix_rule():
    marked, plain = tiny_tokenizer(chat_template=GENERATION), tiny_tokenizer()
    messages = [user("1+1"), assistant("2"), user("2+2"), assistant("4")]
    assert conversation_rows(marked, messages, [1, 3]) == conversation_rows(plain, messages, [1, 3])


def test_markers_that_leave_out_the_end_token_still_teach_to_stop():
    template = GENERATION.replace("message['content'] + '<|im_end|>' }}{% endg", "message['content'] }}{% endg")
    template = template.replace("{{ '\n' }}", "{{ '<|im_end|>\n' }}")
    tokenizer = tiny_tokenizer(chat_template=template)
    [row] = conversation_rows(tokenizer, [user("1+1"), assistant("2")], [1])
    assert trained_text(tokenizer, row) == "2<|im_end|>"


def test_a_template_that_cannot_be_split_is_an_error():
    """Case 23, and 20: nothing is silently trained on nothing, or on the header."""
    messages = [user("1+1"), assistant("2")]
    forgets = CHATML.replace("<|im_start|>assistant", "<|im_start|>model")
    with pytest.raises(DataError, match=r"cannot be split at message 2.*<\|im_start\|>model"):
        conversation_rows(tiny_tokenizer(chat_template=forgets), messages, [1])
    empty = GENERATION.replace("{% generation %}{{ message['content'] + '<|im_end|>' }}", "none{% generation %}")
    with pytest.raises(DataError, match="markers enclose nothing of message 2"):
        conversation_rows(tiny_tokenizer(chat_template=empty), messages, [1])
    with pytest.raises(DataError, match="starts with an assistant turn"):
        conversation_rows(tiny_tokenizer(), [assistant("2")], [0])


def test_a_template_without_an_end_token_trains_the_whole_answer():
    plain = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    plain += "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    tokenizer = tiny_tokenizer(chat_template=plain)
    [row] = conversation_rows(tokenizer, [user("1+1"), assistant("2")], [1])
    assert trained_text(tokenizer, row) == " 2\n"
    assert turn_end_id(tokenizer) is None


@pytest.mark.parametrize("make", [tiny_tokenizer, bos_tokenizer, lambda: metaspace_tokenizer(None)])
def test_plain_prompt_and_completion_join_to_the_whole_text(make):
    """Case 19, property: the prompt's ids are the rollout's, and nothing is lost at the boundary."""
    tokenizer = make()

    @settings(max_examples=60, deadline=None)
    @given(prompt=CONTENT, completion=CONTENT)
    def join(prompt, completion):
        joined = text_ids(tokenizer, prompt) + completion_ids(tokenizer, prompt, completion)
        assert tokenizer.decode(joined) == tokenizer.decode(text_ids(tokenizer, prompt + completion))

    join()


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(
        st.text(st.characters(exclude_characters="<|>", exclude_categories=["Cs"])), min_size=1, max_size=3
    )
)
def test_any_conversation_is_split_at_the_rollouts_prompts(contents):
    tokenizer = tiny_tokenizer()
    messages = [m for content in contents for m in (user(content), assistant(content))]
    rows = conversation_rows(tokenizer, messages, range(1, len(messages), 2))
    assert "".join(trained_text(tokenizer, row) for row in rows) == "".join(c + "<|im_end|>" for c in contents)
    first = rows[0].token_ids[: rows[0].loss_mask.index(True)]
    assert first == prompt_ids(tokenizer, messages[:1])


def test_unicode_and_json_survive():
    tokenizer = tiny_tokenizer()
    text = json.dumps({"ü": "🙂"}, ensure_ascii=False)
    [row] = conversation_rows(tokenizer, [user("x"), assistant(text)], [1])
    assert trained_text(tokenizer, row) == text + "<|im_end|>"


def metaspace_tokenizer(chat_template):
    """In the manner of SentencePiece: a text that does not begin with a special token gets a space in front."""
    words = tokenizers.Tokenizer(models.BPE(unk_token="<|endoftext|>", byte_fallback=True))
    words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    words.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="first")])
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=list(SPECIAL_TOKENS), initial_alphabet=[*"\n0123"], show_progress=False
    )
    words.train_from_iterator(CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>", bos_token="<|endoftext|>")
    tokenizer.chat_template = chat_template
    return tokenizer


@pytest.mark.parametrize("make", [tiny_tokenizer, metaspace_tokenizer])
@pytest.mark.parametrize("template", [CHATML, "{{ bos_token }}" + CHATML, REASONING, THINKING_PROMPT])
def test_all_turns_at_once_are_the_turns_one_by_one(make, template, monkeypatch):
    """The fast way and the careful way agree to the token, or the fast one steps aside."""
    tokenizer = make(chat_template=template)

    @settings(max_examples=40, deadline=None)
    @given(contents=st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3))
    def agree(contents):
        messages = [m for question, answer in contents for m in (user(question), assistant(answer))]
        trained = range(1, len(messages), 2)
        fast = conversation_rows(tokenizer, messages, trained)
        with monkeypatch.context() as patch:
            patch.setattr(turns, "_appended_row", lambda *_: None)
            assert conversation_rows(tokenizer, messages, trained) == fast

    agree()


def test_one_tokenisation_of_the_whole_is_enough_when_the_template_appends(monkeypatch):
    """Time grows with the conversation, not with its square."""
    tokenizer = tiny_tokenizer()
    messages = [m for i in range(20) for m in (user(f"{i}+{i}="), assistant(f"{2 * i}"))]
    encoded = []
    encode = turns.encode
    monkeypatch.setattr(turns, "encode", lambda tokenizer, text: encoded.append(text) or encode(tokenizer, text))
    [row] = conversation_rows(tokenizer, messages, range(1, 40, 2))
    assert set(encoded) == {"<|im_start|>assistant\n"}
    assert sum(row.loss_mask) == sum(len(ids_of(tokenizer, f"{2 * i}")) + 1 for i in range(20))
