"""Running a program against its tests in a sandbox; nothing it says is believed beyond what was compared here."""

from __future__ import annotations

import base64
import binascii
import json
import math
import secrets
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import rollick.sandbox
from rollick.rewards.code_compare import decode_value, same_output, same_value
from rollick.rewards.code_languages import Language
from rollick.rewards.code_tests import AssertTest, PrintTest, PytestTest, TestPlan, ValueTest
from rollick.sandbox.base import MIB, Limits, Outcome, Program, Sandbox

_COMPILE = Limits(seconds=30.0, memory_bytes=1024 * MIB, output_bytes=48 * MIB, disk_bytes=128 * MIB)
_HARNESS = ("python3", "-S", "-B", "harness.py")

InProcessTest = ValueTest | AssertTest | PytestTest


class SandboxFailedError(Exception):
    """The sandbox or a checker failed, so nothing is known about the program."""


@dataclass
class Results:
    """One entry per test. `timeout`: a test ran out of time, or the time for all tests was over before it."""

    passed: list[bool]
    timeout: bool = False
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        return sum(self.passed) / len(self.passed)


class TestRunner:
    """Runs the tests of one program. `limits` hold for one test, `total_seconds` is the program's own time for all.

    Raises SandboxFailedError when a run has no outcome.
    """

    __test__ = False  # its name is no invitation to pytest

    def __init__(self, sandbox: Sandbox, language: Language, limits: Limits, total_seconds: float, tolerance: float):
        self._sandbox = sandbox
        self._language = language
        self._limits = limits
        self._total_seconds = total_seconds
        self._tolerance = tolerance

    def run(self, source: str, plan: TestPlan) -> Results:
        results = Results([False] * len(plan.tests))
        files = self._build(source)
        if files is None:
            return results
        inside = {i: test for i, test in enumerate(plan.tests) if not isinstance(test, PrintTest)}
        if inside:
            self._run_inside(source, inside, plan.tolerance, results)
        for index, test in enumerate(plan.tests):
            if isinstance(test, PrintTest):
                results.passed[index] = self._run_printing(files, test, plan.tolerance, results)
        return results

    def _build(self, source: str) -> dict[str, bytes] | None:
        """The files of a program that can be started, None when it does not compile."""
        files = {self._language.file: source.encode(errors="replace")}
        if not self._language.compile:
            return files
        # Its bytes travel as text, so that every protocol can carry them.
        script = f"set -e\n{_quoted(self._language.compile)} >&2\nbase64 {_quoted([self._language.artifact])}\n"
        outcome = self._outcome(Program({**files, "build.sh": script.encode()}, ("sh", "build.sh"), limits=_COMPILE))
        if outcome.verdict == "ok":
            try:
                return {self._language.artifact: base64.b64decode(outcome.stdout)}
            except binascii.Error as error:
                raise SandboxFailedError(f"the compiled program came back damaged: {error}") from error
        if outcome.status == 127:
            raise SandboxFailedError(f"{self._language.compile[0]} was not found in the sandbox")
        return None

    def _run_printing(
        self, files: dict[str, bytes], test: PrintTest, tolerance: float | None, results: Results
    ) -> bool:
        left = self._total_seconds - results.seconds
        if left <= 0:
            results.timeout = True
            return False
        limits = replace(self._limits, seconds=min(left, self._limits.seconds))
        outcome = self._outcome(Program(files, tuple(self._language.command), test.stdin.encode(), limits))
        self._note(outcome, results)
        if outcome.verdict != "ok":
            return False
        printed = outcome.stdout.decode(errors="replace")
        if test.checker is not None:
            return self._ask_checker(test.checker, test, printed)
        return same_output(test.stdout, printed, tolerance)

    def _ask_checker(self, checker: str, test: PrintTest, printed: str) -> bool:
        texts = {"input.txt": test.stdin, "output.txt": printed, "expected.txt": test.stdout}
        files = {name: text.encode() for name, text in texts.items()} | {"checker.py": checker.encode()}
        outcome = self._outcome(Program(files, ("python3", "-S", "-B", "checker.py", *texts), limits=self._limits))
        if outcome.status not in (0, 1) or b"Traceback" in outcome.stderr:
            raise SandboxFailedError(f"the checker of the ground truth failed: {outcome.reason}")
        return outcome.status == 0

    def _run_inside(
        self, source: str, tests: dict[int, InProcessTest], tolerance: float | None, results: Results
    ) -> None:
        seconds = min(self._total_seconds, self._limits.seconds * len(tests))
        nonce = secrets.token_hex(16)
        order = {"nonce": nonce, "seconds": self._limits.seconds, "tests": [_told(test) for test in tests.values()]}
        outcome = self._outcome(
            Program(
                {"harness.py": _harness(), "solution.py": source.encode(errors="replace")},
                _HARNESS,
                json.dumps(order).encode(),
                replace(self._limits, seconds=seconds),
            )
        )
        self._note(outcome, results)
        answers = _answers(outcome.stdout, nonce)
        for position, (index, test) in enumerate(tests.items()):
            answer = answers.get(position, {})
            results.passed[index] = self._accepts(test, answer, tolerance)
            results.timeout = results.timeout or answer.get("error") == "timeout"

    def _accepts(self, test: InProcessTest, answer: dict[str, Any], tolerance: float | None) -> bool:
        if not isinstance(test, ValueTest):
            return answer.get("passed") is True
        if "value" not in answer:
            return False
        try:
            value = decode_value(answer["value"])
            allowed = self._tolerance if tolerance is None else tolerance
            return same_value(test.expected, value, allowed, from_json=test.call is not None)
        except (ValueError, TypeError, RecursionError):
            return False  # no honest harness wrote this

    def _outcome(self, program: Program) -> Outcome:
        outcome = self._sandbox.run(program)
        if outcome.verdict == "infrastructure":
            raise SandboxFailedError(outcome.reason)
        return outcome

    def _note(self, outcome: Outcome, results: Results) -> None:
        results.seconds += outcome.seconds
        results.timeout = results.timeout or outcome.verdict == "timeout"


def _told(test: InProcessTest) -> dict[str, Any]:
    """What the harness is told of a test: never what is expected of a value."""
    if isinstance(test, ValueTest):
        return {"call": test.call} if test.call is not None else {"expression": test.expression}
    if isinstance(test, PytestTest):
        return {"source": test.source, "function": test.function}
    return {"source": test.source}


def _answers(stdout: bytes, nonce: str) -> dict[int, dict[str, Any]]:
    """The harness's lines by test; whatever else was printed there is ignored."""
    found: dict[int, dict[str, Any]] = {}
    for line in stdout.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and answer.get("nonce") == nonce and isinstance(answer.get("index"), int):
            found.setdefault(answer["index"], answer)
    return found


@cache
def _harness() -> bytes:
    return (Path(rollick.sandbox.__file__).parent / "harness.py").read_bytes()


def _quoted(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def limits_for(seconds: float, memory_mb: int) -> Limits:
    """Limits of one test; a part of a second is kept."""
    return Limits(seconds=seconds, memory_bytes=math.ceil(memory_mb) * MIB)
