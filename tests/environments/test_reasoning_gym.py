import sys

import pytest
from pydantic import ValidationError

from rollick.data.records import Completion, Episode, Turn
from rollick.environments.reasoning_gym import Options
from rollick.errors import ConfigError, MissingDependencyError
from rollick.rewards.base import Abstain, Score
from tests.environments.contract import check_environment


def options(**more):
    return Options(**{"kind": "reasoning_gym", "task": "chain_sum", "size": 20, **more})


def judged(settings, task, reply):
    turn = Turn([1], Completion([2], [0.0], [0.0], [0], "stop", 2), response_text=reply)
    return settings.rewards[0].build().score(Episode("e", "g", 0, task, 0, turns=[turn], status="finished"))


def test_generated_tasks_keep_the_environment_contract():
    """Case 11."""
    check_environment(options())


def test_the_right_answer_pays_in_every_form():
    for form, reply in (("tags", "so <answer> {} </answer>"), ("number", "it is {}."), ("text", " {} ")):
        settings = options(answer=form)
        task = settings.tasks()[0]
        assert judged(settings, task, reply.format(task.ground_truth)) == Score(1.0, {"answered": 1.0})


def test_a_reply_without_an_answer_pays_nothing_and_says_so():
    settings = options()
    assert judged(settings, settings.tasks()[0], "I think it is 7") == Score(0.0, {"answered": 0.0})


def test_the_last_tags_count():
    settings = options()
    task = settings.tasks()[0]
    reply = f"<answer>{task.ground_truth}</answer> no, <answer>99999</answer>"
    assert judged(settings, task, reply).value < 1.0


@pytest.mark.parametrize(
    ("reply", "number"),
    [("3 + 4 = 1,007.", "1007"), ("5-3=2", "2"), ("x = -3", "-3"), ("1,2", "2"), ("9.50 m", "9.50")],
)
def test_the_last_number_of_a_reply(reply, number):
    from rollick.rewards.reasoning_gym import extract_answer

    assert extract_answer(reply, "number") == number


def test_its_reward_abstains_on_tasks_that_it_did_not_make():
    settings = options()
    task = settings.tasks()[0]
    task.extra.clear()
    assert isinstance(judged(settings, task, "7"), Abstain)


def test_neighbouring_seeds_share_no_problems():
    """The generators seed problem i with seed + i: taken as they are, seeds 0 and 1 would share 19 of 20."""
    big = {"min_terms": 5, "max_terms": 6, "min_digits": 4, "max_digits": 4}
    ours, theirs = options(seed=0, config=big).tasks(), options(seed=1, config=big).tasks()
    questions = lambda source: {source[i].prompt[0]["content"] for i in range(20)}
    assert not questions(ours) & questions(theirs)


def test_instruction_and_system_prompt_shape_the_messages():
    task = options(instruction="", system_prompt="Be brief.").tasks()[0]
    assert task.prompt[0] == {"role": "system", "content": "Be brief."}
    assert task.prompt[1]["content"] == task.extra["entry"]["question"]
    assert options().tasks()[0].prompt[0]["content"].endswith("\nGive the final answer between <answer> and </answer>.")


def test_wrong_tasks_and_options_are_one_clear_sentence():
    with pytest.raises(ConfigError, match="no task 'chain_sums'; did you mean 'chain_sum'"):
        options(task="chain_sums").tasks()
    with pytest.raises(ConfigError, match=r"task 'chain_sum' refuses config .*unexpected keyword argument 'terms'"):
        options(config={"terms": 3}).tasks()
    with pytest.raises(ConfigError, match="min_terms must be positive"):
        options(config={"min_terms": -1}).tasks()
    with pytest.raises(ValidationError, match="size and seed stand beside config"):
        options(config={"seed": 3})


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingDependencyError, match=r"rollick\[reasoning-gym\]"):
        options().tasks()


def test_its_own_reward_is_there_unless_another_is_named():
    assert [reward.kind for reward in options(answer="number").rewards] == ["reasoning_gym"]
    assert options(answer="number").rewards[0].answer == "number"
    assert [r.kind for r in options(rewards=[{"kind": "reasoning_gym", "answer": "text"}]).rewards] == ["reasoning_gym"]
