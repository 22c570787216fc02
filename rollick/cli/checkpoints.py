"""`rollick checkpoint list` and `verify`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from rollick.errors import DataError
from rollick.state.checkpoint import checkpoint_folders, full_problem, quick_problem


def show(run: Path, verify: bool) -> None:
    """Print the checkpoints of a run; with `verify`, hash every file and raise DataError when one is damaged."""
    folders = checkpoint_folders(run / "checkpoints")
    if not folders:
        raise DataError(f"{run}: there are no checkpoints here; give a run directory, as runs/my-rl")
    table = Table("step", "size", "state", "folder")
    damaged = []
    for step, folder in folders:
        problem = full_problem(folder) if verify else quick_problem(folder)
        if problem:
            damaged.append(f"step {step}: {problem}")
        table.add_row(str(step), _size_text(folder), problem or ("verified" if verify else "whole"), str(folder))
    Console(soft_wrap=True).print(table)
    if verify and damaged:
        raise DataError(f"{run}: {len(damaged)} of {len(folders)} checkpoints are damaged ({'; '.join(damaged)})")


def _size_text(folder: Path) -> str:
    size = float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
