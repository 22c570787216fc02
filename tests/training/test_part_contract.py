import pytest

from rollick.config.algorithm_parts import find_part
from rollick.training.part_contract import broken_promises

OWN = "tests.config.own_parts"


@pytest.mark.parametrize(
    ("family", "name"),
    [("policy_loss", "sharp_loss"), ("advantage", "sign_advantages"), ("sample_filter", "short_keep")],
)
def test_good_parts_of_your_own_pass(family, name):
    assert broken_promises(find_part(family, f"{OWN}:{name}")) == []


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("policy_loss", "one_number", "one value per token"),
        ("policy_loss", "neighbours_loss", "the cut into micro-batches"),
        ("policy_loss", "constant_loss", "no gradient"),
        ("advantage", "first_is_best_advantages", "depends on the order"),
        ("advantage", "broken_advantages", "fails on ordinary input with TypeError"),
        ("sample_filter", "everything_keep", "not scored"),
    ],
)
def test_a_broken_promise_is_named(family, name, message):
    assert any(message in problem for problem in broken_promises(find_part(family, f"{OWN}:{name}")))
