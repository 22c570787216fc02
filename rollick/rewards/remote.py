"""`kind: remote`: a grader behind HTTP, in any language.

    {kind: remote, url: "http://graders:8000/score", batch_size: 16, api_key_env: GRADER_KEY}

    POST {"version": 1, "episodes": [
           {"id": "0", "prompt": […], "response": "…", "ground_truth": "7", "extra": {…}, "truncated": false}]}
    200  {"verdicts": [{"id": "0", "score": 1.0, "parts": {"style": 0.5}}]}
         {"verdicts": [{"id": "0", "abstain": "no opinion"}]}      or      {"id": "0", "failed": "ran out of memory"}

Every episode needs its verdict, in any order. Whatever is not exactly this (another status, a key too many, a text
for a number, NaN, an id that is missing or twice) is a failure of the service and never a 0. What may pass (time-outs,
connection errors, 408, 425, 429, 5xx, answers that make no sense) is tried again with growing pauses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from rollick.data.records import Episode
from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Batching, Failed, RewardOptions, Score, Verdict
from rollick.rewards.remote_http import HttpFailure, HttpLimits, JsonService, check_url

PROTOCOL_VERSION = 1


class ServiceOptions(RewardOptions):
    """What every reward behind HTTP can be told."""

    url: str
    """Address of the service."""
    api_key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable that holds the key; it is sent as `Authorization: Bearer …`."""
    request_timeout: PositiveFloat = 60.0
    """Seconds one request may take."""
    timeout: PositiveFloat | None = 120.0
    """Seconds until there must be a verdict, retries and the wait for the rate limit included."""
    retries: NonNegativeInt = 2
    """More tries of what may pass."""
    concurrency: PositiveInt = 8
    """Requests under way at once."""
    requests_per_minute: PositiveFloat | None = None
    """Requests are spread so that there are no more; left out, no limit."""
    breaker_failures: PositiveInt = 10
    """Requests in a row that may fail; then none is made for `breaker_seconds`, and what comes fails at once."""
    breaker_seconds: PositiveFloat = 30.0
    """How long that is, until one request tries again."""

    @field_validator("url")
    @classmethod
    def _url_is_plain(cls, url: str) -> str:
        try:
            check_url(url)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return url

    def service(self, path: str = "") -> JsonService:
        limits = HttpLimits(
            self.request_timeout,
            self.retries,
            self.requests_per_minute,
            self.breaker_failures,
            self.breaker_seconds,
        )
        return JsonService(self.url.rstrip("/") + path if path else self.url, self.api_key_env, limits)

    @property
    def seconds(self) -> float:
        """What is left of `timeout` for the requests, so that a reason arrives before the call is given up."""
        return 0.95 * (self.timeout or 120.0)


class RemoteReward:
    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._service = options.service()

    def score_batch(self, episodes: Sequence[Episode]) -> list[Verdict]:
        body = {
            "version": PROTOCOL_VERSION,
            "episodes": [self._record(str(index), episode) for index, episode in enumerate(episodes)],
        }
        try:
            return self._service.post(
                body, time.monotonic() + self._options.seconds, lambda answer: read_verdicts(answer, len(episodes))
            )
        except HttpFailure as failure:
            return [Failed(f"reward '{self.name}': {failure}")] * len(episodes)
        except (TypeError, ValueError) as error:
            return [Failed(f"reward '{self.name}': a task cannot be sent as JSON ({error})")] * len(episodes)

    def stats(self) -> dict[str, float]:
        return self._service.stats()

    def _record(self, id: str, episode: Episode) -> dict[str, Any]:
        task = episode.task
        record: dict[str, Any] = {"id": id, "response": episode.response_text, "truncated": episode.truncated}
        return record | {name: getattr(task, name) for name in self._options.send}


def read_verdicts(answer: Any, count: int) -> list[Verdict]:
    """The verdicts of episodes "0" … in order. Raises HttpFailure saying what is off the schema."""
    if not isinstance(answer, dict) or set(answer) != {"verdicts"} or not isinstance(answer["verdicts"], list):
        raise _off('it must be {"verdicts": […]}')
    found: dict[str, Verdict] = {}
    for record in answer["verdicts"]:
        if not isinstance(record, dict) or not isinstance(record.get("id"), str):
            raise _off("a verdict needs an 'id' that is text")
        if record["id"] in found:
            raise _off(f"two verdicts have the id {record['id']:.40}")
        found[record["id"]] = _read_verdict(record)
    if set(found) != {str(index) for index in range(count)}:
        raise _off(f"it has verdicts for {sorted(found)[:5]}, {count} were asked for")
    return [found[str(index)] for index in range(count)]


def _read_verdict(record: dict[str, Any]) -> Verdict:
    match {key: value for key, value in record.items() if key != "id"}:
        case {"score": score, **rest} if set(rest) <= {"parts"}:
            parts = rest.get("parts", {})
            if not isinstance(parts, dict):
                raise _off("'parts' must be an object of numbers")
            return Score(_number("score", score), {name: _number(name, value) for name, value in parts.items()})
        case {"abstain": str(reason), **rest} if not rest:
            return Abstain(reason)
        case {"failed": str(reason), **rest} if not rest:
            return Failed(f"the service says: {reason:.300}")
        case other:
            raise _off(f"a verdict holds {sorted(other)}, not score (and parts), abstain or failed")


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _off(f"'{name:.40}' is {value!r:.40}, which is no finite number")
    return number


def _off(what: str) -> HttpFailure:
    return HttpFailure(f"the answer is off the schema: {what}", retryable=True)


class Options(ServiceOptions):
    kind: Literal["remote"] = "remote"
    batch_size: PositiveInt = 1
    """Most episodes of one request; what waits is sent together."""
    send: tuple[Literal["prompt", "ground_truth", "extra"], ...] = ("prompt", "ground_truth", "extra")
    """What the service sees besides the response; `extra` are the task's other columns."""

    @property
    def batching(self) -> Batching:
        return Batching(self.batch_size, self.concurrency)

    def build(self) -> RemoteReward:
        return RemoteReward(self)
