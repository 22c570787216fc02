"""A client of ROCK (https://github.com/alibaba/ROCK): every run in a fresh container that is stopped afterwards.

Starting a container takes seconds; a container is not used twice, because a program could leave something behind for
the next. Memory and processors of a container are set as the service is set up; time, output and the memory of one
process are limited by the script that starts the program there, which needs `sh`, `timeout` and `base64`.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
from dataclasses import replace
from typing import Any

from rollick.sandbox.base import Outcome, Program, RunVerdict, infrastructure
from rollick.sandbox.http import HttpClient, ServiceError
from rollick.sandbox.output import describe, ran_out_of_memory

_API = "/apis/envs/sandbox/v1"
_FOLDER = "/tmp/rollick-run"
_GRACE_SECONDS = 5.0
_TIMED_OUT = 124
"""Exit status of timeout(1)."""
_KILLED = 137


class RockSandbox:
    def __init__(self, client: HttpClient, image: str):
        self._client = client
        self._image = image

    @property
    def description(self) -> str:
        return f"ROCK at {self._client.url} ({self._image}, a container per run)"

    def run(self, program: Program) -> Outcome:
        try:
            started = self._call("/start", {"image": self._image})
            sandbox_id = str(started["sandbox_id"])
        except (ServiceError, KeyError) as error:
            return infrastructure(f"ROCK started no container: {error}")
        try:
            return self._run_in(sandbox_id, program)
        except ServiceError as error:
            return infrastructure(str(error))
        finally:
            with contextlib.suppress(ServiceError):  # it also stops by itself, by its auto-clear time
                self._call("/stop", {"sandbox_id": sandbox_id})

    def _run_in(self, sandbox_id: str, program: Program) -> Outcome:
        uploads = {f"files/{name}": content for name, content in program.files.items()} | {"stdin": program.stdin}
        script = _script(program, list(uploads))
        for number, content in enumerate(uploads.values()):
            text = base64.b64encode(content).decode()
            self._call("/write_file", {"sandbox_id": sandbox_id, "path": f"{_FOLDER}/{number}.b64", "content": text})
        self._call("/write_file", {"sandbox_id": sandbox_id, "path": f"{_FOLDER}/run.sh", "content": script})
        seconds = program.limits.seconds + _GRACE_SECONDS
        body = {"sandbox_id": sandbox_id, "command": ["sh", f"{_FOLDER}/run.sh"], "timeout": seconds}
        outcome = _outcome(self._call("/execute", body, seconds), program)
        return replace(outcome, reason=describe(outcome, program.limits.seconds))

    def _call(self, path: str, body: dict[str, Any], work_seconds: float = 0.0) -> dict[str, Any]:
        answer = self._client.post(_API + path, body, work_seconds)
        if answer.get("status") != "Success":
            raise ServiceError(f"ROCK{path}: {answer.get('error') or answer.get('message') or answer!s:.300}")
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def close(self) -> None:
        """Nothing is held between runs."""


def _script(program: Program, paths: list[str]) -> str:
    """Unpack what was written, then run the program under its limits."""
    lines = ["set -e", f"cd {_FOLDER}", "mkdir -p files"]
    for number, path in enumerate(paths):
        folder = path.rpartition("/")[0]
        if folder:
            lines.append(f"mkdir -p {shlex.quote(folder)}")
        lines.append(f"base64 -d {number}.b64 > {shlex.quote(path)}; chmod +x {shlex.quote(path)}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in program.environment.items()]
    lines += [
        "cd files",
        f"ulimit -d {program.limits.memory_bytes // 1024}",
        f"exec timeout -k 1 {program.limits.seconds:g} {shlex.join(program.command)} < ../stdin",
    ]
    return "\n".join(lines) + "\n"


def _outcome(result: dict[str, Any], program: Program) -> Outcome:
    status = result.get("exit_code")
    if not isinstance(status, int):
        return infrastructure("ROCK: the command ended without an exit status")
    stdout, stderr = (str(result.get(name) or "").encode() for name in ("stdout", "stderr"))
    limit = program.limits.output_bytes
    verdict: RunVerdict
    if status in (_TIMED_OUT, _KILLED):
        return Outcome("timeout", None, stdout[:limit], stderr[:limit])
    if max(len(stdout), len(stderr)) > limit:
        verdict = "output_limit"
    elif status == 0:
        verdict = "ok"
    else:
        verdict = "memory" if ran_out_of_memory(stderr) else "exit"
    return Outcome(verdict, status, stdout[:limit], stderr[:limit])
