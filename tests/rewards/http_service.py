"""A real HTTP server on loopback that answers as a test says.

with service(lambda request: {"verdicts": […]}) as (url, requests): …
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STUCK_SECONDS = 5.0
"""A stuck answer ends by itself, so that no test leaves a thread for ever."""


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    number: int


@dataclass
class Raw:
    """An answer as it goes over the wire. `pause`: seconds before it; `drip`: seconds between single bytes."""

    body: bytes = b""
    status: int = 200
    pause: float = 0.0
    drip: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    hang_up: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the default of 5 makes a burst of connections wait a second for their next try


@contextmanager
def service(answer: Callable[[Request], Any]) -> Iterator[tuple[str, list[Request]]]:
    requests: list[Request] = []
    lock, over = threading.Lock(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                request = Request(self.path, dict(self.headers), json.loads(body), len(requests))
                requests.append(request)
            reply = answer(request)
            if not isinstance(reply, Raw):
                reply = Raw(json.dumps(reply).encode())
            over.wait(min(reply.pause, STUCK_SECONDS))
            with suppress(BrokenPipeError, ConnectionResetError):
                self._send(reply)

        def _send(self, reply: Raw) -> None:
            if reply.hang_up:
                self.connection.close()
                return
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if not reply.drip:
                self.wfile.write(reply.body)
                return
            deadline = time.monotonic() + STUCK_SECONDS
            for byte in reply.body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if over.wait(reply.drip) or time.monotonic() > deadline:
                    return

        def log_message(self, *_: Any) -> None:
            return

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join(5.0)
