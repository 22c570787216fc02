"""Checkpoints that count only when they are whole.

    checkpoints/step_000020/
      …                  whatever the pipeline wrote: weights, optimiser, cursors, random states
      manifest.json      written last: {"format": 1, "step": 20, "meta": {…}, "files": {name: [size, sha256]}, "digest"}

A checkpoint is written under a temporary name, flushed to the disk, hashed and then renamed. `latest` is the
highest step whose manifest is valid, never a marker; older ones go only after the new one is whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollick.errors import DataError, RollickError

log = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
TEMPORARY = ".saving-"
REPLACED = ".replaced-"
SUPERSEDED = "superseded"
_NAME = re.compile(r"step_(\d{6,})$")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOW_SPACE = 16 * 2**20
Meta = dict[str, Any]


class CheckpointStore:
    """The checkpoints of one run, opened by the process that writes the run (others only read: see
    `checkpoint_folders` and `latest_checkpoint`).

    store = CheckpointStore(run.checkpoints, keep_last=2)
    store.save(20, lambda folder: trainer.save(folder), {"sampler": sampler.state()})
    folder, meta = store.load()
    """

    def __init__(self, directory: Path, keep_last: int = 2):
        self.directory = directory
        self.keep_last = keep_last
        directory.mkdir(parents=True, exist_ok=True)
        self._clean_up()

    def save(self, step: int, write: Callable[[Path], None], meta: Meta) -> Path:
        """Let `write` fill a folder, then commit it as the checkpoint of `step`; `meta` is any JSON value.

        Whatever goes wrong, earlier checkpoints stay as they are. Raises RollickError when the disk is full.
        """
        target = self.directory / f"step_{step:06d}"
        temporary = self.directory / f"{TEMPORARY}{target.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            write(temporary)
            _write_manifest(temporary, step, meta)
            self._commit(temporary, target)
        except BaseException as error:
            full = _is_disk_full(error, self.directory)
            shutil.rmtree(temporary, ignore_errors=True)
            if full:
                raise RollickError(_disk_full_sentence(self, step, error)) from error
            raise
        self._drop_old()
        return target

    def steps(self) -> list[int]:
        """Steps of all checkpoints with a valid manifest and files of the right size, ascending."""
        return [step for step, folder in self._folders() if quick_problem(folder) is None]

    def latest(self) -> Path | None:
        return latest_checkpoint(self.directory)

    def load(self, path: Path | None = None) -> tuple[Path, Meta]:
        """Folder and meta of `path`, or of the newest checkpoint whose every byte is as it was written.

        Resuming from an older checkpoint of this store moves the newer ones to `superseded/`, so that they are
        never taken for the continuation. Raises DataError when `path` is damaged or nothing whole is left.
        """
        if path is not None:
            problem = full_problem(path)
            if problem:
                others = ", ".join(str(step) for step in self.steps()) or "none"
                raise DataError(f"checkpoint {path}: {problem}; whole checkpoints here: {others}")
            self._supersede_after(path)
            return path, read_manifest(path)["meta"]
        damaged = []
        for _, folder in reversed(self._folders()):
            problem = full_problem(folder)
            if problem is None:
                return folder, read_manifest(folder)["meta"]
            log.warning("%s is damaged (%s); falling back to an earlier checkpoint", folder, problem)
            damaged.append(f"{folder.name}: {problem}")
        found = "; ".join(damaged) or "there is none"
        raise DataError(f"{self.directory}: no whole checkpoint to resume from ({found}); start under another name")

    def is_empty(self) -> bool:
        """True when no checkpoint was ever committed here (a damaged one counts as one)."""
        return not self._folders()

    def _folders(self) -> list[tuple[int, Path]]:
        return checkpoint_folders(self.directory)

    def _commit(self, temporary: Path, target: Path) -> None:
        """Rename into place. A folder of the same step (a fallback re-did it) steps aside until that is done."""
        replaced = self.directory / f"{REPLACED}{target.name}"
        if target.exists():
            target.rename(replaced)
        temporary.rename(target)
        _fsync(self.directory)
        shutil.rmtree(replaced, ignore_errors=True)

    def _drop_old(self) -> None:
        """Damaged checkpoints do not count, so `keep_last` good ones always stay."""
        oldest_kept = self.steps()[-self.keep_last :][0]
        for step, folder in self._folders():
            if step < oldest_kept:
                shutil.rmtree(folder)

    def _clean_up(self) -> None:
        """Finish or undo what a kill interrupted."""
        for folder in self.directory.glob(f"{TEMPORARY}*"):
            shutil.rmtree(folder)
        for folder in self.directory.glob(f"{REPLACED}*"):
            target = self.directory / folder.name.removeprefix(REPLACED)
            if target.exists():
                shutil.rmtree(folder)
            else:
                folder.rename(target)

    def _supersede_after(self, path: Path) -> None:
        if path.resolve().parent != self.directory.resolve():
            return
        resumed = read_manifest(path)["step"]
        for step, folder in self._folders():
            if step > resumed:
                aside = self.directory / SUPERSEDED / folder.name
                aside.parent.mkdir(exist_ok=True)
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
                log.warning("resuming from %s: the newer %s was moved to %s", path.name, folder.name, aside)


def checkpoint_folders(directory: Path) -> list[tuple[int, Path]]:
    """(step, folder) of everything that was committed as a checkpoint, whole or damaged, ascending."""
    if not directory.is_dir():
        return []
    matches = [(_NAME.match(folder.name), folder) for folder in directory.iterdir() if folder.is_dir()]
    return sorted((int(match[1]), folder) for match, folder in matches if match)


def latest_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint that is valid by manifest and sizes; damaged ones are reported and passed over."""
    for _, folder in reversed(checkpoint_folders(directory)):
        problem = quick_problem(folder)
        if problem is None:
            return folder
        log.warning("%s is damaged (%s); falling back to an earlier checkpoint", folder, problem)
    return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Raises ValueError saying what is wrong with it."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        digest = manifest.pop("digest")
    except FileNotFoundError:
        raise ValueError(f"{MANIFEST} is missing, it was never finished") from None
    except (ValueError, KeyError, AttributeError, TypeError, OSError):
        raise ValueError(f"{MANIFEST} cannot be read") from None
    if digest != _digest(manifest):
        raise ValueError(f"{MANIFEST} was altered")
    if manifest["format"] != FORMAT:
        raise ValueError(f"format {manifest['format']} is not the format {FORMAT} that this version reads")
    return manifest


def quick_problem(folder: Path) -> str | None:
    """What is wrong with a checkpoint by its manifest and file sizes; None when nothing is."""
    try:
        manifest = read_manifest(folder)
    except ValueError as error:
        return str(error)
    for name, (size, _) in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
    return None


def full_problem(folder: Path) -> str | None:
    """`quick_problem`, and every file's content against its hash."""
    problem = quick_problem(folder)
    if problem:
        return problem
    for name, (_, sha256) in read_manifest(folder)["files"].items():
        if _hash(folder / name) != sha256:
            return f"{name} does not have the content that was written"
    return None


def _write_manifest(folder: Path, step: int, meta: Meta) -> None:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        _fsync(path)
        files[path.relative_to(folder).as_posix()] = [path.stat().st_size, _hash(path)]
    manifest = {"format": FORMAT, "step": step, "meta": meta, "files": files}
    manifest = json.loads(json.dumps(manifest))
    path = folder / MANIFEST
    path.write_text(json.dumps({**manifest, "digest": _digest(manifest)}, indent=1), encoding="utf-8")
    _fsync(path)
    for directory in [p for p in folder.rglob("*") if p.is_dir()] + [folder]:
        _fsync(directory)


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_disk_full(error: BaseException, directory: Path) -> bool:
    """Libraries report a full disk in their own words, so space is looked at as well (before cleaning up)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        cause = cause.__cause__
    return isinstance(error, Exception) and shutil.disk_usage(directory).free < _LOW_SPACE


def _disk_full_sentence(store: CheckpointStore, step: int, error: BaseException) -> str:
    kept = store.latest()
    rest = f"{kept.name} is untouched" if kept else "there is no earlier one"
    return (
        f"{store.directory}: the disk is full, the checkpoint of step {step} could not be written ({error}); {rest}. "
        "Make room (a lower checkpoint.keep_last helps) and continue with --resume"
    )
