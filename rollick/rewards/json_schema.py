"""`kind: json_schema`: 1.0 when the answer is JSON that fits a schema (or is any JSON, without one), else 0.0.

    {kind: json_schema, document: {type: object, required: [name]}}
    {kind: json_schema}                # each row's ground truth is its schema (a mapping or JSON text)

The answer is the last ```json block, or else the whole text. NaN, Infinity and repeated keys are no JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.errors import ConfigError, MissingDependencyError
from rollick.rewards.answers import Thinking, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict

_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)


class JsonSchemaReward:
    """The part `json` says whether the answer was JSON at all."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        if options.document is not None and (reason := _schema_problem(options.document)):
            raise ConfigError(f"reward '{options.label}': document: {reason}")

    def score(self, episode: Episode) -> Verdict:
        schema = self._options.document
        if schema is None:
            problem = self._options.ground_truth_problem(episode.task.ground_truth)
            if problem:
                return Abstain(problem)
            schema = _as_schema(episode.task.ground_truth)
        text = visible(episode.response_text, self._options.thinking)
        try:
            document = read_json(text or "")
        except ValueError:
            return Score(0.0, {"json": 0.0})
        return Score(float(_validator(schema).is_valid(document)), {"json": 1.0})


def read_json(text: str) -> Any:
    """The document in an answer; raises ValueError when there is none."""
    blocks = _FENCED.findall(text)
    try:
        return json.loads(
            blocks[-1] if blocks else text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is repeated")
    return dict(pairs)


def _as_schema(ground_truth: Any) -> Any:
    return json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth


def _validator(schema: Any) -> Any:
    try:
        from jsonschema.validators import validator_for
        from referencing import Registry
    except ImportError as error:
        raise MissingDependencyError("rewards: json_schema needs the package: pip install jsonschema") from error
    return validator_for(schema)(schema, registry=Registry())  # an empty registry: nothing is fetched


def _schema_problem(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return f"{schema!r:.100} is no JSON schema"
    import jsonschema

    try:
        type(_validator(schema)).check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"no JSON schema: {error.message:.200}"
    return None


class Options(RewardOptions):
    kind: Literal["json_schema"] = "json_schema"
    document: dict[str, Any] | None = None
    """The JSON schema of every answer; left out, each row's ground truth is its schema."""
    thinking: Thinking = "auto"
    """As for `math`."""

    @property
    def runs_isolated(self) -> bool:
        # A schema may hold patterns, and these can backtrack for ever.
        return True

    def build(self) -> JsonSchemaReward:
        _validator({})
        return JsonSchemaReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        if self.document is not None:
            return None
        try:
            return _schema_problem(_as_schema(ground_truth))
        except ValueError:
            return f"{ground_truth!r:.100} is no JSON schema"
