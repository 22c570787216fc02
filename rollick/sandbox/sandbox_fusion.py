"""A client of SandboxFusion (https://bytedance.github.io/SandboxFusion/), by its `POST /run_code`.

A program travels as a bash script beside its files. Memory, processes and disk are limited as the service is set up;
time and output are limited here too. A run that the service calls a success but that ran out of time is a time-out.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import replace
from typing import Any

from rollick.sandbox.base import Outcome, Program, RunVerdict, infrastructure
from rollick.sandbox.http import HttpClient, ServiceError
from rollick.sandbox.output import describe, ran_out_of_memory


class SandboxFusion:
    def __init__(self, client: HttpClient):
        self._client = client

    @property
    def description(self) -> str:
        return f"SandboxFusion at {self._client.url}"

    def run(self, program: Program) -> Outcome:
        exports = [f"export {name}={shlex.quote(value)}" for name, value in program.environment.items()]
        body = {
            "language": "bash",
            "code": "\n".join([*exports, f"exec {shlex.join(program.command)}"]),
            "stdin": program.stdin.decode(errors="replace"),
            "files": {name: base64.b64encode(content).decode() for name, content in program.files.items()},
            "run_timeout": program.limits.seconds,
        }
        try:
            answer = self._client.post("/run_code", body, program.limits.seconds)
        except ServiceError as error:
            return infrastructure(str(error))
        outcome = _outcome(answer, program)
        return replace(outcome, reason=describe(outcome, program.limits.seconds))

    def close(self) -> None:
        """Nothing is held between runs."""


def _outcome(answer: dict[str, Any], program: Program) -> Outcome:
    result = answer.get("run_result")
    if answer.get("status") == "SandboxError" or not isinstance(result, dict):
        return infrastructure(f"SandboxFusion: {answer.get('message') or answer.get('status')!s:.300}")
    stdout, stderr = (str(result.get(name) or "").encode() for name in ("stdout", "stderr"))
    limit, status = program.limits.output_bytes, result.get("return_code")
    verdict: RunVerdict
    if result.get("status") == "TimeLimitExceeded":
        verdict, status = "timeout", None
    elif result.get("status") != "Finished" or not isinstance(status, int):
        return infrastructure(f"SandboxFusion: the run ended as {result.get('status')!r:.50} without an exit status")
    elif max(len(stdout), len(stderr)) > limit:
        verdict = "output_limit"
    elif status == 0:
        verdict = "ok"
    else:
        verdict = "memory" if ran_out_of_memory(stderr) else "exit" if status > 0 else "killed"
    seconds = float(result.get("execution_time") or 0.0)
    return Outcome(verdict, status, stdout[:limit], stderr[:limit], seconds)
