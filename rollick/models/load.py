"""Loading Hugging Face models: every name accounted for, nothing random at run time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rollick.config.job import ModelSettings
from rollick.errors import DataError, MissingDependencyError
from rollick.models.source import require_source

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def load_config(settings: ModelSettings) -> PreTrainedConfig:
    """The model's configuration. Raises DataError when the folder or its config.json is missing or broken."""
    from transformers import AutoConfig

    require_source(settings.path, "model.path")
    folder = Path(settings.path)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise DataError(f"model.path: '{settings.path}' has no config.json; it is not a Hugging Face model folder")
    try:
        return AutoConfig.from_pretrained(settings.path, **_source(settings))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"model.path: cannot read the config of '{settings.path}': {_first_line(error)}") from error


def load_causal_lm(
    settings: ModelSettings, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """The causal language model of a Hugging Face folder, in `dtype` (left out: `settings.dtype`), in eval mode.

    Eval mode stays on in training too: dropout would make the trainer's log-probs differ from the engine's.

    Raises DataError when weights are missing, unexpected or of another shape, with all names of the model in one
    report, and MissingDependencyError when the chosen attention needs a package that is not installed.
    """
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, settings, dtype, device)


def load_sequence_classifier(
    settings: ModelSettings, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """The sequence-classification model (a reward model) of a Hugging Face folder, in eval mode.

    Raises what `load_causal_lm` raises; so a folder of a language model, whose score head would be made up at random,
    is refused.
    """
    from transformers import AutoModelForSequenceClassification

    return _load(AutoModelForSequenceClassification, settings, dtype, device)


def _load(auto: Any, settings: ModelSettings, dtype: torch.dtype | None, device: torch.device | str) -> PreTrainedModel:
    from safetensors import SafetensorError

    config = load_config(settings)
    attention = None if settings.attention == "auto" else settings.attention
    try:
        loaded: Any = auto.from_pretrained(
            settings.path,
            config=config,
            dtype=dtype or getattr(torch, settings.dtype),
            attn_implementation=attention,
            use_safetensors=None,
            ignore_mismatched_sizes=True,  # so that they are reported with the other names, below
            output_loading_info=True,
            **_source(settings),
        )
    except ImportError as error:
        raise MissingDependencyError(f"model.attention: {settings.attention}: {_first_line(error)}") from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"model.path: cannot load '{settings.path}': {_first_line(error)}") from error
    model, report = loaded
    _require_complete(settings.path, report)
    if model.dtype == torch.float64 and getattr(model.config.get_text_config(), "num_experts", None):
        model.set_experts_implementation("eager")  # torch's grouped product has no float64 kernel
    return model.to(device).eval()


def _source(settings: ModelSettings) -> dict[str, Any]:
    return {"revision": settings.revision, "trust_remote_code": settings.trust_remote_code}


def _require_complete(path: str, report: dict[str, Any]) -> None:
    found = {
        "missing from the files": sorted(report["missing_keys"]),
        "in the files but not in the model": sorted(report["unexpected_keys"]),
        "of another shape": sorted(
            f"{name} (file {tuple(theirs)}, model {tuple(ours)})" for name, theirs, ours in report["mismatched_keys"]
        ),
    }
    problems = [f"{len(names)} {what}: {', '.join(names)}" for what, names in found.items() if names]
    if problems:
        raise DataError(f"model.path: the weights in '{path}' do not fit its config.json: {'; '.join(problems)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
