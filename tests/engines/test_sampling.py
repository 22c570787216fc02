"""Draws, cuts and log-probs against a plain float64 reference, and the generator behind them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rollick.engines.base import Sampling
from rollick.engines.sampling import BLOCK, SamplingPlan, draw, uniforms

settings.register_profile("engines", deadline=None, max_examples=60)
settings.load_profile("engines")


def draw_one(logits: torch.Tensor, u: float, **sampling):
    plan = SamplingPlan.of([Sampling(**sampling)], logits.shape[-1])
    result = draw(logits[None].clone(), plan, torch.tensor([u], dtype=torch.float64))
    return int(result.token_ids), float(result.logprobs), float(result.kept_logmass)


def kept_set(probs: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """bool[V] by the definition, token after token; ties with the last kept one stay."""
    keep = np.ones(len(probs), bool)
    if top_k:
        keep &= probs >= np.sort(probs)[-min(top_k, len(probs))]
    if top_p < 1:
        mass, target = 0.0, top_p * probs[keep].sum() * (1 - 1e-6)
        for p in np.sort(probs[keep])[::-1]:
            mass += p
            if mass >= target:
                keep &= probs >= p
                break
    return keep & (probs >= min_p * probs.max())


def test_the_sampling_temperature_is_in_the_logprob():
    """Case 40: logits [0, 1, 2], id 2, temperature 0.5."""
    logits = torch.tensor([0.0, 1.0, 2.0])
    token, logprob, _ = draw_one(logits, 0.9, temperature=0.5)
    assert (token, round(logprob, 4)) == (2, -0.1429)
    token, logprob, _ = draw_one(logits, 0.9, temperature=0.0)
    assert (token, round(logprob, 4)) == (2, -0.4076)


def test_a_cut_gives_the_full_logprob_and_the_kept_mass_beside_it():
    """Case 41: probabilities .55, .25, .15, .05 with top_p 0.75."""
    logits = torch.tensor([0.55, 0.25, 0.15, 0.05]).log()
    token, logprob, kept = draw_one(logits, 0.5, top_p=0.75)
    assert token == 0
    assert (round(logprob, 4), round(kept, 4), round(logprob - kept, 4)) == (-0.5978, -0.2231, -0.3747)
    assert draw_one(logits, 0.999, top_p=0.75)[0] == 1
    assert draw_one(logits, 0.999, top_p=0.8)[0] == 1
    assert draw_one(logits, 0.999, top_p=0.81)[0] == 2
    assert draw_one(logits, 0.999, top_k=3)[0] == 2
    assert draw_one(logits, 0.999, min_p=0.3)[0] == 1
    assert draw_one(logits, 0.999, top_p=1e-9)[0] == 0
    # top-p counts what top-k left: .55 of .80 is .6875
    assert draw_one(logits, 0.999, top_k=2, top_p=0.68)[0] == 0
    assert draw_one(logits, 0.999, top_k=2, top_p=0.70)[0] == 1


@given(
    seed=st.integers(0, 2**20),
    vocab=st.integers(1, 3 * BLOCK),
    spread=st.sampled_from([0.0, 0.5, 3.0, 30.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.1]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    u=st.floats(0, 1, exclude_max=True),
)
def test_a_draw_is_the_inverse_cdf_of_the_kept_set(seed, vocab, spread, temperature, top_k, top_p, min_p, u):
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * spread
    logits = (logits * 64).round() / 64  # neighbours differ clearly or are equal: no cut falls between roundings
    probs = (logits.double() / temperature).softmax(-1).numpy()
    keep = kept_set(probs.astype(np.float32).astype(np.float64), top_k, top_p, min_p)
    token, logprob, kept = draw_one(logits, u, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert logprob == pytest.approx(math.log(probs[token]), abs=2e-6)
    assume(abs(kept - math.log(probs[keep].sum())) < 1e-5)  # else the cut lies between tokens that rounding reorders
    assert keep[token]
    cdf = np.cumsum(np.where(keep, probs, 0.0)) / probs[keep].sum()
    assert (cdf[token - 1] if token else 0.0) - 1e-6 <= u <= cdf[token] + 1e-6


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_impossible_tokens_are_never_drawn_at_either_end_of_the_cdf(u):
    logits = torch.full((1000,), -torch.inf)
    logits[[300, 301]] = 0.0
    token, logprob, kept = draw_one(logits, u)
    assert token == (300 if u < 0.5 else 301)
    assert logprob == pytest.approx(math.log(0.5))
    assert kept == 0.0


def test_precision_holds_over_a_vocabulary_of_150_000():
    logits = torch.randn(4, 150_001, generator=torch.Generator().manual_seed(0))
    probs = logits.double().softmax(-1)
    cdf = probs.cumsum(-1)
    plan = SamplingPlan.of([Sampling()] * 4, logits.shape[-1])
    u = torch.tensor([0.1, 0.5, 0.9, 0.999999], dtype=torch.float64)
    result = draw(logits.clone(), plan, u)
    for row, token in enumerate(result.token_ids.tolist()):
        assert float(result.logprobs[row]) == pytest.approx(float(probs[row, token].log()), abs=1e-6)
        assert float(cdf[row, token - 1]) - 3e-7 <= float(u[row]) <= float(cdf[row, token]) + 3e-7


def test_a_wide_nucleus_is_found_in_a_flat_vocabulary():
    logits = torch.zeros(40_000)
    logits[7] = 1e-3
    _, _, kept = draw_one(logits, 0.5, top_p=0.9)
    assert kept == pytest.approx(0.0, abs=1e-6)  # all others are tied: cutting there cuts nothing
    ramp = torch.linspace(0, -2, 40_000)
    probs = ramp.double().softmax(-1)
    count = int((probs.cumsum(-1) < 0.9).sum()) + 1
    _, _, kept = draw_one(ramp, 0.5, top_p=0.9)
    assert kept == pytest.approx(float(probs[:count].sum().log()), abs=1e-4)


def test_rows_with_different_settings_do_not_disturb_each_other():
    logits = 5 * torch.randn(5, 700, generator=torch.Generator().manual_seed(1))  # a tail far below 1e-6
    rows = [Sampling(), Sampling(temperature=0), Sampling(top_k=3), Sampling(top_p=0.5), Sampling(0.7, min_p=0.3)]
    u = torch.tensor([0.2, 0.4, 0.6, 0.8, 0.9], dtype=torch.float64)
    together = draw(logits.clone(), SamplingPlan.of(rows, 700), u)
    for i, row in enumerate(rows):
        alone = draw(logits[i : i + 1].clone(), SamplingPlan.of([row], 700), u[i : i + 1])
        assert int(alone.token_ids) == int(together.token_ids[i])
        assert float(alone.logprobs) == pytest.approx(float(together.logprobs[i]), abs=1e-7)
        assert float(alone.kept_logmass) == pytest.approx(float(together.kept_logmass[i]), abs=1e-9)
    assert float(together.kept_logmass[0]) == 0.0


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_damaged_logits_show_in_the_logprob(damage):
    logits = torch.zeros(300)
    logits[200] = damage
    assert not math.isfinite(draw_one(logits, 0.5)[1])


def test_uniforms_are_a_pure_function_of_seed_and_position():
    seeds, positions = [0, 1, 2**63 - 1, -5, 2**70], [0, 1, 2, 3, 4]
    together = uniforms(seeds, positions)
    assert [float(uniforms([s], [p])[0]) for s, p in zip(seeds, positions)] == together.tolist()
    assert ((together >= 0) & (together < 1)).all()


def test_streams_of_neighbouring_seeds_are_uniform_and_unrelated():
    """Means and correlations of 64 streams of 4096 draws stay within five standard errors."""
    draws = np.stack([uniforms([seed] * 4096, range(4096)) for seed in range(64)])
    assert abs(draws.mean() - 0.5) < 5 / (12 * draws.size) ** 0.5
    histogram = np.histogram(draws, bins=64, range=(0, 1))[0]
    assert abs(histogram / draws.size - 1 / 64).max() < 5 * (1 / 64 / draws.size) ** 0.5
    centred = (draws - 0.5) * 12**0.5
    between = (centred[:-1] * centred[1:]).mean(1)
    along = (centred[:, :-1] * centred[:, 1:]).mean(1)
    assert abs(between).max() < 5 / 4096**0.5
    assert abs(along).max() < 5 / 4096**0.5
