"""Continuous batching in this process: requests join and leave between any two tokens, on CPU or an accelerator."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from rollick.data.records import Completion, FinishReason
from rollick.engines.base import Bucket, GenerationRequest, Receipt
from rollick.engines.sampling import Draw, SamplingPlan, draw, uniforms
from rollick.engines.stopping import StopRule
from rollick.engines.torch_cache import Prefix, RowCache
from rollick.engines.torch_model import ModelRunner
from rollick.errors import NumericsError

COUNTERS = (
    "finished_requests",
    "generated_tokens",
    "prompt_tokens",
    "shared_prompt_tokens",
    "decode_steps",
    "weight_updates",
    "peak_cache_bytes",
    "decode_seconds",
    "sample_seconds",
    "prefill_seconds",
)
"""Kept since the start. `prompt_tokens` were computed, `shared_prompt_tokens` were copied from an equal prompt."""

PrefixKey = tuple[str, tuple[int, ...]]


@dataclass
class _Row:
    """A request in flight. `cached` tokens of `context` (prompt and answer so far) are in the cache; all but the
    newest one are there before every decode step."""

    request: GenerationRequest
    stop: StopRule
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept_logmass: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, request: GenerationRequest, stop: StopRule) -> _Row:
        kept = request.resume_from
        if kept is None:
            return cls(request, stop)
        return cls(
            request, stop, list(kept.token_ids), list(kept.logprobs), list(kept.kept_logmass), list(kept.versions)
        )

    @property
    def cached(self) -> int:
        return len(self.request.prompt_ids) + len(self.token_ids) - 1

    @property
    def last_token(self) -> int:
        return self.token_ids[-1] if self.token_ids else self.request.prompt_ids[-1]

    @property
    def prefix(self) -> tuple[int, ...]:
        """Everything but the newest token, which the next decode step feeds."""
        return (*self.request.prompt_ids, *self.token_ids)[:-1]

    @property
    def sharing_key(self) -> PrefixKey | None:
        """Rows with an equal key have equal prefixes and may share their computation."""
        if self.request.prefix_key is None or self.token_ids:
            return None
        return self.request.prefix_key, self.request.prompt_ids

    def completion(self, reason: FinishReason, stopped_by: int | str | None = None) -> Completion:
        return Completion(self.token_ids, self.logprobs, self.kept_logmass, self.versions, reason, stopped_by)


class TorchEngine:
    """Requests join and leave between any two tokens. A row is one request; all rows decode one token per step.

    Not thread-safe: one thread drives it. `update_weights` between two polls leaves the keys and values of rows in
    flight as they are (computed under the older weights); prompts that were kept for sharing are dropped.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        eos_token_ids: Sequence[int] = (),
        max_length: int | None = None,
        slots: int = 64,
        prefill_tokens: int = 4096,
        packed_weights: bool = True,
    ) -> None:
        self.version = 0
        self._runner = ModelRunner(model, prefill_tokens, packed_weights)
        self._tokenizer = tokenizer
        self._eos_token_ids = tuple(eos_token_ids)
        context = self._runner.config.max_position_embeddings
        self._max_length = min(max_length or context, context)
        self._slots = slots
        self._waiting: deque[_Row] = deque()
        self._rows: list[_Row] = []
        self._ids: set[str] = set()
        self._ready: list[tuple[str, Completion]] = []
        self._cache: RowCache | None = None
        self._plan: SamplingPlan | None = None
        self._prefixes: dict[PrefixKey, Prefix] = {}
        self._stats = dict.fromkeys(COUNTERS, 0.0)

    # requests in, completions out

    def submit(self, request: GenerationRequest) -> None:
        self._check(request)
        self._ids.add(request.id)
        row = _Row.of(request, StopRule(request.sampling, self._eos_token_ids, self._tokenizer))
        if len(row.token_ids) >= request.sampling.max_new_tokens:
            self._finish(row, row.completion("length"))
        else:
            self._waiting.append(row)

    def _check(self, request: GenerationRequest) -> None:
        """Raises ValueError naming the request and what is wrong with it."""
        name, sampling, length = f"request '{request.id}'", request.sampling, len(request.prompt_ids)
        if request.id in self._ids:
            raise ValueError(f"{name} is in flight already; ids must be unique")
        if not length:
            raise ValueError(f"{name} has an empty prompt; it needs at least one token")
        if sampling.max_new_tokens < 1:
            raise ValueError(f"{name} has max_new_tokens {sampling.max_new_tokens}; it must be at least 1")
        if length + sampling.max_new_tokens > self._max_length:
            raise ValueError(
                f"{name}: prompt of {length} tokens + max_new_tokens {sampling.max_new_tokens} = "
                f"{length + sampling.max_new_tokens} is over the limit of {self._max_length} tokens"
            )
        if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < self._runner.vocab_size:
            raise ValueError(f"{name} has token ids outside the model's vocabulary of {self._runner.vocab_size}")
        if sampling.stop and self._tokenizer is None:
            raise ValueError(f"{name} has stop strings, but the engine was built without a tokenizer")

    def poll(self, timeout: float | None = None) -> list[tuple[str, Completion]]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready and (self._waiting or self._rows):
            self._step()
            if deadline is not None and time.monotonic() >= deadline:
                break
        ready, self._ready = self._ready, []
        return ready

    def abort(self, request_ids: Iterable[str]) -> list[tuple[str, Completion]]:
        wanted = set(request_ids) & self._ids
        aborted = [(row.request.id, row.completion("abort")) for row in self._all_rows() if row.request.id in wanted]
        self._waiting = deque(row for row in self._waiting if row.request.id not in wanted)
        self._retire([i for i, row in enumerate(self._rows) if row.request.id in wanted])
        self._ids -= {name for name, _ in aborted}
        self._drop_unused_prefixes()
        return aborted

    def _all_rows(self) -> Iterator[_Row]:
        yield from self._rows
        yield from self._waiting

    def _finish(self, row: _Row, completion: Completion) -> None:
        self._ids.discard(row.request.id)
        self._ready.append((row.request.id, completion))
        self._stats["finished_requests"] += 1

    # one token for every row

    def _step(self) -> None:
        if self._waiting and self._slots - len(self._rows) >= min(len(self._waiting), max(1, self._slots // 8)):
            self._admit()  # a prompt pass reads all weights, however few prompts it has: let places gather for it
        sampled = self._decode()
        finished = []
        ids, logprobs, kept = (t.tolist() for t in (sampled.token_ids, sampled.logprobs, sampled.kept_logmass))
        for i, row in enumerate(self._rows):
            row.token_ids.append(ids[i])
            row.logprobs.append(logprobs[i])
            row.kept_logmass.append(kept[i])
            row.versions.append(self.version)
            ending = row.stop.check(row.token_ids)
            if ending is not None:
                self._finish(row, row.completion(*ending))
                finished.append(i)
        self._stats["generated_tokens"] += len(self._rows)
        self._stats["decode_steps"] += 1
        self._retire(finished)

    def _decode(self) -> Draw:
        rows, cache = self._rows, self._live_cache()
        positions = [row.cached for row in rows]
        cache.reserve(len(rows), max(positions) + 1)
        self._stats["peak_cache_bytes"] = max(self._stats["peak_cache_bytes"], float(cache.nbytes))
        started = time.monotonic()
        logits = self._runner.decode([row.last_token for row in rows], positions, cache)
        modelled = time.monotonic()
        if self._plan is None:
            self._plan = SamplingPlan.of([row.request.sampling for row in rows], logits.shape[-1], logits.device)
        uniform = uniforms([row.request.seed for row in rows], [len(row.token_ids) for row in rows])
        with torch.inference_mode():
            sampled = draw(logits, self._plan, torch.from_numpy(uniform).to(logits.device))
            finite = sampled.logprobs.isfinite().tolist()
        if not all(finite):
            self._refuse([row.request.id for row, fine in zip(rows, finite) if not fine])
        self._stats["decode_seconds"] += modelled - started
        self._stats["sample_seconds"] += time.monotonic() - modelled
        return sampled

    def _refuse(self, row_ids: list[str]) -> None:
        """Forget everything in flight (NaN in a cache would spread to later rows) and say who met it."""
        self._rows, self._cache, self._plan, self._ids = [], None, None, set()
        self._waiting.clear()
        self._prefixes.clear()
        raise NumericsError(
            f"engine: the model gave NaN or infinite logits at weight version {self.version} for "
            f"{len(row_ids)} requests, among them {', '.join(row_ids[:5])}; the weights are damaged or overflow "
            f"in {self._runner.model.dtype}",
            row_ids,
        )

    def _retire(self, indices: list[int]) -> None:
        """Remove rows; the last row takes each freed place, so that no dead row is ever computed."""
        for i in sorted(indices, reverse=True):
            last = self._rows.pop()
            if i < len(self._rows):
                with torch.inference_mode():
                    self._live_cache().move(len(self._rows), i, last.cached)
                self._rows[i] = last
        if indices:
            self._plan = None
        if not self._rows:
            self._cache = None

    def _live_cache(self) -> RowCache:
        if self._cache is None:
            with torch.inference_mode():
                self._cache = self._runner.new_cache()
        return self._cache

    # prompts

    def _admit(self) -> None:
        """Move waiting requests into free rows. Each distinct shared prompt is computed once."""
        started = time.monotonic()
        joining = [self._waiting.popleft() for _ in range(min(self._slots - len(self._rows), len(self._waiting)))]
        takers: dict[Any, list[int]] = {}
        first = len(self._rows)
        for i, row in enumerate(joining, first):
            takers.setdefault(row.sharing_key or i, []).append(i)
        self._rows.extend(joining)
        self._plan = None
        with torch.inference_mode():
            self._live_cache().reserve(len(self._rows), max(row.cached for row in joining) + 1)
            self._fill(takers)
        self._drop_unused_prefixes()
        self._stats["prefill_seconds"] += time.monotonic() - started

    def _fill(self, takers: dict[Any, list[int]]) -> None:
        """Put the cache entries of each prefix into the rows that take it."""
        unknown: list[tuple[Any, tuple[int, ...]]] = []
        for key, indices in takers.items():
            prefix = self._rows[indices[0]].prefix
            if not prefix or key in self._prefixes:
                self._place(self._prefixes.get(key), indices, computed=0)
            else:
                unknown.append((key, prefix))
        wanted = {row.sharing_key for row in self._waiting}
        for i, computed in self._runner.prefill([prefix for _, prefix in unknown]):
            key = unknown[i][0]
            self._place(computed, takers[key], computed=1)
            if key in wanted:
                self._prefixes[key] = computed.clone()

    def _place(self, prefix: Prefix | None, indices: list[int], computed: int) -> None:
        for i in indices:
            self._live_cache().put(i, prefix)
        length = prefix.length if prefix else 0
        self._stats["prompt_tokens"] += length * computed
        self._stats["shared_prompt_tokens"] += length * (len(indices) - computed)

    def _drop_unused_prefixes(self) -> None:
        """Keep a prompt only while a waiting request shares it."""
        if self._prefixes:
            wanted = {row.sharing_key for row in self._waiting}
            self._prefixes = {key: prefix for key, prefix in self._prefixes.items() if key in wanted}

    # weights and memory

    @torch.no_grad()
    def update_weights(self, version: int, buckets: Iterator[Bucket]) -> Receipt:
        hashes = self._runner.exchange_weights(buckets)
        self._prefixes.clear()
        self.version = version
        self._stats["weight_updates"] += 1
        return Receipt(version, hashes)

    def sleep(self) -> None:
        """Free the caches and move the weights into host memory. Raises RuntimeError while requests are in flight."""
        if self._rows or self._waiting:
            raise RuntimeError(f"engine: cannot sleep with {len(self._rows) + len(self._waiting)} requests in flight")
        self._cache = None
        self._prefixes.clear()
        self._runner.sleep()

    def wake(self) -> None:
        self._runner.wake()

    def stats(self) -> dict[str, float]:
        """`COUNTERS` since the start, and of this moment: running, waiting, cache_bytes."""
        now = {
            "running": len(self._rows),
            "waiting": len(self._waiting),
            "cache_bytes": self._cache.nbytes if self._cache else 0,
        }
        return {**self._stats, **{name: float(value) for name, value in now.items()}}

    def close(self) -> None:
        self._rows, self._cache, self._ids = [], None, set()
        self._waiting.clear()
        self._prefixes.clear()
