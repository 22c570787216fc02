"""What every settings class shares, and how plug-ins bring their own."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializeAsAny, ValidationInfo, field_validator


class Settings(BaseModel):
    """Frozen, strict about names, loose about nothing: an unknown key is an error, 1e-6 is a float."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic would read `true` as 1, and YAML reads `on`, `yes` and `off` as true and false."""
        if isinstance(value, bool) and info.field_name:
            types = _leaf_types(cls.model_fields[info.field_name].annotation)
            if bool not in types and types & {int, float}:
                raise ValueError("needs a number, not yes/no")
        return value


def _leaf_types(annotation: Any) -> set[Any]:
    arguments = get_args(annotation)
    return set().union(*(_leaf_types(a) for a in arguments)) if arguments else {annotation}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if any is close enough."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return near[0] if near else None


class PluginSettings(Settings):
    """The options of one plug-in. `kind` names its file: `kind: math` under rewards is `rollick/rewards/math.py`,
    whose class `Options` derives from the family's base. A dotted `package.module` is imported as it is."""

    kind: str


def load_plugin(family: str, kind: str) -> type[PluginSettings]:
    """The `Options` class of `rollick.<family>.<kind>` (or of the user's own module `kind` when it has a dot).

    Raises ValueError naming the kinds that exist.
    """
    names = plugin_kinds(family)
    if kind not in names and not ("." in kind and all(part.isidentifier() for part in kind.split("."))):
        near = nearest(kind, names)
        hint = f"; did you mean '{near}'?" if near else ""
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


@dataclass(frozen=True)
class PluginField:
    """Marks a field whose settings class depends on its `kind` (found in the field's metadata)."""

    family: str
    default_kind: str | None = None

    def options(self, value: Any) -> type[PluginSettings]:
        """The settings class for a raw value of this field. Raises ValueError when it names none."""
        return load_plugin(self.family, self.expand(value)["kind"])

    def expand(self, value: Any) -> dict[str, Any]:
        """`math` is short for `{kind: math}`; the default kind may be left out."""
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, dict) and self.default_kind:
            value = {"kind": self.default_kind, **value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise ValueError("needs a mapping with 'kind', or the kind alone")
        return value


def plugin(family: str, default_kind: str | None = None) -> Any:
    """The field type of one plug-in's settings: `engine: plugin("engines")`."""
    field = PluginField(family, default_kind)

    def read(value: Any) -> Any:
        if isinstance(value, PluginSettings):
            return value
        return field.options(value).model_validate(field.expand(value))

    return Annotated[SerializeAsAny[PluginSettings], BeforeValidator(read), field]
