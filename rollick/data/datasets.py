"""Rows of a dataset, as plain dictionaries, from files, folders saved by `datasets`, or the hub.

JSON Lines keep raw JSON semantics: every row has its own keys and its own types. Columnar storage (Parquet,
`datasets`) gives all rows one struct type and fills what a row lacks with null; below the top level such nulls
are taken as absent keys, so a tool schema never shows the parameters of another row's tool.

    rows = load_rows(DatasetSettings(path="train.jsonl", columns={"ground_truth": "answer"}))
    rows[0]                           # {"prompt": "3+4=", "ground_truth": "7"}
    rows.require(0, "ground_truth")   # "7", or a DataError that says which columns there are
    rows.where(0)                     # "train.jsonl:1"
"""

from __future__ import annotations

import csv
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from rollick.config.job import DatasetSettings
from rollick.errors import DataError

Row = dict[str, Any]

FILE_KINDS = (".jsonl", ".json", ".parquet", ".csv")
KNOWN_COLUMNS = ("id", "prompt", "messages", "tools", "completion", "text", "ground_truth")


class Source(ABC):
    """Indexed rows as they are stored, before columns are renamed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, index: int) -> Row: ...

    @abstractmethod
    def where(self, index: int) -> str:
        """The place of a row for people: file and line where there is one."""


class Rows(Sequence[Row]):
    """What `load_rows` returns: a sequence of dictionaries that knows where each came from."""

    def __init__(self, source: Source, settings: DatasetSettings):
        self.path = settings.path
        self.name = Path(settings.path).stem
        """Short name for ids: `train` for `data/train.jsonl`."""
        self._source = source
        self._columns = settings.columns
        self._size = min(len(source), settings.limit or len(source))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """Raises DataError when a column that `columns` renames is not in the row."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a dataset with {len(self)} rows")
        return self._rename(index % len(self))

    def where(self, index: int) -> str:
        return self._source.where(index)

    def require(self, index: int, column: str) -> Any:
        """The value of a column that must be there and not null. Raises DataError saying what there is instead."""
        row = self[index]
        if row.get(column) is None:
            raise self.missing_column(index, column)
        return row[column]

    def missing_column(self, index: int, *wanted: str) -> DataError:
        """The error of a row that has none of the columns `wanted`."""
        row = self[index]
        names = " or ".join(f"'{name}'" for name in wanted)
        there = ", ".join(row) or "none"
        empty = [name for name in wanted if name in row]
        if empty:
            return DataError(f"{self.where(index)}: column '{empty[0]}' is null; fill it or remove the row")
        return DataError(
            f"{self.where(index)}: no column {names} (columns of this row: {there}); "
            f"if it has another name, set dataset.columns, for example {{{wanted[0]}: {_likeliest(row)}}}"
        )

    def _rename(self, index: int) -> Row:
        row = self._source.read(index)
        if not self._columns:
            return row
        for new, old in self._columns.items():
            if old not in row:
                raise DataError(
                    f"{self.where(index)}: dataset.columns reads '{new}' from the column '{old}', which this row "
                    f"does not have (its columns: {', '.join(row) or 'none'})"
                )
        kept = {name: value for name, value in row.items() if name not in self._columns.values()}
        return kept | {new: row[old] for new, old in self._columns.items()}


def load_rows(settings: DatasetSettings) -> Rows:
    """Open a dataset. JSON Lines are checked line by line now and parsed again when a row is read.

    Raises DataError, in one sentence, when the path is missing, of no known kind, unreadable, or has no rows.
    """
    path = Path(settings.path).expanduser()
    if path.is_file():
        if settings.split:
            raise DataError(f"{settings.path} is a file and has no splits; remove dataset.split ('{settings.split}')")
        source = _open_file(path, settings)
    elif path.is_dir():
        source = _open_folder(path, settings)
    elif path.suffix.lower() in FILE_KINDS or settings.path.count("/") > 1 or path.is_absolute():
        raise DataError(f"dataset file '{settings.path}' does not exist (looked in {Path.cwd()})")
    else:
        source = _open_hub(settings)
    if not len(source):
        raise DataError(f"dataset '{settings.path}' has no rows")
    return Rows(source, settings)


def _open_file(path: Path, settings: DatasetSettings) -> Source:
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return JsonLines(path, settings.limit)
    if suffix == ".json":
        return _open_json(path)
    if suffix == ".csv":
        return _open_csv(path)
    if suffix == ".parquet":
        return _open_parquet(path)
    raise DataError(f"dataset '{path}' is of no known kind; use {', '.join(FILE_KINDS)} or a folder of `datasets`")


class JsonLines(Source):
    """One JSON object a line; blank lines are skipped. Only line positions are kept in memory."""

    def __init__(self, path: Path, limit: int | None = None):
        self._path = path
        positions: list[tuple[int, int]] = []  # (byte offset, line number)
        for number, offset, line in _lines(path):
            if limit is not None and len(positions) == limit:
                break
            if line.strip():
                _parse_object(line, f"{path}:{number}")
                positions.append((offset, number))
        self._positions = np.asarray(positions, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._positions)

    def read(self, index: int) -> Row:
        with self._path.open("rb") as file:
            file.seek(int(self._positions[index, 0]))
            return _parse_object(file.readline(), self.where(index))

    def where(self, index: int) -> str:
        return f"{self._path}:{self._positions[index, 1]}"


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            start = 3 if number == 1 and line.startswith(b"\xef\xbb\xbf") else 0  # a byte-order mark is not JSON
            yield number, offset + start, line[start:]
            offset += len(line)


def _parse_object(line: bytes, where: str) -> Row:
    row = _parse_json(_decode(line, where), where)
    if not isinstance(row, dict):
        raise DataError(f'{where}: a row must be a JSON object like {{"prompt": …}}, not {type(row).__name__}')
    return row


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not valid JSON ({error.msg} at line {error.lineno} column {error.colno})") from error


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise DataError(
            f"{where}: not UTF-8 (byte 0x{byte:02x} at position {error.start}); save it as UTF-8"
        ) from error


class Table(Source):
    """Rows held in memory, one after another in one file."""

    def __init__(self, path: str | Path, rows: Sequence[Row], first: int = 1, unit: str = " row "):
        self._path, self._rows, self._first, self._unit = path, rows, first, unit

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: int) -> Row:
        return dict(self._rows[index])

    def where(self, index: int) -> str:
        return f"{self._path}{self._unit}{index + self._first}"


def _open_json(path: Path) -> Table:
    content = _parse_json(_decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path)), str(path))
    if not isinstance(content, list):
        raise DataError(f"{path}: needs a JSON list of objects; one object a line belongs into a .jsonl file")
    for number, row in enumerate(content, start=1):
        if not isinstance(row, dict):
            raise DataError(f"{path} row {number}: a row must be a JSON object, not {type(row).__name__}")
    return Table(path, content)


def _open_csv(path: Path) -> Table:
    """Every value stays text. The first line names the columns."""
    text = _decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path))
    reader = csv.DictReader(text.splitlines(keepends=True), strict=True)
    rows = []
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError(
                    f"{path}:{reader.line_num}: the line does not have the {len(reader.fieldnames or [])} "
                    "values that the first line names"
                )
            rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV ({error})") from error
    return Table(path, rows)


class Columnar(Source):
    """Rows of an Arrow table, read one at a time, nulls inside nested values dropped."""

    def __init__(self, path: str | Path, dataset: Any):
        self._path, self._dataset = path, dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, index: int) -> Row:
        return {name: without_nulls(value) for name, value in self._dataset[index].items()}

    def where(self, index: int) -> str:
        return f"{self._path} row {index + 1}"


def without_nulls(value: Any) -> Any:
    """A copy of a nested value without the dictionary keys whose value is null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _open_parquet(path: Path) -> Columnar:
    import pyarrow
    from datasets import Dataset
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
    return Columnar(path, Dataset(table))


def _open_folder(path: Path, settings: DatasetSettings) -> Columnar:
    if not ((path / "state.json").is_file() or (path / "dataset_dict.json").is_file()):
        files = sorted(f.name for f in path.iterdir() if f.suffix.lower() in FILE_KINDS)
        hint = f"name a file in it: {', '.join(files[:5])}" if files else "it holds no data file either"
        raise DataError(f"'{settings.path}' is a folder that was not saved by `datasets`; {hint}")
    from datasets import load_from_disk

    try:
        loaded = load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"dataset folder '{settings.path}' cannot be read ({_first_line(error)})") from error
    return Columnar(settings.path, _pick_split(loaded, settings))


def _open_hub(settings: DatasetSettings) -> Columnar:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        loaded = load_dataset(settings.path)
    except (OSError, ValueError, DatasetNotFoundError, HfHubHTTPError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise DataError(
            f"dataset '{settings.path}' is no file or folder here, and the hub did not give it{offline}: "
            f"{_first_line(error)}"
        ) from error
    return Columnar(settings.path, _pick_split(loaded, settings))


def _pick_split(loaded: Any, settings: DatasetSettings) -> Any:
    from datasets import DatasetDict

    if not isinstance(loaded, DatasetDict):
        if settings.split:
            raise DataError(f"dataset '{settings.path}' has no splits; remove dataset.split ('{settings.split}')")
        return loaded
    if settings.split in loaded:
        return loaded[settings.split]
    if settings.split is None and len(loaded) == 1:
        return next(iter(loaded.values()))
    asked = f"no split '{settings.split}'" if settings.split else "several splits"
    raise DataError(f"dataset '{settings.path}' has {asked}; set dataset.split to one of {', '.join(loaded)}")


def _likeliest(row: Row) -> str:
    """A column that has none of the names with a meaning of their own, for the hint in an error."""
    return next((name for name in row if name not in KNOWN_COLUMNS), "its_name")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
