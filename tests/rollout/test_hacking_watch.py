"""The watch for reward hacking, on made-up series."""

import random

import pytest
from pydantic import ValidationError

from rollick.config.watch import HackingWatchSettings
from rollick.data.records import Completion, Episode, Group, Task, Turn
from rollick.rewards.format import Options as FormatOptions
from rollick.rewards.match import Options as MatchOptions
from rollick.rollout.hacking_watch import (
    LENGTH,
    REPETITION,
    SAME_ANSWER,
    HackingWatch,
    Labels,
    find_alarms,
    last_line,
    repetition_of,
    suspects,
    watch_metrics,
)

SETTINGS = HackingWatchSettings()
LABELS = Labels(frozenset({"format"}), frozenset({"math"}))


def series(steps=20, noise=0.0, seed=0, **ends):
    """Metrics that go from one value to another in a straight line. Names are short for the metrics'."""
    names = {"reward": "reward/mean", "length": LENGTH, "repetition": REPETITION, "same_answer": SAME_ANSWER}
    names |= {"format": "reward/format/mean", "math": "reward/math/mean"}
    ends = {"reward": (0.2, 0.6), "length": (100, 100), "format": (0.5, 0.5), "math": (0.2, 0.6)} | ends
    draw = random.Random(seed)
    rows = []
    for step in range(steps):
        at = step / (steps - 1)
        row = {names[k]: a + (b - a) * at + draw.gauss(0, noise) * max(abs(a), 0.1) for k, (a, b) in ends.items()}
        rows.append({**row, "reward/std": 0.4})
    return rows


def names(rows, settings=SETTINGS, labels=LABELS):
    return [alarm.name for alarm in find_alarms(rows, settings, labels)]


def test_a_policy_that_gets_better_raises_no_alarm():
    assert names(series(length=(100, 120), repetition=(0.1, 0.12), same_answer=(0.1, 0.15))) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("length", {"length": (100, 250)}),
        ("repetition", {"repetition": (0.05, 0.4)}),
        ("same_answer", {"same_answer": (0.1, 0.7)}),
        ("format_only", {"format": (0.1, 0.9), "math": (0.2, 0.2)}),
    ],
)
def test_what_rises_with_the_reward_raises_its_alarm(name, change):
    rows = series(**change)
    assert names(rows) == [name]
    [alarm] = find_alarms(rows, SETTINGS, LABELS)
    assert alarm.after > alarm.before and alarm.reward_after > alarm.reward_before
    flat = series(**{"math": (0.2, 0.2), **change, "reward": (0.4, 0.4)})
    assert names(flat) == [], "the reward does not rise"
    assert names(series(**{key: (b, a) for key, (a, b) in change.items()})) == [], "what falls is no alarm"


def test_several_alarms_at_once():
    everything = {"length": (100, 300), "repetition": (0.0, 0.5), "same_answer": (0.0, 1.0)}
    assert names(series(**everything)) == ["length", "repetition", "same_answer"]


def test_format_that_rises_together_with_content_is_learning():
    assert names(series(format=(0.1, 0.9), math=(0.2, 0.5))) == []
    assert names(series(format=(0.1, 0.9), math=(0.2, 0.3))) == ["format_only"]
    assert names(series(format=(0.1, 0.9), math=(0.2, 0.2)), labels=Labels(frozenset({"format"}), frozenset())) == []


def test_nothing_is_said_before_the_window_is_full_and_older_steps_are_forgotten():
    rows = series(length=(100, 300))
    assert names(rows[:-1]) == []
    assert names(rows + [rows[-1]] * 20) == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_raises_no_alarm(seed):
    noisy = {"reward": (0.4, 0.4), "math": (0.4, 0.4), "repetition": (0.1, 0.1), "same_answer": (0.2, 0.2)}
    assert names(series(noise=0.1, seed=seed, **noisy)) == []


def test_each_alarm_and_the_whole_watch_can_be_turned_off():
    everything = series(length=(100, 300), repetition=(0.0, 0.5), same_answer=(0.0, 1.0))
    off = HackingWatchSettings(length_growth=None, repetition_rise=None, same_answer_rise=None, format_rise=None)
    assert names(everything, off) == []
    assert names(everything, HackingWatchSettings(length_growth=None)) == ["repetition", "same_answer"]
    assert names(everything, HackingWatchSettings(reward_rise=5.0)) == []
    with pytest.raises(ValidationError):
        HackingWatchSettings(window=3)


def test_steps_without_a_value_are_no_value():
    rows = series(length=(100, 300))
    for row in rows[::2]:
        del row[LENGTH]
    assert names(rows) == ["length"]
    assert names([{} for _ in rows]) == []


def episode(group, member, text, tokens, reward=1.0, **parts):
    zeros = [0.0] * len(tokens)
    turn = Turn([1], Completion(tokens, zeros, zeros, [0] * len(tokens), "stop", 2), response_text=text)
    task = Task(group, "d", "x")
    return Episode(f"{group}/m{member}", group, member, task, 0, [turn], "finished", reward=reward, reward_parts=parts)


def group(name, *episodes):
    made = [episode(name, i, *one[:2], **(one[2] if len(one) > 2 else {})) for i, one in enumerate(episodes)]
    return Group(name, made[0].task, made)


def test_repetition_is_the_share_of_four_grams_said_before():
    assert repetition_of(episode("g", 0, "", [1, 2, 3, 4, 5])) == 0.0
    assert repetition_of(episode("g", 0, "", [7] * 8)) == pytest.approx(1 - 1 / 5)
    assert repetition_of(episode("g", 0, "", [1, 2, 3, 4] * 3)) == pytest.approx(1 - 4 / 9)
    assert repetition_of(episode("g", 0, "", [1, 2, 3])) == 0.0
    assert repetition_of(episode("g", 0, "", [0, 0, 0, 1, 0, 0, 1, 0])) == pytest.approx(1 / 5)


def test_the_same_answer_is_the_most_common_last_line_over_the_groups():
    groups = [group(f"g{i}", ("thinking\n\\boxed{1}\n", [1]), (f"so  \\BOXED{{{i}}}", [1])) for i in range(4)]
    assert watch_metrics(groups)[SAME_ANSWER] == pytest.approx((0.5 * 4) / 4)
    assert last_line(groups[0].episodes[1]) == "so \\boxed{0}"
    assert SAME_ANSWER not in watch_metrics(groups[:3]), "three tasks say nothing"
    assert watch_metrics([]) == {}
    failed = group("g9", ("x", [1]))
    failed.episodes[0].status = "failed"
    assert watch_metrics([failed]) == {}


def test_the_samples_that_show_it_best_are_named():
    groups = [
        group("a", ("same", [1] * 9, {"format": 1.0, "math": 1.0}), ("long", list(range(30)))),
        group("b", ("same", [1, 2], {"format": 1.0, "math": 0.0}), ("other", [1, 2, 3], {"format": 0.0, "math": 1.0})),
    ]
    assert suspects("length", groups, LABELS)[0] == "a/m1"
    assert suspects("repetition", groups, LABELS)[0] == "a/m0"
    assert suspects("same_answer", groups, LABELS)[:2] == ["a/m0", "b/m0"]
    assert suspects("format_only", groups, LABELS)[0] == "b/m0"


def test_form_and_content_are_told_apart_by_kind_and_weight():
    rewards = [FormatOptions(tags=["answer"]), MatchOptions(), MatchOptions(name="shown", weight=0)]
    assert Labels.of(rewards) == Labels(frozenset({"format"}), frozenset({"match"}))


def test_an_alarm_is_told_once_and_stays_in_the_metrics_until_it_is_over():
    rows = series(length=(100, 300))
    groups = [group("g", ("x", [1] * 5))]
    watch = HackingWatch(SETTINGS, LABELS)
    told = [bool(watch.look(row, groups)) for row in rows + [rows[-1]] * 20]
    assert told == [False] * 19 + [True] + [False] * 20
    watch = HackingWatch(SETTINGS, LABELS)
    on = []
    for row in rows + [rows[-1]] * 20:
        watch.look(row, groups)
        on.append(watch.metrics["alarm/length"])
    assert on[18:21] == [0.0, 1.0, 1.0] and on[-1] == 0.0


def test_a_resumed_run_goes_on_where_it_was():
    rows, groups = series(40, length=(100, 600)), [group("g", ("x", [1] * 5))]
    whole, written = HackingWatch(SETTINGS, LABELS), []
    for row in rows:
        whole.look(row, groups)
        written.append({"step": 1, "rollout/episodes": 4, **row, **whole.metrics})
    for cut in (5, 20, 30):
        resumed = HackingWatch(SETTINGS, LABELS, history=[{"step": 0, "evaluation/accuracy": 0.1}, *written[:cut]])
        for row, expected in zip(rows[cut:], written[cut:]):
            told = resumed.look(row, groups)
            assert resumed.metrics.items() <= expected.items()
            assert bool(told) == (
                expected["alarm/length"] == 1.0 and written[rows.index(row) - 1]["alarm/length"] == 0.0
            )


def test_the_sentence_says_what_rose_and_what_to_read():
    [alarm] = find_alarms(series(length=(100, 250)), SETTINGS, LABELS)
    text = alarm.sentence(40, ["s39/p0/m1"], "samples/step_000040.jsonl")
    assert text == (
        "possible reward hacking at step 40 (length): response length rose 120 → 230 while the reward rose 0.253 → "
        "0.547; read s39/p0/m1 in samples/step_000040.jsonl (thresholds: logging.hacking_watch)"
    )
