"""A transformers causal LM as the engine drives it: prompts in padded batches, decoding one token per row."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from rollick.engines.base import Bucket
from rollick.engines.torch_cache import STATE_LAYERS, Prefix, RowCache, cache_layer_types, prompt_cache
from rollick.engines.torch_packing import can_pack, pack_linears, unpack_linears
from rollick.errors import WorkerError
from rollick.models.hashing import tensor_hash
from rollick.models.weights import named_weights
from rollick.platforms.select import select_platform

PADDED_SHARE = 0.85
ENOUGH_TOKENS = 256


class ModelRunner:
    """Forward passes of one model in inference mode, and the exchange of its weights."""

    def __init__(self, model: PreTrainedModel, prefill_tokens: int, packed_weights: bool = True) -> None:
        """`prefill_tokens` bounds the (padded) tokens of one prompt pass; `packed_weights` keeps large matrices a
        second time in the processor's layout, where there is one.

        Raises ConfigError when the model's layers need a kind of cache that cannot be batched.
        """
        self.model = model.eval().requires_grad_(False)
        self.prefill_tokens = prefill_tokens
        self.config = model.config.get_text_config(decoder=True)
        self.layer_types = cache_layer_types(model.config)
        self.has_state = any(kind in STATE_LAYERS for kind in self.layer_types)
        self.cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._home = model.device
        self._packs = packed_weights and can_pack(model)
        self._awake = True
        self._pack()
        self._sample = self._probe()

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    def _pack(self) -> None:
        if self._packs and self._awake:
            pack_linears(self.model)

    def sleep(self) -> None:
        """Keep nothing but the plain weights, in host memory."""
        self._awake = False
        unpack_linears(self.model)
        self.model.to("cpu")
        select_platform(self._home).release_memory()

    def wake(self) -> None:
        self._awake = True
        self.model.to(self._home)
        self._pack()

    def new_cache(self) -> RowCache:
        return RowCache(self._sample)

    def _probe(self) -> Cache:
        """The cache after one token: it tells the shapes of every layer's entries."""
        cache = prompt_cache(self.layer_types)
        self._extend(cache, torch.zeros((1, 1), dtype=torch.long, device=self.device), 0)
        return cache

    @torch.inference_mode()
    def _extend(self, cache: Cache, token_ids: torch.Tensor, start: int) -> None:
        """Run the model without its head over [P, T] tokens at positions start, start + 1, …"""
        positions = torch.arange(start, start + token_ids.shape[1], device=token_ids.device)
        self.model.base_model(
            input_ids=token_ids,
            position_ids=positions.expand(len(token_ids), -1),
            use_cache=True,
            **{self.cache_argument: cache},
        )

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Prefix]]:
        """Compute the cache entries of every prompt (none empty); yields (index, views of its entries).

        Prompts of similar length go side by side, padded on the right: causal attention never looks there, and
        what the padding leaves in the cache is dropped. A recurrent state has no such protection, so models that
        hold one get equal lengths only. A prompt beyond the budget runs alone in pieces.
        """
        for indices in self._prefill_batches([len(prompt) for prompt in prompts]):
            longest = len(prompts[indices[0]])
            padded = [[*prompts[i], *[0] * (longest - len(prompts[i]))] for i in indices]
            token_ids = torch.tensor(padded, device=self.device)
            cache = prompt_cache(self.layer_types)
            for start in range(0, longest, self.prefill_tokens):
                self._extend(cache, token_ids[:, start : start + self.prefill_tokens], start)
            for row, i in enumerate(indices):
                yield i, Prefix.from_cache(cache, row, len(prompts[i]))

    def _prefill_batches(self, lengths: Sequence[int]) -> Iterable[list[int]]:
        """Indices by falling length. A batch ends at the budget, and where lengths fall below PADDED_SHARE of its
        longest once it has ENOUGH_TOKENS to keep the processor busy (at any difference, for a recurrent state)."""
        batches: list[list[int]] = []
        for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            longest = lengths[batches[-1][0]] if batches else 0
            tokens = longest * len(batches[-1]) if batches else 0
            alike = lengths[i] >= longest * PADDED_SHARE or tokens < ENOUGH_TOKENS
            if self.has_state:
                alike = lengths[i] == longest
            if batches and alike and tokens + longest <= self.prefill_tokens:
                batches[-1].append(i)
            else:
                batches.append([i])
        return batches

    @torch.inference_mode()
    def decode(self, token_ids: Sequence[int], positions: Sequence[int], cache: RowCache) -> torch.Tensor:
        """Feed one token per row at its own position; returns the logits [B, V] of the next one."""
        device = self.device
        position = torch.tensor(positions, device=device)
        visible = max(positions) + 1
        cache.begin_step(position, visible)
        output = self.model(
            input_ids=torch.tensor(token_ids, device=device)[:, None],
            position_ids=position[:, None],
            attention_mask=self._masks(position, visible),
            use_cache=True,
            **{self.cache_argument: cache},
        )
        return output.logits[:, -1]

    def _masks(self, position: torch.Tensor, visible: int) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        """Additive masks [B, 1, 1, visible] in the form the model family expects: one, or one per layer type."""
        kinds = dict.fromkeys(self.layer_types)
        masks = {kind: self._mask(kind, position[:, None], visible) for kind in kinds}
        if hasattr(self.config, "layer_types"):
            return masks
        [mask] = masks.values()
        return mask

    def _mask(self, kind: str, position: torch.Tensor, visible: int) -> torch.Tensor | None:
        if kind in STATE_LAYERS:
            return None
        column = torch.arange(visible, device=position.device)[None, :]
        hidden = column > position
        if kind == "sliding_attention":
            hidden |= column <= position - self.config.sliding_window
        elif kind == "chunked_attention":
            chunk = self.config.attention_chunk_size
            hidden |= column // chunk != position // chunk
        dtype = self.model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=position.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None, None, :]

    def exchange_weights(self, buckets: Iterator[Bucket]) -> dict[str, str]:
        """Replace all weights at once; returns each one's content hash, read back from the model.

        The new tensors are copied to the side and swapped in when the last bucket has come, so for that time the
        model is there twice (packed copies are dropped first), and a stream that breaks off or is wrong changes
        nothing. Raises WorkerError naming missing, unexpected, repeated or misshapen tensors.
        """
        unpack_linears(self.model)
        try:
            fresh = self._staged(buckets)
            for name, tensor in named_weights(self.model).items():
                tensor.data = fresh.pop(name)
        finally:
            self._pack()
        return {name: tensor_hash(tensor) for name, tensor in named_weights(self.model).items()}

    def _staged(self, buckets: Iterator[Bucket]) -> dict[str, torch.Tensor]:
        """Copies of all tensors of the stream in the engine's dtypes and on its device, once their set is right."""
        own = named_weights(self.model)
        fresh: dict[str, torch.Tensor] = {}
        problems: list[str] = []
        for bucket in buckets:
            for name, tensor in bucket.items():
                problem = _refusal(name, tensor, own, fresh)
                if problem:
                    problems.append(problem)
                    continue
                fresh[name] = torch.empty_like(own[name]).copy_(tensor.detach())
        missing = sorted(set(own) - set(fresh))
        if missing:
            problems.append(f"missing {_listed(missing)}")
        if problems:
            raise WorkerError(
                f"weights refused, the old ones go on serving: {'; '.join(problems[:5])}"
                + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
            )
        return fresh


def _refusal(
    name: str, tensor: torch.Tensor, own: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]
) -> str | None:
    if name not in own:
        return f"unexpected {name}"
    if name in fresh:
        return f"{name} came twice"
    if tensor.shape != own[name].shape:
        return f"{name} has shape {list(tensor.shape)}, the engine's has {list(own[name].shape)}"
    return None


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
