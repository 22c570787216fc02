"""Rollick's own protocol for sandboxes on other machines, and its client.

POST /v1/run    Authorization: Bearer TOKEN
{"files": {"main.py": "<base64>"}, "command": ["python3", "main.py"], "stdin": "<base64>",
 "limits": {"seconds": 10.0, …}, "environment": {}}
→ {"verdict": "ok", "status": 0, "stdout": "<base64>", "stderr": "", "seconds": 0.02, …}

GET /v1/health  → {"description": "namespaces (…)", "running": 0, "served": 17}
"""

from __future__ import annotations

import base64
from dataclasses import asdict, fields
from typing import Any, get_args

from rollick.sandbox.base import Limits, Outcome, Program, RunVerdict, infrastructure
from rollick.sandbox.http import HttpClient, ServiceError


class RemoteSandbox:
    """Runs programs on a machine where `rollick sandbox serve` listens."""

    def __init__(self, client: HttpClient):
        self._client = client

    @property
    def description(self) -> str:
        return f"the sandbox service at {self._client.url}"

    def run(self, program: Program) -> Outcome:
        try:
            answer = self._client.post("/v1/run", encode_program(program), program.limits.seconds)
            return decode_outcome(answer)
        except (ServiceError, ValueError) as error:
            return infrastructure(str(error))

    def close(self) -> None:
        """Nothing is held between runs."""


def encode_program(program: Program) -> dict[str, Any]:
    return {
        "files": {name: base64.b64encode(content).decode() for name, content in program.files.items()},
        "command": list(program.command),
        "stdin": base64.b64encode(program.stdin).decode(),
        "limits": asdict(program.limits),
        "environment": program.environment,
    }


def decode_program(record: Any) -> Program:
    """Raises ValueError saying what is wrong with a request."""
    if not isinstance(record, dict) or set(record) - {"files", "command", "stdin", "limits", "environment"}:
        raise ValueError("a run is an object with files, command, stdin, limits and environment")
    files, environment = record.get("files", {}), record.get("environment", {})
    if not (_is_text_mapping(files) and _is_text_mapping(environment)):
        raise ValueError("files and environment must map text to text")
    command = record.get("command")
    if not (isinstance(command, list) and command and all(isinstance(word, str) for word in command)):
        raise ValueError("command must be a list of words")
    contents = {name: _bytes(content) for name, content in files.items()}
    limits = _limits(record.get("limits", {}))
    return Program(contents, tuple(command), _bytes(record.get("stdin", "")), limits, environment)


def _limits(record: Any) -> Limits:
    known = {field.name: type(getattr(Limits(), field.name)) for field in fields(Limits)}
    if not isinstance(record, dict) or set(record) - set(known):
        raise ValueError(f"limits may name {', '.join(known)}")
    for name, value in record.items():
        if isinstance(value, bool) or not isinstance(value, (int, known[name])):
            raise ValueError(f"limit {name} = {value!r:.50} is no {known[name].__name__}")
    return Limits(**record)


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("contents must be base64 text")
    return base64.b64decode(text, validate=True)


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    texts = {name: base64.b64encode(getattr(outcome, name)).decode() for name in ("stdout", "stderr")}
    return asdict(outcome) | texts


def decode_outcome(record: dict[str, Any]) -> Outcome:
    """Raises ValueError for what no server of this protocol says."""
    try:
        outcome = Outcome(**{**record, "stdout": _bytes(record["stdout"]), "stderr": _bytes(record["stderr"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"the service answered with something else than an outcome: {error}") from error
    if outcome.verdict not in get_args(RunVerdict):
        raise ValueError(f"the service answered with an unknown verdict {outcome.verdict!r:.50}")
    return outcome
