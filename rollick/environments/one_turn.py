"""The environment of a single answer: the task's prompt, one reply, done. Graders do the rest."""

from __future__ import annotations

from rollick.data.records import Task
from rollick.environments.base import Observation, StepResult


class OneTurn:
    """`step` ends the episode with reward 0.0; what the answer is worth is the graders' matter."""

    def __init__(self) -> None:
        self._waiting = False

    def reset(self, task: Task, seed: int) -> Observation:
        """The prompt; nothing here is random, so `seed` changes nothing."""
        self._waiting = True
        return Observation(task.prompt)

    def step(self, action: str) -> StepResult:
        """Raises RuntimeError when there is no episode to answer."""
        if not self._waiting:
            raise RuntimeError("step was called before reset or after the end of the episode")
        self._waiting = False
        return StepResult(Observation([]), reward=0.0, terminated=True, truncated=False)

    def close(self) -> None:
        self._waiting = False
