"""The Engine contract: token ids in, token ids out, any number in flight.

An engine never sees text. Requests join by `submit`, and `poll` moves generation forward and hands back what
became ready, so that one process can drive it in a debugger and a remote one can stream. `generate` is the
convenience for callers that only want answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from rollick.config.base import PluginSettings
from rollick.config.job import ModelSettings
from rollick.data.records import Completion


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 cut nothing.

    Order of the cuts: temperature, then top-k, then top-p (smallest set whose mass reaches p), then min-p
    (tokens at least min_p times as likely as the likeliest); at least one token always stays.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to continue.

    The answer depends on `prompt_ids`, `sampling`, `seed` and the weights only: never on what else is in flight.
    Requests with an equal `prefix_key` and equal prompt ids may share the prompt's computation.
    `resume_from` holds the partial completion of an aborted request: generation continues behind it, and the
    returned completion starts with its tokens, log-probs and versions. Draws are keyed by (seed, position), so
    under unchanged weights an aborted and resumed request ends like one that was never aborted.
    """

    id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    prefix_key: str | None = None
    resume_from: Completion | None = None


Bucket = dict[str, torch.Tensor]
"""A bounded slice of a model's weights under Hugging Face names (tied weights appear once)."""


@dataclass(frozen=True)
class Receipt:
    """What an engine says it loaded: the version it serves from now on, the names it wrote, and a content hash
    of each parameter *as it stands in the engine's own model* (read back, not copied from the input).

        Receipt(version=5, hashes={"model.norm.weight": "9b1f…"})
    """

    version: int
    hashes: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Implemented by every engine; `tests/engines/contract.py` runs against each."""

    version: int

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request. Raises ValueError when prompt and max_new_tokens cannot fit the model's context."""

    def poll(self, timeout: float | None = None) -> list[tuple[str, Completion]]:
        """Generate until at least one request is ready (or `timeout` seconds passed; 0 = one step) and return
        the (request id, completion) pairs that are. Returns [] at once when nothing is in flight."""

    def abort(self, request_ids: Iterable[str]) -> list[tuple[str, Completion]]:
        """Stop these requests now; their partial completions come back with finish_reason "abort". Ids that are
        not in flight are ignored (they may have finished in the meantime)."""

    def update_weights(self, version: int, buckets: Iterator[Bucket]) -> Receipt:
        """Load weights; requests in flight go on with them, and later tokens carry the new version. When the
        set of names is not exactly the engine's own, raises WorkerError naming missing and unexpected ones and
        keeps serving the old weights."""

    def sleep(self) -> None:
        """Give memory back (nothing may be in flight)."""

    def wake(self) -> None:
        """Undo `sleep`."""

    def stats(self) -> dict[str, float]:
        """Counters since the start: generated_tokens, prompt_tokens, shared_prompt_tokens, decode_steps, …"""

    def close(self) -> None: ...


def generate(engine: Engine, requests: Sequence[GenerationRequest]) -> list[Completion]:
    """Submit all, poll until all are ready, return completions in the order of the requests."""
    for request in requests:
        engine.submit(request)
    ready: dict[str, Completion] = {}
    while len(ready) < len(requests):
        ready.update(engine.poll())
    return [ready[request.id] for request in requests]


@dataclass(frozen=True)
class EngineContext:
    """What an engine is built from. `tokenizer` serves stop strings only; `eos_token_ids` end every answer
    (all of the model's, not the tokenizer's one); `max_length` is the longest prompt + answer of this job."""

    model: ModelSettings
    tokenizer: Any
    eos_token_ids: tuple[int, ...]
    max_length: int
    device: str


class EngineOptions(PluginSettings):
    """Base of every engine's `Options` (one engine = one file in this folder)."""

    def build(self, context: EngineContext) -> Engine:
        raise NotImplementedError(f"{type(self).__module__} must define build")
