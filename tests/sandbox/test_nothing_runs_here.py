"""Nothing that a model wrote is executed by a process of the job."""

import ast
from pathlib import Path

import pytest

import rollick
import rollick.sandbox

INSIDE = "harness.py"
"""Copied into sandboxes as text; the one file that may execute what it is told."""
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
FORBIDDEN_ATTRIBUTES = {"system", "popen", "run_path", "run_module", "load_module", "exec_module"}
PICKLE_READERS = {"rollick/rewards/worker.py": 2, "rollick/training/state.py": 1}
"""Where pickles are read, and how often: what the trainer itself made (its checkpoints too), never what came out of a
sandbox."""


def calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield node


def sources():
    yield from (path for path in Path(rollick.__file__).parent.rglob("*.py") if path.name != INSIDE)


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_code_is_executed_in_the_job(path):
    for call in calls(path):
        name = call.func
        assert not (isinstance(name, ast.Name) and name.id in FORBIDDEN_NAMES), ast.unparse(call)
        assert not (isinstance(name, ast.Attribute) and name.attr in FORBIDDEN_ATTRIBUTES), ast.unparse(call)
        assert not any(keyword.arg == "shell" for keyword in call.keywords), ast.unparse(call)


def test_pickles_are_read_only_where_the_trainer_made_them():
    found = {}
    for path in sources():
        for call in calls(path):
            if ast.unparse(call.func) in ("pickle.loads", "pickle.load", "marshal.loads", "torch.load"):
                name = path.relative_to(Path(rollick.__file__).parents[1]).as_posix()
                found[name] = found.get(name, 0) + 1
    assert found == PICKLE_READERS


def test_the_harness_is_imported_by_nobody():
    for path in Path(rollick.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "sandbox.harness" not in ast.unparse(node), path


def test_the_harness_needs_nothing_but_the_standard_library():
    harness = Path(rollick.sandbox.__file__).parent / INSIDE
    imported = [ast.unparse(node) for node in ast.walk(ast.parse(harness.read_text())) if isinstance(node, ast.Import)]
    assert imported and not any("rollick" in line for line in imported)
