"""Names of weights, the same for everyone who sends or receives them."""

from __future__ import annotations

import torch


def named_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and persistent buffer under its Hugging Face name; tied ones once, under their first name.

    A tied Llama gives "model.embed_tokens.weight", …, "model.norm.weight" and no "lm_head.weight".
    """
    weights: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights
