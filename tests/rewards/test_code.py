"""`kind: code`: which programs are paid, and what becomes of those that cheat or never end."""

import shutil
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards import code as code_module
from rollick.rewards.base import Abstain, Failed, Score
from rollick.rewards.code import Options
from rollick.rewards.code_compare import UNKNOWN, decode_value, same_output, same_value
from rollick.rewards.code_languages import find_program
from rollick.rewards.code_tests import AssertTest, ValueTest, read_tests
from rollick.rewards.grading import Grader
from rollick.sandbox.base import Outcome, infrastructure
from tests.rewards.episodes import episode
from tests.rewards.test_grading import collect
from tests.sandbox.running import why_not

needs_isolation = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SUM = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "2 5\n", "stdout": "7"}]
ADD = {"function": "add", "tests": [{"args": [1, 2], "expected": 3}, {"args": [[1], [2]], "expected": [1, 2]}]}


def fenced(source, label="python"):
    return f"Here it is:\n```{label}\n{source}\n```\nDone."


class Session:
    """One reward with its sandbox, kept over the tests of this file."""

    def __init__(self):
        self.rewards = {}

    def score(self, answer, truth, **options):
        key = repr(options)
        if key not in self.rewards:
            self.rewards[key] = Options(**options).build()
        return self.rewards[key].score(episode(answer, truth))

    def close(self):
        for reward in self.rewards.values():
            if reward._sandbox is not None:
                reward._sandbox.close()


@pytest.fixture(scope="module")
def session():
    session = Session()
    yield session
    session.close()


@needs_isolation
@pytest.mark.parametrize(
    ("source", "truth", "ratio"),
    [
        ("print(sum(map(int, input().split())))", SUM, 1.0),
        ("a, b = open(0).read().split(); print(int(a) + int(b))", SUM, 1.0),
        ("print(3)", SUM, 0.5),
        ("print('Sum:', sum(map(int, input().split())))", SUM, 0.0),
        ("def add(a, b): return a + b", ADD, 1.0),
        ("class Solution:\n    def add(self, a, b): return a + b", ADD, 1.0),
        ("def add(a, b): return tuple(a) + tuple(b) if isinstance(a, list) else a + b", ADD, 1.0),
        ("def add(a, b): return a + b if isinstance(a, int) else 1/0", ADD, 0.5),
        ("def other(a, b): return a + b", ADD, 0.0),
        ("this is no Python", ADD, 0.0),
        ("def add(a, b): return a + b", ["assert add(1, 2) == 3", "assert add(1, 1) == 3"], 0.5),
        ("def add(a, b): return a + b", ["x = add(1, 2)\nassert x > 2", "assert add('a', 'b') == 'ab'"], 1.0),
        (
            "def add(a, b): return a + b",
            {"pytest": "def test_a():\n    assert add(1, 2) == 3\n\ndef test_b():\n    assert add(1, 2) == 4\n"},
            0.5,
        ),
        ("def f(x): return x ** .5", {"function": "f", "tests": [{"args": [2], "expected": 1.4142135623731}]}, 1.0),
        ("def f(): return 1.4", {"function": "f", "tolerance": 0.1, "tests": [{"args": [], "expected": 1.41}]}, 1.0),
        ("print(0.1 + 0.2)", [{"stdin": "", "stdout": "0.3"}], 0.0),
        ("print(0.1 + 0.2)", {"tests": [{"stdin": "", "stdout": "0.3"}], "tolerance": 1e-9}, 1.0),
        ("print(input()[::-1])", {"inputs": ["ab", "cd"], "outputs": ["ba", "dc"]}, 1.0),
        ("def f(a): return a * 2", {"inputs": [[1], [2]], "outputs": [2, 4], "fn_name": "f"}, 1.0),
    ],
)  # fmt: skip
def test_programs_are_paid_by_their_tests(session, source, truth, ratio):
    verdict = session.score(fenced(source), truth)
    assert verdict == Score(float(ratio == 1.0), {"format": 1.0, "pass_ratio": ratio, "timeout": 0.0})


@needs_isolation
def test_three_of_four_tests(session):
    """Reward and ratio of the specification: [0, 0.75]; partial credit is a choice."""
    truth = [{"stdin": str(i), "stdout": str(i * i)} for i in (0, 1, 2, 3)]
    source = fenced("n = int(input()); print(n * n if n < 3 else 0)")
    assert session.score(source, truth) == Score(0.0, {"format": 1.0, "pass_ratio": 0.75, "timeout": 0.0})
    assert session.score(source, truth, credit="fraction").value == 0.75


@needs_isolation
def test_an_empty_expected_output_is_compared(session):
    truth = [{"stdin": "", "stdout": ""}]
    assert session.score(fenced("pass"), truth).value == 1.0
    assert session.score(fenced("print('anything')"), truth).value == 0.0


@needs_isolation
def test_a_checker_decides_and_its_failure_is_nobodys_fault(session):
    checker = """
import sys
given, said, wanted = (open(path).read() for path in sys.argv[1:])
sys.exit(abs(float(said) - float(wanted)) > .01)
"""
    truth = {"tests": [{"stdin": "", "stdout": "3.14"}], "checker": checker}
    assert session.score(fenced("print(3.1415)"), truth).value == 1.0
    assert session.score(fenced("print(3.2)"), truth).value == 0.0
    broken = {"tests": [{"stdin": "", "stdout": "3.14"}], "checker": "raise RuntimeError('no')"}
    assert isinstance(session.score(fenced("print(3.14)"), broken), Failed)


@needs_isolation
def test_a_program_that_never_ends_is_wrong_in_time(session):
    begin = time.monotonic()
    verdict = session.score(fenced("while True: pass"), SUM, seconds=0.5, total_seconds=0.7)
    assert verdict == Score(0.0, {"format": 1.0, "pass_ratio": 0.0, "timeout": 1.0})
    slow = "import time\ndef add(a, b):\n    while a == 1: pass\n    return a + b"
    verdict = session.score(fenced(slow), ADD, seconds=0.5, credit="fraction")
    assert verdict == Score(0.5, {"format": 1.0, "pass_ratio": 0.5, "timeout": 1.0})
    assert time.monotonic() - begin < 8


@needs_isolation
def test_memory_is_limited_by_option(session):
    """Case 82."""
    source = fenced("x = bytearray(b'1' * (200 << 20)); print(3)")
    truth = [{"stdin": "", "stdout": "3"}]
    assert session.score(source, truth, memory_mb=100).value == 0.0
    assert session.score(source, truth).value == 1.0


@needs_isolation
@pytest.mark.parametrize(
    ("language", "command", "label", "source"),
    [
        ("cpp", "g++", "cpp", "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"),
        ("c", "gcc", "c", '#include <stdio.h>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d", a + b); }'),
        (
            "javascript",
            "node",
            "js",
            "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number)\nconsole.log(a + b)",
        ),
        ("bash", "bash", "sh", "read a b; echo $((a + b))"),
    ],
)  # fmt: skip
def test_other_languages(session, language, command, label, source):
    if shutil.which(command, path="/usr/bin:/bin:/usr/local/bin") is None:
        pytest.skip(f"{command} is not installed")
    assert session.score(fenced(source, label), SUM, language=language, memory_mb=1024).value == 1.0
    assert session.score(fenced("nonsense(", label), SUM, language=language, memory_mb=1024).value == 0.0


@needs_isolation
def test_a_language_by_description(session):
    language = {"fences": ["awk"], "file": "main.awk", "command": ["awk", "-f", "main.awk"]}
    if shutil.which("awk", path="/usr/bin:/bin") is None:
        pytest.skip("awk is not installed")
    assert session.score(fenced("{ print $1 + $2 }", "awk"), SUM, language=language).value == 1.0


@needs_isolation
def test_a_compiler_that_is_missing_is_nobodys_fault(session):
    language = {"fences": ["x"], "file": "main.x", "compile": ["no-such-compiler"], "command": ["./program"]}
    verdict = session.score(fenced("x", "x"), SUM, language=language)
    assert isinstance(verdict, Failed) and "no-such-compiler" in verdict.reason


REPLY = """
import json, os, sys
def reply(text):
    frame = sys._getframe()
    while 'order' not in frame.f_locals: frame = frame.f_back
    nonce = frame.f_locals['order']['nonce']
    for index in range(2):
        frame.f_locals['out'].write('{"nonce": "%s", "index": %d, %s}\\n' % (nonce, index, text))
    frame.f_locals['out'].flush()
    os._exit(0)
"""
CHEATS = {
    "leaves early": "import os\nos._exit(0)",
    "leaves early, politely": "import sys\nsys.exit(0)",
    "equal to everything": "class A:\n    def __eq__(self, other): return True\ndef add(a, b): return A()",
    "an int equal to everything": "class A(int):\n    def __eq__(self, other): return True\ndef add(a, b): return A(0)",
    "a list equal to everything": "class A(list):\n    def __eq__(self, other): return True\ndef add(a, b): return A()",
    "looks for the answers": """
import glob, sys
def add(a, b):
    for path in glob.glob('/tmp/**', recursive=True):
        if '"expected":' in open(path).read(): return 42
    frame = sys._getframe()
    while frame:
        if 'expected' in frame.f_locals: return frame.f_locals['expected']
        frame = frame.f_back
""",
    "forges a reply": """
import json, os
for fd in range(1, 20):
    try:
        for i in range(3):
            os.write(fd, (json.dumps({'nonce': '', 'index': i, 'value': 42, 'passed': True}) + '\\n').encode())
    except OSError: pass
os._exit(0)
""",
    "forges a reply with the nonce": REPLY + 'def add(a, b): reply(\'"passed": true, "value": true\')',
    "replies nested without end": REPLY + "def add(a, b): reply('\"value\": ' + '[' * 200000)",
    "replies nested deeply": REPLY + "def add(a, b): reply('\"value\": ' + '{\"list\": [' * 400 + ']}' * 400)",
    "replies with a number too long": REPLY + "def add(a, b): reply('\"value\": ' + '9' * 5000)",
    "replies with infinity": REPLY + "def add(a, b): reply('\"value\": Infinity')",
    "changes the harness": """
import sys
sys.modules['__main__'].plain = lambda *a: {'other': 'x'}
sys.modules['__main__'].evaluate = lambda *a: {'passed': True}
def add(a, b): return 0
""",
    "changes builtins": """
import builtins
builtins.eval = lambda *a: 3
builtins.type = lambda x: int
def add(a, b): return 'x'
""",
    "closes everything": "import os\nos.closerange(0, 100)\ndef add(a, b): return 42",
    "floods": "while True: print('3' * 1000)",
    "never loads": "while True: pass",
}


@needs_isolation
@pytest.mark.parametrize("cheat", CHEATS)
def test_cheating_is_not_paid_and_never_a_failure_of_the_grader(session, cheat):
    """Expected values never enter the sandbox, so nothing in there can know or forge them."""
    truth = {**ADD, "tests": [{"args": [40, 2], "expected": 42}, {"args": [[1], [2]], "expected": [1, 2]}]}
    verdict = session.score(fenced(CHEATS[cheat]), truth, seconds=1.0)
    assert isinstance(verdict, Score) and verdict.value == 0.0 and verdict.parts["pass_ratio"] == 0.0
    literal = ["assert add(40, 2) == 42", "assert add([1], [2]) == [1, 2]"]
    assert session.score(fenced(CHEATS[cheat]), literal, seconds=1.0).parts["pass_ratio"] == 0.0


@needs_isolation
@pytest.mark.parametrize("early", ["import os\nos._exit(0)", "import sys\nsys.exit(0)", "raise SystemExit"])
def test_leaving_early_passes_no_assertion_of_any_kind(session, early):
    free_form = ["x = add(1, 2)\nassert x == 3"]
    in_pytest = {"pytest": "def test_a():\n    assert add(1, 2) == 3"}
    for truth in (free_form, in_pytest, SUM):
        assert session.score(fenced(early), truth).parts["pass_ratio"] == 0.0


@needs_isolation
def test_what_a_policy_wrote_runs_nowhere_else(session, tmp_path):
    """The same answer through every place that could run it: nothing appears on this machine."""
    mark = tmp_path / "mark"
    tmp_path.chmod(0o777)
    payload = f"__import__('os').system('touch {mark}')"
    for answer in (fenced(payload), fenced(f"print({payload})"), payload, fenced(f"def add(a, b): return {payload}")):
        for truth in (SUM, ADD, ["assert add(1, 2) == {}"]):
            session.score(answer, truth)
    session.score(fenced("x"), [{"stdin": payload, "stdout": payload}])
    assert not mark.exists()


def test_an_answer_without_a_program_has_no_format():
    reward = code_module.CodeReward(Options(sandbox={"isolation": "none"}))
    zero = Score(0.0, {"format": 0.0, "pass_ratio": 0.0, "timeout": 0.0})
    for answer in ("", "print(3)", "```java\nx\n```", "```python\nprint(3)", "<think>```python\nprint(3)\n```"):
        assert reward.score(episode(answer, SUM)) == zero


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\n1\n```\n```python\n2\n```", "2\n"),
        ("```py\n1\n```\n```js\n2\n```", "1\n"),
        ("```\n1\n```", "1\n"),
        ("```\n1\n```\n```python\n2\n```\n```\n3\n```", "2\n"),
        ("```Python title=x\n1\n```", "1\n"),
        ("````python\n```\ninner\n```\n````", "```\ninner\n```\n"),
        ("~~~python\n1\n~~~", "1\n"),
        ("  ```python\n  1\n  ```", "  1\n"),
        ("```python\n```", ""),
        ("```python\n1\n", None),
        ("`python`", None),
        ("", None),
    ],
)
def test_the_last_closed_block_of_the_language_is_the_program(text, program):
    assert find_program(text, ["python", "py"]) == program


@given(st.text(alphabet="`~ pytho\n1"))
def test_finding_a_program_never_fails(text):
    found = find_program(text, ["python"])
    assert found is None or isinstance(found, str)


class FailingSandbox:
    description = "failing"

    def run(self, program):
        return infrastructure("the service is down")


class FlaggingSandbox:
    description = "flags"

    def run(self, program):
        return Outcome("timeout", 0, b"3\n")


def test_a_sandbox_that_fails_is_a_failed_reward():
    """Case 84: neither 0 nor 1, and a time-out is a time-out whatever was printed."""
    reward = code_module.CodeReward(Options())
    reward._sandbox = FailingSandbox()
    verdict = reward.score(episode(fenced("print(3)"), SUM))
    assert isinstance(verdict, Failed) and "the service is down" in verdict.reason
    reward._sandbox = FlaggingSandbox()
    assert reward.score(episode(fenced("print(3)"), SUM)).parts == {"format": 1.0, "pass_ratio": 0.0, "timeout": 1.0}


@pytest.mark.parametrize(
    ("truth", "problem"),
    [
        (None, "no mapping"),
        (3, "no mapping"),
        ("", "neither tests nor JSON"),
        ("{", "neither tests nor JSON"),
        ([], "no tests"),
        ({"tests": []}, "no tests"),
        ({"tests": "x"}, "no list"),
        ({"tets": []}, "unknown key 'tets'"),
        ([{"stdin": "1"}], "neither"),
        ([{"stdin": 1, "stdout": "1"}], "must be text"),
        ([{"args": [1], "expected": 1}], "need a function"),
        ({"function": "a b", "tests": [{"args": [1], "expected": 1}]}, "need a function"),
        ({"function": "f", "tests": [{"args": 1, "expected": 1}]}, "must be a list"),
        (["assert f(1) =="], "no Python"),
        ([""], "empty"),
        ([3], "no mapping and no source"),
        ({"inputs": ["1"], "outputs": []}, "one length"),
        ({"inputs": [1], "outputs": ["1"]}, "must be text"),
        ({"pytest": "x = 1"}, "no function named test"),
        ({"pytest": "def test_a(fixture): pass"}, "takes arguments"),
        ({"tests": SUM, "checker": "def"}, "no Python"),
        ({"tests": SUM, "tolerance": -1}, "tolerance"),
    ],
)
def test_tests_that_cannot_be_used_are_reported_at_load_and_never_pay(truth, problem):
    options = Options(sandbox={"isolation": "none"})
    assert problem in options.ground_truth_problem(truth)
    verdict = code_module.CodeReward(options).score(episode(fenced("print(3)"), truth))
    assert isinstance(verdict, Abstain) and problem in verdict.reason


def test_only_python_has_functions_to_call():
    assert "need language: python" in Options(language="cpp").ground_truth_problem(ADD)
    assert Options(language="cpp").ground_truth_problem(SUM) is None


def test_running_unprotected_is_said_at_the_start(caplog):
    Options(sandbox={"isolation": "none"}).build()
    assert "runs programs in this sandbox: none (" in caplog.text


def test_an_unknown_language_is_refused():
    with pytest.raises(ValueError, match="unknown language 'cobol'"):
        Options(language="cobol")


KEYS = st.sampled_from(["tests", "stdin", "stdout", "args", "expected", "function", "pytest", "inputs"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8))
def test_any_ground_truth_is_read_or_refused_in_words(truth):
    problem = Options().ground_truth_problem(truth)
    assert problem is None or problem


def test_literal_assertions_are_compared_outside():
    [literal, other, loose] = read_tests(["assert f(1) == [1, 2]", "assert f(1) == f(2)", "assert f(1)"]).tests
    assert literal == ValueTest("f(1)", [1, 2])
    assert isinstance(other, AssertTest) and isinstance(loose, AssertTest)


@pytest.mark.parametrize(
    ("expected", "printed", "tolerance", "same"),
    [
        ("3\n", "3", None, True),
        ("3", "3  \n\n\n", None, True),
        ("a\nb", "a \r\nb\r\n", None, True),
        ("a\n\nb", "a\nb", None, False),
        ("3", "\n3", None, False),
        ("a b", "a  b", None, False),
        ("", "", None, True),
        ("", " \n", None, True),
        ("", "x", None, False),
        ("x", "", None, False),
        ("0.3", "0.30000000000000004", None, False),
        ("0.3", "0.30000000000000004", 1e-9, True),
        ("x 0.3", "y 0.3", 1e-9, False),
        ("1 2", "1", 1e-9, False),
        ("nan", "nan", 1e-9, True),
        ("1", "nan", 1e-9, False),
    ],
)
def test_printed_output(expected, printed, tolerance, same):
    assert same_output(expected, printed, tolerance) is same


@pytest.mark.parametrize(
    ("expected", "got", "from_json", "same"),
    [
        ([1, 2], (1, 2), True, True),
        ([1, 2], (1, 2), False, False),
        ({"1": 2}, {1: 2}, True, True),
        ({"1": 2}, {1: 2}, False, False),
        (0.3, 0.1 + 0.2, True, True),
        (1, 1.0, True, True),
        (1, 2, True, False),
        (float("inf"), float("inf"), True, True),
        (1.0, 10**400, True, False),
        ([1], [1, 1], True, False),
        (None, UNKNOWN, True, False),
        ("1", 1, True, False),
        ({1, 2}, frozenset({2, 1}), False, True),
    ],
)
def test_returned_values(expected, got, from_json, same):
    assert same_value(expected, got, 1e-9, from_json) is same


def test_values_survive_the_harness():
    form = {"dict": [["a", {"list": [1, {"float": "0.5"}, {"int": hex(10**5000)}, {"tuple": [None, True]}]}]]}
    assert decode_value(form) == {"a": [1, 0.5, 10**5000, (None, True)]}
    assert decode_value({"set": [1, 2]}) == {1, 2} and decode_value({"other": "x"}) is UNKNOWN
    for wrong in ([1], {"a": 1, "b": 2}, {"what": 1}, {"int": "x"}, {"dict": [[{"list": []}, 1]]}, 1.5):
        with pytest.raises((ValueError, TypeError)):
            decode_value(wrong)


@needs_isolation
def test_through_the_grader_pool():
    """As in a job: in worker processes, several at a time, each with a sandbox of its own."""
    options = Options(credit="fraction", seconds=2.0)
    answers = {
        "right": "print(sum(map(int, input().split())))",
        "half": "print(3)",
        "bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "loop": "while True: pass",
    }
    with Grader({"d": [options]}, workers=2, timeout=60.0) as grader:
        for name, source in answers.items():
            grader.submit(episode(fenced(source), SUM, id=name))
        done = collect(grader, len(answers), seconds=60)
    values = {name: verdicts["code"].value for name, verdicts in done.items()}
    assert values == {"right": 1.0, "half": 0.5, "bomb": 0.0, "loop": 0.0}
