"""What is trained of a conversation: which tokens of its rendering are the model's own.

Splits between what is given and what is trained are made on token ids and checked, never on characters alone.

With a ChatML template, `[{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "7"}]` is

    <|im_start|> user \\n 3 + 4 = <|im_end|> \\n <|im_start|> assistant \\n 7 <|im_end|>
    0            0    0  0 0 0 0 0          0  0            0         0  1 1             loss mask

and its first twelve ids are `prompt_ids(tokenizer, messages[:1])`. The newline behind the last end token is
neither sampled nor trained, so it is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rollick.data.records import Message
from rollick.errors import DataError
from rollick.models.chat import Tools, clean_messages, encode, render, text_ids, turn_end_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GENERATION_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")


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
    if trained and trained[0] == 0:
        raise DataError("the conversation starts with an assistant turn; an answer needs a message before it")
    whole = _appended_row(tokenizer, messages, trained, tools)
    if whole is not None:
        return [whole]
    rows: list[TokenRow] = []
    for index in trained:
        turn = _split_turn(tokenizer, clean_messages(messages[: index + 1]), tools)
        if rows and turn.token_ids[: len(rows[-1].token_ids)] == rows[-1].token_ids:
            known = len(rows[-1].token_ids)
            rows[-1] = TokenRow(turn.token_ids, rows[-1].loss_mask + turn.loss_mask[known:])
        else:
            rows.append(turn)
    return rows


def completion_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, completion: str) -> list[int]:
    """The ids of `completion` as plain text behind `text_ids(tokenizer, prompt)`; no end token is added."""
    context = text_ids(tokenizer, prompt)
    tail = _continuation(tokenizer, (prompt, context), (prompt + completion, text_ids(tokenizer, prompt + completion)))
    if tail is None:
        raise DataError(
            f"prompt and completion cannot be split on token ids at {prompt[-20:]!r} | {completion[:20]!r}; "
            "move the boundary to a line end"
        )
    return tail


def _appended_row(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], trained: Sequence[int], tools: Tools | None
) -> TokenRow | None:
    """What `_split_turn` gives turn by turn, for the common case and with one tokenisation for all turns: the
    template appends, and no token straddles a generation prompt's end. None where that is not sure."""
    if not tokenizer.is_fast or _has_markers(tokenizer, tools):
        return None
    text = render(tokenizer, messages[: trained[-1] + 1], tools)
    encoded: Any = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids: list[int] = encoded["input_ids"]
    offsets = encoded["offset_mapping"]
    starts = [start for start, _ in offsets]
    added, ends = _added_ids(tokenizer, len(tokenizer)), _end_ids(tokenizer)
    mask = [False] * len(ids)
    last = 0
    for index in trained:
        context = render(tokenizer, messages[:index], tools, generation_prompt=True)
        turn = text if index == trained[-1] else render(tokenizer, messages[: index + 1], tools)
        if not (text.startswith(turn) and turn.startswith(context)):
            return None
        begin, stop = bisect_left(starts, len(context)), bisect_left(starts, len(turn))
        # An added token splits a text before anything else does, so ids in front of one do not depend on what
        # follows: the context has these ids if its end has them, from its last added token on.
        anchor = next((i for i in reversed(range(begin)) if ids[i] in added), None)
        end = next((i + 1 for i in reversed(range(begin, stop)) if ids[i] in ends), None)
        if anchor is None or end is None or encode(tokenizer, context[starts[anchor] :]) != ids[anchor:begin]:
            return None
        mask[begin:end] = [True] * (end - begin)
        last = end
    return TokenRow(ids[:last], mask[:last])


@lru_cache(maxsize=8)
def _added_ids(tokenizer: PreTrainedTokenizerBase, _size: int) -> frozenset[int]:
    return frozenset(tokenizer.added_tokens_decoder)


def _has_markers(tokenizer: PreTrainedTokenizerBase, tools: Tools | None) -> bool:
    return bool(tokenizer.chat_template and GENERATION_MARKER.search(tokenizer.get_chat_template(None, tools)))


def _split_turn(tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None) -> TokenRow:
    """One row: the context of the last message, and that message trained."""
    context = _rendered(tokenizer, messages[:-1], tools, generation_prompt=True)
    whole = _rendered(tokenizer, messages, tools)
    tail = _continuation(tokenizer, context, whole)
    straddled = tail is not None and context[1] + tail != whole[1]  # markers are in terms of `whole`
    if _has_markers(tokenizer, tools) and not straddled:
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
    tail = _encode_inside(tokenizer, whole_text[len(context_text) :])
    same = tokenizer.decode(context_ids + tail) == tokenizer.decode(whole_ids)
    return tail if same else None


def _encode_inside(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of a text that stands inside a longer one: some tokenizers put a space in front of a text, but not
    behind an added token."""
    anchor = next(iter(tokenizer.all_special_tokens), "")
    return encode(tokenizer, anchor + text)[len(encode(tokenizer, anchor)) :]


def _rendered(
    tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None, generation_prompt: bool = False
) -> tuple[str, list[int]]:
    text = render(tokenizer, messages, tools, generation_prompt)
    return text, encode(tokenizer, text)


def _common_prefix(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
