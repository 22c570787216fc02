"""The tiled head equals a full softmax, in values and gradients, within a bounded memory."""

import math

import pytest
import torch
from torch import nn

from rollick.models import heads
from rollick.models.heads import HeadOptions, token_logprobs


def naive(hidden, head, targets, temperature, options=HeadOptions()):  # noqa: B008
    logits = head(hidden) * options.scale
    if options.softcap is not None:
        logits = options.softcap * torch.tanh(logits / options.softcap)
    logp = torch.log_softmax(logits / temperature, -1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def inputs(tokens=7, width=5, vocab=11, bias=False, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(width, vocab, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    hidden = torch.randn(tokens, width, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, head, torch.randint(0, vocab, (tokens,), generator=generator)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 3 tokens by 256 words, so that a small case crosses tile borders both ways."""
    monkeypatch.setattr(heads, "CPU_TILE", heads.Tile(3, 3 * 256))


def test_worked_example():
    head = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[math.log(2), 0.0], [0.0, 1.0], [0.0, 0.0]]))
    logprobs, entropy = token_logprobs(torch.tensor([[1.0, 0.0]]), head, torch.tensor([0]), 1.0, entropy=True)
    assert logprobs.item() == pytest.approx(-0.693147, abs=1e-6)
    assert entropy.item() == pytest.approx(1.039721, abs=1e-6)


@pytest.mark.parametrize("options", [HeadOptions(), HeadOptions(scale=0.25), HeadOptions(scale=1.5, softcap=2.0)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_the_full_softmax(small_tiles, options, bias, temperature):
    hidden, head, targets = inputs(tokens=8, vocab=600, bias=bias)
    weights = torch.randn(2, 8, dtype=torch.float64)
    results, gradients = [], []
    for function in (naive, lambda *a: token_logprobs(*a[:4], entropy=True, options=a[4])):
        logprobs, entropy = function(hidden, head, targets, temperature, options)
        loss = (weights[0] * logprobs + weights[1] * entropy).sum()
        gradients.append(torch.autograd.grad(loss, [hidden, *head.parameters()]))
        results.append((logprobs, entropy))
    for ours, theirs in zip([*results[1], *gradients[1]], [*results[0], *gradients[0]]):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("entropy", [False, True])
def test_finite_differences_agree(entropy):
    hidden, head, targets = inputs(bias=True)

    def function(hidden, weight, bias):
        layer = nn.Linear(*reversed(weight.shape), dtype=torch.float64)
        del layer.weight, layer.bias
        layer.weight, layer.bias = weight, bias
        logprobs, entropies = token_logprobs(hidden, layer, targets, 0.7, entropy, HeadOptions(1.3, 4.0))
        return (logprobs, entropies) if entropy else logprobs

    assert torch.autograd.gradcheck(
        function, (hidden, head.weight.detach().requires_grad_(), head.bias.detach().requires_grad_())
    )


def test_huge_logits_stay_finite():
    hidden, head, targets = inputs(dtype=torch.float32)
    logprobs, entropy = token_logprobs(hidden * 1e4, head, targets, 1.0, entropy=True)
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all() and torch.isfinite(entropy).all() and torch.isfinite(hidden.grad).all()
    assert (entropy >= -1e-4).all() and (logprobs <= 1e-4).all()


@pytest.mark.parametrize("live", [[], [2], [0, 3, 6]])
def test_tokens_whose_gradient_is_zero_cost_nothing_and_change_nothing(small_tiles, live):
    hidden, head, targets = inputs(vocab=300, bias=True)
    weight = torch.zeros(7, dtype=torch.float64)
    weight[live] = torch.arange(1.0, len(live) + 1, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((weight * function(hidden, head, targets, 0.7)[0]).sum(), [hidden, *head.parameters()])
        for function in (naive, token_logprobs)
    ]
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_no_tokens_give_empty_results_and_zero_gradients():
    hidden, head, targets = inputs(tokens=0)
    logprobs, _ = token_logprobs(hidden, head, targets, 1.0)
    logprobs.sum().backward()
    assert logprobs.shape == (0,) and head.weight.grad.abs().sum() == 0


def test_bfloat16_weights_give_float32_log_probs_with_small_errors():
    hidden, head, targets = inputs(tokens=64, width=32, vocab=500, dtype=torch.float32)
    exact, _ = token_logprobs(hidden, head, targets, 1.0)
    rounded, _ = token_logprobs(hidden.bfloat16(), head.bfloat16(), targets, 1.0)
    assert rounded.dtype == torch.float32
    assert (exact - rounded).abs().mean() < 0.1


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    hidden, head, targets = inputs()
    with pytest.raises(ValueError, match="temperature above 0"):
        token_logprobs(hidden, head, targets, temperature)


def test_no_tensor_larger_than_a_tile_is_allocated_in_forward_or_backward():
    """[tokens, vocab] would be 20 times the tile here."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (list, tuple)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return result

    hidden, head, targets = inputs(tokens=2100, width=4, vocab=40_000, dtype=torch.float32)
    with Watch():
        logprobs, entropy = token_logprobs(hidden, head, targets, 1.0, entropy=True)
        (logprobs.sum() + entropy.sum()).backward()
    assert heads.CPU_TILE.elements // 2 < largest <= heads.CPU_TILE.elements
    assert 20 * heads.CPU_TILE.elements < 2100 * 40_000
