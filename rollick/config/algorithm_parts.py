"""The parts that an algorithm is composed of, found by name and read without importing them (they need torch).

`policy_loss: gspo` is the function `gspo_loss` in a file of `rollick/algorithms/policy_losses`; likewise
`advantage: rloo` is `rloo_advantages` and `sample_filter: raft` is `raft_keep`. A name with a colon, as
`my_package.my_module:my_loss`, is a function of the user's own. Whichever it is, the signature says everything:

    def dro_loss(logprobs, old_logprobs, advantages, *, dro_beta: float)
                 └──── tensors that it is given ────┘   └ options that it reads, with its own defaults

A function that asks for a tensor which no job can give is no part; it stays a function for other code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rollick.config.base import nearest

ALGORITHMS = Path(__file__).parents[1] / "algorithms"
REQUIRED = inspect.Parameter.empty
"""Stands for the default of an option that has none."""


@dataclass(frozen=True)
class Family:
    """A folder of `rollick/algorithms`, the ending of its functions' names, and the tensors that they may ask for."""

    folder: str
    ending: str
    inputs: Mapping[str, str]


_LOGPROBS = {
    "logprobs": "[M] log π of the sampled tokens, with gradient",
    "old_logprobs": "[M] log π at the start of the step's updates",
    "behaviour_logprobs": "[M] log μ, as the rollout engine sampled",
    "proximal_logprobs": "[M] another name of old_logprobs",
    "ratio": "[M] π/π_old",
    "advantages": "[M]",
    "rows": "int64[M], the row of each token, ascending",
    "num_rows": "int, how many rows there are",
    "selected": "bool[M], chosen once per step by the function `<name>_selection` beside the loss",
}
_REWARDS = {
    "rewards": "float64[R], one per answer",
    "groups": "int64[R], which answers share a prompt",
    "valid": "bool[R], answers that were scored",
    "lengths": "int64[R], sampled tokens",
}
_TOKENS = {
    "token_rewards": "[M], the reward on the last token of each answer, minus the KL where that is in the reward",
    "rows": "int64[M], the answer of each token, ascending",
    "reward_parts": "[K, R], each reward alone, NaN where it has none",
    "reward_weights": "[K]",
}
FAMILIES = {
    "advantage": Family("advantages", "_advantages", _REWARDS | _TOKENS),
    "policy_loss": Family("policy_losses", "_loss", _LOGPROBS),
    "selection": Family("policy_losses", "_selection", {"covariance": "[M]", "generator": "draws of this step"}),
    "sample_filter": Family("sample_filters", "_keep", _REWARDS),
}


@dataclass(frozen=True)
class Part:
    """One function. `inputs` are tensors it is given by position; `options` maps those it reads to its own defaults.

    find_part("policy_loss", "dro").inputs    # ("logprobs", "old_logprobs", "advantages")
    find_part("policy_loss", "gspo").options  # {"clip_low": 0.0003, "clip_high": 0.0004}
    """

    family: str
    name: str
    module: str
    function: str
    inputs: tuple[str, ...]
    options: Mapping[str, Any]
    formula: str = ""

    def load(self) -> Callable[..., Any]:
        """The function itself; imports torch."""
        return getattr(importlib.import_module(self.module), self.function)


def part_names(family: str) -> list[str]:
    return sorted(_parts(family))


def find_part(family: str, name: str) -> Part:
    """Raises ValueError naming the parts there are, or what is wrong with a function of the user's own."""
    if ":" in name:
        return _own_part(family, name)
    known = _parts(family)
    if name not in known:
        near = nearest(name, known)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ValueError(
            f"unknown {family} '{name}'{hint} (known: {', '.join(sorted(known))}, or package.module:function)"
        )
    return known[name]


def selection_of(loss: Part) -> Part | None:
    """The function that chooses the tokens which a loss is given as `selected`; it stands beside the loss."""
    if "selected" not in loss.inputs:
        return None
    if ":" not in loss.name:
        return find_part("selection", loss.name)
    path = loss.name.removesuffix("_loss") + "_selection"
    return _own_part("selection", path)


@cache
def _parts(family: str) -> dict[str, Part]:
    folder = ALGORITHMS / FAMILIES[family].folder
    found = (part for path in sorted(folder.glob("*.py")) for part in _read(family, path))
    return {part.name: part for part in found}


def _read(family: str, path: Path) -> Iterator[Part]:
    ending, inputs = FAMILIES[family].ending, FAMILIES[family].inputs
    module = f"rollick.algorithms.{FAMILIES[family].folder}.{path.stem}"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.endswith(ending):
            continue
        asked = tuple(argument.arg for argument in node.args.args)
        if set(asked) <= set(inputs):
            defaults = (REQUIRED if d is None else ast.literal_eval(d) for d in node.args.kw_defaults)
            options = dict(zip((argument.arg for argument in node.args.kwonlyargs), defaults))
            formula = _formula(ast.get_docstring(node) or "")
            yield Part(family, node.name.removesuffix(ending), module, node.name, asked, options, formula)


def _own_part(family: str, name: str) -> Part:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise ValueError(f"no module '{error.name}' for {family} '{name}'; is it on PYTHONPATH?") from error
    except AttributeError:
        raise ValueError(f"module '{module}' has no function '{function}'") from None
    parameters = inspect.signature(found).parameters.values()
    loose = [p.name for p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    asked = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    known = FAMILIES[family].inputs
    unknown = [argument for argument in asked if argument not in known]
    if loose or unknown:
        raise ValueError(
            f"{family} '{name}' asks for {', '.join([*loose, *unknown])}; its positional parameters name what it is "
            f"given ({', '.join(known)}), its keyword-only parameters are its options"
        )
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    return Part(family, name, module, function, asked, options, _formula(inspect.getdoc(found) or ""))


def _formula(docstring: str) -> str:
    """The first sentence, without its shape: "[M]: −A·log π. With …" gives "−A·log π"."""
    text = re.sub(r"\s+", " ", docstring.split("\n\n")[0]).strip()
    text = re.sub(r"^(?:bool|float64|int64)?\[\w+\]: ", "", text)
    return re.split(r"\.(?: |$)", text)[0]
