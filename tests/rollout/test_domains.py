import logging

import pytest

from rollick.config.base import load_plugin
from rollick.environments.tasks import Options
from rollick.errors import ConfigError, DataError
from rollick.models.chat import prompt_ids
from rollick.rollout.domains import open_domains, reward_weights, rewards_by_domain
from tests.models.tiny import tiny_tokenizer, write_jsonl
from tests.rollout.fakes import TOKENIZER, FakeOptions

ROWS = [{"prompt": "1+1=", "ground_truth": "2"}, {"prompt": "1+1=" * 20, "ground_truth": "80"}]


def tasks(tmp_path, rows, **more):
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    return Options(dataset={"path": str(path)}, rewards=[{"kind": "match"}], **more)


def test_an_over_long_prompt_is_refused_with_its_row_and_length(tmp_path):
    with pytest.raises(DataError, match=r"train.jsonl:2: the prompt has \d+ tokens, rollout.max_prompt_tokens is 24"):
        open_domains([tasks(tmp_path, ROWS)], TOKENIZER, 24, "refuse")


def test_over_long_prompts_are_dropped_and_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        [domain] = open_domains([tasks(tmp_path, ROWS)], TOKENIZER, 24, "drop")
    assert (len(domain), domain.over_long, domain.task(0).id) == (1, 1, "train/0")
    assert "tasks: dropped 1 of 2 prompts over 24 tokens" in caplog.text


def test_a_prompt_of_exactly_the_limit_fits(tmp_path):
    limit = len(prompt_ids(TOKENIZER, [{"role": "user", "content": ROWS[1]["prompt"]}]))
    assert len(open_domains([tasks(tmp_path, ROWS)], TOKENIZER, limit, "refuse")[0]) == 2


def test_a_set_of_which_no_prompt_fits_is_an_error(tmp_path):
    with pytest.raises(DataError, match="all 2 prompts have more than 3 tokens"):
        open_domains([tasks(tmp_path, ROWS)], TOKENIZER, 3, "drop")


def test_messages_without_a_chat_template_are_one_clear_sentence(tmp_path):
    with pytest.raises(DataError, match="no chat template"):
        open_domains([tasks(tmp_path, ROWS)], tiny_tokenizer(chat_template=None), 100, "refuse")
    [domain] = open_domains(
        [tasks(tmp_path, ROWS, prompt_is="text")], tiny_tokenizer(chat_template=None), 500, "refuse"
    )
    assert domain.task(0).prompt == "1+1="


def test_environments_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="two environments are called 'tasks'; give each its own `name`"):
        open_domains([tasks(tmp_path, ROWS)] * 2, TOKENIZER, 100, "refuse")


def test_a_column_that_no_grader_can_use_is_an_error_and_a_few_bad_rows_a_warning(tmp_path, caplog):
    with pytest.raises(DataError, match=r"reward 'match' cannot use the ground truth of 2 of 2 tasks .*train.jsonl:1"):
        open_domains([tasks(tmp_path, [{"prompt": "a"}, {"prompt": "b"}])], TOKENIZER, 100, "refuse")
    with caplog.at_level(logging.WARNING):
        open_domains([tasks(tmp_path, [*ROWS, {"prompt": "b"}])], TOKENIZER, 100, "refuse")
    assert "cannot use the ground truth of 1 of 3 tasks" in caplog.text and "train.jsonl:3" in caplog.text


def test_training_and_evaluation_of_one_name_must_be_graded_alike():
    training = open_domains([FakeOptions(rewards=["match"])], TOKENIZER, 100, "refuse")
    same = open_domains([FakeOptions(rewards=["match"], size=2)], TOKENIZER, 100, "refuse")
    other = open_domains([FakeOptions(rewards=[{"kind": "match", "weight": 2.0}])], TOKENIZER, 100, "refuse")
    assert list(rewards_by_domain(training, same)) == ["sums"]
    with pytest.raises(ConfigError, match="'sums' of the evaluation has other rewards"):
        rewards_by_domain(training, other)
    assert reward_weights(other) == {"sums": {"match": 2.0}}


@pytest.mark.parametrize("kind", ["tasks", "reasoning_gym"])
def test_environments_are_found_by_kind(kind):
    assert load_plugin("environments", kind).model_fields["kind"].default == kind
