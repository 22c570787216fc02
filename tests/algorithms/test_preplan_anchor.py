import pytest
import torch

from rollick.algorithms.preplan_anchor import (
    coupled_scale,
    future_attention,
    global_anchor_scale,
    head_spans,
    local_chunk_scale,
    scale_advantages,
    select_heads,
    waad,
    waad_change,
)
from tests.algorithms.toy import close, f64

MAP = torch.tensor(
    [
        [1, 0, 0, 0, 0, 0],
        [0.1, 0.9, 0, 0, 0, 0],
        [0.2, 0.3, 0.5, 0, 0, 0],
        [0.6, 0.1, 0.2, 0.1, 0, 0],
        [0.1, 0.1, 0.6, 0.1, 0.1, 0],
        [0.05, 0.05, 0.7, 0.05, 0.1, 0.05],
    ],
    dtype=torch.float64,
)
WAAD = waad(MAP, window=2)
FAI = future_attention(MAP, nearest=1, farthest=3)
LIMITS = {"waad_limit": 0.8, "change_limit": 0.5, "lookback": 2}


def test_statistics_of_the_papers_example_map():
    close(head_spans(MAP[None]), [1.291667])
    close(WAAD, [0, 0.1, 0.7, 1.6, 1.7, 1.8])
    close(FAI, [0.3, 0.166667, 0.5, 0.075, 0.1, 0])
    close(waad_change(WAAD), [0.1, 0.6, 0.9, 0.1, 0.1, 0])


def test_the_three_schemes_on_the_example_map():
    close(global_anchor_scale(FAI), [1.5, 1, 1.5, 1, 1, 1])
    close(local_chunk_scale(waad_change(WAAD)), [1, 1.5, 1.5, 1, 1, 1])
    coupled = coupled_scale(WAAD, FAI, **LIMITS)
    close(coupled, [1.5, 1.25, 1.25, 1, 1, 1])
    close(scale_advantages(torch.full((6,), 0.8).double(), coupled), [1.2, 1, 1, 0.8, 0.8, 0.8])


def test_the_coupled_scheme_reads_its_options():
    close(coupled_scale(WAAD, FAI, **LIMITS, alpha=0.3), [1.5, 1.15, 1.35, 1, 1, 1])
    close(coupled_scale(WAAD, FAI, **LIMITS, amplify=2.0), [2, 1.5, 1.5, 1, 1, 1])
    close(coupled_scale(WAAD, FAI, **{**LIMITS, "waad_limit": 0.6}), [1.5, 1, 1.5, 1, 1, 1])
    close(coupled_scale(WAAD, FAI, **{**LIMITS, "change_limit": 0.7}), [1.5, 1, 1.5, 1, 1, 1])
    close(coupled_scale(WAAD, FAI, **LIMITS, fraction=0.2), [1, 1.25, 1.25, 1, 1, 1])


def test_an_opener_of_two_anchors_counts_once():
    """Δ is [5, 4.8, 0.1, 0.1, 0], so token 0 opens the chunk of both anchors, 2 and 3."""
    waad_values, fai = f64(0.0, 5.0, 0.2, 0.1, 0.0), f64(0, 0, 1, 1, 0)
    scale = coupled_scale(waad_values, fai, waad_limit=1.0, change_limit=1.0, lookback=3)
    close(scale, [1.25, 1, 1.25, 1.25, 1])


def test_the_earliest_of_equal_peaks_opens_the_chunk():
    waad_values, fai = f64(0, 1, 0, 0, 0), f64(0, 0, 0, 1, 0)
    scale = coupled_scale(waad_values, fai, waad_limit=1.0, change_limit=1.0, lookback=3, fraction=0.2)
    close(scale, [1.25, 1, 1, 1.25, 1])


def test_the_prompt_counts_as_distance_but_gets_no_score():
    """Two prompt tokens before a two-token answer: the map has two rows and four columns."""
    attention = f64(0.5, 0.1, 0.4, 0, 0.25, 0.25, 0.3, 0.2).view(2, 4)
    close(waad(attention, window=10), [0.5 * 2 + 0.1, 0.25 * 3 + 0.25 * 2 + 0.3])
    close(waad(attention, window=2), [1.1, 0.25 * 2 + 0.25 * 2 + 0.3])
    close(head_spans(attention[None]), [(1.1 + 1.55) / 2])
    close(future_attention(attention, nearest=1, farthest=3), [0.3, 0])


def test_local_heads_look_near_and_global_ones_far():
    local, far = select_heads(f64(3, 1, 9, 2, 8, 7, 4, 5, 6, 10))
    assert local.nonzero().flatten().tolist() == [0, 1, 3] and far.nonzero().flatten().tolist() == [2, 4, 9]
    local, far = select_heads(f64(2, 1))
    assert local.tolist() == [False, True] and far.tolist() == [True, False]


def test_the_first_version_leaves_negative_advantages_alone():
    advantages, gamma = f64(-1, 0, 1), f64(1.5, 1.5, 1.5)
    close(scale_advantages(advantages, gamma, signs="non_negative"), [-1, 0, 1.5])
    close(scale_advantages(advantages, gamma), [-1.5, 0, 1.5])
    with pytest.raises(ValueError, match="'positive'"):
        scale_advantages(advantages, gamma, signs="positive")


def test_an_answer_of_one_token():
    one = torch.ones(1, 1, dtype=torch.float64)
    close(waad(one), [0])
    close(future_attention(one), [0])
    close(coupled_scale(waad(one), future_attention(one), waad_limit=1.0, change_limit=1.0), [1.5])
