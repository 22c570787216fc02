"""From files and overrides to one plain tree, remembering where every value was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rollick.errors import ConfigError

Origins = dict[str, str]
"""Path of every written leaf → where: `{"trainer.learning_rate": "job.yaml:12", "seed": "command line"}`."""

COMMAND_LINE = "command line"


def read_tree(path: Path, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], Origins]:
    """The resolved tree of a job file: its includes under it, `key.sub=value` overrides over it.

    Interpolations (`${seed}`, `${oc.env:HOME}`, `${oc.env:RANK,0}`) are resolved last, so they see overrides.
    Raises ConfigError naming file and line.
    """
    tree, origins = _read_file(path, chain=())
    for override in overrides:
        _apply_override(tree, origins, override)
    try:
        resolved = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_interpolation_sentence(error, origins)) from error
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}, origins


def where(origins: Origins, key: str) -> str | None:
    """Where a key was written: its own line, that of its first child, or that of the nearest parent."""
    if key in origins:
        return origins[key]
    for path, origin in origins.items():
        if path.startswith(key + "."):
            return origin
    parent = key.rpartition(".")[0]
    return where(origins, parent) if parent else None


def _read_file(path: Path, chain: tuple[Path, ...]) -> tuple[DictConfig, Origins]:
    """One file over its includes; `chain` holds the files that include it, to refuse cycles."""
    real = path.resolve()
    if real in chain:
        circle = " → ".join(p.name for p in (*chain[chain.index(real) :], real))
        raise ConfigError(f"{path}: files include each other in a circle ({circle}); remove one `include`")
    own, own_origins = _parse(path, _read_text(path, includer=chain[-1] if chain else None))
    includes = _include_list(own.pop("include", None), path)
    tree, origins = OmegaConf.create({}), Origins()
    layers = [_read_file(path.parent / name, (*chain, real)) for name in includes]
    for layer, layer_origins in [*layers, (own, own_origins)]:
        merged = OmegaConf.merge(tree, layer)
        assert isinstance(merged, DictConfig)
        tree = merged
        _merge_origins(origins, layer_origins)
    return tree, {key: origin for key, origin in origins.items() if key.partition(".")[0] != "include"}


def _read_text(path: Path, includer: Path | None) -> str:
    source = f" (included by {includer})" if includer else ""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}{source}: there is no such file (looked in {Path.cwd()})") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}{source}: this is a folder; give the job's YAML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}{source}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}{source}: cannot be read ({error.strerror})") from None


def _parse(path: Path, text: str) -> tuple[DictConfig, Origins]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}: {_no_mapping(node, path.name)}")
        tree = OmegaConf.create(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {str(error).splitlines()[0]}") from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from None
    assert isinstance(tree, DictConfig)
    origins: Origins = {}
    _record_lines(node, "", str(path), origins)
    return tree, origins


def _no_mapping(node: yaml.Node | None, file: str) -> str:
    if node is None:
        return f"the file is empty; `rollick init rl {file}` writes a starter"
    found = "a list" if isinstance(node, yaml.SequenceNode) else f"the bare value {str(node.value)[:40]!r}"
    return f"needs `key: value` pairs at the top level, found {found}"


def _record_lines(node: yaml.Node, key: str, file: str, origins: Origins) -> None:
    children: list[tuple[str, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(name.value), value) for name, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(index), value) for index, value in enumerate(node.value)]
    if not children:
        origins[key] = f"{file}:{node.start_mark.line + 1}"
    for name, child in children:
        _record_lines(child, f"{key}.{name}" if key else name, file, origins)


def _merge_origins(origins: Origins, later: Origins) -> None:
    """A later value replaces what stood at its path, and a later list replaces the whole list."""
    for key in later:
        parts = key.split(".")
        lists = [index for index, part in enumerate(parts) if part.isdigit()]
        top = ".".join(parts[: lists[0]]) if lists else key
        _forget(origins, top)
    origins.update(later)


def _forget(origins: Origins, key: str) -> None:
    for path in [p for p in origins if p == key or p.startswith(key + ".")]:
        del origins[path]


def _include_list(value: Any, path: Path) -> list[str]:
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, ListConfig) else value
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: include: needs a file name or a list of file names, got {value}")
    return names


def _apply_override(tree: DictConfig, origins: Origins, override: str) -> None:
    key, equals, text = override.partition("=")
    key = key.strip()
    if key.startswith("-"):
        raise ConfigError(f"unknown option '{override}'; settings are written without dashes, as {_bare(key, text)}")
    if not equals or not all(key.split(".")):
        raise ConfigError(f"override '{override}': write it as key.sub=value, for example trainer.learning_rate=1e-5")
    value = _override_value(override, text)
    parent, name = _descend(tree, key, override)
    if isinstance(parent, ListConfig):
        parent[_list_index(parent, name, key, override)] = value
    elif isinstance(parent, DictConfig):
        parent[name] = value
    _forget(origins, key)
    origins[key] = COMMAND_LINE


def _bare(key: str, text: str) -> str:
    return f"{key.lstrip('-').replace('-', '_')}={text or 'value'}"


def _override_value(override: str, text: str) -> Any:
    """Overrides are read as YAML by the same rules as files: 1e-6 is a float, null is none, [a, b] a list."""
    try:
        wrapped = OmegaConf.to_container(OmegaConf.create(f"value: {text}"), resolve=False)
        assert isinstance(wrapped, dict)
        return wrapped["value"]
    except (yaml.YAMLError, OmegaConfBaseException):
        raise ConfigError(f"override '{override}': the value is not valid YAML; quote it as '\"{text}\"'") from None


def _descend(tree: DictConfig, key: str, override: str) -> tuple[DictConfig | ListConfig, str]:
    """The container that holds the last part of `key`; sections that the file left out are created."""
    *parents, name = key.split(".")
    node: DictConfig | ListConfig = tree
    walked: list[str] = []
    for part in parents:
        walked.append(part)
        if isinstance(node, ListConfig):
            child = node[_list_index(node, part, ".".join(walked), override)]
        else:
            if node.get(part) is None:
                node[part] = {}
            child = node[part]
        if not isinstance(child, DictConfig | ListConfig):
            raise ConfigError(
                f"override '{override}': {'.'.join(walked)} is {child!r}, which has no keys; "
                f"override {'.'.join(walked)} itself with {{key: value}}"
            )
        node = child
    return node, name


def _list_index(node: ListConfig, part: str, key: str, override: str) -> int:
    if not part.isdigit() or int(part) >= len(node):
        name = key.rpartition(".")[0]
        raise ConfigError(
            f"override '{override}': {name} is a list of {len(node)} and is addressed by index from 0, "
            f"as {name}.0; '{part}' is not in it"
        )
    return int(part)


def _interpolation_sentence(error: OmegaConfBaseException, origins: Origins) -> str:
    key = str(error.full_key or "")
    origin = where(origins, key) if key else None
    return f"{key or 'the job file'}{f' ({origin})' if origin else ''}: {_first_line(error)}"


def _first_line(error: OmegaConfBaseException) -> str:
    return str(error.msg or error).splitlines()[0]
