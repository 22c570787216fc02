"""`rollick reward`: try graders on answers before a run trusts them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from rollick.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rollick.rewards.base import Verdict
    from rollick.rewards.offline import GradedRow

app = typer.Typer(help="Try graders on a file of answers: test, score, compare.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(help="Rows with prompt, answer and ground_truth.", show_default=False)]
RewardOption = Annotated[
    str,
    typer.Option("--reward", help="A job file, a YAML file of rewards, or the rewards: '[{kind: math}]'."),
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, help="Processes for graders that need one.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds a grader has for one answer.")]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", help="Model folder whose tokens are counted, for rewards that do.")
]
ToleranceOption = Annotated[float, typer.Option("--tolerance", min=0.0, help="Values this close are equal.")]
ShowOption = Annotated[int, typer.Option("--show", min=0, help="Rows in the table.")]

ANSWER_CHARACTERS = 60


@app.command()
def test(
    file: FileArgument,
    reward: RewardOption,
    workers: WorkersOption = 2,
    timeout: TimeoutOption = 120.0,
    tokenizer: TokenizerOption = None,
    tolerance: ToleranceOption = 1e-6,
    show: ShowOption = 50,
) -> None:
    """Compare rewards with the column `expected`; exits with 1 when a row differs.

    `expected` is the reward, or values by reward name ({"math": 1, "format": 0}), or "failed" or "abstain".
    """
    total, wrong = 0, []
    for graded in _graded(file, reward, workers, timeout, tokenizer):
        total += 1
        expected = _expected(graded)
        if not _agrees(expected, graded.verdict, tolerance):
            wrong.append((graded, _text(expected), _verdict_text(graded.verdict)))
    _print_rows(wrong[:show], "expected", "got")
    typer.echo(f"{file}: {total - len(wrong)} of {total} rows as expected, {len(wrong)} not")
    if wrong:
        raise typer.Exit(1)


@app.command()
def score(
    file: FileArgument,
    reward: RewardOption,
    out: Annotated[Path, typer.Option("--out", help="The JSON Lines file to write.")],
    workers: WorkersOption = 2,
    timeout: TimeoutOption = 120.0,
    tokenizer: TokenizerOption = None,
) -> None:
    """Write every row with `reward` (null where there is none), `reward_parts` and `reward_reason`.

    Exits with 1 when a grader failed on a row; the file is written all the same.
    """
    from rollick.rewards.base import Failed, Score

    values, failed = [], []
    partial = out.with_name(out.name + ".partial")
    with partial.open("w", encoding="utf-8") as lines:
        for graded in _graded(file, reward, workers, timeout, tokenizer):
            verdict = graded.verdict
            if isinstance(verdict, Score):
                values.append(verdict.value)
                added: dict[str, Any] = {"reward": verdict.value, "reward_parts": verdict.parts, "reward_reason": ""}
            else:
                added = {"reward": None, "reward_parts": {}, "reward_reason": _verdict_text(verdict)}
                failed += [graded] if isinstance(verdict, Failed) else []
            lines.write(json.dumps({**graded.row, **added}, ensure_ascii=False, default=str) + "\n")
    os.replace(partial, out)
    mean = f"mean reward {sum(values) / len(values):.4g}" if values else "no rewards"
    typer.echo(f"wrote {out}: {len(values)} rows with a reward, {mean}, {len(failed)} failed")
    if failed:
        typer.echo(f"first failure: {failed[0].where}: {_verdict_text(failed[0].verdict)}", err=True)
        raise typer.Exit(1)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Rewards, as --reward of `test`.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="The rewards to compare with.", show_default=False)],
    file: FileArgument,
    workers: WorkersOption = 2,
    timeout: TimeoutOption = 120.0,
    tokenizer: TokenizerOption = None,
    tolerance: ToleranceOption = 1e-6,
    show: ShowOption = 50,
) -> None:
    """Show the rows on which two graders differ."""
    from rollick.rewards.base import Score

    differing, counts = [], {"equal": 0, "A pays more": 0, "B pays more": 0, "only one gives a score": 0}
    pairs = zip(
        _graded(file, first, workers, timeout, tokenizer),
        _graded(file, second, workers, timeout, tokenizer),
        strict=True,
    )
    for a, b in pairs:
        if isinstance(a.verdict, Score) and isinstance(b.verdict, Score):
            gap = a.verdict.value - b.verdict.value
            kind = "equal" if abs(gap) <= tolerance else "A pays more" if gap > 0 else "B pays more"
        else:
            kind = "equal" if type(a.verdict) is type(b.verdict) else "only one gives a score"
        counts[kind] += 1
        if kind != "equal":
            differing.append((a, _verdict_text(a.verdict), _verdict_text(b.verdict)))
    _print_rows(differing[:show], "A", "B")
    typer.echo(f"{file}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))


def _graded(file: Path, reward: str, workers: int, timeout: float, tokenizer: Path | None) -> Iterator[GradedRow]:
    from rollick.config.job import DatasetSettings, ModelSettings
    from rollick.data.datasets import load_rows
    from rollick.rewards.offline import grade_rows, load_rewards

    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # graders of the user's own, last so that they shadow nothing
    rewards = load_rewards(reward)
    counter = None
    if tokenizer is not None:
        from rollick.models.tokenizer import load_tokenizer

        counter = load_tokenizer(ModelSettings(path=str(tokenizer)))
    return grade_rows(load_rows(DatasetSettings(path=str(file))), rewards, workers, timeout, counter)


def _expected(graded: GradedRow) -> float | str | Mapping[str, float]:
    expected = graded.row.get("expected")
    if isinstance(expected, bool):
        return float(expected)
    if isinstance(expected, int | float) or expected in ("failed", "abstain"):
        return expected
    if isinstance(expected, dict) and all(isinstance(value, int | float) for value in expected.values()):
        return expected
    raise DataError(
        f"{graded.where}: the column expected is {expected!r:.80}; it must be a reward, values by reward name, "
        '"failed" or "abstain"'
    )


def _agrees(expected: float | str | Mapping[str, float], verdict: Verdict, tolerance: float) -> bool:
    from rollick.rewards.base import Failed, Score

    if isinstance(expected, str):
        return not isinstance(verdict, Score) and (expected == "failed") == isinstance(verdict, Failed)
    if not isinstance(verdict, Score):
        return False
    if isinstance(expected, Mapping):
        unknown = sorted(expected.keys() - verdict.parts.keys())
        if unknown:
            raise ConfigError(f"expected names '{unknown[0]}'; these rewards give {', '.join(verdict.parts)}")
        return all(abs(verdict.parts[name] - value) <= tolerance for name, value in expected.items())
    return abs(verdict.value - expected) <= tolerance


def _print_rows(rows: list[tuple[GradedRow, str, str]], *headings: str) -> None:
    if not rows:
        return
    table = Table(Column("row", no_wrap=True), *headings, "answer")
    for graded, *texts in rows:
        answer = graded.answer if len(graded.answer) <= ANSWER_CHARACTERS else "…" + graded.answer[-ANSWER_CHARACTERS:]
        table.add_row(*[_plain(text) for text in (Path(graded.where).name, *texts, repr(answer))])
    Console(soft_wrap=True).print(table)


def _verdict_text(verdict: Verdict) -> str:
    from rollick.rewards.base import Failed, Score

    if isinstance(verdict, Score):
        parts = ", ".join(f"{name} {value:g}" for name, value in verdict.parts.items() if "/" not in name)
        return f"{verdict.value:g}" + (f" ({parts})" if len(verdict.parts) > 1 else "")
    return f"{'failed' if isinstance(verdict, Failed) else 'abstain'}: {verdict.reason}"


def _text(expected: float | str | Mapping[str, float]) -> str:
    if isinstance(expected, Mapping):
        return ", ".join(f"{name} {value:g}" for name, value in expected.items())
    return expected if isinstance(expected, str) else f"{expected:g}"


def _plain(text: str) -> str:
    """Square brackets are markup to rich."""
    from rich.markup import escape

    return escape(text)
