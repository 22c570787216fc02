"""A job file becomes a checked job, or a list of everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rollick.config.algorithm import read_preset
from rollick.config.base import nearest
from rollick.config.job import JobSettings
from rollick.config.rl import RlJob
from rollick.config.sft import SftJob
from rollick.config.source import Origins, read_tree, where
from rollick.config.violations import sentences
from rollick.errors import ConfigError

PIPELINES: dict[str, type[JobSettings]] = {"rl": RlJob, "sft": SftJob}


def load_job(path: Path | str, overrides: Sequence[str] = ()) -> tuple[JobSettings, Origins]:
    """Read, merge, validate. The origins say where each value that is not a default was written.

    Raises ConfigError listing every violation, each one sentence with key, value and what to write instead.

        job, origins = load_job("job.yaml", ["trainer.learning_rate=1e-5"])
        origins["trainer.learning_rate"]  # "command line"
    """
    tree, origins = read_tree(Path(path), overrides)
    job = build_job(tree, origins, str(path))
    if isinstance(job, RlJob):
        origins.update(_preset_origins(job.algorithm.preset, tree))
    return job, origins


def build_job(tree: dict[str, Any], origins: Origins, source: str) -> JobSettings:
    """Validate a plain tree by the model of its `pipeline`, then the relations between its settings."""
    model = _pipeline_model(tree, origins, source)
    try:
        job = model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(sentences(error, model, tree, origins)) from None
    problems = [*job.problems(), *_ignored(job, tree, origins)]
    if problems:
        raise ConfigError(problems)
    return job


def dump_job(job: JobSettings) -> str:
    """YAML of every setting in effect; it loads back to an equal job.

    Options that the rest of the job leaves without effect are not written, since loading refuses them.
    """
    tree = job.model_dump(mode="json")
    for key in job.unused():
        _remove(tree, key.split("."))
    return yaml.dump(_escape(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader might take for something else: `1e-6`, `on`, line separators."""


_PLAIN_TEXT = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n|nan|inf)$)[a-z_/][\w./-]*", re.IGNORECASE | re.ASCII)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _pipeline_model(tree: dict[str, Any], origins: Origins, source: str) -> type[JobSettings]:
    known = ", ".join(PIPELINES)
    if "pipeline" not in tree:
        near = nearest("pipeline", tree)
        hint = (
            f"'{near}' ({where(origins, near)}) looks like it" if near else "the first line is usually `pipeline: rl`"
        )
        raise ConfigError(f"{source}: pipeline is missing (one of {known}); {hint}")
    name = tree["pipeline"]
    if not isinstance(name, str) or name not in PIPELINES:
        near = nearest(str(name), PIPELINES)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ConfigError(f"pipeline: {name!r} ({where(origins, 'pipeline')}) is unknown, there are {known}{hint}")
    return PIPELINES[name]


def _ignored(job: JobSettings, tree: dict[str, Any], origins: Origins) -> list[str]:
    """Options that were written although something else in the job leaves them without effect."""
    found = []
    for key, reason in job.unused().items():
        value = _get(tree, key.split("."))
        if value is not None:
            found.append(f"{key}: {value!r} ({where(origins, key)}) has no effect: {reason}")
    return found


def _preset_origins(preset: str, tree: dict[str, Any]) -> Origins:
    written = tree.get("algorithm") or {}
    return {f"algorithm.{key}": f"preset {preset}" for key in read_preset(preset) if key not in written}


def _get(tree: Any, path: list[str]) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _remove(tree: dict[str, Any], path: list[str]) -> None:
    *parents, name = path
    for part in parents:
        tree = tree[part]
    tree.pop(name, None)


def _escape(value: Any) -> Any:
    """`${` inside a text must not be read as an interpolation when the dump is loaded."""
    if isinstance(value, dict):
        return {key: _escape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, str) and "${" in value:
        return _escape_text(value)
    return value


def _escape_text(text: str) -> str:
    head, *tails = text.split("${")
    escaped = head
    for tail in tails:
        backslashes = len(escaped) - len(escaped.rstrip("\\"))
        escaped += "\\" * backslashes + "\\${" + tail
    return escaped
