"""The key/value and recurrent-state cache of the rows that decode together, as transformers' cache layers.

Rows are dense: row i of every buffer belongs to the i-th request in flight. Each row has its own length; one decode
step writes one column per row and reads as many columns as the longest row has. Buffers grow with the rows and
lengths that are alive, and a finished row is overwritten by the last one, so no dead row is ever computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicLayer,
    LinearAttentionLayer,
    get_layer_types_and_kwargs,
)

from rollick.errors import ConfigError

ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
STATE_LAYERS = frozenset({"linear_attention", "conv"})
COLUMN_BLOCK = 64
"""Columns are added in multiples of this."""


def cache_layer_types(config: PreTrainedConfig) -> list[str]:
    """The kind of cache of every layer. Raises ConfigError for a kind that this engine cannot batch."""
    types, _ = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    unknown = sorted(set(types) - ATTENTION_LAYERS - STATE_LAYERS)
    if unknown:
        raise ConfigError(
            f"engine 'torch' cannot run model type '{config.model_type}': its layers need caches of kind "
            f"{', '.join(unknown)}; use another engine"
        )
    return types


def prompt_cache(layer_types: Sequence[str]) -> Cache:
    """An empty transformers cache for a prompt: every token is kept, also where attention is windowed."""
    return Cache(layers=[LinearAttentionLayer() if t in STATE_LAYERS else DynamicLayer() for t in layer_types])


@dataclass
class Prefix:
    """What a prompt left in the cache: for each layer its tensors without the batch axis.

    Attention layers have (keys, values), both [heads, length, head_dim]; state layers have their convolution
    states followed by their recurrent states.
    """

    length: int
    layers: list[tuple[torch.Tensor, ...]]

    @classmethod
    def from_cache(cls, cache: Cache, row: int, length: int) -> Prefix:
        """Views of one row of a prompt cache; right padding (columns past `length`) is left behind."""
        layers: list[tuple[torch.Tensor, ...]] = []
        for layer in cache.layers:
            if isinstance(layer, LinearAttentionLayer):
                layers.append(tuple(state[row] for state in _states(layer)))
            elif isinstance(layer, DynamicLayer):
                layers.append(tuple(t[row, :, :length] for t in _keys_and_values(layer)))
        return cls(length, layers)

    def clone(self) -> Prefix:
        return Prefix(self.length, [tuple(t.clone() for t in layer) for layer in self.layers])


def _keys_and_values(layer: DynamicLayer) -> tuple[torch.Tensor, ...]:
    return tuple(t for t in (layer.keys, layer.values) if t is not None)


def _states(layer: LinearAttentionLayer) -> list[torch.Tensor]:
    both = (*layer.conv_states.values(), *layer.recurrent_states.values())
    return [state for state in both if state is not None]


@dataclass
class Step:
    """Where one decode step of B rows writes, shared by all layers.

    `positions` int64[B] is the column of each row's new token, `visible` the number of columns attention reads.
    """

    rows: int = 0
    visible: int = 0
    columns: int = 0
    positions: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    _flat: dict[int, torch.Tensor] = field(default_factory=dict)

    def begin(self, positions: torch.Tensor, visible: int, columns: int) -> None:
        self.rows, self.visible, self.columns, self.positions = len(positions), visible, columns, positions
        self._flat.clear()

    def flat_index(self, heads: int) -> torch.Tensor:
        """int64[B · heads]: where (row, head, position) lies in a buffer flattened over its first three axes."""
        if heads not in self._flat:
            row_head = torch.arange(self.rows * heads, device=self.positions.device).view(self.rows, heads)
            self._flat[heads] = (row_head * self.columns + self.positions[:, None]).flatten()
        return self._flat[heads]


class AttentionRows(CacheLayerMixin):
    """Keys and values [rows, heads, columns, head_dim] of one attention layer."""

    def __init__(self, sample: DynamicLayer, step: Step) -> None:
        """`sample` is the layer after one token: it tells shapes, dtype and device."""
        super().__init__()
        self.step = step
        self.buffers = [t.new_zeros((0, t.shape[1], 0, t.shape[3])) for t in _keys_and_values(sample)]
        self.is_initialized = True

    def resize(self, rows: int, columns: int) -> None:
        for i, buffer in enumerate(self.buffers):  # one at a time: the old one is freed before the next
            self.buffers[i] = _resized(buffer, rows, columns)

    def put(self, row: int, tensors: tuple[torch.Tensor, ...]) -> None:
        for buffer, tensor in zip(self.buffers, tensors):
            buffer[row, :, : tensor.shape[1]] = tensor

    def clear(self, row: int) -> None:
        """Nothing to do: columns past a row's length are masked."""

    def move(self, source: int, target: int, length: int) -> None:
        for buffer in self.buffers:
            buffer[target, :, :length] = buffer[source, :, :length]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one token per row, [B, heads, 1, head_dim]; returns [B, heads, visible, head_dim] views."""
        step = self.step
        seen = []
        for buffer, new in zip(self.buffers, (key_states, value_states)):
            buffer.flatten(0, 2).index_copy_(0, step.flat_index(buffer.shape[1]), new.flatten(0, 2))
            seen.append(buffer[: step.rows, :, : step.visible])
        return seen[0], seen[1]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Buffers exist from the start."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.step.visible, 0

    def get_seq_length(self) -> int:
        return max(self.step.visible - 1, 0)

    def get_max_length(self) -> int:
        return -1

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)


def _resized(buffer: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Zeros where there was nothing: an attention weight of 0 times uninitialised memory may be NaN."""
    old_rows, heads, old_columns, width = buffer.shape
    kept_rows, kept_columns = min(rows, old_rows), min(columns, old_columns)
    resized = buffer.new_empty((rows, heads, columns, width))
    resized[:kept_rows, :, :kept_columns] = buffer[:kept_rows, :, :kept_columns]
    resized[:kept_rows, :, kept_columns:] = 0
    resized[kept_rows:] = 0
    return resized


class StateRows(LinearAttentionLayer):
    """Convolution and recurrent states of one linear-attention layer; the model updates them in place."""

    def __init__(self, sample: LinearAttentionLayer, step: Step) -> None:
        """`sample` is the layer after one token: it tells which states there are and their shapes."""
        super().__init__(number_of_states=sample.number_of_states)
        self.step = step
        self.device, self.dtype = sample.device, sample.dtype
        self.conv_kernel_size = dict(sample.conv_kernel_size)
        self.is_conv_states_initialized = dict(sample.is_conv_states_initialized)
        self.is_recurrent_states_initialized = dict(sample.is_recurrent_states_initialized)
        self.has_previous_state = dict.fromkeys(sample.has_previous_state, True)
        self.conv_keys = [i for i, s in sample.conv_states.items() if s is not None]
        self.recurrent_keys = [i for i, s in sample.recurrent_states.items() if s is not None]
        self.buffers = [state.new_zeros((0, *state.shape[1:])) for state in _states(sample)]

    def resize(self, rows: int, columns: int) -> None:
        for i, buffer in enumerate(self.buffers):
            kept = min(rows, len(buffer))
            self.buffers[i] = torch.cat([buffer[:kept], buffer.new_zeros((rows - kept, *buffer.shape[1:]))])

    def put(self, row: int, tensors: tuple[torch.Tensor, ...]) -> None:
        for buffer, tensor in zip(self.buffers, tensors):
            buffer[row] = tensor

    def clear(self, row: int) -> None:
        for buffer in self.buffers:
            buffer[row] = 0

    def move(self, source: int, target: int, length: int) -> None:
        for buffer in self.buffers:
            buffer[target] = buffer[source]

    def expose(self) -> None:
        """Let the model see the rows of this step."""
        views = [buffer[: self.step.rows] for buffer in self.buffers]
        self.conv_states.update(zip(self.conv_keys, views))
        self.recurrent_states.update(zip(self.recurrent_keys, views[len(self.conv_keys) :]))

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)


class RowCache(Cache):
    """The cache of all rows in flight: a transformers Cache whose rows come, go and move."""

    def __init__(self, sample: Cache) -> None:
        """`sample` is a prompt cache after one token; only its shapes, dtypes and device are used."""
        self.step = Step()
        self.row_layers: list[AttentionRows | StateRows] = [
            StateRows(layer, self.step) if isinstance(layer, LinearAttentionLayer) else AttentionRows(layer, self.step)
            for layer in sample.layers
            if isinstance(layer, LinearAttentionLayer | DynamicLayer)
        ]
        self.rows = self.columns = 0
        super().__init__(layers=list(self.row_layers))

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for this many rows and columns. Columns grow by at least a quarter, so that growth stays rare,
        and then only for the rows that are alive: when few long rows are left, the buffers shrink to them."""
        if columns > self.columns:
            self.columns = -(-max(columns, self.columns * 5 // 4) // COLUMN_BLOCK) * COLUMN_BLOCK
        elif rows <= self.rows:
            return
        self.rows = rows
        for layer in self.row_layers:
            layer.resize(self.rows, self.columns)

    def put(self, row: int, prefix: Prefix | None) -> None:
        """Start a row behind a prompt, or behind nothing."""
        for i, layer in enumerate(self.row_layers):
            if prefix is None:
                layer.clear(row)
            else:
                layer.put(row, prefix.layers[i])

    def move(self, source: int, target: int, length: int) -> None:
        """Overwrite row `target` by the first `length` columns of row `source`."""
        for layer in self.row_layers:
            layer.move(source, target, length)

    def begin_step(self, positions: torch.Tensor, visible: int) -> None:
        """The next forward pass has one token for each of the first len(positions) rows, at these positions."""
        self.step.begin(positions, visible, self.columns)
        for layer in self.row_layers:
            if isinstance(layer, StateRows):
                layer.expose()

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.row_layers)
