import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Failed, Score
from rollick.rewards.function import Options
from rollick.rewards.worker import grade
from tests.rewards.episodes import episode


def score(name, response="yes", truth=None, **extra):
    return Options(path=f"tests.rewards.graders:{name}").build().score(episode(response, truth, extra=extra))


def test_arguments_are_passed_by_the_names_the_function_declares():
    assert score("length", "abcd") == Score(4.0)
    assert score("equals", "7", "7") == Score(1.0)
    assert score("equals", "7", "8") == Score(0.0)
    assert score("from_extra", value=0.5) == Score(0.5, {"asked": 1.0})
    assert score("later") == Score(2.0)


def test_a_dict_gives_the_headline_value_and_numeric_parts():
    """Case 146: text fields are ignored."""
    assert score("with_parts") == Score(1.0, {"extra": 0.5})


def test_none_abstains():
    """Case 146."""
    assert isinstance(score("nothing"), Abstain)
    assert isinstance(score("literal", result={"score": None}), Abstain)


@pytest.mark.parametrize("kind", [Score, Abstain, Failed])
def test_verdicts_pass_through(kind):
    assert isinstance(score("verdicts", kind.__name__.lower()), kind)


@pytest.mark.parametrize("value", [1, True, 1.0, np.float32(1), np.bool_(True), np.int64(1), torch.tensor(1.0)])
def test_numbers_of_every_kind(value):
    assert score("literal", result=value) == Score(1.0)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        "yes",
        "1.0",
        [1.0],
        {"a": 1},
        {"score": float("nan")},
        {"score": 1, "p": -float("inf")},
    ],
)
def test_what_is_no_finite_number_is_a_failure_that_names_function_and_value(value):
    verdict = score("literal", result=value)
    assert isinstance(verdict, Failed) and "graders:literal" in verdict.reason
    shown = value if not isinstance(value, dict) else list(value.values())[-1]
    assert str(shown) in verdict.reason


@pytest.mark.parametrize(("name", "words"), [("raises", "KeyError"), ("exits", "SystemExit")])
def test_an_exception_is_a_failure(name, words):
    options = Options(path=f"tests.rewards.graders:{name}")
    verdict = grade(options.build(), options.label, episode("x"))
    assert isinstance(verdict, Failed) and words in verdict.reason and "graders.py" in verdict.reason


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package.module:fn", "no_such_package"),
        ("tests.rewards.graders:missing", "no function 'missing'"),
        ("tests.rewards.graders:needs_more", "'temperature'"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_sentence(path, words):
    with pytest.raises(ConfigError, match=words) as caught:
        Options(path=path).build()
    assert "\n" not in str(caught.value)


def test_a_module_that_fails_while_loading_is_told_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken_rewards.py").write_text("1 / 0\n")
    (tmp_path / "fine_rewards.py").write_text("def one(response): return 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        Options(path="broken_rewards:one").build()
    assert Options(path="fine_rewards:one").build().score(episode("x")) == Score(1.0)


def test_a_path_without_a_function_is_refused_at_load():
    with pytest.raises(ValidationError):
        Options(path="my_module")
