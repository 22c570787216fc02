"""Linear layers with weights in the processor's own layout: a decode step multiplies few rows by large matrices,
where re-laying the matrix on every call costs as much as the product itself."""

from __future__ import annotations

import torch

MIN_ELEMENTS = 2**16
"""Smaller matrices lose more by the longer way into the library than they gain."""


class PackedProduct:
    """Stands in for `nn.Linear.forward` and computes the same, from a copy of the weight in oneDNN's layout."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def can_pack(model: torch.nn.Module) -> bool:
    """Whether this torch build and the model's device and dtype have packed products (float32 on CPU)."""
    parameter = next(model.parameters())
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return available and parameter.device.type == "cpu" and parameter.dtype == torch.float32


@torch.no_grad()
def pack_linears(model: torch.nn.Module) -> None:
    """Give every large `nn.Linear` a packed copy of its present weight. It does not follow later changes: call
    this again after each, also for weights that are tied to an embedding."""
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.numel() >= MIN_ELEMENTS:
            module.__dict__["forward"] = PackedProduct(module)


def unpack_linears(model: torch.nn.Module) -> None:
    """Drop the packed copies; the layers compute from their own weights again."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), PackedProduct):
            del module.__dict__["forward"]
