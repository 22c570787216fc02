import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.advantages import gae
from rollick.algorithms.asyppo import advantage_keep, assign_critics, asyppo_loss, disagreement, entropy_keep
from rollick.algorithms.value_loss import value_loss
from tests.algorithms.toy import close, f64

VALUES = torch.stack([f64(0.2, 0.5, 0.4, 0.7, 0.9), f64(0.3, 0.5, 0.8, 0.6, 0.95)])
ROW = torch.zeros(5, dtype=torch.long)


def test_the_papers_objective_on_five_tokens():
    spread = disagreement(VALUES)
    close(VALUES.mean(0), [0.25, 0.5, 0.6, 0.65, 0.925])
    close(spread, [0.05, 0, 0.2, 0.05, 0.025])
    advantages = gae(f64(0, 0, 0, 0, 1), VALUES.mean(0), ROW, lam=1.0).advantages
    close(advantages, [0.75, 0.5, 0.4, 0.35, 0.075])
    keep_advantage, keep_entropy = advantage_keep(spread), entropy_keep(spread)
    assert keep_advantage.int().tolist() == [1, 0, 1, 1, 1]
    assert keep_entropy.int().tolist() == [1, 1, 0, 1, 1]
    ratio, entropy = f64(1.1, 0.9, 1.3, 1, 0.95), f64(0.5, 0.1, 1.2, 0.3, 0.05)
    close(-asyppo_loss(ratio, advantages, entropy, keep_advantage, keep_entropy).mean(), 0.347150)
    returns = torch.ones(5).double()
    total = sum(2 * value_loss(values, values, returns).mean() for values in VALUES)
    close(total, 0.458500)


def test_the_share_is_rounded_down_and_ties_go_to_the_earlier_token():
    spread = f64(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    assert advantage_keep(spread, fraction=0.25).int().tolist() == [0, 0] + [1] * 7
    assert entropy_keep(spread, fraction=0.25).int().tolist() == [0, 0] + [1] * 7
    assert advantage_keep(spread[:4], fraction=0.2).all()
    assert (~advantage_keep(torch.arange(100.0), fraction=0.29)).sum() == 29


def test_masks_must_be_bool():
    """Failure case 38."""
    keep = torch.ones(1, dtype=torch.bool)
    for masks in ((keep.float(), keep), (keep, keep.float())):
        with pytest.raises(TypeError, match="must be a bool tensor"):
            asyppo_loss(f64(1), f64(1), f64(1), *masks)


@settings(max_examples=50, deadline=None)
@given(groups=st.lists(st.integers(-3, 3), max_size=20), critics=st.integers(1, 4))
def test_every_group_is_dealt_out_evenly(groups, critics):
    groups = torch.tensor(groups, dtype=torch.long)
    assigned = assign_critics(groups, critics)
    for group in groups.unique():
        counts = torch.bincount(assigned[groups == group], minlength=critics)
        assert counts.max() - counts.min() <= 1


def test_rows_are_dealt_out_in_order():
    assert assign_critics(torch.tensor([4, 4, 9, 4, 9]), 2).tolist() == [0, 1, 0, 0, 1]
