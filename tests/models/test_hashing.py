"""The content hash behind weight receipts."""

import pytest
import torch

from rollick.models.hashing import tensor_hash
from rollick.models.weights import named_weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (4096,), (33, 4097)])
def test_equal_tensors_have_equal_hashes_whatever_their_layout(dtype, shape):
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
    strided = torch.stack([tensor, tensor], -1)[..., 0]
    assert tensor_hash(tensor) == tensor_hash(tensor.clone()) == tensor_hash(strided)


def test_every_single_bit_counts():
    tensor = torch.randn(40, 123)
    whole = tensor_hash(tensor)
    for position in range(0, tensor.numel(), 7):
        for bit in (0, 13, 31):
            flipped = tensor.clone()
            flipped.view(torch.int32).view(-1)[position] ^= -(2**31) if bit == 31 else 1 << bit
            assert tensor_hash(flipped) != whole, (position, bit)


def test_negated_tensors_differ():
    """Sign bits are the top bits of their words: a plain sum of words would lose them in pairs."""
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.randn(3 * 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
        pair = tensor.clone()
        pair[[10, 20]] *= -1
        halves = tensor.clone()
        halves[:4096] *= -1
        assert len({tensor_hash(t) for t in (tensor, -tensor, pair, halves)}) == 4


def test_place_shape_and_dtype_count():
    tensor = torch.arange(9000.0)
    swapped = tensor.clone()
    swapped[[3, 8000]] = swapped[[8000, 3]]
    rolled = tensor.roll(4096)
    variants = [
        tensor,
        swapped,
        rolled,
        tensor.view(90, 100),
        tensor.double(),
        tensor.view(torch.int32),
        tensor[:-1],
        torch.cat([tensor, torch.zeros(1)]),
        torch.zeros(3),
        torch.zeros(4),
        torch.zeros(0),
    ]
    assert len({tensor_hash(t) for t in variants}) == len(variants)


def test_the_hash_of_a_tensor_never_changes_between_versions():
    """Two processes of different age may compare receipts."""
    assert tensor_hash(torch.arange(10, dtype=torch.float32)) == "72e16fa15bb7bc94"


def test_tied_weights_appear_once_and_persistent_buffers_count():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(4, 3), "head": torch.nn.Linear(3, 4, bias=False)})
    model["norm"] = torch.nn.BatchNorm1d(3)
    model["head"].weight = model["embed"].weight
    names = list(named_weights(model))
    assert "head.weight" not in names
    assert {"embed.weight", "norm.weight", "norm.running_mean"} <= set(names)
