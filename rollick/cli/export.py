"""`rollick export`: the model of a checkpoint as a Hugging Face folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

from rollick.config.base import nearest
from rollick.config.job import DType
from rollick.config.load import load_job
from rollick.errors import ConfigError, DataError
from rollick.state.checkpoint import MANIFEST, full_problem, latest_checkpoint


def export_model_folder(source: Path, out: Path, dtype: str | None = None) -> Path:
    """Write weights (tied ones once), config, tokenizer, chat template and generation config of a run's newest
    checkpoint, or of the given one, into `out`.

    The folder appears whole or not at all. Raises DataError when there is no whole checkpoint, ConfigError when
    `out` holds something already.
    """
    if dtype is not None and dtype not in get_args(DType):
        near = nearest(dtype, get_args(DType))
        raise ConfigError(
            f"--dtype {dtype} is unknown, there are {', '.join(get_args(DType))}"
            f"{f'; did you mean {near}?' if near else ''}"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is left as it is; name another folder")
    checkpoint = find_checkpoint(source)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(checkpoint, partial, dtype)
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def find_checkpoint(source: Path) -> Path:
    """`source` itself when it is a checkpoint, else the newest whole one of the run. Raises DataError."""
    if not source.is_dir():
        raise DataError(f"{source}: there is no such folder; give a run directory or one of its checkpoints")
    if (source / MANIFEST).exists():
        checkpoint = source
    else:
        found = latest_checkpoint(source / "checkpoints")
        if found is None:
            raise DataError(f"{source}: there is no whole checkpoint; give a run directory or one of its checkpoints")
        checkpoint = found
    problem = full_problem(checkpoint)
    if problem:
        raise DataError(f"checkpoint {checkpoint} is damaged: {problem}; name another one")
    return checkpoint


def _write(checkpoint: Path, folder: Path, dtype: str | None) -> None:
    import torch

    from rollick.models.export import export_model
    from rollick.models.load import load_causal_lm
    from rollick.models.tokenizer import end_token_ids, load_tokenizer, save_tokenizer
    from rollick.models.weights import named_weights
    from rollick.training.state import read_state

    settings = load_job(checkpoint.resolve().parents[1] / "config.yaml")[0].model
    master = torch.promote_types(getattr(torch, settings.dtype), torch.float32)
    model = load_causal_lm(settings, master)
    weights = {name: weight.detach() for name, weight in named_weights(model).items()}
    read_state(checkpoint, {f"weights/{name}": w for name, w in weights.items()}, rank=0, size=1)
    torch.nn.Module.to(model, getattr(torch, dtype) if dtype else master)
    export_model(model, {name: weight.detach() for name, weight in named_weights(model).items()}, folder)
    tokenizer = load_tokenizer(settings)
    save_tokenizer(folder, tokenizer, end_token_ids(settings, tokenizer))
