"""What every settings class shares, and how plug-ins bring their own."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny


class Settings(BaseModel):
    """Frozen, strict about names, loose about nothing: an unknown key is an error, 1e-6 is a float."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class PluginSettings(Settings):
    """The options of one plug-in. `kind` names its file: `kind: math` under rewards is `rollick/rewards/math.py`,
    whose class `Options` derives from the family's base. A dotted `package.module` is imported as it is."""

    kind: str


def load_plugin(family: str, kind: str) -> type[PluginSettings]:
    """The `Options` class of `rollick.<family>.<kind>` (or of the user's own module `kind` when it has a dot).

    Raises ValueError naming the kinds that exist.
    """
    names = plugin_kinds(family)
    if "." not in kind and kind not in names:
        near = difflib.get_close_matches(kind, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ValueError(
            f"unknown kind '{kind}'{hint} (known: {', '.join(names)}, or the import path of your own module)"
        )
    path = kind if "." in kind else f"rollick.{family}.{kind}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):
            raise ValueError(f"no module '{path}' for kind '{kind}'; is it on PYTHONPATH?") from error
        raise
    options = getattr(module, "Options", None)
    if not (isinstance(options, type) and issubclass(options, PluginSettings)):
        raise ValueError(f"module '{path}' has no class Options(PluginSettings)")
    return options


def plugin_kinds(family: str) -> list[str]:
    """Module names of a family that define `Options`, found by reading their source, not by importing them."""
    package = importlib.import_module(f"rollick.{family}")
    kinds = []
    for info in pkgutil.iter_modules(package.__path__):
        spec = info.module_finder.find_spec(info.name, None)  # type: ignore[call-arg]
        if spec and spec.origin and "\nclass Options(" in Path(spec.origin).read_text(encoding="utf-8"):
            kinds.append(info.name)
    return sorted(kinds)


def plugin(family: str) -> Any:
    """The field type of one plug-in's settings: `engine: plugin("engines")`."""

    def read(value: Any) -> Any:
        if isinstance(value, PluginSettings):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise ValueError("needs a mapping with 'kind', or the kind alone")
        return load_plugin(family, value["kind"]).model_validate(value)

    return Annotated[SerializeAsAny[PluginSettings], BeforeValidator(read)]
