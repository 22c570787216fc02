"""FSDP2 around a scorer."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from rollick.training.scorer import TokenScorer


def shard(
    scorer: TokenScorer, device_type: str, ranks: int, compute: torch.dtype, master: torch.dtype, cpu_offload: bool
) -> None:
    """Shard weights (kept in `master`, computed in `compute`), gradients and so the optimiser's state over ranks.

    One unit per decoder layer, one for the rest. Gradients are summed over ranks, not averaged: a loss carries
    its global denominator already.
    """
    mesh = init_device_mesh(device_type, (ranks,))
    mixed = MixedPrecisionPolicy() if compute == master else MixedPrecisionPolicy(compute, reduce_dtype=master)
    offload = CPUOffloadPolicy(pin_memory=device_type != "cpu") if cpu_offload else OffloadPolicy()
    for module in (*scorer.layers(), scorer):
        fully_shard(module, mesh=mesh, mp_policy=mixed, offload_policy=offload)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
