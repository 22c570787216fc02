"""AdamW over master weights, and its state as a flat dictionary of tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from rollick.config.job import TrainerSettings

MOMENTS = ("exp_avg", "exp_avg_sq")


def build_optimizer(weights: dict[str, Tensor], settings: TrainerSettings) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter, 1711.05101). Vectors (norms, biases) are not decayed."""
    trained = [weight for weight in weights.values() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.eps,
        fused=True,
    )


def optimizer_state(optimizer: torch.optim.AdamW, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """`<weight name>/exp_avg`, `/exp_avg_sq` and `/step` of every trained weight: the live tensors, so that loading
    into them restores the optimiser. Weights that were never updated get the zeros they would start from."""
    state: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if not weight.requires_grad:
            continue
        own = optimizer.state[weight]
        if not own:
            own["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            own.update({moment: torch.zeros_like(weight, memory_format=torch.preserve_format) for moment in MOMENTS})
        state |= {f"{name}/{key}": own[key] for key in ("step", *MOMENTS)}
    return state


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def gradient_norm(weights: Iterable[Tensor]) -> Tensor:
    """The 2-norm of all gradients over all ranks, before clipping; a scalar."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def clip_gradients(weights: Iterable[Tensor], norm: Tensor, limit: float) -> None:
    """Scale all gradients by limit / norm where norm exceeds the limit."""
    scale = (limit / norm).clamp(max=1.0)
    for weight in weights:
        if weight.grad is not None:
            weight.grad.mul_(scale.to(weight.grad.device))
