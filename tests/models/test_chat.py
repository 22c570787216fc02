"""Conversations become the ids a rollout would see, and only the model's own words are trained."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from rollick.errors import DataError
from rollick.models.chat import completion_ids, conversation_rows, prompt_ids, text_ids, turn_end_id
from tests.models.tiny import CHATML, tiny_tokenizer

EOS = 2
GENERATION = CHATML.replace(
    "message['content'] + '<|im_end|>\n' }}",
    "'' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>\n' }}{% endif %}",
)
# Like the reasoning templates in use: an empty think block is written before the last answer, and the think
# blocks of answers before the last question are dropped.
REASONING = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}
{%- set answer = m.content.split('</think>')[-1].lstrip('\n') %}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') if '</think>' in m.content else '' %}
{%- if loop.index0 > ns.last %}{{- '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{- answer }}
{%- else %}{{- m.content }}{% endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
THINKING_PROMPT = REASONING.removesuffix("assistant\n' }}{% endif %}") + "assistant\n<think>\n' }}{% endif %}"


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def trained_text(tokenizer, row):
    return tokenizer.decode([t for t, live in zip(row.token_ids, row.loss_mask) if live])


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def bos_tokenizer(template_writes_bos=True):
    """Adds `<|endoftext|>` in front of text, and its template begins with it as well."""
    tokenizer = tiny_tokenizer(chat_template="{{ bos_token }}" + CHATML if template_writes_bos else CHATML)
    tokenizer.bos_token = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    return tokenizer


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


@settings(max_examples=60, deadline=None)
@given(prompt=st.text(max_size=20), completion=st.text(max_size=20), bos=st.booleans())
def test_plain_prompt_and_completion_join_to_the_whole_text(prompt, completion, bos):
    """Case 19, property: the prompt's ids are the rollout's, and nothing is lost at the boundary."""
    tokenizer = bos_tokenizer() if bos else tiny_tokenizer()
    joined = text_ids(tokenizer, prompt) + completion_ids(tokenizer, prompt, completion)
    assert tokenizer.decode(joined) == tokenizer.decode(text_ids(tokenizer, prompt + completion))


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


def test_unicode_and_json_survive():
    tokenizer = tiny_tokenizer()
    text = json.dumps({"ü": "🙂"}, ensure_ascii=False)
    [row] = conversation_rows(tokenizer, [user("x"), assistant(text)], [1])
    assert trained_text(tokenizer, row) == text + "<|im_end|>"
