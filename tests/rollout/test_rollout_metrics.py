"""Numbers of the metrics, by hand."""

import math

import pytest

from rollick.data.records import Completion, Episode, Group, Task, Turn
from rollick.rollout.metrics import evaluation_metrics, pass_at_k, rollout_metrics


def episode(group, member, reward, length=3, truncated=False, parts=None, failed=False, domain="sums"):
    ids = list(range(length))
    turn = Turn([1], Completion(ids, [0.0] * length, [0.0] * length, [0] * length, "stop", 2))
    status = "failed" if failed else "truncated" if truncated else "finished"
    task = Task(group, domain, "x")
    return Episode(
        f"{group}/m{member}", group, member, task, 0, [turn], status, reward=reward, reward_parts=parts or {}
    )


def group(name, rewards, **more):
    episodes = [episode(name, member, reward, **more) for member, reward in enumerate(rewards)]
    return Group(name, episodes[0].task, episodes)


def near(value):
    return pytest.approx(value, abs=1e-9)


def test_lengths_come_from_sampled_tokens():
    """Case 96: lengths 3, 5, 8 (cut)."""
    episodes = [episode("g", 0, 1.0, 3), episode("g", 1, 1.0, 5), episode("g", 2, 0.0, 8, truncated=True)]
    metrics = rollout_metrics([Group("g", episodes[0].task, episodes)])
    assert metrics["rollout/response_length/mean"] == near(16 / 3)
    assert metrics["rollout/response_length/min"] == 3 and metrics["rollout/response_length/max"] == 8
    assert metrics["rollout/response_length/finished_mean"] == near(4.0)
    assert metrics["rollout/truncated_share"] == near(1 / 3)


def test_rewards_that_cancel_are_seen_in_their_parts():
    """Case 55: A = 3, 1 and B = -3, -1 sum to 0, 0."""
    episodes = [episode("g", i, 0.0, parts={"a": a, "b": b}) for i, (a, b) in enumerate([(3.0, -3.0), (1.0, -1.0)])]
    weights = {"sums": {"a": 1.0, "b": 1.0}}
    metrics = rollout_metrics([Group("g", episodes[0].task, episodes)], weights)
    assert (metrics["reward/mean"], metrics["reward/std"]) == (0.0, 0.0)
    assert (metrics["reward/a/mean"], metrics["reward/a/std"], metrics["reward/a/weight"]) == (2.0, 1.0, 1.0)
    assert (metrics["reward/b/mean"], metrics["reward/b/std"], metrics["reward/b/weight"]) == (-2.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("rewards", "share"), [([[1, 1, 1, 1]], 1.0), ([[1]], 1.0), ([[1, 1], [0, 1]], 0.5), ([[None, 1], [0, 1]], 0.5)]
)
def test_groups_that_teach_nothing_are_counted(rewards, share):
    """Case 51: all rewards equal, or a group of one."""
    groups = [group(f"g{i}", values) for i, values in enumerate(rewards)]
    assert rollout_metrics(groups)["rollout/degenerate_groups"] == near(share)


def test_failed_and_abstained_episodes_are_counted_and_enter_no_average():
    episodes = [episode("g", 0, 1.0), episode("g", 1, None), episode("g", 2, None, failed=True)]
    metrics = rollout_metrics([Group("g", episodes[0].task, episodes)])
    assert (metrics["rollout/failed"], metrics["rollout/abstained"], metrics["reward/mean"]) == (1.0, 1.0, 1.0)


def test_a_batch_without_any_score_has_no_reward_metric():
    metrics = rollout_metrics([group("g", [None, None])])
    assert "reward/mean" not in metrics and metrics["rollout/abstained"] == 2
    assert all(math.isfinite(value) for value in metrics.values())


def test_domains_are_told_apart_when_there_are_several():
    metrics = rollout_metrics([group("a", [1.0, 1.0], domain="sums"), group("b", [0.0, 0.0], domain="words")])
    assert metrics["domain/sums/reward/mean"] == 1.0 and metrics["domain/words/reward/mean"] == 0.0
    assert not [name for name in rollout_metrics([group("a", [1.0, 1.0])]) if name.startswith("domain/")]


def test_the_two_spreads_of_an_evaluation_have_their_own_names():
    """Case 145: two prompts, two runs, [[1, 0], [0, 1]]."""
    metrics = evaluation_metrics([group("a", [1.0, 0.0]), group("b", [0.0, 1.0])])
    assert metrics["evaluation/avg@2"] == near(0.5)
    assert metrics["evaluation/std_within_prompts"] == near(0.5)
    assert metrics["evaluation/std_of_run_means"] == near(0.0)


def test_accuracy_is_the_same_with_and_without_parts_and_counts_missing_rewards():
    """Case 146: a float, a dict of parts, and None."""
    plain = [group("a", [1.0]), group("b", [0.0]), group("c", [None])]
    parts = [
        group("a", [1.0], parts={"math": 1.0, "math/steps": 3.0}),
        group("b", [0.0], parts={"math": 0.0}),
        plain[2],
    ]
    for groups in (plain, parts):
        metrics = evaluation_metrics(groups)
        assert metrics["evaluation/accuracy"] == near(0.5)
        assert metrics["evaluation/abstained"] == 1.0 and metrics["evaluation/prompts"] == 3.0


def test_every_task_weighs_the_same_however_many_answers_were_graded():
    """Case 143: a mean over tasks, not over whatever parts they came in."""
    groups = [group("a", [1.0, None, None]), group("b", [0.0, 0.0, 0.0])]
    assert evaluation_metrics(groups)["evaluation/avg@3"] == near(0.5)


@pytest.mark.parametrize(("n", "c", "k", "value"), [(4, 1, 2, 0.5), (4, 0, 4, 0.0), (4, 4, 1, 1.0), (5, 2, 3, 0.9)])
def test_pass_at_k_is_unbiased(n, c, k, value):
    assert pass_at_k(n, c, k) == near(value)


def test_pass_at_k_of_an_evaluation():
    groups = [group("a", [1.0, 0.0, 0.0, 0.0]), group("b", [0.0, 0.0, 0.0, 0.0])]
    metrics = evaluation_metrics(groups, pass_at=(1, 2))
    assert metrics["evaluation/pass@1"] == near(0.125) and metrics["evaluation/pass@2"] == near(0.25)
    with pytest.raises(ValueError, match="pass@5 needs at least 5 answers, there are 4"):
        pass_at_k(4, 1, 5)


def test_a_shaped_reward_counts_as_solved_from_its_threshold():
    metrics = evaluation_metrics([group("a", [0.9]), group("b", [1.2])], success_reward=1.0)
    assert metrics["evaluation/accuracy"] == near(0.5) and metrics["evaluation/avg@1"] == near(1.05)


def test_evaluations_over_several_domains_report_each():
    metrics = evaluation_metrics([group("a", [1.0], domain="sums"), group("b", [0.0], domain="words")])
    assert metrics["evaluation/sums/accuracy"] == 1.0 and metrics["evaluation/words/accuracy"] == 0.0
    assert metrics["evaluation/accuracy"] == near(0.5)


def test_an_evaluation_without_tasks_is_refused():
    with pytest.raises(ValueError, match="at least one task"):
        evaluation_metrics([])
