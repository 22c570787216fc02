"""When an answer ends: end tokens, stop strings, the token limit."""

from __future__ import annotations

from typing import Any

from rollick.data.records import FinishReason
from rollick.engines.base import Sampling


class StopRule:
    """Watches the tokens of one request. Stop strings are looked for in the decoded text of the newest tokens, so
    any split of the string over tokens is found, also with other text in front of or behind it."""

    def __init__(self, sampling: Sampling, eos_token_ids: tuple[int, ...], tokenizer: Any) -> None:
        self.token_ids = frozenset((*eos_token_ids, *sampling.stop_token_ids))
        self.strings = sampling.stop
        self.max_new_tokens = sampling.max_new_tokens
        self.tokenizer = tokenizer
        # a token stands for at least one byte; a few more cover special handling of the first ones in a text
        self.window = max((len(s.encode("utf-8")) for s in self.strings), default=0) + 4

    def check(self, token_ids: list[int]) -> tuple[FinishReason, int | str | None] | None:
        """The finish reason and what stopped it, once the newest of the sampled tokens ends the answer."""
        if token_ids[-1] in self.token_ids:
            return "stop", token_ids[-1]
        found = self._stop_string(token_ids) if self.strings else None
        if found is not None:
            return "stop", found
        if len(token_ids) >= self.max_new_tokens:
            return "length", None
        return None

    def _stop_string(self, token_ids: list[int]) -> str | None:
        """The stop string that is complete first in the newest tokens' text."""
        text = self.tokenizer.decode(token_ids[-self.window :], clean_up_tokenization_spaces=False)
        ends = [(text.find(s) + len(s), s) for s in self.strings if s in text]
        return min(ends)[1] if ends else None
