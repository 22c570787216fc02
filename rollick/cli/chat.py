"""`rollick chat`: ask a model folder, or the newest checkpoint of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rollick.config.job import ModelSettings, model_context
from rollick.errors import DataError
from rollick.state.seeds import derive_seed

if TYPE_CHECKING:
    from rollick.data.records import Message
    from rollick.engines.base import Engine

MAX_CONTEXT = 8192
"""Longest conversation in tokens (less when the model's context is shorter)."""
HELP = "Empty line or Ctrl-D: end.  /reset: forget the conversation."


@dataclass(frozen=True)
class ChatOptions:
    prompt: str | None
    system: str | None
    temperature: float
    max_new_tokens: int
    seed: int


def talk(source: Path, options: ChatOptions) -> None:
    """Answer `options.prompt` on standard output, or converse until the user ends it."""
    console = Console(soft_wrap=True)
    with model_folder(source) as folder:
        conversation = Conversation(folder, options)
    if options.prompt is not None:
        console.print(Text(conversation.answer(options.prompt)))
        return
    console.print(Text(f"{source}. {HELP}", style="dim"))
    while True:
        try:
            said = console.input("[bold]you[/] ")
        except EOFError:
            return
        if not said.strip():
            return
        if said.strip() == "/reset":
            conversation.reset()
            continue
        console.print(Text("model ", style="bold").append(conversation.answer(said), style="not bold"))


@contextmanager
def model_folder(source: Path) -> Iterator[Path]:
    """The Hugging Face folder to talk to; a run's newest checkpoint is exported for the moment."""
    if (source / "config.json").is_file():
        yield source
        return
    if not source.is_dir():
        raise DataError(f"{source}: there is no such folder; give a Hugging Face folder or a run directory")
    from rollick.cli.export import export_model_folder

    with tempfile.TemporaryDirectory() as temporary:
        yield export_model_folder(source, Path(temporary) / "model")


class Conversation:
    """One engine, one history. Without a chat template every input is raw text to continue."""

    def __init__(self, folder: Path, options: ChatOptions):
        from rollick.models.tokenizer import end_token_ids, load_tokenizer

        self.options = options
        settings = ModelSettings(path=str(folder))
        self.max_length = min(model_context(settings) or MAX_CONTEXT, MAX_CONTEXT)
        self.tokenizer = load_tokenizer(settings)
        self.engine = self._build_engine(settings, end_token_ids(settings, self.tokenizer))
        self.turns = 0
        self.history: list[Message] = []
        self.reset()

    def reset(self) -> None:
        self.history = [{"role": "system", "content": self.options.system}] if self.options.system else []

    def answer(self, said: str) -> str:
        """The model's reply, which becomes part of the history.

        Raises DataError when the conversation leaves no room for an answer in the model's context.
        """
        from rollick.engines.base import GenerationRequest, Sampling, generate
        from rollick.models.chat import prompt_ids

        asked: list[Message] | str = [*self.history, {"role": "user", "content": said}]
        if not self.tokenizer.chat_template:
            asked = said
        ids = prompt_ids(self.tokenizer, asked)
        room = self.max_length - len(ids)
        if room < 1:
            raise DataError(f"the conversation has {len(ids)} tokens and the model reads {self.max_length}; start anew")
        sampling = Sampling(temperature=self.options.temperature, max_new_tokens=min(self.options.max_new_tokens, room))
        request = GenerationRequest(
            id=str(self.turns),
            prompt_ids=tuple(ids),
            sampling=sampling,
            seed=derive_seed(self.options.seed, "chat", self.turns),
        )
        [completion] = generate(self.engine, [request])
        reply = str(self.tokenizer.decode(completion.token_ids, skip_special_tokens=True))
        self.turns += 1
        if isinstance(asked, list):
            self.history = [*asked, {"role": "assistant", "content": reply}]
        return reply

    def _build_engine(self, settings: ModelSettings, end_ids: tuple[int, ...]) -> Engine:
        from rollick.engines.base import EngineContext
        from rollick.engines.torch import Options
        from rollick.platforms.select import select_platform

        context = EngineContext(
            model=settings,
            tokenizer=self.tokenizer,
            eos_token_ids=end_ids,
            max_length=self.max_length,
            device=str(select_platform().device(0)),
        )
        return Options(kind="torch", slots=1).build(context)
