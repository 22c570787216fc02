import pytest

pytest.importorskip("jsonschema")

from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Score
from rollick.rewards.json_schema import Options
from tests.rewards.episodes import episode

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("response", "expected", "is_json"),
    [
        ('{"name": "Ann", "age": 3}', 1, 1),
        ('Here:\n```json\n{"name": "Ann", "age": 3}\n```\nDone.', 1, 1),
        ('```json\n{}\n```\nno:\n```\n{"name": "Ann", "age": 3}\n```', 1, 1),
        ('<think>{"a</think>{"name": "Ann", "age": 3}', 1, 1),
        ('{"name": "Ann", "age": -3}', 0, 1),
        ('{"name": "Ann", "age": "3"}', 0, 1),
        ('{"name": "Ann"}', 0, 1),
        ('{"name": "Ann", "age": 3, "x": 1}', 0, 1),
        ('{"name": "Ann", "age": 3, "age": 4}', 0, 0),
        ('{"name": "Ann", "age": NaN}', 0, 0),
        ('so {"name": "Ann", "age": 3}', 0, 0),
        ("[" * 100_000, 0, 0),
        ("", 0, 0),
        ('<think>{"name": "Ann", "age": 3}', 0, 0),
    ],
)
def test_answers(response, expected, is_json):
    verdict = Options(document=PERSON).build().score(episode(response))
    assert verdict == Score(float(expected), {"json": float(is_json)})


def test_each_row_may_bring_its_schema():
    reward = Options().build()
    assert reward.score(episode("[1]", {"type": "array"})).value == 1.0
    assert reward.score(episode("[1]", '{"type": "object"}')).value == 0.0
    for truth in (None, "no json", {"type": "nothing"}, 7):
        assert isinstance(reward.score(episode("[1]", truth)), Abstain)
        assert Options().ground_truth_problem(truth)


def test_a_broken_schema_is_refused_at_load():
    with pytest.raises(ConfigError, match="no JSON schema"):
        Options(document={"type": "nothing"}).build()
