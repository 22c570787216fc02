"""How a job says where programs run, and the sandbox made from it."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from rollick.config.base import Settings
from rollick.errors import ConfigError
from rollick.sandbox.base import Program, Sandbox


class SandboxSettings(Settings):
    """On this machine, isolated as strongly as it can, unless `url` names a service."""

    isolation: Literal["auto", "namespaces", "bubblewrap", "none"] = "auto"
    """auto: namespaces, else bubblewrap where it is installed, else a refusal. none: programs run unprotected, as this
    user, with this user's files and network."""
    read_only: dict[str, str] = Field(default_factory=dict)
    """More folders that programs may read: path inside → path on this machine."""
    url: str | None = None
    """Address of a sandbox service, as http://host:8090."""
    api: Literal["rollick", "sandbox_fusion", "rock"] = "rollick"
    """The protocol of `url`: `rollick sandbox serve`, SandboxFusion's run_code, or ROCK."""
    image: str = "python:3.11"
    """Image of the sandbox that ROCK starts."""
    token_env: str | None = None
    """Environment variable with the token of the service; the token itself never stands in a job file."""
    request_timeout: PositiveFloat = 30.0
    """Seconds a request may take beyond the time limit of its program."""
    attempts: PositiveInt = 4
    """Requests made for one run before the service counts as failed."""

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(f"'{url}' must start with http:// or https://")
        return url


def build_sandbox(settings: SandboxSettings) -> Sandbox:
    """Raises ConfigError, saying what to install or write, when no sandbox of the asked strength can be had."""
    if settings.url is not None:
        return _build_remote(settings, settings.url)
    if settings.isolation == "none":
        from rollick.sandbox.unprotected import UnprotectedSandbox

        return UnprotectedSandbox()
    return build_isolated(settings)


def _build_remote(settings: SandboxSettings, url: str) -> Sandbox:
    from rollick.sandbox.http import HttpClient

    token = None
    if settings.token_env is not None:
        token = os.environ.get(settings.token_env)
        if not token:
            raise ConfigError(f"the environment variable {settings.token_env} (sandbox.token_env) is not set")
    client = HttpClient(url, token, settings.request_timeout, settings.attempts)
    if settings.api == "sandbox_fusion":
        from rollick.sandbox.sandbox_fusion import SandboxFusion

        return SandboxFusion(client)
    if settings.api == "rock":
        from rollick.sandbox.rock import RockSandbox

        return RockSandbox(client, settings.image)
    from rollick.sandbox.remote import RemoteSandbox

    return RemoteSandbox(client)


def build_isolated(settings: SandboxSettings) -> Sandbox:
    """The strongest sandbox of this machine that `isolation` allows, tried out before it is used.

    Raises ConfigError with the reasons and the choices.
    """
    from rollick.sandbox.local import LocalSandbox, Mechanism

    every: tuple[Mechanism, ...] = ("namespaces", "bubblewrap")
    problems = []
    for mechanism in every:
        if settings.isolation not in ("auto", mechanism):
            continue
        try:
            sandbox = LocalSandbox(settings.read_only, mechanism)
        except ConfigError as error:
            problems.append(f"{mechanism}: {error}")
            continue
        problem = try_out(sandbox)
        if problem is None:
            return sandbox
        sandbox.close()
        problems.append(f"{mechanism}: {problem}")
    raise ConfigError(
        f"programs cannot be isolated on this machine ({'; '.join(problems)}). Run as root, or allow user namespaces "
        "(sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0), or install "
        "bubblewrap; in a container, add the capability SYS_ADMIN; or set sandbox.url to a machine that can (rollick "
        "sandbox serve); or, if nothing here is worth protecting, sandbox.isolation: none"
    )


def try_out(sandbox: Sandbox) -> str | None:
    """What is wrong with a sandbox when it runs a first program, None when it does what it must."""
    outcome = sandbox.run(Program({}, ("/bin/sh", "-c", "cat; id -u"), stdin=b"ready\n"))
    if outcome.verdict != "ok":
        return outcome.reason
    words = outcome.stdout.split()
    if words[:1] != [b"ready"] or words[1:] == [b"0"]:
        return f"a first program printed {outcome.stdout[:100]!r}"
    return None
