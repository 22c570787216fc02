"""POST of JSON to a service, with every wait bounded: what graders behind HTTP have in common.

    service = JsonService("https://host/v1/score", api_key_env="GRADER_KEY", limits=HttpLimits(request_timeout=10))
    service.post({"episodes": […]}, deadline=time.monotonic() + 30)      # the answer, or HttpFailure with a reason

The key is read from the environment, sent in one header, and never part of a message: what a server says is shown
with the key cut out. Redirects are not followed, since they could carry the key elsewhere.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from rollick.errors import ConfigError, RollickError

MAX_ANSWER_BYTES = 4 << 20
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
HIDDEN = "[hidden]"


class HttpFailure(RollickError):
    """No usable answer. `retryable` says whether asking again may help, `pause` how long the server asked to wait."""

    def __init__(self, reason: str, retryable: bool, pause: float = 0.0):
        super().__init__(reason)
        self.retryable = retryable
        self.pause = pause


@dataclass(frozen=True)
class HttpLimits:
    """`retries` more tries of what may help, each up to `request_timeout` seconds, with doubling pauses between."""

    request_timeout: float = 60.0
    retries: int = 2
    requests_per_minute: float | None = None
    breaker_failures: int = 10
    breaker_seconds: float = 30.0


class Pace:
    """Spreads calls evenly: at most `per_minute` of them in any minute, waiting for a place up to a deadline."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float] = time.monotonic):
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def reserve(self, deadline: float) -> float:
        """Seconds to wait before this call. Raises HttpFailure when its place lies behind the deadline."""
        with self._lock:
            now = self._clock()
            at = max(now, self._next)
            if at > deadline:
                raise HttpFailure("the rate limit leaves no place before the time limit", retryable=False)
            self._next = at + self._gap
            return at - now


class Breaker:
    """After `failures` requests in a row went wrong, none is made for `seconds`; then one tries whether it is back."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._limit, self._seconds, self._clock = failures, seconds, clock
        self._failures = 0
        self._last = ""
        self._open_until = 0.0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises HttpFailure while the circuit is open; the first call after that is let through alone."""
        with self._lock:
            if self._failures < self._limit:
                return
            now = self._clock()
            if now < self._open_until:
                reason = (
                    f"not asked for {self._seconds:g} s, since {self._limit} requests in a row failed: {self._last}"
                )
                raise HttpFailure(reason, retryable=False)
            self._open_until = now + self._seconds

    def record(self, failure: str | None) -> None:
        """Take note of a request's end: None when it went well, else why not."""
        with self._lock:
            self._failures = 0 if failure is None else self._failures + 1
            self._last = failure or ""
            if self._failures == self._limit:
                self._open_until = self._clock() + self._seconds


class JsonService:
    """One address that takes and gives JSON. Safe to use from several threads; each request has its connection.

    Raises ConfigError when the address is no plain http(s) URL or the key's variable is not set.
    """

    def __init__(self, url: str, api_key_env: str | None, limits: HttpLimits):
        self._url = check_url(url)
        self._limits = limits
        self._key = _read_key(api_key_env)
        self._pace = Pace(limits.requests_per_minute)
        self._breaker = Breaker(limits.breaker_failures, limits.breaker_seconds)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        """Host and path, for messages."""
        return f"{self._url.netloc}{self._url.path}"

    def post(self, body: dict[str, Any], deadline: float, read: Callable[[Any], Any] = lambda answer: answer) -> Any:
        """`read(answer)`, tried again while that may help and `deadline` (monotonic seconds) is not reached.

        `read` turns down an answer that makes no sense by raising HttpFailure. Raises the last HttpFailure.
        """
        payload = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        pause = FIRST_PAUSE
        for attempt in range(self._limits.retries + 1):
            try:
                return self._ask(payload, deadline, read)
            except HttpFailure as failure:
                wait = max(pause, failure.pause)
                last = attempt == self._limits.retries or not failure.retryable
                if last or time.monotonic() + wait >= deadline:
                    tries = f" ({attempt + 1} tries)" if attempt else ""
                    raise HttpFailure(f"{self.where}: {self.hide(str(failure))}{tries}", failure.retryable) from None
                self.count("retries")
                time.sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("unreachable: the last try returns or raises")

    def count(self, name: str, amount: float = 1.0) -> None:
        with self._lock:
            self._counts[name] += amount  # type: ignore[assignment]

    def stats(self) -> dict[str, float]:
        with self._lock:
            return {"requests": 0.0, "retries": 0.0, **self._counts}

    def hide(self, text: str) -> str:
        """`text` without the key, in case a server repeats it."""
        return text.replace(self._key, HIDDEN) if self._key else text

    def _ask(self, payload: bytes, deadline: float, read: Callable[[Any], Any]) -> Any:
        self._breaker.check()
        time.sleep(self._pace.reserve(deadline))
        self.count("requests")
        try:
            answer = self._exchange(payload, min(deadline, time.monotonic() + self._limits.request_timeout))
        except HttpFailure as failure:
            self._breaker.record(str(failure))
            raise
        self._breaker.record(None)  # the service is there; what it says about one episode is no reason to stop asking
        return read(answer)

    def _exchange(self, payload: bytes, deadline: float) -> Any:
        connection = self._connect(_left(deadline))
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        target = self._url.path or "/"
        try:
            connection.request("POST", f"{target}?{self._url.query}" if self._url.query else target, payload, headers)
            response = connection.getresponse()
            content = _read_all(connection, response, deadline)
        except TimeoutError:
            raise HttpFailure("no answer in time", retryable=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise HttpFailure(f"{type(error).__name__}: {error}", retryable=True) from None
        finally:
            connection.close()
        if response.status != 200:
            text = content[:300].decode("utf-8", "replace")
            pause = _retry_after(response.headers.get("Retry-After"))
            raise HttpFailure(f"HTTP {response.status}: {text}", response.status in RETRIED_STATUS, pause)
        return strict_json(content)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)


def check_url(url: str) -> SplitResult:
    """The parts of an http(s) address. Raises ConfigError when it is none, or holds a user or password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"a reward's url cannot be read ({error}); write http(s)://host:port/path") from None
    if "@" in parts.netloc:
        raise ConfigError(f"the url of a reward on {parts.hostname} holds credentials; name a variable in api_key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"a reward's url '{url:.100}' must look like http(s)://host:port/path")
    return parts


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"api_key_env names the environment variable {variable}, which is not set; export it first")
    return key


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise HttpFailure("no answer in time", retryable=True)
    return left


def _read_all(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, within the deadline also when it drips, and never more than MAX_ANSWER_BYTES."""
    body = bytearray()
    while True:
        if connection.sock is not None:
            connection.sock.settimeout(_left(deadline))
        chunk = response.read1(1 << 16)
        if not chunk:
            return bytes(body)
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise HttpFailure(f"the answer has more than {MAX_ANSWER_BYTES} bytes", retryable=False)
        _left(deadline)


def _retry_after(value: str | None) -> float:
    """Seconds; a date is not worth the trouble and counts as none."""
    return min(float(value), LONGEST_PAUSE) if value is not None and value.strip().isdigit() else 0.0


def strict_json(content: bytes | str) -> Any:
    """Exactly one JSON value: no NaN, no key twice. Raises HttpFailure for anything else."""
    try:
        return json.loads(content, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        shown = content[:100] if isinstance(content, str) else content[:100].decode("utf-8", "replace")
        raise HttpFailure(f"the answer is not JSON ({error}): {shown!r}", retryable=True) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
