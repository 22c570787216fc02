"""One attempt at an episode: the conversation between policy and environment, kept in token ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rollick.data.records import Completion, Episode, EpisodeStatus, Message, Task, Turn
from rollick.engines.base import GenerationRequest, Sampling
from rollick.environments.base import Observation, StepResult
from rollick.errors import DataError
from rollick.models.chat import prompt_ids, render
from rollick.rollout.scheduler import StartEpisode
from rollick.state.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ANSWER_MARK = "[[rollick-answer]]"


class Attempt:
    """What was said so far and what to ask the engine next.

    The caller moves it on: `open` the first observation, `take` each completion, `answer` each step of the
    environment. `open` and `answer` return the next request, or None when the episode is over; `take` says
    whether the environment has to be asked. Tokens are only ever appended: a turn's prompt is the last prompt,
    the sampled ids, and the rendered observation.
    """

    def __init__(
        self,
        start: StartEpisode,
        task: Task,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling,
        max_length: int,
    ):
        self.start = start
        self.episode = Episode(start.id, start.group_id, start.member, task, start.seed)
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_length = max_length
        self._messages: list[Message] | str = []
        self._prompt_ids: list[int] = []

    @property
    def request_id(self) -> str:
        """Unique to episode, attempt and turn, so that no late answer is taken for another one."""
        return f"{self.start.id}@{self.start.attempt}.{len(self.episode.turns)}"

    def open(self, observation: Observation) -> GenerationRequest | None:
        self._messages = observation.messages
        self._prompt_ids = prompt_ids(self._tokenizer, observation.messages)
        return self._request()

    def take(self, completion: Completion) -> bool:
        """Keep what the policy said. An answer cut by its length ends the episode: nobody judges half a move."""
        text = str(self._tokenizer.decode(completion.token_ids, skip_special_tokens=True))
        self.episode.turns.append(Turn(self._prompt_ids, completion, text))
        if completion.finish_reason == "length":
            self._end("truncated", "length")
            return False
        return True

    def answer(self, result: StepResult) -> GenerationRequest | None:
        if not math.isfinite(result.reward):
            self._end("failed", f"the environment paid {result.reward}; rewards must be finite")
            return None
        turn = self.episode.turns[-1]
        turn.reward = float(result.reward)
        if result.terminated or result.truncated:
            self._end("finished" if result.terminated else "truncated", "" if result.terminated else "environment")
            return None
        added = self._observation_ids(turn, result.observation)
        turn.observation = _as_messages(result.observation)
        self._prompt_ids = [*turn.prompt_ids, *turn.completion.token_ids, *added]
        return self._request()

    def _observation_ids(self, turn: Turn, observation: Observation) -> list[int]:
        """Also moves the history on."""
        if isinstance(self._messages, str):
            text = observation.messages
            if not isinstance(text, str):
                raise DataError(f"task {self.episode.task.id}: a raw-text episode needs raw-text observations")
            self._messages += turn.response_text + text
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        added = _as_messages(observation)
        ids = observation_ids(self._tokenizer, self._messages, added, turn.completion)
        self._messages = [*self._messages, {"role": "assistant", "content": turn.response_text}, *added]
        return ids

    def _request(self) -> GenerationRequest | None:
        turn, seed = len(self.episode.turns), self.start.seed
        budget = min(self._sampling.max_new_tokens, self._max_length - len(self._prompt_ids))
        if budget < 1:
            self._end("truncated", "context")
            return None
        return GenerationRequest(
            id=self.request_id,
            prompt_ids=tuple(self._prompt_ids),
            sampling=replace(self._sampling, max_new_tokens=budget),
            seed=derive_seed(seed, "turn", turn) if turn else seed,
            prefix_key=None if turn else self.start.group_id,
        )

    def _end(self, status: EpisodeStatus, reason: str) -> None:
        self.episode.status, self.episode.reason = status, reason
        self.episode.metrics["turns"] = float(len(self.episode.turns))


def observation_ids(
    tokenizer: PreTrainedTokenizerBase,
    history: Sequence[Message],
    observation: Sequence[Message],
    completion: Completion,
) -> list[int]:
    """The ids between a sampled answer and the next one: what the template writes behind the assistant's words
    (end token, separator), the observation, and the generation prompt.

    Found by rendering the conversation with a mark in place of the answer, so the answer itself is never rendered
    or tokenised again. The end token is left out where the policy sampled it.
    """
    marked = [*history, {"role": "assistant", "content": ANSWER_MARK}, *observation]
    _, found, tail = render(tokenizer, marked, generation_prompt=True).rpartition(ANSWER_MARK)
    if not found:
        raise DataError("the chat template does not write the assistant's words as they are, so turns cannot follow")
    ids = list(tokenizer(tail, add_special_tokens=False)["input_ids"])
    sampled_end = ids[:1] == completion.token_ids[-1:] and completion.stopped_by == ids[0]
    return ids[1:] if sampled_end else ids


def _as_messages(observation: Observation) -> list[Message]:
    messages = observation.messages
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
