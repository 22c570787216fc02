"""`rollick algorithms`, as a user calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

from rollick.cli.algorithms import check, list_presets, objective, show_preset
from rollick.config.algorithm import AlgorithmSettings, preset_names
from rollick.errors import ConfigError


def test_every_preset_is_listed_with_its_source(capsys):
    list_presets()
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in preset_names())
    assert "2402.03300" in shown


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_shows_its_objective_and_the_options_it_reads(preset, capsys):
    show_preset(preset)
    shown = capsys.readouterr().out
    assert "A = " in shown and "ℓ = " in shown and "loss = " in shown
    assert f"preset {preset}" in shown
    algorithm = AlgorithmSettings(preset=preset)
    assert all(f"\n {name} " in shown for name in algorithm.reads() - {"preset", "options"})


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("grpo", "A = (R_i − mean) / (std + 1e-06), unbiased (n − 1)"),
        ("dr_grpo", "A = R_i − mean"),
        ("dapo", "ℓ = −min(r·A, clip(r, 1 − 0.2, 1 + 0.28)·A)"),
        ("cispo", "ℓ = −sg[clip(r, 0, 1.28)]·A·log π"),
        ("reinforce_pp_baseline", "loss = Σ ℓ / tokens + 0.001·KL(k2)"),
        ("reinforce_pp", "R = graded reward, r_t = R on the last token − 0.01·KL(k1)"),
        ("tis", "ℓ ← sg[min(π_old/μ, 2)]·ℓ, the ratio by token"),
    ],
)
def test_the_objective_has_the_numbers(preset, line):
    assert line in objective(AlgorithmSettings(preset=preset))


def test_an_unknown_preset_is_one_sentence():
    with pytest.raises(ConfigError, match="no preset 'grop', there are cispo"):
        show_preset("grop")


def test_a_part_of_your_own_is_checked(capsys):
    check("tests.config.own_parts:short_keep")
    assert "sample_filter: tests.config.own_parts:short_keep" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no gradient"):
        check("tests.config.own_parts:constant_loss")
    with pytest.raises(ConfigError, match="names no function"):
        check("short_keep")


def test_showing_algorithms_loads_no_torch():
    code = "import sys; from rollick.cli.algorithms import *; list_parts(); show_preset('grpo')"
    code += "; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_page_that_shows_its_objective(preset):
    page = (Path(__file__).parents[1] / "docs" / "algorithms" / f"{preset}.md").read_text(encoding="utf-8")
    if preset != "grpo":  # whose page derives the formula at length
        assert "\n".join(objective(AlgorithmSettings(preset=preset))) in page
