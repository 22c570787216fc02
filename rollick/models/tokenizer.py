"""The tokenizer of a model folder, and the ids that end an answer.

Nothing here sets a pad token: rows are ragged until a backend pads them by their lengths, so an end token that
happens to equal the pad token is never mistaken for padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rollick.config.job import ModelSettings
from rollick.errors import DataError
from rollick.models.chat import turn_end_id
from rollick.models.load import load_config
from rollick.models.source import require_source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
)


def load_tokenizer(settings: ModelSettings) -> PreTrainedTokenizerBase:
    """The tokenizer of `settings.tokenizer` (left out: of the model), with `settings.chat_template` when given.

    Raises DataError when there is none, when it cannot be read, when the template file is missing or is not
    valid Jinja, or when the tokenizer has ids that the model has no embedding for.
    """
    from transformers import AutoTokenizer

    path = settings.tokenizer or settings.path
    key = "model.tokenizer" if settings.tokenizer else "model.path"
    _check_folder(path, key)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path,
            revision=None if settings.tokenizer else settings.revision,
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{key}: no tokenizer could be read from '{path}' ({_first_line(error)})") from error
    if settings.chat_template is not None:
        tokenizer.chat_template = _read_template(Path(settings.chat_template))
    _check_size(tokenizer, settings)
    return tokenizer


def end_token_ids(settings: ModelSettings, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that ends an answer, ascending: those that generation config, model config and tokenizer declare
    (one id or several each), and the token that the chat template writes after an assistant turn (a base model
    with a borrowed template declares `<|endoftext|>` everywhere and yet learns to stop with `<|im_end|>`).

    Raises DataError when there is no such token at all.
    """
    config = load_config(settings)
    declared = (
        getattr(config, "eos_token_id", None),
        getattr(config.get_text_config(), "eos_token_id", None),
        _generation_eos(settings),
        tokenizer.eos_token_id,
        turn_end_id(tokenizer),
    )
    ids = {
        int(token)
        for entry in declared
        for token in (entry if isinstance(entry, list | tuple) else [entry])
        if token is not None
    }
    if not ids:
        raise DataError(
            f"model.path: '{settings.path}' names no end token (generation_config.json, config.json and the tokenizer "
            "have no eos token), so no answer would ever end; set eos_token in tokenizer_config.json"
        )
    return tuple(sorted(ids))


def save_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int]) -> None:
    """Complete an exported model folder: tokenizer, chat template, and the end ids in its generation config, so
    that whoever loads the folder stops where training stopped."""
    from transformers import GenerationConfig

    tokenizer.save_pretrained(folder)
    declared = (folder / "generation_config.json").is_file()
    generation = GenerationConfig.from_pretrained(folder) if declared else GenerationConfig()
    generation.eos_token_id = list(end_ids) if len(end_ids) > 1 else end_ids[0]
    generation.save_pretrained(folder)


def _generation_eos(settings: ModelSettings) -> int | list[int] | None:
    from transformers import GenerationConfig

    folder = Path(settings.path)
    if folder.is_dir() and not (folder / "generation_config.json").is_file():
        return None
    try:
        return GenerationConfig.from_pretrained(settings.path, revision=settings.revision or "main").eos_token_id
    except (OSError, ValueError) as error:
        if not folder.is_dir():
            return None  # a hub model without one
        raise DataError(f"model.path: cannot read '{folder}/generation_config.json' ({_first_line(error)})") from error


def _check_folder(path: str, key: str) -> None:
    """transformers makes an empty tokenizer out of a bare config.json, and takes a missing folder for a hub name."""
    folder = Path(path)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in VOCABULARY_FILES):
            raise DataError(f"{key}: the folder '{path}' holds no tokenizer ({', '.join(VOCABULARY_FILES[:3])}, …)")
    else:
        require_source(path, key)


def _check_size(tokenizer: PreTrainedTokenizerBase, settings: ModelSettings) -> None:
    rows = getattr(load_config(settings).get_text_config(), "vocab_size", None)
    if rows is not None and len(tokenizer) > rows:
        raise DataError(
            f"the tokenizer of '{settings.tokenizer or settings.path}' has {len(tokenizer)} tokens but the model "
            f"'{settings.path}' has embeddings for {rows}; it is the tokenizer of another model"
        )


def _read_template(path: Path) -> str:
    from jinja2 import TemplateError, TemplateSyntaxError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        template = path.read_text(encoding="utf-8")
        render_jinja_template(conversations=[[{"role": "user", "content": "hello"}]], chat_template=template)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"model.chat_template: '{path}' cannot be read ({_first_line(error)})") from error
    except TemplateSyntaxError as error:
        raise DataError(f"model.chat_template: {path}:{error.lineno}: not valid Jinja ({error.message})") from error
    except TemplateError:
        pass  # it compiles; what it asks of a conversation shows when one is rendered
    return template


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
