"""Builders and plug-ins shared by the reward tests."""

from typing import Any

from rollick.data.records import Completion, Episode, Task, Turn


def episode(
    response: str,
    ground_truth: Any = None,
    *,
    id: str = "g0/0",
    domain: str = "d",
    prompt: str = "What is it?",
    extra: dict[str, Any] | None = None,
) -> Episode:
    task = Task(f"{domain}/1", domain, [{"role": "user", "content": prompt}], ground_truth, extra or {})
    n = max(1, len(response.split()))
    completion = Completion([1] * n, [-0.1] * n, [0.0] * n, [0] * n, "stop", 2)
    turn = Turn([5, 6], completion, response_text=response)
    return Episode(id, "g0", 0, task, seed=1, turns=[turn], status="finished")
