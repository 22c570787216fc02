"""The settings reference, written from the settings classes: `python -m rollick.config.reference docs/settings.md`."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rollick.config.base import PluginField, load_plugin, plugin_kinds
from rollick.config.job import JobSettings
from rollick.config.load import PIPELINES
from rollick.config.violations import nested_model, plugin_field

FAMILIES = ("environments", "rewards", "engines", "trackers")
_LIMITS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"), ("min_length", "length ≥"))


def settings_reference() -> str:
    """Markdown: one table per section of every pipeline, then one per plug-in kind."""
    parts = ["# Settings", "", "Keys of a job file. A default of *required* means that the key must be written.", ""]
    parts += ["## Every pipeline", "", *_section(JobSettings, "", "###")]
    for pipeline, job in PIPELINES.items():
        parts += [f"## pipeline: {pipeline}", "", *_section(job, "", "###", skip=JobSettings.model_fields)]
    for family in FAMILIES:
        parts += [f"## {family}", ""]
        for kind in plugin_kinds(family):
            parts += [f"### kind: {kind}", "", *_section(load_plugin(family, kind), "", "####", skip=("kind",))]
    return "\n".join(parts)


def _section(model: type[BaseModel], prefix: str, heading: str, skip: Collection[str] = ()) -> Iterator[str]:
    """The table of a settings class, then those of its sections."""
    fields = {name: field for name, field in model.model_fields.items() if name not in skip}
    if prefix:
        yield from (f"{heading} {prefix.rstrip('.')}", "")
        if model.__doc__:
            yield from (_plain(model.__doc__), "")
    yield from ("| key | type | default | meaning |", "| --- | --- | --- | --- |")
    for name, field in fields.items():
        yield f"| `{prefix}{name}` | {_type_text(field)} | {_default_text(field)} | {_plain(field.description or '')} |"
    yield ""
    for name, field in fields.items():
        section = nested_model(field)
        if section:
            yield from _section(section, f"{prefix}{name}.", heading)


def _type_text(field: FieldInfo) -> str:
    marker = plugin_field(field)
    if marker:
        many = get_origin(field.annotation) is list
        return f"{'list of ' if many else ''}[{marker.family}](#{marker.family})"
    if nested_model(field):
        return "section"
    return _escape(_annotation_text(field.annotation) + _limits(field.metadata))


def _annotation_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotation_text(arguments[0]) + _limits(_flat(arguments[1:]))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if a is type(None) else _annotation_text(a) for a in arguments)
    if origin in (list, tuple):
        inner = [_annotation_text(a) for a in arguments if a is not Ellipsis]
        return f"list of {inner[0]}" if len(inner) == 1 or Ellipsis in arguments else f"[{', '.join(inner)}]"
    if origin is dict:
        return "mapping of " + " to ".join(_annotation_text(a) for a in arguments)
    words = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path", Any: "any value"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _flat(metadata: Any) -> list[Any]:
    """Constraints hide inside the FieldInfo of an `Annotated[..., Field(gt=0)]`."""
    return [m for item in metadata for m in (item.metadata if isinstance(item, FieldInfo) else [item])]


def _limits(metadata: Any) -> str:
    found = [
        f" {sign} {getattr(item, name)}"
        for item in metadata
        if not isinstance(item, PluginField)
        for name, sign in _LIMITS
        if getattr(item, name, None) is not None
    ]
    return ",".join(found)


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    default = field.get_default(call_default_factory=True, validated_data={})
    marker = plugin_field(field)
    if marker and marker.default_kind:
        return f"`{marker.default_kind}`"
    if nested_model(field) and default is not None:
        return "see below"
    if default is PydanticUndefined or default is None:
        return "null"
    value = list(default) if isinstance(default, tuple) else str(default) if isinstance(default, Path) else default
    return f"`{str(value).lower() if isinstance(value, bool) else value if value != '' else repr('')}`"


def _plain(text: str) -> str:
    return _escape(re.sub(r"\s+", " ", text).strip())


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(settings_reference(), encoding="utf-8")
