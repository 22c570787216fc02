import pytest
import torch

from rollick.config.algorithm import AlgorithmSettings
from rollick.data.records import Completion, Episode, Group, Task, Turn
from rollick.pipelines.policy_batch import PolicyBatch, PolicyBatches, scored_rows


def _episode(group: str, member: int, reward: float | None, ids: list[int], status: str = "finished") -> Episode:
    completion = Completion(ids, [-1.0] * len(ids), [0.0] * len(ids), [0] * len(ids), "stop")
    task = Task(group, "sums", prompt="1+1=")
    turns = [Turn([3, 4], completion)]
    return Episode(f"{group}/{member}", group, member, task, seed=member, turns=turns, status=status, reward=reward)


def _group(name: str, *episodes: Episode) -> Group:
    return Group(name, episodes[0].task, list(episodes))


def build_policy_batch(groups: list[Group], algorithm: AlgorithmSettings) -> PolicyBatch:
    return PolicyBatches(algorithm).make(scored_rows(groups))


def test_advantages_are_group_relative_and_spread_over_sampled_tokens() -> None:
    """failure case 53: keyed by group, whatever the order of arrival."""
    a = [_episode("a", i, reward, [7] * (i + 1)) for i, reward in enumerate([1.0, 0.0, 0.0, 0.0])]
    b = [_episode("b", i, reward, [8]) for i, reward in enumerate([0.0, 1.0])]
    learning = build_policy_batch([_group("b", *b), _group("a", *a)], AlgorithmSettings(advantage_std="none"))
    assert learning.advantages == {
        "a/0": 0.75, "a/1": -0.25, "a/2": -0.25, "a/3": -0.25, "b/0": -0.5, "b/1": 0.5,
    }  # fmt: skip
    batch = learning.batch
    assert batch is not None and batch.row_ids == ["b/0", "b/1", "a/0", "a/1", "a/2", "a/3"]
    start = int(batch.offsets[3])
    assert batch.tokens["advantages"][start : start + 4].tolist() == [0.0, 0.0, -0.25, -0.25]


def test_an_answer_without_tokens_does_not_shift_its_group() -> None:
    """failure case 54: rewards 8, 1, 3 with 0, 2, 2 trainable tokens give 0, -1, +1."""
    group = _group("a", *(_episode("a", i, r, [7] * n) for i, (r, n) in enumerate([(8.0, 0), (1.0, 2), (3.0, 2)])))
    learning = build_policy_batch([group], AlgorithmSettings(advantage_std="none"))
    assert learning.advantages == {"a/1": -1.0, "a/2": 1.0}
    assert learning.batch is not None and learning.batch.row_ids == ["a/1", "a/2"]


@pytest.mark.parametrize("excluded", [{"status": "failed"}, {"reward": None}])
def test_failed_and_abstained_episodes_stay_out_of_baseline_and_batch(excluded: dict) -> None:
    odd = _episode("a", 2, **{"reward": 5.0, "ids": [9], **excluded})
    group = _group("a", _episode("a", 0, 1.0, [7]), _episode("a", 1, 0.0, [7]), odd)
    learning = build_policy_batch([group], AlgorithmSettings(advantage_std="none"))
    assert learning.advantages == {"a/0": 0.5, "a/1": -0.5}
    assert learning.batch is not None and learning.batch.row_ids == ["a/0", "a/1"]


def test_truncated_answers_can_be_masked_and_still_count_in_the_baseline() -> None:
    group = _group("a", _episode("a", 0, 1.0, [7]), _episode("a", 1, 0.0, [7, 7], status="truncated"))
    trained = build_policy_batch([group], AlgorithmSettings(advantage_std="none"))
    masked = build_policy_batch([group], AlgorithmSettings(advantage_std="none", truncated_answers="mask"))
    assert trained.batch is not None and trained.batch.row_ids == ["a/0", "a/1"]
    assert masked.batch is not None and masked.batch.row_ids == ["a/0"]
    assert masked.advantages == trained.advantages == {"a/0": 0.5, "a/1": -0.5}


def test_nothing_to_learn_is_a_value_not_a_crash() -> None:
    """failure case 51: a step in which every episode failed."""
    learning = build_policy_batch([_group("a", _episode("a", 0, None, [7]))], AlgorithmSettings())
    assert learning.batch is None and learning.advantages == {}


def test_standard_deviation_option_changes_the_advantages_as_predicted() -> None:
    """failure case 3."""
    group = _group("a", *(_episode("a", i, r, [7]) for i, r in enumerate([1.0, 0.0, 0.0, 0.0])))
    batch = build_policy_batch([group], AlgorithmSettings(advantage_std="group")).batch
    assert batch is not None
    live = batch.tokens["advantages"][batch.tokens["loss_mask"]]
    torch.testing.assert_close(live, torch.tensor([1.499997, -0.499999, -0.499999, -0.499999]), atol=1e-6, rtol=0)
