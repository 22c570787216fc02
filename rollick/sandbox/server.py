"""The server behind `rollick sandbox serve` (protocol: `rollick.sandbox.remote`), on the standard library alone."""

from __future__ import annotations

import hmac
import json
import threading
import time
from dataclasses import astuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rollick.sandbox.base import Limits, Program, Sandbox
from rollick.sandbox.remote import decode_program, encode_outcome

MAX_REQUEST_BYTES = 64 << 20
MAX_CONNECTIONS = 256
"""More are closed at once."""
SOCKET_SECONDS = 60.0
"""A client that sends or takes nothing for so long is let go."""
QUEUE_SECONDS = 20.0
"""How long a run waits for its turn before the client is told to come again."""
CEILING = Limits(
    seconds=120.0, memory_bytes=4 << 30, output_bytes=64 << 20, processes=128, disk_bytes=1 << 30, inodes=1 << 16
)
"""What a client may ask for at most."""


class SandboxServer(ThreadingHTTPServer):
    """Serves `sandbox` at `address` (host, port; port 0 takes a free one), `concurrency` runs at a time.

    A request must carry `token`, when there is one, and ask for no more than `ceiling`.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        sandbox: Sandbox,
        concurrency: int,
        token: str | None = None,
        ceiling: Limits = CEILING,
    ):
        super().__init__(address, _Handler)
        self.sandbox = sandbox
        self.token = token
        self.ceiling = ceiling
        self.turns = threading.BoundedSemaphore(concurrency)
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self.running = 0
        self.served = 0

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""

    def note(self, begins: bool) -> None:
        with self._lock:
            self.running += 1 if begins else -1
            self.served += 0 if begins else 1


class _Handler(BaseHTTPRequestHandler):
    server: SandboxServer
    timeout = SOCKET_SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path != "/v1/health":
            return self._refuse(404, "there is /v1/health and /v1/run")
        server = self.server
        state = {"description": server.sandbox.description, "running": server.running, "served": server.served}
        return self._answer(200, state)

    def do_POST(self) -> None:
        if self.path != "/v1/run":
            return self._refuse(404, "there is /v1/health and /v1/run")
        if not self._may_enter():
            return self._refuse(401, "a valid token is needed")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            return self._refuse(411, "Content-Length is needed")
        if int(length) > MAX_REQUEST_BYTES:
            return self._refuse(413, f"a request may be {MAX_REQUEST_BYTES} bytes long")
        try:
            program = decode_program(json.loads(self.rfile.read(int(length))))
        except (ValueError, RecursionError) as error:
            return self._refuse(400, str(error)[:300])
        return self._run(program)

    def _run(self, program: Program) -> None:
        for name, asked, most in zip(vars(program.limits), astuple(program.limits), astuple(self.server.ceiling)):
            if asked > most:
                return self._refuse(400, f"limit {name} = {asked} is above this server's {most}")
        if not self.server.turns.acquire(timeout=QUEUE_SECONDS):
            return self._refuse(503, "all places are taken; come again")
        try:
            self.server.note(begins=True)
            outcome = self.server.sandbox.run(program)
        finally:
            self.server.note(begins=False)
            self.server.turns.release()
        return self._answer(200, encode_outcome(outcome))

    def _may_enter(self) -> bool:
        if self.server.token is None:
            return True
        given = self.headers.get("Authorization", "").encode(errors="replace")
        return hmac.compare_digest(given, f"Bearer {self.server.token}".encode())

    def _refuse(self, status: int, problem: str) -> None:
        self.close_connection = True  # the request's body may not have been read
        self._answer(status, {"error": problem})

    def _answer(self, status: int, record: dict[str, Any]) -> None:
        body = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are counted, not written down: they hold what models wrote."""


def serve_until(server: SandboxServer, seconds: float | None = None) -> None:
    """Serve until interrupted, or for `seconds`."""
    thread = threading.Thread(target=server.serve_forever, name="sandbox-server", daemon=True)
    thread.start()
    end = None if seconds is None else time.monotonic() + seconds
    try:
        while end is None or time.monotonic() < end:
            thread.join(0.5)
    finally:
        server.shutdown()
        server.server_close()
