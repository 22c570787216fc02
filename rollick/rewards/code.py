"""`kind: code`: 1.0 when the program in an answer passes all of its task's tests, else 0.0.

    {kind: code}                                   Python, all tests or nothing
    {kind: code, credit: fraction}                 the share of tests that pass
    {kind: code, language: cpp, seconds: 2}        compiled once, 2 seconds a test

The tests are the ground truth (`rollick.rewards.code_tests`). Programs run in a sandbox (`rollick.sandbox`), never in a
process of the job. A sandbox that fails makes the reward Failed, so that nobody is paid or punished for it.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from rollick.data.records import Episode
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, Failed, RewardOptions, Score, Verdict
from rollick.rewards.code_languages import LANGUAGES, Language, find_program
from rollick.rewards.code_run import Results, SandboxFailedError, TestRunner, limits_for
from rollick.rewards.code_tests import PrintTest, read_tests
from rollick.sandbox.base import Sandbox
from rollick.sandbox.settings import SandboxSettings, build_sandbox

log = logging.getLogger(__name__)


class CodeReward:
    """Parts: `format` (there was a program), `pass_ratio`, `timeout`. 3 of 4 tests pay 0.0, or 0.75 by
    `credit: fraction`; the part `pass_ratio` is 0.75 either way."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._sandbox: Sandbox | None = None

    def score(self, episode: Episode) -> Verdict:
        problem = self._options.ground_truth_problem(episode.task.ground_truth)
        if problem:
            return Abstain(problem)
        text = visible(episode.response_text, self._options.thinking)
        source = self._find(text) if text is not None else None
        if source is None:
            return Score(0.0, {"format": 0.0, "pass_ratio": 0.0, "timeout": 0.0})
        try:
            results = self._run(source, episode.task.ground_truth)
        except SandboxFailedError as error:
            return Failed(f"reward '{self.name}': {error}")
        right = results.ratio == 1.0
        value = results.ratio if self._options.credit == "fraction" else float(right)
        return Score(value, {"format": 1.0, "pass_ratio": results.ratio, "timeout": float(results.timeout)})

    def _find(self, text: str) -> str | None:
        if self._options.extract == "whole":
            return text if text.strip() else None
        return find_program(text, self._options.definition.fences)

    def _run(self, source: str, ground_truth: Any) -> Results:
        options = self._options
        if self._sandbox is None:
            self._sandbox = build_sandbox(options.sandbox)
        limits = limits_for(options.seconds, options.memory_mb)
        runner = TestRunner(self._sandbox, options.definition, limits, options.total_seconds, options.tolerance)
        return runner.run(source, read_tests(ground_truth))


class Options(RewardOptions):
    """Needs a sandbox: see `rollick sandbox check`."""

    kind: Literal["code"] = "code"
    language: str | Language = "python"
    """python, javascript, cpp, c or bash, or a mapping that describes another one."""
    extract: Literal["fenced", "whole"] = "fenced"
    """fenced: the last closed block with the language's label, or without any where none has it; whole: the answer."""
    thinking: Thinking = "auto"
    """As in kind: math; a program inside of a thought does not count."""
    credit: Literal["all", "fraction"] = "all"
    """all: 1.0 when every test passes; fraction: the share of tests that pass."""
    seconds: PositiveFloat = 10.0
    """Wall time of one test."""
    total_seconds: PositiveFloat = 60.0
    """The program's own time for all tests; those it leaves no time for have failed."""
    memory_mb: PositiveInt = 512
    tolerance: NonNegativeFloat = Field(1e-9, allow_inf_nan=False)
    """How far floats that functions return may be off; printed numbers must be exact unless the tests say otherwise."""
    sandbox: SandboxSettings = SandboxSettings()

    @property
    def definition(self) -> Language:
        if isinstance(self.language, Language):
            return self.language
        return LANGUAGES[self.language]

    @property
    def runs_isolated(self) -> bool:
        """The worker waits for the sandbox; the trainer must not."""
        return True

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | Language) -> str | Language:
        if isinstance(language, str) and language not in LANGUAGES:
            raise ValueError(f"unknown language '{language}' (known: {', '.join(LANGUAGES)}, or a mapping)")
        return language

    def build(self) -> CodeReward:
        sandbox = build_sandbox(self.sandbox)
        protected = self.sandbox.url is not None or self.sandbox.isolation != "none"
        level = logging.INFO if protected else logging.WARNING
        log.log(level, "reward '%s' runs programs in this sandbox: %s", self.label, sandbox.description)
        sandbox.close()
        return CodeReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        try:
            plan = read_tests(ground_truth)
        except ValueError as error:
            return str(error)
        inside = [test for test in plan.tests if not isinstance(test, PrintTest)]
        if inside and self.definition is not LANGUAGES["python"]:
            return "tests of functions and assertions need language: python"
        return None
