import pytest

from rollick.rewards.math_equality import equal, holds_several, is_readable, too_large

PMATRIX = r"\begin{pmatrix} -3 \\ -11 \\ -8 \end{pmatrix}"
POLYNOMIAL = "+".join(f"{k}x^{{{k}}}y^{{{k + 1}}}" for k in range(2, 16))
PUNCTURED = r"(-\infty,1)\cup(1,\infty)"

EQUAL = [
    # 62: numbers in text commands
    ("42", r"\text{42}"),
    ("42", r"\mathrm{42}"),
    ("42", r"\mathbf{42}"),
    # 63: ways to write a ground truth
    (r"\dfrac{9}{7}", r"\frac{9}{7}"),
    (r"$\frac97$", r"\frac{9}{7}"),
    ("9/7", r"\frac{9}{7}"),
    ("1.2857142857", r"\frac{9}{7}"),
    (r"\boxed{9/7}", r"\frac{9}{7}"),
    # 65, 66: intervals and inequalities, both directions
    ("x<4", r"(-\infty,4)"),
    (r"(-\infty,4)", "x<4"),
    (r"[2,\infty)", r"x\ge 2"),
    (r"2 \le x", r"[2,\infty)"),
    (r"(1,3]", r"1 < x \leq 3"),
    (r"x<1 \text{ or } x>3", r"(-\infty,1)\cup(3,\infty)"),
    (PUNCTURED, r"x\ne 1"),
    (PUNCTURED, r"(1,\infty)\cup(-\infty,1)"),
    (PUNCTURED, r"\mathbb{R}\setminus\{1\}"),
    (r"\mathbb{R}", r"(-\infty,\infty)"),
    (r"x \in [0,1]", "[0,1]"),
    (r"[0,1]\cup[1,2]", "[0,2]"),
    (r"[\frac{\sqrt2}{2},1]", r"\left[\frac{1}{\sqrt{2}}, 1\right]"),
    (r"\{x \mid x<4\}", r"(-\infty,4)"),
    # 67: roots, for positive letters
    (r"\frac{1}{\sqrt{m}}", r"\sqrt{\frac1m}"),
    (r"\sqrt{12}", r"2\sqrt{3}"),
    ("f(t)=0", "0"),
    # 71: long answers
    (POLYNOMIAL, "+".join(reversed(POLYNOMIAL.split("+")))),
    # 77: matrices
    (PMATRIX, r"\begin{pmatrix}-3\\-11\\-8\end{pmatrix}"),
    (PMATRIX, r"\begin{pmatrix}-3\\[4pt]-11\\[4pt]-8\end{pmatrix}"),
    (PMATRIX, "(-3,-11,-8)^T"),
    (PMATRIX, r"\begin{bmatrix}-3&-11&-8\end{bmatrix}^{T}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & \frac{4}{2} \\ 3 & 4 \end{pmatrix}"),
    # sets, lists, tuples
    (r"\{1,2\}", r"\{2,1\}"),
    (r"\{1,2\}", "1, 2"),
    ("1,2", "2 and 1"),
    ("1, 2", "x=1 or x=2"),
    ("(1,2)", "1, 2"),
    ("(1,2)", r"\left(1,\ \frac{4}{2}\right)"),
    (r"x = \pm 2", "2, -2"),
    (r"\pm 2", r"\{-2, 2\}"),
    (r"\{1,1,2\}", r"\{1,2\}"),
    (r"\emptyset", r"\{\}"),
    ("(x,y)=(1,2)", "(1,2)"),
    # percent, units, money, degrees
    ("50%", "0.5"),
    ("0.5", r"50\%"),
    ("50", r"50\%"),
    (r"50\%", "50"),
    ("1/8", "12.5%"),
    ("5", r"5\text{ cm}"),
    ("5 cm", "5"),
    (r"5\text{ cm}", "5 centimeters"),
    (r"5\text{ cm}^2", "5 square cm"),
    ("18", r"\$18"),
    (r"\$18.00", "18"),
    ("45", r"45^\circ"),
    (r"45^{\circ}", "45 degrees"),
    ("72 clips", "72"),
    # numbers
    ("1234", "1,234"),
    ("1234567", r"1{,}234{,}567"),
    ("10000", r"10\,000"),
    ("3.5", r"3\frac{1}{2}"),
    ("3 1/2", "7/2"),
    ("1200", r"1.2\times 10^{3}"),
    ("1200", "1.2e3"),
    ("0.5", ".5"),
    ("5", "5."),
    ("-3", "−3"),
    ("4", "2^2"),
    ("120", "5!"),
    ("10", r"\binom{5}{2}"),
    ("3", r"\log_2 8"),
    (r"\frac{1}{3}", "0.33333333"),
    ("5.0", "5"),
    (r"\pi", "π"),
    ("1011_2", "1011_{2}"),
    ("10 000", "10000"),
    (r"\frac 1 2", "0.5"),
    ("-1", "i^2"),
    ("3.14159265", r"\pi"),
    ("1000000", "10^6"),
    (r"2^{100}", "1267650600228229401496703205376"),
    # equations
    ("5", "x=5"),
    ("x = 5", "5"),
    ("y=2x+1", "2x+1=y"),
    ("y=2x+1", "2y = 4x+2"),
    ("5", "2+3=5"),
    ("2x+1", "y = 1+2x"),
    # expressions
    ("(x+1)(x-1)", "x^2-1"),
    (r"\frac{x}{2}", "0.5x"),
    (r"\sin^2 x+\cos^2 x", "1"),
    ("2ab", r"2 \cdot b \cdot a"),
    (r"e^{2x}", r"(e^x)^2"),
    ("n!", r"n \cdot (n-1)!"),
    (r"a_1+a_2", r"a_2+a_1"),
    # words
    (r"\text{Even}", "even"),
    (r"\text{even}", r"\textbf{Even}"),
    ("C", r"\text{C}"),
    (r"\text{(C)}", "C"),
    (r"9^{9^{9^{9}}}", r"9^{9^{9^9}}"),
]

DIFFERENT = [
    ("42", r"\text{43}"),
    (r"\dfrac{9}{7}", r"\frac{7}{9}"),
    ("1.2857", r"\frac{9}{7}"),
    ("x<4", r"(-\infty,4]"),
    (r"(-\infty,4)", r"x\le 4"),
    (r"[2,\infty)", "x>2"),
    (r"[2,\infty)", r"(-\infty,2]"),
    (r"(1,3]", "1<x<3"),
    ("x<4", "x<5"),
    ("x>2", "y>2"),
    ("x>2", "2"),
    ("x>2", "x"),
    (PUNCTURED, r"\mathbb{R}"),
    (PUNCTURED, r"(-\infty,\infty)"),
    (PUNCTURED, r"x\ne 2"),
    ("f(t)=0", r"\forall t>0, f(t)\ge 0"),
    ("f(t)=0", r"\forall t>0, f(t)=0"),
    ("0", r"\forall t>0, f(t)=0"),
    (r"\frac{1}{\sqrt{m}}", r"\sqrt{m}"),
    (POLYNOMIAL, POLYNOMIAL + "+1"),
    (PMATRIX, r"\begin{pmatrix}-3-11-8\end{pmatrix}"),
    (PMATRIX, r"\begin{pmatrix}-3&-11&-8\end{pmatrix}"),
    (PMATRIX, r"\begin{pmatrix}-3\\-11\\8\end{pmatrix}"),
    (PMATRIX, "-22"),
    (PMATRIX, "(-3,-11,-8)"),
    (r"\{1,2\}", "(1,2)"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    ("1,2", "1"),
    ("1", "1, 2"),
    (r"\{1,2\}", "1"),
    ("(1,2)", "12"),
    (r"\emptyset", "0"),
    (r"\pm 2", "2"),
    ("50", "0.5"),
    ("50%", "0.05"),
    ("0.5", "50"),
    (r"5\text{ cm}", "5 km"),
    (r"5\text{ cm}", r"5\text{ cm}^2"),
    ("2h", "2"),
    ("1234", "1.234"),
    ("1234", "(1,234)"),
    ("0", "0.0000001"),
    ("3.5", r"3\frac{1}{3}"),
    ("3 1/2", "31/2"),
    ("5", "-5"),
    ("1011_2", "1011"),
    ("5", "x=6"),
    ("x=5", "y=5"),
    ("5", "2+2=5"),
    ("5", "5=6"),
    ("5", "x"),
    ("y=2x+1", "y=2x"),
    ("1", "x=1=2"),
    ("x^2-1", "x^2+1"),
    ("x", "X"),
    ("2ab", "2a+b"),
    (r"\pi", "3.14"),
    (r"\text{even}", "odd"),
    (r"\text{even}", ""),
    ("7", r"9^{9^{9^{9}}}"),
    ("7", r"\sqrt{" * 60 + "2" + "}" * 60),
    ("7", "100000!"),
    ("7", r"\frac{1}{0}"),
    ("0", r"\frac{0}{0}"),
    ("7", ""),
    ("7", "}{"),
    ("7", r"\frac{"),
    ("7", "$$"),
    ("7", "(((((((("),
    ("7", "nan"),
    ("7", r"\infty"),
    ("7", "7, 8"),
]


@pytest.mark.parametrize(("truth", "answer"), EQUAL)
def test_equal(truth, answer):
    """Cases 62, 63, 65 to 67, 71 and 77, and the documented rules."""
    assert equal(truth, answer)


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
        PUNCTURED,
        PMATRIX,
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
