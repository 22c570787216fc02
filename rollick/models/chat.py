"""Messages and text to token ids: the one place where a conversation meets a chat template.

Rollouts and training call the same functions, so the prompt that is trained behind is the prompt that is sampled
from (`models.turns` says what is trained).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from rollick.data.records import Message
from rollick.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tools = list[Any]
"""JSON schemas of functions, as the chat template wants them."""

PROBE = "rollick"


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message] | str, tools: Tools | None = None
) -> list[int]:
    """What the model is given before it answers: messages through the chat template with its generation prompt,
    a string as plain text.

    Exactly one BOS where the model has one: of messages the template decides and the tokenizer adds none; of
    text the tokenizer decides, and one that the text already spells out is not doubled. Raises DataError when
    messages meet a tokenizer without a chat template, or a template that refuses them.
    """
    if isinstance(prompt, str):
        return text_ids(tokenizer, prompt)
    return encode(tokenizer, render(tokenizer, prompt, tools, generation_prompt=True))


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Plain text behind whatever the tokenizer puts in front of a text (BOS or nothing), without an end token."""
    bare = encode(tokenizer, text)
    prefix = _special_prefix(tokenizer)
    return bare if bare[: len(prefix)] == prefix else prefix + bare


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Tools | None = None,
    generation_prompt: bool = False,
) -> str:
    """The text of a conversation. Tool-call arguments may be objects or JSON text, with the same result."""
    if not tokenizer.chat_template:
        raise DataError(
            f"the tokenizer of '{tokenizer.name_or_path}' has no chat template, so messages cannot be rendered; "
            "set model.chat_template to a Jinja file, or give the prompt as plain text"
        )
    try:
        text = tokenizer.apply_chat_template(
            clean_messages(messages), tools=tools or None, add_generation_prompt=generation_prompt, tokenize=False
        )
    except (TemplateError, TypeError, KeyError, ValueError) as error:
        roles = ", ".join(str(message.get("role")) for message in messages)
        raise DataError(f"the chat template refuses the conversation ({roles}): {error}") from error
    return str(text)


def turn_end_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that the chat template writes behind an assistant turn (`<|im_end|>`), or None where it writes
    none or there is no template."""
    return _probe_turn_end(tokenizer, str(tokenizer.chat_template)) if tokenizer.chat_template else None


@lru_cache(maxsize=8)
def _probe_turn_end(tokenizer: PreTrainedTokenizerBase, _template: str) -> int | None:
    probe = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": PROBE}]
    try:
        text = render(tokenizer, probe)
    except DataError:
        return None  # a template that wants more than a question and an answer; rows will say what
    tail = encode(tokenizer, text[text.rfind(PROBE) + len(PROBE) :])
    return next((token for token in tail if token in tokenizer.added_tokens_decoder), None)


def clean_messages(messages: Sequence[Message]) -> list[Message]:
    """Messages as templates expect them: no null keys, content at least "", tool-call arguments as objects."""
    return [_clean_message(message, number) for number, message in enumerate(messages, start=1)]


def _clean_message(message: Message, number: int) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise DataError(f"message {number} needs a role and a content, like {{'role': 'user', 'content': '…'}}")
    cleaned = {"content": ""} | {key: value for key, value in message.items() if value is not None}
    if cleaned.get("tool_calls"):
        cleaned["tool_calls"] = [_clean_call(call, number) for call in cleaned["tool_calls"]]
    return cleaned


def _clean_call(call: dict[str, Any], number: int) -> dict[str, Any]:
    function = call.get("function")
    body = function if isinstance(function, dict) else call
    arguments = body.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise DataError(f"message {number}: tool-call arguments are not valid JSON: {arguments!r}") from error
    body = body | {"arguments": parsed}
    return call | {"function": body} if isinstance(function, dict) else body


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Text as it stands: special tokens where they are spelt out, none added."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _special_prefix(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids a tokenizer puts in front of any text; found by trying, since templates, flags and post-processors
    can all say so."""
    bare, full = encode(tokenizer, PROBE), list(tokenizer(PROBE)["input_ids"])
    return full[: len(full) - len(bare)] if full[-len(bare) :] == bare else full[: full.index(bare[0])]
