"""Cutting rows into micro-batches of bounded size."""

from hypothesis import given
from hypothesis import strategies as st

from rollick.training.microbatch import plan_packed, plan_padded, plan_sharing

LENGTHS = st.lists(st.integers(1, 40), max_size=30)


def test_rows_cannot_be_split_so_four_rows_of_five_need_four_micro_batches_of_eight():
    """Case 29: ceil(20 / 8) = 3 would be too few."""
    assert sorted(plan_packed([5, 5, 5, 5], 8)) == sorted(plan_padded([5, 5, 5, 5], 8)) == [[0], [1], [2], [3]]


def test_worked_examples():
    assert plan_packed([5, 3, 5, 3], 8) == [[0, 1], [2, 3]]
    assert plan_padded([5, 3, 5, 3], 10) == [[0, 2], [1, 3]]
    assert plan_packed([], 8) == plan_padded([], 8) == []


def test_rows_of_a_group_cost_their_common_prefix_once():
    assert plan_sharing([6, 5, 5], [6, 4, 4], [0, 0, 0], 7) == [[0, 1], [2]]
    assert plan_sharing([6, 5, 5], [6, 4, 4], [0, 0, 0], 8) == [[0, 1, 2]]
    assert plan_sharing([6, 5, 5], [6, 5, 5], [0, 1, 1], 11) == [[0, 1, 2]]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 3)), max_size=20), st.integers(1, 60))
def test_sharing_keeps_every_row_and_the_budget(rows, budget):
    """The true cost: each row's tokens minus what it surely has in common with the first row of its group there."""
    lengths, groups = [row[0] for row in rows], [row[2] for row in rows]
    shared = [length if groups.index(g) == i else min(s, length) for i, (length, s, g) in enumerate(rows)]
    plan = plan_sharing(lengths, shared, groups, budget)
    assert sorted(row for part in plan for row in part) == list(range(len(rows)))
    for part in plan:
        first = {g: next(row for row in part if groups[row] == g) for g in {groups[row] for row in part}}
        cost = sum(
            lengths[row] - (0 if first[groups[row]] == row else min(shared[row], shared[first[groups[row]]]))
            for row in part
        )
        assert len(part) == 1 or cost <= budget


def test_a_row_over_the_budget_is_alone():
    assert plan_packed([3, 20, 2], 8) == [[1], [0, 2]]
    assert plan_padded([3, 20, 2], 8) == [[1], [0, 2]]


@given(LENGTHS, st.integers(1, 60))
def test_every_row_is_in_one_micro_batch_and_none_is_over_the_budget(lengths, budget):
    for plan, cost in (
        (plan_packed, lambda rows: sum(lengths[r] for r in rows)),
        (plan_padded, lambda rows: len(rows) * max(lengths[r] for r in rows)),
    ):
        batches = plan(lengths, budget)
        assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
        assert all(rows and (len(rows) == 1 or cost(rows) <= budget) for rows in batches)


@given(LENGTHS, st.integers(1, 60))
def test_packing_stays_near_the_fewest_micro_batches_possible(lengths, budget):
    lengths = [min(length, budget) for length in lengths]
    assert len(plan_packed(lengths, budget)) <= 11 / 9 * -(-sum(lengths) // budget) * 2 + 1
