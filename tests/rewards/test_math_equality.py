import pytest

from rollick.rewards.math_equality import equal, holds_several, is_readable, too_large
from tests.rewards.math_pairs import DIFFERENT, EQUAL


@pytest.mark.parametrize(("truth", "answer"), EQUAL)
def test_equal(truth, answer):
    """Cases 62, 63, 65 to 67, 71 and 77, and the documented rules."""
    assert equal(truth, answer)
    assert is_readable(truth) or truth == answer or "^{9^" in truth


@pytest.mark.parametrize(("truth", "answer"), DIFFERENT)
def test_different(truth, answer):
    """Cases 65 to 67, 77 and 79, and the documented rules."""
    assert not equal(truth, answer)


@pytest.mark.parametrize(
    "truth",
    [
        r"\dfrac{9}{7}",
        "72",
        "x<4",
        r"(-\infty,1)\cup(1,\infty)",
        r"\begin{pmatrix} -3 \\ -11 \\ -8 \end{pmatrix}",
        r"\{1,2\}",
        "x=5",
        r"\text{Monday}",
        "5 cm",
        "1011_2",
        r"\pm 3",
        "y=2x+1",
    ],
)
def test_readable(truth):
    assert is_readable(truth)


@pytest.mark.parametrize("truth", ["", "  ", "}{", r"\frac{", r"9^{9^{9^{9}}}", "$$"])
def test_unreadable(truth):
    assert not is_readable(truth)


def test_what_holds_several_values():
    assert all(map(holds_several, [r"\{2,7\}", "2, 7", "(2,7)", r"x=\pm 2"]))
    assert not any(map(holds_several, ["7", "x=5", "1,234", r"\{7\}"]))


def test_size_guards():
    assert too_large("9^{9^{9}}") and too_large("6000!") and too_large("{" * 50) and too_large("2^{99999}")
    assert (
        not too_large(r"2^{2024}") and not too_large("e^{x^2}") and not too_large("100!") and not too_large("2^{2^{3}}")
    )
