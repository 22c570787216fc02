"""What must hold for every policy loss, under every aggregation."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rollick.algorithms import policy_losses as pl
from rollick.algorithms.aggregation import aggregate, live_sequences
from rollick.algorithms.asyppo import asyppo_loss
from rollick.algorithms.corrections import corrected, icepop_weights, mismatch_weights, within
from rollick.algorithms.kl import kl_estimate, off_policy_kl
from rollick.algorithms.ratios import importance_ratio
from tests.algorithms.toy import ADVANTAGES, INF, NEW, OLD, REF, ROWS, close

MODES = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"]


@dataclass
class Tokens:
    """Live tokens of `num_rows` rows; `selected` is a mask that was made for the whole batch."""

    logprobs: Tensor
    old: Tensor
    behaviour: Tensor
    ref: Tensor
    advantages: Tensor
    selected: Tensor
    rows: Tensor
    num_rows: int

    def take(self, rows: list[int]) -> "Tokens":
        """The tokens of these rows, in this order."""
        positions = torch.cat([(self.rows == row).nonzero().flatten() for row in rows])
        new_rows = torch.cat([torch.full((int((self.rows == row).sum()),), i) for i, row in enumerate(rows)])
        names = ("logprobs", "old", "behaviour", "ref", "advantages", "selected")
        return Tokens(**{name: getattr(self, name)[positions] for name in names}, rows=new_rows, num_rows=len(rows))


def _tis_corrected(t):
    weights = mismatch_weights(t.old, t.behaviour, t.rows, t.num_rows, level="sequence").clamp(max=2.0)
    return corrected(_ppo(t), weights=weights)


def _masked(t):
    weights = mismatch_weights(t.old, t.behaviour, t.rows, t.num_rows, level="geometric")
    return corrected(_ppo(t), keep=within(weights, 0.9, 1.1))


def _ppo(t, **options):
    ratio = importance_ratio(t.logprobs, t.old)
    return pl.ppo_loss(ratio, t.advantages, **{"clip_low": 0.2, "clip_high": 0.2, **options})


_DPPO_KL = {"divergence": "kl", "divergence_low": 0.05, "divergence_high": 0.05}
LOSSES = {
    "ppo": _ppo,
    "dapo": lambda t: _ppo(t, clip_high=0.28),
    "dual_clip": lambda t: _ppo(t, dual_clip=3.0),
    "policy_gradient": lambda t: pl.policy_gradient_loss(t.logprobs, t.advantages),
    "tis": lambda t: pl.tis_loss(t.logprobs, t.old, t.advantages),
    "topr": lambda t: pl.topr_loss(t.logprobs, t.behaviour, t.advantages, t.rows, t.num_rows),
    "topr_token": lambda t: pl.topr_loss(t.logprobs, t.old, t.advantages, t.rows, t.num_rows, ratio_level="token"),
    "gspo": lambda t: pl.segment_ppo_loss(
        t.logprobs, t.old, t.advantages, t.rows, t.num_rows, clip_low=0.2, clip_high=0.2
    ),
    "gspo_token": lambda t: pl.gspo_token_loss(
        t.logprobs, t.old, t.advantages, t.rows, t.num_rows, clip_low=0.2, clip_high=0.2
    ),
    "cispo": lambda t: pl.cispo_loss(t.logprobs, t.old, t.advantages),
    "cispo_unified": lambda t: pl.cispo_loss(t.logprobs, t.old, t.advantages, mask_clip=(0.2, 0.28)),
    "gmpo": lambda t: pl.gmpo_loss(t.logprobs, t.old, t.advantages, t.rows, t.num_rows),
    "sapo": lambda t: pl.sapo_loss(t.logprobs, t.old, t.advantages),
    "kimi_sequence": lambda t: pl.kimi_sequence_loss(t.logprobs, t.old, t.advantages, t.rows, t.num_rows),
    "kimi_token": lambda t: pl.kimi_token_loss(t.logprobs, t.old, t.advantages),
    "opmd": lambda t: pl.opmd_loss(t.logprobs, t.advantages),
    "decoupled_ppo": lambda t: pl.decoupled_ppo_loss(t.logprobs, t.old, t.behaviour, t.advantages),
    "dro": lambda t: pl.dro_loss(t.logprobs, t.old, t.advantages, dro_beta=0.1),
    "dppo_tv": lambda t: pl.dppo_loss(t.logprobs, t.old, t.advantages),
    "dppo_kl": lambda t: pl.dppo_loss(
        t.logprobs, t.old, t.advantages, divergence="kl", divergence_low=0.05, divergence_high=0.05
    ),
    "clip_cov": lambda t: pl.clip_cov_loss(t.logprobs, t.old, t.advantages, t.selected),
    "kl_cov": lambda t: pl.kl_cov_loss(t.logprobs, t.old, t.advantages, t.selected),
    "sao": lambda t: pl.sao_loss(t.logprobs, t.behaviour, t.advantages),
    "ipa": lambda t: pl.ipa_loss(t.logprobs, t.old, t.behaviour, t.advantages, t.rows, t.num_rows, mismatch_limit=1.2),
    "asyppo": lambda t: asyppo_loss(
        importance_ratio(t.logprobs, t.old), t.advantages, -t.ref, ~t.selected, t.selected, entropy_coef=0.01
    ),
    "ppo_kl": lambda t: _ppo(t) + 0.1 * kl_estimate(t.logprobs, t.ref, "k3"),
    "ppo_off_policy_kl": lambda t: _ppo(t) + 0.1 * off_policy_kl(t.logprobs, t.ref, t.old, "k3"),
    "sequence_tis": _tis_corrected,
    "geometric_mask": _masked,
    "icepop": lambda t: corrected(_ppo(t), weights=icepop_weights(importance_ratio(t.old, t.behaviour))),
}
WEIGHTED_BY_MEANS = ["cispo_unified", "dppo_tv", "dppo_kl", "topr", "topr_token", "tis", "cispo", "gspo_token", "ipa"]
"""Losses with constants made from the current log-probs: finite differences see what autograd is told to ignore."""
HAS_OTHER_TERMS = ["kimi_sequence", "kimi_token", "dro", "kl_cov", "asyppo", "ppo_kl", "ppo_off_policy_kl"]
"""Losses that pull on a token also where its advantage is 0."""


def toy(**changes) -> Tokens:
    selected = torch.tensor([True, False, False, True, False, True])
    return replace(Tokens(NEW, OLD, INF, REF, ADVANTAGES, selected, ROWS, 2), **changes)


def random_tokens(lengths: list[int], seed: int) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    draw = lambda scale=0.3: scale * torch.randn(len(rows), dtype=torch.float64, generator=generator)
    base = -draw(1.0).abs()
    advantages = torch.randn(len(lengths), dtype=torch.float64, generator=generator)[rows]
    selected = torch.rand(len(rows), generator=generator) < 0.3
    return Tokens(base + draw(), base + draw(), base + draw(), base + draw(), advantages, selected, rows, len(lengths))


def value_and_gradient(name: str, tokens: Tokens, mode: str, totals: dict[str, int]) -> tuple[Tensor, Tensor]:
    leaf = tokens.logprobs.clone().requires_grad_()
    loss = LOSSES[name](replace(tokens, logprobs=leaf))
    total = aggregate(loss, tokens.rows, tokens.num_rows, mode, **totals)
    total.backward()
    return total.detach(), leaf.grad


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=5, deadline=None)
@given(lengths=st.lists(st.integers(0, 5), min_size=3, max_size=5), seed=st.integers(0, 9999))
def test_neither_the_cut_nor_the_order_of_rows_changes_anything(name, mode, lengths, seed):
    """Micro-batches, data-parallel ranks and packing are all cuts of the rows; some rows have no live token."""
    tokens = random_tokens([*lengths, 2], seed)
    count = tokens.num_rows
    totals = {"tokens": len(tokens.rows), "sequences": live_sequences(tokens.rows, count), "max_length": 6}
    whole, grad = value_and_gradient(name, tokens, mode, totals)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    cut = 1 + seed % (count - 1)
    total, grads = 0.0, torch.zeros_like(grad)
    for part in (order[:cut], order[cut:]):
        value, part_grad = value_and_gradient(name, tokens.take(part), mode, totals)
        total = total + value
        grads[torch.cat([(tokens.rows == row).nonzero().flatten() for row in part])] = part_grad
    close(total, whole, atol=1e-12)
    close(grads, grad, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in LOSSES if name not in [*HAS_OTHER_TERMS, "opmd"]])
def test_on_policy_every_gradient_is_that_of_the_policy_gradient(name, mode):
    """−A over the denominator where every policy is the same one and nothing is masked."""
    totals = {"tokens": 6, "sequences": 2, "max_length": 4}
    on_policy = toy(logprobs=OLD, behaviour=OLD, selected=torch.zeros(6, dtype=torch.bool))
    _, expected = value_and_gradient("policy_gradient", on_policy, mode, totals)
    _, grad = value_and_gradient(name, on_policy, mode, totals)
    close(grad, expected, atol=1e-12)
    if mode == "sequence_mean_token_mean":
        close(grad, [-0.25, -0.25, 0.125, 0.125, 0.125, 0.125])


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in WEIGHTED_BY_MEANS])
def test_gradients_agree_with_finite_differences(name):
    for tokens in (toy(), random_tokens([3, 1, 4], seed=5)):
        leaf = tokens.logprobs.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda lp, t=tokens: LOSSES[name](replace(t, logprobs=lp)), leaf)


@pytest.mark.parametrize("name", WEIGHTED_BY_MEANS)
def test_gradients_with_constant_weights_agree_with_finite_differences_of_the_same_weights(name):
    """loss = −w·A·log π with w held: the gradient is −w·A, and w is the loss over −A·log π (for GSPO-token, whose
    ratio has value s and moves as s·π/sg[π], −s·A)."""
    tokens = toy()
    leaf = tokens.logprobs.clone().requires_grad_()
    loss = LOSSES[name](replace(tokens, logprobs=leaf))
    loss.sum().backward()
    expected = loss.detach() if name == "gspo_token" else loss.detach() / tokens.logprobs
    close(leaf.grad, expected, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in HAS_OTHER_TERMS])
def test_without_advantage_there_is_no_loss_and_no_gradient(name):
    """Failure case 37: however far the ratio has drifted."""
    drifted = toy(logprobs=OLD + torch.tensor([120.0, -120, 3, -3, 0.1, 0]), advantages=torch.zeros(6).double())
    loss, grad = value_and_gradient(name, drifted, "token_mean", {"tokens": 6, "sequences": 2})
    assert loss == 0 and (grad == 0).all()


DTYPES = [torch.float32, torch.bfloat16, torch.float16]
UNREPRESENTABLE = [("ppo_off_policy_kl", torch.float16)]
"""The gradient, about e^20, is right and finite, but no float16 can hold it."""


@pytest.mark.parametrize(
    ("name", "dtype"), [case for case in itertools.product(LOSSES, DTYPES) if case not in UNREPRESENTABLE]
)
def test_drifted_tokens_give_finite_losses_and_gradients(name, dtype):
    """Failure cases 36 and 37."""
    far = torch.tensor([-0.1, -120, -200, -0.1, -60, -1], dtype=dtype)
    near = torch.tensor([-120, -0.1, -0.1, -200, -1, -60], dtype=dtype)
    tokens = toy(logprobs=far, old=near, behaviour=far, ref=near, advantages=ADVANTAGES.float())
    loss, grad = value_and_gradient(name, tokens, "token_mean", {"tokens": 6, "sequences": 2})
    assert loss.isfinite() and grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "clip_cov"])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_nan_at_a_live_position_is_surfaced(name, advantage):
    """Failure case 37: a step with NaN must stop, so no mask or clip may swallow it."""
    logprobs = NEW.clone()
    logprobs[1] = torch.nan
    advantages = torch.full((6,), advantage, dtype=torch.float64)
    assert LOSSES[name](toy(logprobs=logprobs, advantages=advantages)).sum().isnan()


def test_nan_of_a_token_that_was_not_selected_is_surfaced_by_clip_cov():
    logprobs = NEW.clone()
    logprobs[1] = torch.nan
    assert LOSSES["clip_cov"](toy(logprobs=logprobs)).sum().isnan()


@pytest.mark.parametrize("name", LOSSES)
def test_a_micro_batch_without_live_tokens_gives_zero(name):
    loss, grad = value_and_gradient(name, random_tokens([0, 0], 0), "token_mean", {"tokens": 6, "sequences": 2})
    assert loss == 0 and len(grad) == 0


@pytest.mark.parametrize("name", ["decoupled_ppo", "sequence_tis", "geometric_mask", "icepop"])
def test_corrections_do_nothing_where_the_engine_is_the_trainer(name):
    close(LOSSES[name](toy(behaviour=OLD)), LOSSES["ppo"](toy()), atol=1e-12)


OPTIONS = [
    (
        pl.ppo_loss,
        (importance_ratio(NEW, OLD), ADVANTAGES),
        {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None},
        {"clip_low": 0.3, "clip_high": 0.3, "dual_clip": 3.0},
    ),
    (pl.tis_loss, (NEW, OLD, ADVANTAGES), {}, {"weight_low": 0.9, "weight_high": 1.2}),
    (
        pl.topr_loss,
        (NEW, OLD, ADVANTAGES, ROWS, 2),
        {"ratio_level": "token"},
        {
            "ratio_level": "trajectory",
            "negative_range": (0.8, 1.0),
            "positive_range": (0.0, 1.0),
            "positive_weight": 2.0,
            "negative_weight": 2.0,
        },
    ),
    (
        pl.segment_ppo_loss,
        (OLD - 0.3, OLD, -ADVANTAGES.abs(), ROWS, 2),
        {"clip_low": 0.2, "clip_high": 0.2},
        {"clip_low": 0.3},
    ),
    (pl.segment_ppo_loss, (NEW, OLD, ADVANTAGES, ROWS, 2), {}, {"clip_high": 0.05}),
    (pl.gspo_token_loss, (NEW, OLD, -ADVANTAGES, ROWS, 2), {}, {"clip_high": 0.05}),
    (pl.gspo_token_loss, (OLD - 0.3, OLD, -ADVANTAGES.abs(), ROWS, 2), {}, {"clip_low": 0.05}),
    (pl.cispo_loss, (NEW, OLD, ADVANTAGES), {}, {"weight_low": 0.9, "weight_high": 1.1, "mask_clip": (0.2, 0.2)}),
    (
        pl.gmpo_loss,
        (NEW, OLD, ADVANTAGES, ROWS, 2),
        {"log_clip_low": 0.2, "log_clip_high": 0.2},
        {"log_clip_low": 0.1, "log_clip_high": 0.1},
    ),
    (pl.sapo_loss, (NEW, OLD, ADVANTAGES), {}, {"tau_positive": 2.0, "tau_negative": 2.0}),
    (pl.kimi_sequence_loss, (NEW, OLD, ADVANTAGES, ROWS, 2), {}, {"tau": 0.5}),
    (pl.kimi_token_loss, (NEW, OLD, ADVANTAGES), {}, {"tau": 0.5}),
    (pl.opmd_loss, (NEW, ADVANTAGES), {}, {"tau": 0.5}),
    (
        pl.decoupled_ppo_loss,
        (NEW, OLD, INF, ADVANTAGES),
        {},
        {"clip_low": 0.3, "clip_high": 0.3, "dual_clip": 3.0, "weight_cap": 1.1},
    ),
    (pl.dro_loss, (NEW, OLD, ADVANTAGES), {"dro_beta": 0.1}, {"dro_beta": 0.2}),
    (
        pl.dppo_loss,
        (NEW, OLD, ADVANTAGES),
        {"divergence_low": 0.01, "divergence_high": 0.01},
        {"divergence": "kl", "divergence_low": 0.5, "divergence_high": 0.5, "weight_cap": 1.2},
    ),
    (
        pl.clip_cov_loss,
        (NEW, OLD, ADVANTAGES, torch.zeros(6, dtype=torch.bool)),
        {},
        {"clip_low": 0.3, "clip_high": 0.3},
    ),
    (pl.kl_cov_loss, (NEW, OLD, ADVANTAGES, torch.ones(6, dtype=torch.bool)), {}, {"cov_penalty": 0.5}),
    (pl.sao_loss, (NEW, OLD, ADVANTAGES), {}, {"mask_low": 0.1, "mask_high": 1.0}),
    (pl.ipa_loss, (NEW, OLD, INF, ADVANTAGES, ROWS, 2), {"mismatch_limit": 1.2}, {"mismatch_limit": 1.05}),
]
CASES = [(loss, args, base, {key: value}) for loss, args, base, changes in OPTIONS for key, value in changes.items()]


@pytest.mark.parametrize(
    ("loss", "args", "base", "change"), CASES, ids=[f"{c[0].__name__}-{next(iter(c[3]))}" for c in CASES]
)
def test_every_option_changes_its_loss(loss, args, base, change):
    """Failure case 3."""
    assert not torch.equal(loss(*args, **base), loss(*args, **{**base, **change}))
