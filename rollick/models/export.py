"""Writing a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MAX_SHARD = "5GB"


def export_model(model: Any, weights: dict[str, Tensor], directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json, generation_config.json and safetensors files (several when large) that
    `AutoModelForCausalLM.from_pretrained` reads back.

    `weights` are whole tensors under the model's names, tied ones once (`models.weights.named_weights`). `dtype`
    casts floating weights; left out, they stay as they are.
    """
    if dtype is not None:
        weights = {name: w.to(dtype) if w.is_floating_point() else w for name, w in weights.items()}
    model.save_pretrained(directory, state_dict=weights, max_shard_size=MAX_SHARD)
    previous = model.config.dtype
    model.config.dtype = next(w.dtype for w in weights.values() if w.is_floating_point())
    model.config.save_pretrained(directory)  # the one above names the model's dtype, not the files'
    model.config.dtype = previous
