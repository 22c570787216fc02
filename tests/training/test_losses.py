"""PolicyLoss and SftLoss as a backend runs them: on the live tokens of micro-batches, with global totals."""

import pickle
from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from rollick.algorithms.corrections import within
from rollick.algorithms.ratios import importance_ratio
from rollick.config.algorithm import AlgorithmSettings
from rollick.data.batch import Batch
from rollick.training.base import TokenOutputs, Totals
from rollick.training.losses import SftLoss
from rollick.training.policy_loss import KlTerm, PolicyLoss
from tests.algorithms.toy import ADVANTAGES, INF, NEW, OLD, REF, close

MODES = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"]
TOTALS = Totals(tokens=6, sequences=2)


def live_batch(lengths=(2, 4), **tokens):
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    rows = TensorDict({"reward": torch.zeros(len(lengths))}, batch_size=[len(lengths)])
    return Batch(TensorDict(tokens, batch_size=[sum(lengths)]), rows, offsets, [f"g/{i}" for i in range(len(lengths))])


def toy_batch(**extra):
    return live_batch(advantages=ADVANTAGES, old_logprobs=OLD, behaviour_logprobs=INF, ref_logprobs=REF, **extra)


def run(loss, batch=None, logprobs=NEW, entropy=None, totals=TOTALS):
    leaf = logprobs.clone().requires_grad_()
    output = loss(TokenOutputs(leaf, entropy), batch if batch is not None else toy_batch(), totals)
    output.loss.backward()
    return output, leaf.grad


def logged(output):
    return {name: float(total / weight) for name, (total, weight) in output.metrics.items()}


@pytest.mark.parametrize(("mode", "expected"), zip(MODES, [0.736810, 0.289503, 2.210430, 0.552607]))
def test_the_policy_loss_of_the_toy_batch(mode, expected):
    output, _ = run(PolicyLoss(aggregation=mode, max_length=4))
    close(output.loss, expected)
    close(logged(output)["loss/policy"], expected)


COMPOSED = [
    ({"preset": "grpo"}, 1.0, 0.736810),
    ({"preset": "grpo", "dual_clip": 3.0}, 1.0, 0.625260),
    ({"preset": "grpo", "loss_aggregation": "sequence_mean_token_mean"}, 1.0, 0.289503),
    ({"preset": "grpo", "kl_coef": 0.001}, 1.0, 0.736927),
    ({"preset": "dr_grpo"}, 1.0, 0.552607),
    ({"preset": "dapo"}, 1.0, 0.723477),
    ({"preset": "gspo"}, 1.0, 0.149888),
    ({"preset": "gspo", "clip_low": 0.2, "clip_high": 0.2}, 1.0, 0.103001),
    ({"preset": "gspo", "clip_low": 0.2, "clip_high": 0.2, "loss_aggregation": "token_mean"}, 1.0, 0.502060),
    ({"preset": "cispo"}, 1.0, -0.149793),
    ({"preset": "cispo", "weight_low": 0.9, "weight_high": 1.1}, 1.0, -0.204671),
    ({"preset": "cispo", "weight_high": 5.0}, 1.0, -0.224261),
    ({"preset": "gmpo"}, 1.0, 0.103001),
    ({"preset": "gmpo", "log_clip_low": 0.2, "log_clip_high": 0.2}, 1.0, 0.140910),
    ({"preset": "sapo"}, 1.0, 0.081775),
    ({"preset": "sapo", "loss_aggregation": "token_mean"}, 1.0, 0.813242),
    ({"preset": "decoupled_ppo"}, 1.0, 0.779106),
    ({"preset": "kimi"}, 0.5, -0.304128),
    ({"policy_loss": "kimi_token"}, 0.5, -0.095159),
    ({"preset": "opmd"}, 0.5, -0.055417),
]


@pytest.mark.parametrize(("settings", "scale", "expected"), COMPOSED)
def test_composed_losses_of_the_toy_batch_are_the_papers_numbers(settings, scale, expected):
    """Settings of a job as a user writes them, on advantages of ±scale."""
    loss = PolicyLoss.from_settings(AlgorithmSettings(**settings), temperature=1.0, max_new_tokens=4)
    batch = toy_batch()
    batch.tokens["advantages"] = scale * ADVANTAGES
    close(run(loss, batch)[0].loss, expected)


def test_corrections_weigh_and_mask_and_keep_the_denominators():
    """Spec 11: TIS at 1.2, MIS in [.8, 1.2] with and without the weight; six tokens count in each."""
    weights = importance_ratio(OLD, INF)
    keep = within(weights, 0.8, 1.2)
    close(run(PolicyLoss(), toy_batch(correction_weights=weights.clamp(max=1.2)))[0].loss, 0.740196)
    close(run(PolicyLoss(), toy_batch(correction_keep=keep))[0].loss, 0.603477)
    both, _ = run(PolicyLoss(), toy_batch(correction_keep=keep, correction_weights=weights))
    close(both.loss, 0.580196)
    close(logged(both)["correction/kept"], 5 / 6)


def test_the_metrics_of_the_toy_batch():
    metrics = logged(run(PolicyLoss())[0])
    close(metrics["policy/clip_fraction"], 0.333333)
    close(metrics["policy/clip_fraction_low"], 1 / 6)
    close(metrics["policy/clip_fraction_high"], 1 / 6)
    close(metrics["policy/approx_kl"], -0.205000)
    close(metrics["mismatch/kl"], -0.066667)
    close(metrics["mismatch/k3"], 0.016138)
    close(metrics["mismatch/chi2_sequence"], 0.612770)
    close(metrics["mismatch/ppl_rollout"], 2.452048)


def test_the_kl_term_is_added_once_with_its_coefficient():
    """Failure case 43: alone, the gradient through the KL is the hand value once."""
    output, grad = run(PolicyLoss(kl=KlTerm(0.001)))
    close(output.loss, 0.736927)
    close(logged(output)["loss/kl"], 0.117145)
    close(logged(output)["kl/reference"], (NEW - REF).mean())
    _, without = run(PolicyLoss())
    close(grad - without, 0.001 / 6 * (1 - torch.exp(REF - NEW)), atol=1e-9)


def test_the_entropy_bonus_lowers_the_loss():
    entropy = torch.tensor([0.5, 0.1, 1.2, 0.3, 0.05, 0.25], dtype=torch.float64)
    output, _ = run(PolicyLoss(entropy_coef=0.01), entropy=entropy)
    close(output.loss, 0.736810 - 0.01 * 0.4)
    close(logged(output)["policy/entropy"], 0.4)
    assert PolicyLoss(entropy_coef=0.01).needs_entropy and not PolicyLoss().needs_entropy


@pytest.mark.parametrize("mode", MODES)
def test_without_old_log_probs_the_updated_policy_is_the_old_one(mode):
    batch = live_batch(advantages=ADVANTAGES)
    loss = PolicyLoss(aggregation=mode, max_length=4)
    output, grad = run(loss, batch)
    _, recomputed = run(loss, live_batch(advantages=ADVANTAGES, old_logprobs=NEW))
    assert torch.equal(grad, recomputed)
    assert logged(output)["policy/ratio"] == 1 and logged(output)["policy/clip_fraction"] == 0
    if mode == "sequence_mean_token_mean":
        close(grad, [-0.25, -0.25, 0.125, 0.125, 0.125, 0.125])


def test_the_mismatch_compares_the_engine_with_the_updated_policy_when_there_is_no_old_one():
    batch = live_batch(advantages=ADVANTAGES, behaviour_logprobs=NEW + 0.1)
    close(logged(run(PolicyLoss(), batch)[0])["mismatch/kl"], 0.1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize("cuts", [[4], [1, 3], [1, 1, 1, 1], [2, 2]])
def test_the_cut_into_micro_batches_changes_nothing(mode, order, cuts):
    """Failure case 28, row order included; one row has no live token."""
    lengths, generator = [3, 0, 5, 2], torch.Generator().manual_seed(3)
    draw = lambda: torch.randn(10, generator=generator, dtype=torch.float64)
    batch = live_batch(lengths, advantages=draw(), old_logprobs=draw(), ref_logprobs=draw(), behaviour_logprobs=draw())
    logprobs, entropy = draw(), draw().abs()
    loss = PolicyLoss(options={"dual_clip": 3.0}, kl=KlTerm(0.1), entropy_coef=0.01, aggregation=mode, max_length=5)
    totals = Totals(tokens=10, sequences=3)
    whole, whole_grad = run(loss, batch, logprobs, entropy, totals)
    leaf, total, metrics = logprobs.clone().requires_grad_(), 0.0, {}
    for start, size in zip(torch.tensor([0, *cuts]).cumsum(0).tolist(), cuts):
        picked = order[start : start + size]
        positions = torch.cat([torch.arange(batch.offsets[i], batch.offsets[i + 1]) for i in picked])
        outputs = TokenOutputs(leaf[positions], entropy[positions])
        output = loss(outputs, batch.select(picked), totals)
        output.loss.backward()
        total = total + output.loss.detach()
        for name, (value, weight) in output.metrics.items():
            metrics[name] = [a + b for a, b in zip(metrics.get(name, (0.0, 0.0)), (value, weight))]
    close(total, whole.loss.detach(), atol=1e-12)
    close(leaf.grad, whole_grad, atol=1e-12)
    for name, value in logged(whole).items():
        close(metrics[name][0] / metrics[name][1], value, atol=1e-9)


def test_nan_at_dead_positions_never_reaches_the_loss():
    """Dead positions are taken out by selection, not by multiplication with zero."""
    full = live_batch(
        (4, 5),
        advantages=torch.tensor([torch.nan, 1, 1, torch.nan, -1, torch.nan, -1, -1, -1]).double(),
        old_logprobs=torch.full((9,), torch.nan).double(),
        loss_mask=torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 1]).bool(),
    )
    full.tokens["old_logprobs"][full.tokens["loss_mask"]] = OLD
    live = live_batch((2, 4), **full.tokens[full.tokens["loss_mask"]])
    output, grad = run(PolicyLoss(), live)
    close(output.loss, 0.736810)
    assert grad.isfinite().all()


def test_nan_at_a_live_position_is_surfaced():
    logprobs = NEW.clone()
    logprobs[3] = torch.nan
    assert run(PolicyLoss(), logprobs=logprobs)[0].loss.isnan()


def test_an_empty_micro_batch_is_an_ordinary_case():
    empty = torch.zeros(0, dtype=torch.float64)
    batch = live_batch((0, 0), advantages=empty, old_logprobs=empty, behaviour_logprobs=empty)
    output, grad = run(PolicyLoss(), batch, empty)
    assert output.loss == 0 and grad.shape == (0,)
    assert all(weight == 0 for _, weight in output.metrics.values())


SETTINGS = AlgorithmSettings(
    clip_low=0.3,
    clip_high=0.4,
    dual_clip=3.0,
    kl_coef=0.1,
    kl_estimator="k2",
    entropy_coef=0.02,
    loss_aggregation="sequence_mean_token_sum",
)


def test_every_setting_arrives_and_the_loss_survives_pickling():
    loss = PolicyLoss.from_settings(SETTINGS, temperature=0.7, max_new_tokens=64)
    clip = {"clip_low": 0.3, "clip_high": 0.4, "dual_clip": 3.0}
    expected = PolicyLoss(
        options=clip,
        temperature=0.7,
        aggregation="sequence_mean_token_sum",
        max_length=64,
        kl=KlTerm(0.1, "k2"),
        entropy_coef=0.02,
    )
    assert loss == expected
    assert pickle.loads(pickle.dumps(loss)) == loss


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (PolicyLoss(), {"options": {"clip_low": 0.3}}),
        (PolicyLoss(), {"options": {"clip_high": 0.3}}),
        (PolicyLoss(), {"options": {"dual_clip": 3.0}}),
        (PolicyLoss(), {"kl": KlTerm(0.1)}),
        (PolicyLoss(kl=KlTerm(0.1)), {"kl": KlTerm(0.1, "k2")}),
        (PolicyLoss(kl=KlTerm(0.1)), {"kl": KlTerm(0.1, "k1")}),
        (PolicyLoss(kl=KlTerm(0.1)), {"kl": KlTerm(0.1, off_policy=True)}),
        (PolicyLoss(), {"opsm_limit": -0.5}),
        (PolicyLoss(), {"entropy_coef": 0.1}),
        (PolicyLoss(), {"aggregation": "sequence_mean_token_mean"}),
        (PolicyLoss(aggregation="sequence_mean_token_sum_norm", max_length=4), {"max_length": 8}),
    ],
)
def test_every_option_changes_the_loss(base, change):
    """Failure case 3."""
    entropy = torch.ones(6, dtype=torch.float64)
    assert run(base, entropy=entropy)[0].loss != run(replace(base, **change), entropy=entropy)[0].loss


@pytest.mark.parametrize(
    ("loss", "missing", "message"),
    [
        (PolicyLoss(), "advantages", "no 'advantages'"),
        (PolicyLoss(kl=KlTerm(0.1)), "ref_logprobs", "kl_coef > 0 needs the reference"),
        (PolicyLoss(entropy_coef=0.1), None, "entropy_coef > 0 needs the backend"),
    ],
)
def test_what_is_missing_is_named(loss, missing, message):
    """Failure case 4."""
    batch = toy_batch()
    batch.tokens = batch.tokens.exclude(missing) if missing else batch.tokens
    with pytest.raises(ValueError, match=message):
        run(loss, batch)


@pytest.mark.parametrize(("mode", "expected"), [("token_mean", 0.375), ("sequence_mean_token_mean", 0.5)])
def test_the_sft_loss_weighs_rows_as_its_mode_says(mode, expected):
    """Failure case 28."""
    logprobs = -torch.tensor([1.0] * 3 + [0.0] * 5)
    output, _ = run(SftLoss(mode), live_batch((3, 5)), logprobs, totals=Totals(tokens=8, sequences=2))
    close(output.loss, expected)
    close(logged(output)["loss/nll"], 0.375)


def test_the_sft_gradient_is_exact():
    _, grad = run(SftLoss("sequence_mean_token_mean"), live_batch((2, 4)))
    close(grad, [-0.25, -0.25, -0.125, -0.125, -0.125, -0.125])
