"""Messages and text to token ids: the one place where a conversation meets a chat template.

Rollouts and training call the same functions, so the prompt that is trained behind is the prompt that is sampled
from. Splits between what is given and what is trained are made on token ids and checked, never on characters.

With a ChatML template, `[{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "7"}]` is

    <|im_start|> user \\n 3 + 4 = <|im_end|> \\n <|im_start|> assistant \\n 7 <|im_end|>
    0            0    0  0 0 0 0 0          0  0            0         0  1 1             loss mask

and its first twelve ids are `prompt_ids(tokenizer, messages[:1])`. The newline behind the last end token is
neither sampled nor trained, so it is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from rollick.data.records import Message
from rollick.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tools = list[Any]
"""JSON schemas of functions, as the chat template wants them."""

GENERATION_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")
PROBE = "rollick"


@dataclass
class TokenRow:
    """Token ids and, of equal length, whether each is trained on.

    TokenRow(token_ids=[5, 6, 7, 9, 2], loss_mask=[False, False, False, True, True])
    """

    token_ids: list[int]
    loss_mask: list[bool]

    @classmethod
    def of(cls, context: list[int], trained: list[int]) -> TokenRow:
        return cls([*context, *trained], [False] * len(context) + [True] * len(trained))


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
    return _encode(tokenizer, render(tokenizer, prompt, tools, generation_prompt=True))


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Plain text behind whatever the tokenizer puts in front of a text (BOS or nothing), without an end token."""
    bare = _encode(tokenizer, text)
    prefix = _special_prefix(tokenizer)
    return bare if bare[: len(prefix)] == prefix else prefix + bare


def completion_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: str) -> list[int]:
    """The ids of `completion` as plain text behind `text_ids(tokenizer, prompt)`; no end token is added."""
    context = text_ids(tokenizer, prompt)
    tail = _continuation(tokenizer, (prompt, context), (prompt + completion, text_ids(tokenizer, prompt + completion)))
    if tail is None:
        raise DataError("prompt and completion cannot be split on token ids; put the prompt's last characters into it")
    return tail


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


def conversation_rows(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    trained: Sequence[int],
    tools: Tools | None = None,
) -> list[TokenRow]:
    """Trainable rows of a conversation; `trained` are the indices of the assistant messages to learn, ascending.

    Each answer is trained behind the very ids a rollout would have given. Where the template appends (the usual
    case) all answers share one row; where it rewrites history (say, drops the reasoning of earlier turns) each
    rewritten context starts a row of its own. Trained is everything behind the generation prompt up to and with
    the end token; or, where the template has `{% generation %}` markers, what they enclose, with the end token
    that follows (markers cannot place a boundary inside a token; such a turn is split by the first rule).

    Raises DataError when the template cannot be split.
    """
    rows: list[TokenRow] = []
    for index in trained:
        turn = _split_turn(tokenizer, clean_messages(messages[: index + 1]), tools)
        if rows and turn.token_ids[: len(rows[-1].token_ids)] == rows[-1].token_ids:
            known = len(rows[-1].token_ids)
            rows[-1] = TokenRow(turn.token_ids, rows[-1].loss_mask + turn.loss_mask[known:])
        else:
            rows.append(turn)
    return rows


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
    tail = _encode(tokenizer, text[text.rfind(PROBE) + len(PROBE) :])
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


def _split_turn(tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None) -> TokenRow:
    """One row: the context of the last message, and that message trained."""
    if len(messages) < 2:
        raise DataError("the conversation starts with an assistant turn; an answer needs a message before it")
    context = _rendered(tokenizer, messages[:-1], tools, generation_prompt=True)
    whole = _rendered(tokenizer, messages, tools)
    tail = _continuation(tokenizer, context, whole)
    straddled = tail is not None and context[1] + tail != whole[1]  # markers are in terms of `whole`
    if GENERATION_MARKER.search(tokenizer.get_chat_template(None, tools)) and not straddled:
        return _split_by_markers(tokenizer, messages, tools, context[1])
    if tail is None:
        raise DataError(
            f"the chat template cannot be split at message {len(messages)}: behind the conversation before it the "
            f"generation prompt ends with {context[0][-40:]!r}, but the rendered answer does not begin that way; "
            "mark answers with {% generation %} in the template (model.chat_template), or give the answer in the "
            "form the template writes (for example with reasoning_content)"
        )
    return TokenRow.of(context[1], tail[: _end_of_turn(tokenizer, tail)])


def _split_by_markers(
    tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None, prompt: list[int]
) -> TokenRow:
    marked: Any = tokenizer.apply_chat_template(
        messages, tools=tools or None, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    ids, mask = list(marked["input_ids"]), [bool(flag) for flag in marked["assistant_masks"]]
    earlier = _common_prefix(_rendered(tokenizer, messages[:-1], tools)[1], ids)
    start = len(prompt) if ids[: len(prompt)] == prompt else earlier
    mask = [flag and position >= start for position, flag in enumerate(mask)]
    if not any(mask):
        raise DataError(
            f"the chat template's {{% generation %}} markers enclose nothing of message {len(messages)}; "
            "enclose every assistant turn, or remove the markers"
        )
    end = len(mask) - mask[::-1].index(True)
    if end < len(ids) and ids[end] in _end_ids(tokenizer):
        mask[end] = True
        end += 1
    return TokenRow(ids[:end], mask[:end])


def _end_of_turn(tokenizer: PreTrainedTokenizerBase, tail: list[int]) -> int:
    """How much of a rendered answer is the model's own: up to and with the last end token (a separator that the
    template writes behind it is not), everything where there is none."""
    ends = _end_ids(tokenizer)
    return next((position + 1 for position in reversed(range(len(tail))) if tail[position] in ends), len(tail))


def _end_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    return {token for token in (tokenizer.eos_token_id, turn_end_id(tokenizer)) if token is not None}


def _continuation(
    tokenizer: PreTrainedTokenizerBase, context: tuple[str, list[int]], whole: tuple[str, list[int]]
) -> list[int] | None:
    """Ids of `whole` behind those of `context`, each given as (text, ids); None when it does not continue it.

    Where a token of the whole text straddles the boundary, what follows is tokenised by itself: the context is
    fixed, it is what a rollout is given. Accepted only when the joined ids say the same text.
    """
    (context_text, context_ids), (whole_text, whole_ids) = context, whole
    if whole_ids[: len(context_ids)] == context_ids:
        return whole_ids[len(context_ids) :]
    if not whole_text.startswith(context_text):
        return None
    tail = _encode(tokenizer, whole_text[len(context_text) :])
    same = tokenizer.decode(context_ids + tail) == tokenizer.decode(whole_ids)
    return tail if same else None


def _rendered(
    tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None, generation_prompt: bool = False
) -> tuple[str, list[int]]:
    text = render(tokenizer, messages, tools, generation_prompt)
    return text, _encode(tokenizer, text)


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _special_prefix(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids a tokenizer puts in front of any text; found by trying, since templates, flags and post-processors
    can all say so."""
    bare, full = _encode(tokenizer, PROBE), list(tokenizer(PROBE)["input_ids"])
    return full[: len(full) - len(bare)] if full[-len(bare) :] == bare else full[: full.index(bare[0])]


def _common_prefix(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
