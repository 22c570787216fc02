"""Conversations and texts become the ids a rollout is given."""

import pytest
from tokenizers import processors

from rollick.errors import DataError
from rollick.models.chat import prompt_ids, text_ids
from rollick.models.turns import completion_ids, conversation_rows
from tests.models.conversations import (
    assistant,
    bos_tokenizer,
    ids_of,
    trained_text,
    user,
)
from tests.models.tiny import CHATML, tiny_tokenizer


@pytest.mark.parametrize("text", ["hello", "<|endoftext|>hello"])
def test_exactly_one_bos(text):
    """Case 15: messages and plain text, whoever writes the BOS."""
    tokenizer = bos_tokenizer()
    messages = [user("1+1"), assistant("2")]
    assert text_ids(tokenizer, text).count(0) == 1
    assert text_ids(tokenizer, text)[0] == 0
    assert prompt_ids(tokenizer, messages[:1]).count(0) == 1
    [row] = conversation_rows(tokenizer, messages, [1])
    assert row.token_ids.count(0) == 1
    assert row.token_ids[0] == 0
    assert row.token_ids[: row.loss_mask.index(True)] == prompt_ids(tokenizer, messages[:1])
    assert completion_ids(tokenizer, text, " world").count(0) == 0


def test_a_template_that_writes_no_bos_gets_none():
    assert 0 not in prompt_ids(bos_tokenizer(template_writes_bos=False), [user("1+1")])


def test_a_tokenizer_without_bos_gives_integers_only():
    """Case 16."""
    tokenizer = tiny_tokenizer()
    for ids in (text_ids(tokenizer, "hello"), prompt_ids(tokenizer, [user("hello")])):
        assert all(type(token) is int for token in ids)
    assert text_ids(tokenizer, "hello") == ids_of(tokenizer, "hello")


def test_a_tokenizer_that_appends_eos_does_not_end_the_prompt():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
    )
    assert text_ids(tokenizer, "hello") == [0, *ids_of(tokenizer, "hello")]


TOOLS = CHATML.replace(
    "message['content'] +",
    "message['content'] + (message.tool_calls[0].function.arguments | tojson if message.tool_calls else '') +",
)


def test_tool_arguments_as_object_or_as_json_text_give_the_same_ids():
    """Case 14, with `tool_calls: null` and a tool without parameters beside it."""
    tokenizer = tiny_tokenizer(chat_template="{{ tools | tojson }}" + TOOLS)
    tools = [{"type": "function", "function": {"name": "now"}}]
    rows = []
    for arguments in ({"a": 1, "b": "x"}, '{"a": 1, "b": "x"}'):
        call = {"type": "function", "function": {"name": "now", "arguments": arguments}}
        messages = [user("go"), assistant(None, tool_calls=[call]), user("and?"), assistant("done", tool_calls=None)]
        rows.append(conversation_rows(tokenizer, messages, [1, 3], tools))
    assert rows[0] == rows[1]
    assert trained_text(tokenizer, rows[0][0]) == '{"a": 1, "b": "x"}<|im_end|>done<|im_end|>'
    bad = assistant("", tool_calls=[{"function": {"name": "now", "arguments": "{a"}}])
    with pytest.raises(DataError, match=r"message 2: tool-call arguments are not valid JSON: .\{a"):
        conversation_rows(tokenizer, [user("go"), bad], [1])


def test_messages_without_a_chat_template_are_one_clear_error():
    tokenizer = tiny_tokenizer(chat_template=None)
    with pytest.raises(DataError, match=r"has no chat template.*set model.chat_template"):
        prompt_ids(tokenizer, [user("hello")])
    assert prompt_ids(tokenizer, "hello") == ids_of(tokenizer, "hello")


def test_a_template_that_refuses_a_role_says_which_roles_it_saw():
    strict = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}{% endfor %}"
    )
    with pytest.raises(DataError, match=r"refuses the conversation \(user, tool\): no tools here"):
        prompt_ids(tiny_tokenizer(chat_template=strict), [user("a"), {"role": "tool", "content": "b"}])
    with pytest.raises(DataError, match="message 1 needs a role"):
        prompt_ids(tiny_tokenizer(), [{"content": "b"}])
