"""Tests of a program, read from a task's ground truth.

    {"tests": [{"stdin": "1 2\\n", "stdout": "3\\n"}]}                      what it prints
    {"function": "add", "tests": [{"args": [1, 2], "expected": 3}]}        what a function of it returns
    {"tests": ["assert add(1, 2) == 3"]}                                  what must hold
    {"pytest": "def test_add():\\n    assert add(1, 2) == 3"}              functions named test_…
    {"inputs": ["1 2\\n"], "outputs": ["3\\n"], "fn_name": null}           the form of APPS and TACO
    {"tests": […], "checker": "…python source…"}                          a program decides about what was printed

A list stands for {"tests": list}; a string that is a JSON object or list is read as such. `tolerance` (beside
`tests`) is how far numbers may be off, relatively and absolutely.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrintTest:
    """`checker`, when there is one, is a Python program called with the files of stdin, output and expected output;
    it accepts by exit status 0 and refuses by 1."""

    stdin: str
    stdout: str
    checker: str | None = None


@dataclass(frozen=True)
class ValueTest:
    """What an expression must be worth in the namespace of the program. The expected value never enters the sandbox.

    ValueTest("add(*[1, 2])", 3) — `call` is (name, args, kwargs) for a function by name instead of an expression.
    """

    expression: str
    expected: Any
    call: tuple[str, list[Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class AssertTest:
    """Statements that must run through. They share the program's process, so a program that tampers with its own
    process can pass them; a `ValueTest` cannot be passed so."""

    source: str


@dataclass(frozen=True)
class PytestTest:
    """A module whose functions named test_… must return, each of them one test."""

    source: str
    function: str


Test = PrintTest | ValueTest | AssertTest | PytestTest


@dataclass(frozen=True)
class TestPlan:
    tests: list[Test]
    tolerance: float | None = None
    """None leaves it to the reward's options."""

    __test__ = False  # its name is no invitation to pytest


def read_tests(ground_truth: Any) -> TestPlan:
    """Raises ValueError saying what is wrong."""
    value = ground_truth
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{value!r:.100} is neither tests nor JSON: {error}") from error
    if isinstance(value, list):
        value = {"tests": value}
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.100} is no mapping with tests")
    unknown = set(value) - {"tests", "function", "pytest", "inputs", "outputs", "fn_name", "checker", "tolerance"}
    if unknown:
        raise ValueError(f"unknown key '{min(unknown)}' among the tests")
    tolerance = value.get("tolerance")
    if tolerance is not None and not (_is_number(tolerance) and tolerance >= 0):
        raise ValueError(f"tolerance {tolerance!r:.50} is no number from 0 up")
    checker = value.get("checker")
    if checker is not None:
        _parse(checker, "checker")
    tests = [*_listed(value, checker), *_paired(value, checker), *_pytest(value)]
    if not tests:
        raise ValueError("there are no tests")
    return TestPlan(tests, tolerance)


def _listed(value: dict[str, Any], checker: str | None) -> list[Test]:
    tests = value.get("tests", [])
    if not isinstance(tests, list):
        raise ValueError(f"tests {tests!r:.100} is no list")
    return [_test(one, value.get("function"), checker) for one in tests]


def _test(one: Any, function: Any, checker: str | None) -> Test:
    if isinstance(one, str):
        return _assertion(one)
    if not isinstance(one, dict):
        raise ValueError(f"test {one!r:.100} is no mapping and no source")
    if one.keys() <= {"stdin", "stdout"} and "stdout" in one:
        stdin, stdout = one.get("stdin", ""), one["stdout"]
        if not (isinstance(stdin, str) and isinstance(stdout, str)):
            raise ValueError(f"stdin and stdout of test {one!r:.100} must be text")
        return PrintTest(stdin, stdout, checker)
    if one.keys() <= {"args", "kwargs", "expected"} and "expected" in one:
        return _call(function, one.get("args", []), one.get("kwargs", {}), one["expected"])
    raise ValueError(f"test {one!r:.100} has neither (stdin, stdout) nor (args, kwargs, expected)")


def _call(function: Any, args: Any, kwargs: Any, expected: Any) -> ValueTest:
    if not (isinstance(function, str) and function.isidentifier()):
        raise ValueError(f"tests with args need a function, its name; found {function!r:.50}")
    if not (isinstance(args, list) and isinstance(kwargs, dict)):
        raise ValueError(f"args {args!r:.50} must be a list and kwargs {kwargs!r:.50} a mapping")
    return ValueTest(f"{function}(…)", expected, (function, args, kwargs))


def _assertion(source: str) -> Test:
    """`assert EXPRESSION == LITERAL` is compared outside of the sandbox; anything else runs as it is."""
    module = _parse(source, "test")
    if not module.body:
        raise ValueError("a test is empty")
    [last] = module.body[-1:]
    if len(module.body) == 1 and isinstance(last, ast.Assert) and isinstance(last.test, ast.Compare):
        compare = last.test
        if len(compare.ops) == 1 and isinstance(compare.ops[0], ast.Eq):
            try:
                return ValueTest(ast.unparse(compare.left), ast.literal_eval(compare.comparators[0]))
            except ValueError:
                return AssertTest(source)
    return AssertTest(source)


def _paired(value: dict[str, Any], checker: str | None) -> list[Test]:
    inputs, outputs = value.get("inputs", []), value.get("outputs", [])
    if not (isinstance(inputs, list) and isinstance(outputs, list)) or len(inputs) != len(outputs):
        raise ValueError("inputs and outputs must be lists of one length")
    function = value.get("fn_name")
    if function is not None:
        return [_call(function, args, {}, expected) for args, expected in zip(inputs, outputs)]
    if not all(isinstance(text, str) for text in [*inputs, *outputs]):
        raise ValueError("inputs and outputs must be text unless fn_name names a function")
    return [PrintTest(stdin, stdout, checker) for stdin, stdout in zip(inputs, outputs)]


def _pytest(value: dict[str, Any]) -> list[Test]:
    source = value.get("pytest")
    if source is None:
        return []
    functions = [node for node in _parse(source, "pytest").body if isinstance(node, ast.FunctionDef)]
    named = [function for function in functions if function.name.startswith("test")]
    if not named:
        raise ValueError("the pytest source has no function named test_…")
    for function in named:
        if function.args.args or function.args.posonlyargs or function.args.kwonlyargs:
            raise ValueError(f"{function.name} takes arguments; fixtures and parameters are not supported")
    return [PytestTest(source, function.name) for function in named]


def _parse(source: Any, what: str) -> ast.Module:
    if not isinstance(source, str):
        raise ValueError(f"{what} {source!r:.100} is no source")
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{what} {source!r:.100} is no Python: {error}") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
