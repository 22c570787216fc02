"""The FSDP backend on one process: the contract, and that no way of cutting a batch changes a gradient."""

import dataclasses

import pytest
import torch

from rollick.data.batch import Batch
from rollick.errors import ConfigError, NumericsError
from rollick.training.base import LossOutput
from rollick.training.policy_loss import PolicyLoss
from tests.models.tiny import FAMILIES, tiny_model_folder
from tests.training.contract import CHECKS, naive_scores
from tests.training.rows import (
    MeanLoss,
    WeightedLoss,
    backend,
    first_moments,
    make_sample,
    ragged_batch,
    snapshot,
    with_coefficients,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def get(family="qwen3", **config):
        key = (family, *sorted(config.items()))
        if key not in made:
            made[key] = tiny_model_folder(tmp_path_factory.mktemp("models") / family, family, **config)
        return made[key]

    return get


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(folders, check, dtype):
    check(backend(folders(), dtype, tokens_per_micro_batch=64), folders())


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_scores_like_its_own_full_softmax_and_exports(folders, family, tie):
    folder = folders(family, tie=tie)
    one, batch = backend(folder, tokens_per_micro_batch=64), ragged_batch()
    scores, entropies = one.logprobs(batch, 0.7, entropy=True)
    expected = naive_scores(folder, batch, 0.7, torch.float64)
    torch.testing.assert_close((scores, entropies), expected, atol=1e-6, rtol=0)
    one.update(batch, WeightedLoss())
    one.export(folder.parent / f"export_{family}_{tie}")
    moved, _ = naive_scores(folder.parent / f"export_{family}_{tie}", batch, 0.7, torch.float64)
    torch.testing.assert_close(one.logprobs(batch, 0.7)[0], moved, atol=1e-6, rtol=0)


def grouped_batch():
    """Two groups of four answers to one prompt each, some answers starting alike, one equal to another."""
    samples = [make_sample(f"s{i}", 7 + i // 4, 3 + 2 * (i % 4), f"g{i // 4}", seed=i) for i in range(8)]
    for i, sample in enumerate(samples):
        leader, prompt = samples[i - i % 4], 7 + i // 4
        common = prompt + i % 3  # up to two tokens of the answer too
        sample.token_ids[:common] = leader.token_ids[:common]
    samples[5].token_ids[:] = samples[6].token_ids[: len(samples[5])]
    return with_coefficients(Batch.from_samples(samples))


def gradients(folder, batch, loss, dtype="float64", **options):
    one = backend(folder, dtype, max_grad_norm=None, **options)
    metrics = one.update(batch, loss).metrics
    return first_moments(one), metrics


def naive_gradients(folder, batch):
    """The gradient of WeightedLoss by full logits in one graph."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for begin, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist()):
        ids, mask = batch.tokens["token_ids"][begin:end], batch.tokens["loss_mask"][begin + 1 : end]
        logp = torch.log_softmax(model(ids[None]).logits[0, :-1] / 0.7, -1)
        terms = batch.tokens["coefficients"][begin + 1 : end] * logp.gather(1, ids[1:, None])[:, 0]
        terms = terms + 0.5 * (logp.exp() * logp).sum(-1)
        total = total + terms[mask].sum() / int(batch.tokens["loss_mask"].sum())
    total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, float(total.detach())


def assert_same_gradients(ours, theirs, atol):
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name].double(), theirs[name].double(), atol=atol, rtol=0, msg=name)


LAYOUTS = [
    {"packing": "packed", "tokens_per_micro_batch": 8192},
    {"packing": "packed", "tokens_per_micro_batch": 50},
    {"packing": "packed", "tokens_per_micro_batch": 1},
    {"packing": "padded", "tokens_per_micro_batch": 8192},
    {"packing": "padded", "tokens_per_micro_batch": 80},
    {"packing": "padded", "tokens_per_micro_batch": 1},
    {"packing": "packed", "tokens_per_micro_batch": 50, "activation_checkpointing": True},
    {"packing": "packed", "tokens_per_micro_batch": 50, "cpu_offload": True},
]


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("dtype, atol", [("float64", 1e-6), ("float32", 1e-5)])
def test_micro_batches_packing_padding_and_memory_options_leave_the_gradient(folders, options, dtype, atol):
    expected, loss = naive_gradients(folders(), ragged_batch())
    ours, metrics = gradients(folders(), ragged_batch(), WeightedLoss(), dtype, **options)
    assert_same_gradients(ours, expected, atol)
    assert metrics["loss"] == pytest.approx(loss, abs=atol)
    assert metrics["weighted"] == pytest.approx(loss, abs=atol)


@pytest.mark.parametrize("budget", [8192, 60, 1])
@pytest.mark.parametrize("dtype, atol", [("float64", 1e-6), ("float32", 1e-5)])
def test_prompts_that_a_group_shares_are_computed_once_and_leave_the_gradient(folders, budget, dtype, atol):
    batch = grouped_batch()
    expected, _ = naive_gradients(folders(), batch)
    ours, _ = gradients(folders(), batch, WeightedLoss(), dtype, packing="packed", tokens_per_micro_batch=budget)
    assert_same_gradients(ours, expected, atol)
    scores, _ = backend(folders(), dtype, tokens_per_micro_batch=budget).logprobs(batch, 0.7)
    torch.testing.assert_close(
        scores.double(), naive_scores(folders(), batch, 0.7, torch.float64)[0], atol=atol, rtol=0
    )


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2"])
def test_shared_prompts_leave_the_gradient_in_other_families(folders, family):
    batch = grouped_batch()
    expected, _ = gradients(folders(family), batch, WeightedLoss(), packing="padded")
    ours, _ = gradients(folders(family), batch, WeightedLoss(), packing="packed")
    assert_same_gradients(ours, expected, 1e-6)


def test_row_order_leaves_the_gradient(folders):
    batch = ragged_batch()
    expected, _ = gradients(folders(), batch, WeightedLoss(), tokens_per_micro_batch=60)
    ours, _ = gradients(folders(), batch.select([5, 0, 7, 2, 1, 3, 6, 4]), WeightedLoss(), tokens_per_micro_batch=60)
    assert_same_gradients(ours, expected, 1e-6)


@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_tokens_behind_the_last_live_one_leave_the_gradient(folders, packing):
    """Case 32: what counts comes from lengths and the loss mask, never from comparing ids with a pad id."""
    short = make_sample("a", 5, 4, seed=1)
    short.token_ids[-1] = 0  # the tokenizer's pad id, sampled and trained on
    long = make_sample("a", 5, 7, seed=1)
    long.token_ids[:9], long.loss_mask[9:] = short.token_ids, False
    other = make_sample("b", 3, 9, seed=2)
    expected, first = gradients(folders(), Batch.from_samples([short, other]), MeanLoss(), packing=packing)
    ours, second = gradients(folders(), Batch.from_samples([long, other]), MeanLoss(), packing=packing)
    assert first["tokens"] == second["tokens"] == 13
    assert_same_gradients(ours, expected, 1e-9)


def test_tokens_that_the_policy_did_not_sample_are_no_mismatch(folders):
    """Case 147: equal log-probs where the policy acted, any where a tool spoke."""
    batch, one = ragged_batch(), backend(folders(), "float64")
    batch.tokens["behaviour_logprobs"] = one.logprobs(batch, 1.0)[0].double()
    batch.tokens["behaviour_logprobs"][~batch.tokens["loss_mask"]] = -99.0
    batch.tokens["advantages"] = torch.ones(batch.num_tokens)
    metrics = one.update(batch, PolicyLoss()).metrics
    assert metrics["mismatch/kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["mismatch/prob_diff"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_moe"])
def test_rows_beside_others_equal_rows_alone(folders, family):
    batch = ragged_batch()
    expected, _ = gradients(folders(family), batch, WeightedLoss(), tokens_per_micro_batch=1)
    ours, _ = gradients(folders(family), batch, WeightedLoss(), tokens_per_micro_batch=8192)
    assert_same_gradients(ours, expected, 1e-6)


@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_packed_rows_do_not_see_one_another(folders, packing):
    """Changing every token of one row leaves the others' log-probs bit for bit."""
    one = backend(folders(), packing=packing)
    batch, other = ragged_batch(), ragged_batch()
    begin, end = int(other.offsets[3]), int(other.offsets[4])
    other.tokens["token_ids"][begin:end] = (other.tokens["token_ids"][begin:end] + 7) % 300
    first, second = one.logprobs(batch, 1.0)[0], one.logprobs(other, 1.0)[0]
    changed = (first != second).nonzero()[:, 0]
    assert begin < int(changed.min()) and int(changed.max()) < end


@pytest.mark.parametrize("packing", ["packed", "padded"])
@pytest.mark.parametrize("by_row, expected", [(True, 0.5), (False, 0.375)])
def test_the_mode_and_not_the_layout_decides_the_weight_of_short_rows(folders, packing, by_row, expected):
    """Cases 28 and 144: rows of 3 and 5 tokens with losses 1 and 0 in two micro-batches; what is logged is what
    is optimised."""

    @dataclasses.dataclass(frozen=True)
    class Constant(MeanLoss):
        def __call__(self, outputs, live, totals):
            values = (live.lengths[live.row_index()] == 3).to(outputs.logprobs.dtype)
            return super().__call__(dataclasses.replace(outputs, logprobs=outputs.logprobs * 0 - values), live, totals)

    batch = Batch.from_samples([make_sample("short", 4, 3, seed=1), make_sample("long", 4, 5, seed=2)])
    one = backend(folders(), packing=packing, tokens_per_micro_batch=8)
    metrics = one.update(batch, Constant(by_row=by_row)).metrics
    assert metrics["micro_batches"] == 2
    assert metrics["loss"] == pytest.approx(expected, abs=1e-12)


def test_a_row_over_the_budget_is_counted(folders):
    batch = Batch.from_samples([make_sample("long", 4, 30), make_sample("short", 4, 3)])
    metrics = backend(folders(), tokens_per_micro_batch=16).update(batch, MeanLoss()).metrics
    assert (metrics["rows_over_budget"], metrics["micro_batches"]) == (1, 2)


def test_the_logged_rate_is_the_one_used_and_the_first_update_moves_the_weights(folders):
    """Case 6: lr 1e-3, warm-up 4, constant; parameters differ after update 1."""
    one = backend(folders(), "float32", schedule={"kind": "constant", "warmup_updates": 4}, planned_updates=5)
    before, rates = snapshot(one), []
    for _ in range(5):
        rates.append(one.update(ragged_batch(), MeanLoss()).metrics["learning_rate"])
        after = snapshot(one)
        step = max(float((after[name] - before[name]).abs().max()) for name in before)
        assert 0.5 * rates[-1] < step < 1.5 * rates[-1] or len(rates) > 1  # Adam's first step is the rate itself
        assert step > 0
        before = after
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])


def test_the_gradient_norm_is_logged_before_clipping_and_clipping_scales_the_gradient(folders):
    plain, clipped = (backend(folders(), max_grad_norm=limit) for limit in (None, 0.01))
    norms = [one.update(ragged_batch(), WeightedLoss()).metrics["grad_norm"] for one in (plain, clipped)]
    assert norms[0] == norms[1] > 0.01
    total = sum(float(g.square().sum()) for g in first_moments(plain).values()) ** 0.5
    small = sum(float(g.square().sum()) for g in first_moments(clipped).values()) ** 0.5
    assert (total, small) == (pytest.approx(norms[0]), pytest.approx(0.01))


def test_weight_decay_spares_norms(folders):
    still, decayed = (backend(folders(), weight_decay=decay, learning_rate=1e-2) for decay in (0.0, 0.5))
    for one in (still, decayed):
        one.update(ragged_batch(), MeanLoss())
    ours, theirs = snapshot(decayed), snapshot(still)
    same = {name for name in ours if torch.equal(ours[name], theirs[name])}
    assert same == {name for name, tensor in ours.items() if tensor.ndim == 1}


def test_an_infinite_gradient_behind_a_finite_loss_names_its_row(folders):
    class Root(MeanLoss):
        def __call__(self, outputs, live, totals):
            distance = (outputs.logprobs - outputs.logprobs.detach()).abs()
            return LossOutput(distance[live.row_index() == 1].sqrt().sum())

    one = backend(folders())
    before = snapshot(one)
    with pytest.raises(NumericsError) as caught:
        one.update(ragged_batch(), Root())
    assert caught.value.row_ids == ["s1"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot(one).items())


def test_a_broken_weight_stops_the_update_with_all_rows(folders):
    one = backend(folders())
    with torch.no_grad():
        next(one.weights(1 << 30))["model.norm.weight"][0] = float("nan")
    with pytest.raises(NumericsError, match="8 rows: s") as caught:
        one.update(ragged_batch(), MeanLoss())
    assert sorted(caught.value.row_ids) == [f"s{i}" for i in range(8)]


def test_bfloat16_computes_roughly_the_same_and_keeps_float32_masters(folders):
    exact, _ = gradients(folders(), ragged_batch(), WeightedLoss())
    one = backend(folders(), "bfloat16", max_grad_norm=None)
    one.update(ragged_batch(), WeightedLoss())
    rounded = first_moments(one)
    assert {tensor.dtype for tensor in snapshot(one).values()} == {torch.float32}
    for name, gradient in exact.items():
        error = (rounded[name].double() - gradient).norm() / gradient.norm()
        assert error < 0.05, name


def test_small_bfloat16_steps_are_not_lost(folders):
    """In pure bfloat16 a step of 1e-6 would round away at weights of 1."""
    one = backend(folders(), "bfloat16", learning_rate=1e-6)
    before = snapshot(one)
    one.update(ragged_batch(), MeanLoss())
    moved = snapshot(one)["model.norm.weight"] - before["model.norm.weight"]
    assert 0 < float(moved.abs().max()) < 2e-6


def test_a_scored_model_has_no_optimiser(folders):
    one = backend(folders(), "bfloat16", trainable=False)
    assert torch.isfinite(one.logprobs(ragged_batch(), 1.0)[0]).all()
    assert {tensor.dtype for tensor in snapshot(one).values()} == {torch.bfloat16}
    with pytest.raises(ValueError, match="only scored"):
        one.update(ragged_batch(), MeanLoss())


def test_float16_and_impossible_packing_are_refused(folders):
    with pytest.raises(ConfigError, match="bfloat16"):
        backend(folders(), "float16")
    with pytest.raises(ConfigError, match="use 'padded'"):
        backend(folders("qwen3_5"), packing="packed")
    with pytest.raises(ConfigError, match=r"model\.attention is eager"):
        backend(folders(), packing="packed", attention="eager")


def test_eager_attention_is_padded_and_scores_the_same(folders):
    one = backend(folders(), attention="eager")
    expected, _ = naive_scores(folders(), ragged_batch(), 1.0, torch.float64)
    torch.testing.assert_close(one.logprobs(ragged_batch(), 1.0)[0], expected, atol=1e-6, rtol=0)


def test_a_sliding_window_shorter_than_the_rows_is_kept_in_packed_rows(folders):
    folder = folders("qwen3", use_sliding_window=True, sliding_window=6, max_window_layers=1)
    batch = with_coefficients(ragged_batch())
    one = backend(folder)
    assert one._scorer.packed
    expected, _ = naive_scores(folder, batch, 1.0, torch.float64)
    full, _ = naive_scores(folders(), batch, 1.0, torch.float64)
    assert (expected - full).abs().max() > 1e-3
    torch.testing.assert_close(one.logprobs(batch, 1.0)[0], expected, atol=1e-6, rtol=0)


def test_a_model_with_an_unknown_head_is_refused(folders, monkeypatch):
    from transformers import Qwen3ForCausalLM

    original = Qwen3ForCausalLM.forward

    def bent(self, *args, **kwargs):
        output = original(self, *args, **kwargs)
        output.logits = output.logits * 2
        return output

    monkeypatch.setattr(Qwen3ForCausalLM, "forward", bent)
    with pytest.raises(ConfigError, match="does not know"):
        backend(folders())
