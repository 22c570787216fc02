"""`rollick sandbox check` and `rollick sandbox serve`."""

from __future__ import annotations

import contextlib
import os
import time

import typer

from rollick.errors import ConfigError

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def check() -> None:
    """Say how programs are isolated here and what a run costs; raises ConfigError where they cannot be."""
    from rollick.sandbox.base import Program
    from rollick.sandbox.settings import SandboxSettings, build_sandbox

    sandbox = build_sandbox(SandboxSettings())
    try:
        typer.echo(f"isolation: {sandbox.description}")
        begin, runs = time.perf_counter(), 20
        for _ in range(runs):
            sandbox.run(Program({}, ("true",)))
        typer.echo(f"overhead: {(time.perf_counter() - begin) / runs * 1000:.0f} ms a run")
        for name in ("python3", "node", "g++", "gcc", "bash"):
            found = sandbox.run(Program({}, ("sh", "-c", f"command -v {name}")))
            typer.echo(f"{name}: {found.stdout.decode().strip() or 'not installed'}")
    finally:
        sandbox.close()


def serve(host: str, port: int, concurrency: int | None, token_env: str) -> None:
    """Serve until Ctrl-C; raises ConfigError when it would be open to others without a token."""
    from rollick.sandbox.server import SandboxServer, serve_until
    from rollick.sandbox.settings import SandboxSettings, build_sandbox

    token = os.environ.get(token_env)
    if not token and host not in LOOPBACK:
        raise ConfigError(f"a sandbox that listens on {host} needs a token: set the environment variable {token_env}")
    sandbox = build_sandbox(SandboxSettings())
    try:
        places = concurrency or os.cpu_count() or 1
        try:
            server = SandboxServer((host, port), sandbox, places, token or None)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
        guard = f"token from {token_env}" if token else "no token"
        typer.echo(f"{server.url} runs programs in {sandbox.description}, {places} at a time, {guard}")
        with contextlib.suppress(KeyboardInterrupt):
            serve_until(server)
    finally:
        sandbox.close()
