"""Progress in a pipe is plain lines; on a terminal a table."""

import io
import logging

import pytest
from rich.console import Console

from rollick.state.console import ProgressConsole, heading, shorten, show_warnings


def show(terminal, steps=2):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=40, color_system=None)
    columns = ["reward/mean", "loss", "eval/accuracy"]
    with ProgressConsole(total_steps=steps, columns=columns, console=console) as progress:
        progress.note("[ok] started")
        progress.log(0, {"eval/other": 1.0})
        for step in range(1, steps + 1):
            progress.log(step, {"reward/mean": 0.25, "loss": -0.012345678, "other": 1.0})
    return out.getvalue()


def test_pipe_gets_one_plain_line_per_step():
    lines = show(terminal=False).splitlines()
    assert lines[0] == "[ok] started"
    assert lines[1].startswith("step 1/2 reward/mean=0.25 loss=-0.01235 (")
    assert len(lines) == 3


def test_terminal_gets_a_header_and_aligned_rows():
    lines = [line.rpartition("\x1b[2K")[2] for line in show(terminal=True).splitlines()]
    assert "step              reward        loss    accuracy" in lines
    assert "1/2                 0.25    -0.01235           ·" in lines


@pytest.mark.parametrize(
    ("name", "text"),
    [("loss", "loss"), ("reward/mean", "reward"), ("rollout/response_length/mean", "response_length"), ("a/b", "b")],
)
def test_headings_tell_columns_apart(name, text):
    assert heading(name) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "·"), (0.43123, "0.4312"), (1.25e-6, "1.25e-06"), (12345.0, "12345"), (-0.0, "-0")]
)
def test_numbers_are_short(value, text):
    assert shorten(value) == text


def test_messages_are_one_line_each_however_long_and_reach_other_handlers_too(capsys, caplog, monkeypatch):
    logger = logging.getLogger("rollick")
    monkeypatch.setattr(logger, "handlers", [])
    show_warnings()
    logging.getLogger("rollick.state.somewhere").warning("%s is %s", "x" * 100, "damaged")
    logger.info("for your information")
    assert capsys.readouterr().err == "warning: " + "x" * 100 + " is damaged\nfor your information\n"
    assert "is damaged" in caplog.text


def test_a_long_step_shows_what_it_is_at_on_a_terminal_only():
    for terminal, shown in ((True, True), (False, False)):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
        with ProgressConsole(total_steps=2, columns=["loss"], console=console) as progress:
            progress.doing("12/64 answers")
            progress.log(1, {"loss": 0.5})
        assert ("12/64 answers" in out.getvalue()) == shown
