"""Calls of a sandbox service: bounded, retried with back-off, and given up early when the service is down."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from typing import Any

MAX_REPLY_BYTES = 256 << 20
BREAKER_FAILURES = 5
"""Calls in a row that fail after all attempts; from then on calls fail at once, until a pause is over."""
BREAKER_PAUSE_SECONDS = 30.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 8.0
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the address it was given for."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class ServiceError(Exception):
    """The service gave no usable answer; the message says why."""


class HttpClient:
    """POSTs JSON, returns JSON objects. Safe to use from several threads.

    `timeout` is added to the time that a call says its work may take. Time-outs, refused connections and status codes
    that promise better times are tried again, up to `attempts` in all, with growing pauses; other refusals are not.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0, attempts: int = 4):
        self.url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._attempts = attempts
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until = 0.0

    def post(self, path: str, body: dict[str, Any], work_seconds: float = 0.0) -> dict[str, Any]:
        """Raises ServiceError when no attempt brought an answer."""
        self._pass_breaker()
        try:
            answer = self._try_often(path, json.dumps(body).encode(), work_seconds + self._timeout)
        except ServiceError:
            self._count(failed=True)
            raise
        self._count(failed=False)
        return answer

    def _pass_breaker(self) -> None:
        with self._lock:
            wait = self._closed_until - time.monotonic()
            if wait > 0:
                raise ServiceError(
                    f"{self.url} failed {self._failures} times in a row; it is asked again in {wait:.0f} s"
                )
            if self._failures >= BREAKER_FAILURES:
                self._closed_until = time.monotonic() + BREAKER_PAUSE_SECONDS  # one call tries, the others wait

    def _count(self, failed: bool) -> None:
        with self._lock:
            self._failures = self._failures + 1 if failed else 0
            wait = BREAKER_PAUSE_SECONDS if self._failures >= BREAKER_FAILURES else 0.0
            self._closed_until = time.monotonic() + wait

    def _try_often(self, path: str, body: bytes, timeout: float) -> dict[str, Any]:
        pause = _FIRST_PAUSE_SECONDS
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(path, body, timeout)
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}: {error.read(300).decode(errors='replace').strip()}"
                if error.code not in _TRY_AGAIN:
                    raise ServiceError(f"{self.url}{path} refused: {problem}") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = str(error) or type(error).__name__
            if attempt < self._attempts:
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        raise ServiceError(f"{self.url}{path} failed {self._attempts} times, last: {problem}")

    def _once(self, path: str, body: bytes, timeout: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, body, headers)
        with _opener.open(request, timeout=timeout) as response:
            data = response.read(MAX_REPLY_BYTES + 1)
        if len(data) > MAX_REPLY_BYTES:
            raise ValueError(f"the answer is longer than {MAX_REPLY_BYTES} bytes")
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise ValueError(f"the answer is no JSON object: {data[:100]!r}")
        return answer
