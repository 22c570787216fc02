"""pydantic's complaints as sentences: full key, value, where it was written, and what was probably meant."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rollick.config.base import PluginField, nearest
from rollick.config.source import Origins, where

Loc = tuple[int | str, ...]
MAX_VALUE_CHARS = 60
SECRET = re.compile("api_?key|password|secret|credential", re.IGNORECASE)
"""Keys whose values may be what no terminal or log should show, also where they are written in the wrong place."""
CREDENTIALS = re.compile(r"//[^/@\s]+@")


def sentences(error: ValidationError, model: type[BaseModel], tree: dict[str, Any], origins: Origins) -> list[str]:
    """One sentence per violation, in the order of the fields.

    A misspelt key three levels down reads: "unknown key 'environments.0.dataset.pth' (= 'a.jsonl', job.yaml:9);
    did you mean 'environments.0.dataset.path'?"
    """
    found = [_sentence(loc, details, model, tree, origins) for loc, details in _flatten(error, ())]
    return [sentence.replace("\n", "\\n") for sentence in found]  # keys and names may hold anything


def _flatten(error: ValidationError, prefix: Loc) -> Iterator[tuple[Loc, ErrorDetails]]:
    """A plug-in validates its own options inside a validator, so its violations arrive wrapped in one."""
    for details in error.errors():
        loc = prefix + details["loc"]
        inner = details.get("ctx", {}).get("error")
        if isinstance(inner, ValidationError):
            yield from _flatten(inner, loc)
        else:
            yield loc, details


def _sentence(loc: Loc, details: ErrorDetails, model: type[BaseModel], tree: dict[str, Any], origins: Origins) -> str:
    key = ".".join(str(part) for part in loc)
    origin = where(origins, key)
    place = f" ({origin})" if origin else ""
    value = "a value that is not shown" if SECRET.search(str(loc[-1:])) else _shorten(details["input"])
    if details["type"] == "extra_forbidden":
        return f"unknown key '{key}' (= {value}{', ' + origin if origin else ''}); {_suggest(loc, model, tree)}"
    if details["type"] == "missing":
        return f"{key} is missing{_purpose(loc, model, tree)}"
    message = re.sub(r"^(Value error, |Input )", "", details["msg"])
    hint = _literal_hint(details)
    return f"{key or 'the job file'}: {value}{place} is not valid: {message}{hint}"


def _shorten(value: Any) -> str:
    text = CREDENTIALS.sub("//***@", repr(value))
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def _literal_hint(details: ErrorDetails) -> str:
    if details["type"] != "literal_error" or not isinstance(details["input"], str):
        return ""
    near = nearest(details["input"], re.findall(r"'([^']*)'", details.get("ctx", {}).get("expected", "")))
    return f"; did you mean '{near}'?" if near else ""


def _purpose(loc: Loc, model: type[BaseModel], tree: dict[str, Any]) -> str:
    parent = model_at(model, tree, loc[:-1])
    field = parent.model_fields.get(str(loc[-1])) if parent else None
    return f": {field.description.splitlines()[0]}" if field and field.description else ""


def _suggest(loc: Loc, model: type[BaseModel], tree: dict[str, Any]) -> str:
    """The nearest name at this level, else the same name elsewhere in the job, else the names there are."""
    parent = model_at(model, tree, loc[:-1])
    if parent is None:
        return "remove it"
    prefix = ".".join(str(part) for part in loc[:-1])
    name = str(loc[-1])
    near = nearest(name, parent.model_fields)
    if near:
        return f"did you mean '{f'{prefix}.{near}' if prefix else near}'?"
    elsewhere = [path for path in field_paths(model) if path.rpartition(".")[2] == name]
    if elsewhere:
        return f"did you mean '{elsewhere[0]}'?"
    return f"known here: {', '.join(sorted(parent.model_fields))}"


def field_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted paths of all settings that need no list index or plug-in kind to be named."""
    for name, field in model.model_fields.items():
        yield prefix + name
        section = nested_model(field)
        if section:
            yield from field_paths(section, f"{prefix}{name}.")


def nested_model(field: FieldInfo) -> type[BaseModel] | None:
    """The settings class of a section (`X` or `X | None`), None for values, lists and plug-ins."""
    if plugin_field(field):
        return None
    for candidate in _members(field.annotation):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def plugin_field(field: FieldInfo) -> PluginField | None:
    """The plug-in marker of a field that holds one plug-in, or of the items of a list of them."""
    arguments = [field.annotation, *get_args(field.annotation)]
    metadata = [*field.metadata, *(m for a in arguments for m in getattr(a, "__metadata__", ()))]
    return next((m for m in metadata if isinstance(m, PluginField)), None)


def model_at(model: type[BaseModel], value: Any, loc: Loc) -> type[BaseModel] | None:
    """The settings class that reads the section at `loc`, found by following fields and plug-in kinds."""
    current: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in loc:
        value = _child(value, part)
        if isinstance(part, int):
            current = _item_model(field, value) if field else None
            continue
        field = current.model_fields.get(part) if current else None
        if field is None:
            return None
        current = _item_model(field, value)
    return current


def _child(value: Any, part: int | str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def _item_model(field: FieldInfo, value: Any) -> type[BaseModel] | None:
    marker = plugin_field(field)
    if marker is None:
        return nested_model(field)
    try:
        return marker.options(value)
    except ValueError:
        return None


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType, list, tuple, Annotated):
        return [member for argument in get_args(annotation) for member in _members(argument)]
    return [annotation]
