"""Progress for the person at the terminal: a table that grows by one row per step; plain lines in a pipe."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

WIDTH = 12
ABSENT = "·"
HEADER_EVERY = 25


class ProgressConsole:
    """Shows the chosen metrics of each step; one that has none of them (evaluation alone) gets no row.

    with ProgressConsole(total_steps=100, columns=["reward/mean", "loss"]) as console:
        console.log(1, {"reward/mean": 0.25, "loss": -0.01})

    step              reward        loss
    1/100               0.25       -0.01
    """

    def __init__(self, total_steps: int, columns: Sequence[str], first_step: int = 0, console: Console | None = None):
        self.console = console or Console()
        self._total = total_steps
        self._columns = list(columns)
        self._rows = 0
        self._first = first_step
        self._started = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> ProgressConsole:
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.fields[doing]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._task = self._progress.add_task("steps", total=self._total, completed=self._first, doing="")
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Print the step's row (on a terminal the bar below it moves on)."""
        if self._progress:
            self._progress.update(self._task, completed=step)
        if not metrics.keys() & set(self._columns):
            return
        if self._progress:
            self._print_row(step, metrics)
        else:
            self._print_line(step, metrics)

    def doing(self, text: str) -> None:
        """What the step is at, shown beside the bar (nothing in a pipe)."""
        if self._progress:
            self._progress.update(self._task, doing=text)

    def note(self, text: str) -> None:
        """One line between the rows: an evaluation's result, a checkpoint written."""
        self.console.print(Text(text), soft_wrap=True)

    def _print_row(self, step: int, metrics: dict[str, float]) -> None:
        if self._rows % HEADER_EVERY == 0:
            heads = [heading(name)[: WIDTH - 1] for name in self._columns]
            self.console.print(Text(_cells([_left("step"), *heads]), style="bold"), soft_wrap=True)
        self._rows += 1
        cells = [shorten(metrics.get(name)) for name in self._columns]
        self.console.print(Text(_cells([_left(f"{step}/{self._total}"), *cells])), soft_wrap=True)

    def _print_line(self, step: int, metrics: dict[str, float]) -> None:
        shown = [f"{name}={shorten(metrics[name])}" for name in self._columns if name in metrics]
        seconds = time.monotonic() - self._started
        self.console.print(Text(f"step {step}/{self._total} {' '.join(shown)} ({seconds:.0f} s)"), soft_wrap=True)


def heading(name: str) -> str:
    """The telling part of a metric's name: `reward` of "reward/mean", `loss` of "eval/loss"."""
    return name.removesuffix("/mean").rpartition("/")[2]


def shorten(value: float | None) -> str:
    """Four significant digits: 0.4312, 1.25e-06, 12345."""
    if value is None:
        return ABSENT
    return f"{value:.0f}" if abs(value) >= 1000 and abs(value) < 1e7 else f"{value:.4g}"


def show_warnings() -> None:
    """Send Rollick's own messages to standard error, each in one line."""
    logger = logging.getLogger("rollick")
    if not logger.handlers:
        logger.addHandler(_StandardError())
        logger.setLevel(logging.INFO)


class _StandardError(logging.Handler):
    """Looks up sys.stderr at each message: while a progress bar is shown, rich puts its own in that place."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        print(prefix + self.format(record), file=sys.stderr, flush=True)


def _left(text: str) -> str:
    return text.ljust(WIDTH)


def _cells(cells: list[str]) -> str:
    first, *rest = cells
    return first + "".join(cell.rjust(WIDTH) for cell in rest)
