import pytest
from pydantic import ValidationError

from rollick.environments.tasks import Options as TasksOptions
from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Score
from rollick.rewards.function import Options as FunctionOptions
from rollick.rewards.gates import gate_problems
from rollick.rewards.grading import Grader, combine
from rollick.rewards.match import Options as MatchOptions
from tests.rewards.episodes import episode


def reward(name, **options):
    return FunctionOptions(path="tests.rewards.graders:length", isolated=False, name=name, **options)


def test_a_reward_counts_only_behind_its_open_gate_and_keeps_its_part():
    """Format before correctness."""
    rewards = [reward("format", weight=0.5), reward("math", weight=2.0, gate="format", gate_at=0.8)]
    shut = combine({"format": Score(0.7), "math": Score(1.0)}, rewards)
    assert shut == Score(0.35, {"format": 0.7, "math": 1.0, "math/gated": 1.0})
    opened = combine({"format": Score(0.8), "math": Score(1.0)}, rewards)
    assert opened == Score(2.4, {"format": 0.8, "math": 1.0, "math/gated": 0.0})


def test_a_gate_that_abstains_holds_nothing_back():
    rewards = [reward("format"), reward("math", gate="format")]
    assert combine({"format": Abstain("no format asked"), "math": Score(1.0)}, rewards).value == 1.0


def test_a_gate_judges_by_its_raw_value():
    rewards = [reward("format", clip=(0.0, 0.5)), reward("math", gate="format")]
    assert combine({"format": Score(1.0), "math": Score(1.0)}, rewards).value == 1.5


@pytest.mark.parametrize(("raw", "counted"), [(-3.0, -1.0), (0.25, 0.25), (9.0, 1.0)])
def test_clipping_changes_what_counts_and_not_the_part(raw, counted):
    assert combine({"a": Score(raw)}, [reward("a", weight=2.0, clip=(-1.0, 1.0))]) == Score(2 * counted, {"a": raw})


def test_a_clip_range_that_is_empty_and_a_gate_level_without_gate_are_refused():
    with pytest.raises(ValidationError, match=r"clip \[1.0, 0.0\] is empty"):
        reward("a", clip=(1.0, 0.0))
    with pytest.raises(ValidationError, match=r"gate_at 0\.5 has no effect without gate"):
        reward("a", gate_at=0.5)


def test_a_gate_that_does_not_exist_is_refused_by_settings_and_grader():
    rewards = [reward("format"), reward("math", gate="fromat")]
    assert gate_problems([reward("a", gate="a")]) == ["reward 'a' is its own gate; name another reward"]
    with pytest.raises(ConfigError, match=r"environment 'd': reward 'math'.*'fromat', its gate; did you mean 'format'"):
        Grader({"d": rewards})
    with pytest.raises(ValidationError, match="did you mean 'format'"):
        TasksOptions(dataset={"path": "x.jsonl"}, rewards=rewards)


def test_the_tags_column_selects_rewards():
    rewards = [
        MatchOptions(name="exact", task_tags=("math", "choice")),
        MatchOptions(name="loose", task_tags=("prose",)),
    ]
    with Grader({"d": rewards}) as grader:
        for id, tags in {"one": "math", "list": ["prose", "long"], "none": "code", "left out": None}.items():
            grader.submit(episode("7", "7", id=id, extra={"tags": tags}))
        done = dict(grader.poll())
        assert grader.stats()["reward/exact/graded"] == 1 and grader.stats()["reward/exact/abstained"] == 0
    assert combine(done["one"], rewards) == Score(1.0, {"exact": 1.0})
    assert combine(done["list"], rewards) == Score(1.0, {"loose": 1.0})
    for id in ("none", "left out"):
        assert combine(done[id], rewards) == Abstain(
            "only for tasks tagged math or choice; only for tasks tagged prose"
        )
