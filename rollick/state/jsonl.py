"""Append-only files of one JSON object per line that survive a kill in mid-write."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rollick.errors import DataError, RollickError

Row = dict[str, Any]


class JsonlFile:
    """Opened for appending; every row is on its way to the disk when `write` returns.

    A half-written last line (the process was killed) is cut off on opening.

        with JsonlFile(Path("metrics.jsonl")) as file:
            file.write({"step": 1, "loss": 0.5})
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        repair(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one object. Raises ValueError for NaN or infinity, which JSON cannot hold."""
        self.append(json.dumps(row, ensure_ascii=False, allow_nan=False))

    def append(self, line: str) -> None:
        """Append one object that is JSON text already. Raises RollickError when the disk does not take it."""
        try:
            self._file.write(line.rstrip("\n") + "\n")
            self._file.flush()
        except OSError as error:
            raise RollickError(f"{self.path}: cannot be written ({error.strerror}); make room and resume") from error

    def keep(self, wanted: Callable[[Row], bool]) -> int:
        """Drop all other rows (by writing a new file beside and renaming it) and return how many went."""
        rows = list(read_jsonl(self.path))
        kept = [row for row in rows if wanted(row)]
        if len(kept) < len(rows):
            self._file.close()
            write_atomically(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))
            self._file = self.path.open("a", encoding="utf-8")
        return len(rows) - len(kept)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> JsonlFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_jsonl(path: Path) -> Iterator[Row]:
    """The whole rows of a file (none when it is missing); a half-written last line is left out.

    Raises DataError naming file and line when a line in the middle is damaged.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith("\n"):
                yield _parse(line, path, number)


def _parse(line: str, path: Path, number: int) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}:{number}: the line is damaged ({error}); remove it to go on") from None
    if not isinstance(row, dict):
        raise DataError(f"{path}:{number}: the line is not a JSON object; remove it to go on")
    return row


def last_row(path: Path) -> Row | None:
    """The last whole row, None when there is none."""
    return next(iter(deque(read_jsonl(path), maxlen=1)), None)


def repair(path: Path) -> bool:
    """Cut off a half-written last line; True when there was one."""
    if not path.exists():
        return False
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        file.truncate(whole)
    return True


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
