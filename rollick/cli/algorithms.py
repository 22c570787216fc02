"""`rollick algorithms`: presets, what they are composed of, and a check of a part of your own."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from rollick.config.algorithm import PRESETS, AlgorithmSettings, preset_names, read_preset
from rollick.config.algorithm_parts import Part, find_part, part_names
from rollick.errors import ConfigError

AGGREGATIONS = {
    "token_mean": "Σ ℓ / tokens",
    "sequence_mean_token_mean": "Σ_i (Σ_t ℓ / L_i) / answers",
    "sequence_mean_token_sum": "Σ ℓ / answers",
    "sequence_mean_token_sum_norm": "Σ ℓ / (answers · max_new_tokens)",
}
SYMBOLS = "r = π/π_old, π the policy, π_old the same at the start of the update, μ the engine, sg[·] a constant"


def list_presets() -> None:
    table = Table("preset", "what it is", box=None)
    for name in preset_names():
        table.add_row(name, preset_summary(name))
    console = Console(soft_wrap=True)
    console.print(table)
    console.print("\nrollick algorithms NAME shows one; rollick algorithms parts what there is to compose", style="dim")


def list_parts() -> None:
    """Everything that `advantage`, `policy_loss` and `sample_filter` may name, with its formula and options."""
    for family in ("advantage", "policy_loss", "sample_filter"):
        print(f"{family}:")
        for name in part_names(family):
            part = find_part(family, name)
            options = f"   ({', '.join(part.options)})" if part.options else ""
            print(f"  {name:<22} {part.formula}{options}")


def show_preset(name: str) -> None:
    """The objective in symbols with its numbers, then every option that is read. Raises ConfigError."""
    try:
        algorithm = AlgorithmSettings(preset=name)
    except ValidationError:
        raise ConfigError(f"there is no preset '{name}', there are {', '.join(preset_names())}") from None
    console = Console(soft_wrap=True, highlight=False)
    console.print(preset_summary(name) + "\n", markup=False)
    for line in objective(algorithm):
        console.print("  " + line, markup=False)
    console.print(f"\n  {SYMBOLS}\n", style="dim", markup=False)
    table = Table("option", "value", "from", box=None)
    for option in AlgorithmSettings.model_fields:
        if option in algorithm.reads() - {"preset", "options"}:
            table.add_row(option, _value(getattr(algorithm, option)), _origin(option, algorithm))
    console.print(table)


def preset_summary(name: str) -> str:
    """The first line of its file: name, source, and the idea in one sentence."""
    return (PRESETS / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def objective(algorithm: AlgorithmSettings) -> list[str]:
    """The composed algorithm, one formula a line, options replaced by their values."""
    advantage, loss = find_part("advantage", algorithm.advantage), find_part("policy_loss", algorithm.policy_loss)
    kl = f"{algorithm.kl_coef:g}·KL({algorithm.kl_estimator})" if algorithm.kl_coef else ""
    lines = []
    reward = "R = graded reward"
    if algorithm.overlong_buffer is not None:
        share = f"{algorithm.overlong_buffer:g}"
        reward += f" − {algorithm.overlong_factor:g}·(share of the last {share}·max_new_tokens that is used)"
    if algorithm.length_reward:
        reward += f" + {algorithm.length_reward:g}·(length reward)"
    if algorithm.repetition_penalty:
        reward += f" − {algorithm.repetition_penalty:g}·(share of repeated {algorithm.repetition_ngram}-grams)"
    if (algorithm.reward_mean, algorithm.reward_std) != ("none", "none"):
        reward += f", normalised by mean: {algorithm.reward_mean}, std: {algorithm.reward_std}"
    lines.append(reward + (f", r_t = R on the last token − {kl}" if kl and algorithm.kl_placement == "reward" else ""))
    lines.append(f"A = {_filled(advantage, algorithm)}")
    keep = algorithm.part("sample_filter")
    if keep:
        lines.append(f"trained: {_filled(keep, algorithm)}")
    lines.append(f"ℓ = {_filled(loss, algorithm)}")
    if algorithm.correction_weight != "none":
        cap = algorithm.correction_weight_cap
        bound = f"min(π_old/μ, {cap:g})" if cap is not None else "π_old/μ"
        lines.append(f"ℓ ← sg[{bound}]·ℓ, the ratio by {algorithm.correction_weight}")
    total = AGGREGATIONS[algorithm.loss_aggregation]
    total += f" + {kl}" if kl and algorithm.kl_placement == "loss" else ""
    lines.append("loss = " + total + (f" − {algorithm.entropy_coef:g}·entropy" if algorithm.entropy_coef else ""))
    return lines


def check(path: str) -> None:
    """Run the contract test of a part of the user's own. Raises ConfigError listing every promise that it breaks."""
    from rollick.training.part_contract import broken_promises

    part = _own_part(path)
    problems = broken_promises(part)
    if problems:
        raise ConfigError([f"{part.family} {path}: {problem}" for problem in problems])
    print(f"{part.family} {path} keeps its promises; write it as `{part.family}: {path}` under algorithm")


def _own_part(path: str) -> Part:
    if ":" not in path:
        raise ConfigError(f"'{path}' names no function; write package.module:function")
    families = ["policy_loss", "sample_filter" if path.endswith("_keep") else "advantage"]
    reasons = []
    for family in families:
        try:
            return find_part(family, path)
        except ValueError as error:
            reasons.append(str(error))
    raise ConfigError("; ".join(dict.fromkeys(reasons)))


def _filled(part: Part, algorithm: AlgorithmSettings) -> str:
    """Its formula with the values of its options; what an option switches off is left out."""
    text = part.formula or part.name
    if "advantage_std" in part.options and algorithm.advantage_std == "none":
        text = text.partition(" / ")[0].strip("()")
    for name, value in algorithm.options_of(part).items():
        text = re.sub(rf"\b{name}\b", "∞" if value is None else _value(value), text)
    return re.sub(r", [^,]*∞·[^,]*$", "", text)


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _origin(option: str, algorithm: AlgorithmSettings) -> str:
    if option in read_preset(algorithm.preset):
        return f"preset {algorithm.preset}"
    readers = [f"{part.family} {part.name}" for part in algorithm.parts() if option in part.options]
    return readers[0] if readers else "default"
