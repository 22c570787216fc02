"""A scripted engine and environments for rollout tests: no model, no sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import ClassVar

from rollick.config.rl import RolloutSettings
from rollick.data.records import Completion, Task
from rollick.engines.base import GenerationRequest
from rollick.environments.base import Environment, EnvironmentOptions, Observation, StepResult
from rollick.environments.one_turn import OneTurn
from rollick.rewards.grading import Grader
from rollick.rollout.domains import open_domains, rewards_by_domain
from rollick.rollout.driver import Rollouts
from rollick.rollout.events import event_log
from tests.models.tiny import tiny_tokenizer

END = 2
TOKENIZER = tiny_tokenizer()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


class ScriptedEngine:
    """Answers with `reply(request)`: a text (ended by the end token), or a Completion. `order` decides which of
    the waiting requests are ready at a poll; by default all of them."""

    def __init__(self, reply: Callable[[GenerationRequest], str | Completion] = lambda request: "7", version: int = 0):
        self.reply = reply
        self.version = version
        self.requests: list[GenerationRequest] = []
        self.aborted: list[str] = []
        self.waiting: dict[str, GenerationRequest] = {}
        self.order: Callable[[list[str]], list[str]] = lambda ids: ids

    def submit(self, request: GenerationRequest) -> None:
        assert request.id not in self.waiting
        self.requests.append(request)
        self.waiting[request.id] = request

    def poll(self, timeout: float | None = None) -> list[tuple[str, Completion]]:
        return [(id, self._answer(self.waiting.pop(id))) for id in self.order(list(self.waiting))]

    def abort(self, request_ids: Iterable[str]) -> list[tuple[str, Completion]]:
        gone = [id for id in request_ids if self.waiting.pop(id, None)]
        self.aborted += gone
        return [(id, Completion([], [], [], [], "abort")) for id in gone]

    def _answer(self, request: GenerationRequest) -> Completion:
        said = self.reply(request)
        return said if isinstance(said, Completion) else completion(said, self.version)


def completion(text: str, version: int = 0, reason: str = "stop") -> Completion:
    ids = ids_of(text) + ([END] if reason == "stop" else [])
    zeros = [0.0] * len(ids)
    return Completion(ids, zeros, zeros, [version] * len(ids), reason, END if reason == "stop" else None)


class ListSource:
    def __init__(self, name: str, tasks: list[Task]):
        self.name, self._tasks = name, tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    def where(self, index: int) -> str:
        return f"{self.name} row {index}"


class FakeOptions(EnvironmentOptions):
    """Sums 0+1, 1+1, …; `make` builds the environment."""

    runs_inline: ClassVar[bool] = True
    pays_rewards: ClassVar[bool] = True
    kind: str = "sums"
    size: int = 6
    make: Callable[[], Environment] = OneTurn

    def tasks(self) -> ListSource:
        tasks = [
            Task(f"{self.domain}/{i}", self.domain, [{"role": "user", "content": f"{i}+1="}], str(i + 1))
            for i in range(self.size)
        ]
        return ListSource(self.domain, tasks)

    def environment(self) -> Environment:
        return self.make()


class ThreadedOptions(FakeOptions):
    runs_inline: ClassVar[bool] = False


class Counting:
    """Three turns: asks for 1, then 2, then 3; every right answer pays 1."""

    def reset(self, task: Task, seed: int) -> Observation:
        self.turn = 0
        return Observation([{"role": "user", "content": "count"}])

    def step(self, action: str) -> StepResult:
        self.turn += 1
        reward = float(action == str(self.turn))
        return StepResult(Observation([{"role": "user", "content": "next"}]), reward, self.turn == 3, False)

    def close(self) -> None:
        pass


class Hanging(Counting):
    """Never comes back from its third step (until the test ends)."""

    released = threading.Event()

    def step(self, action: str) -> StepResult:
        if self.turn == 2:
            self.released.wait(30)
        return super().step(action)


class Breaking(Counting):
    def step(self, action: str) -> StepResult:
        raise OSError("connection lost")


def make_rollouts(engine, environments=None, grader=None, group_size=2, seed=7, log=None, **more):
    """Rollouts over fake environments. `more` holds RolloutSettings keys, max_length, tokenizer,
    interrupted and progress."""
    hooks = {name: more.pop(name) for name in ("interrupted", "progress") if name in more}
    max_length, tokenizer = more.pop("max_length", 128), more.pop("tokenizer", TOKENIZER)
    settings = RolloutSettings(**{"prompts_per_step": 3, "max_new_tokens": 16, **more})
    domains = open_domains(environments or [FakeOptions()], tokenizer, settings.max_prompt_tokens, "refuse")
    grader = grader or Grader(rewards_by_domain(domains), retries=0)
    hooks["record"] = event_log([].append if log is None else log.append)
    return Rollouts(engine, grader, tokenizer, domains, settings, group_size, seed, max_length, **hooks)
