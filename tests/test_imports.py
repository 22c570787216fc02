"""Who may import whom, read from the source of every file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rollick"

LEVELS = (
    {"cli"},
    {"pipelines"},
    {"rollout", "training", "environments", "rewards"},
    {"engines", "models", "data", "sandbox"},
    {"runtime", "state", "config", "trackers", "platforms", "sandbox"},
)
"""From the top down: a package imports its own level and those below."""
ANYONE = {"errors"}
ALGORITHM_USERS = {"pipelines", "training", "cli", "algorithms"}
HEAVY = {"ray", "vllm", "sglang", "datasets", "reasoning_gym", "matplotlib", "math_verify", "wandb", "tensorboard"}
"""Imported where they are used, never when a module is loaded."""
LIGHT_PACKAGES = {"config", "cli", "state"}
LIGHT = {"pydantic", "pydantic_core", "omegaconf", "yaml", "typer", "rich"}
"""All that settings, command line and run directory may load."""


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    at_load: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def own_package(self) -> str | None:
        """`rollick.engines.base` is imported from the package `engines`."""
        parts = self.module.split(".")
        return parts[1] if parts[0] == "rollick" and len(parts) > 1 else None

    @property
    def importer(self) -> str:
        return Path(self.file).parts[0].removesuffix(".py")

    def __str__(self) -> str:
        return f"rollick/{self.file}:{self.line} imports {self.module}"


def imports_of(source: str, file: str) -> Iterator[Import]:
    yield from _visit(ast.parse(source), file, at_load=True)


def _visit(node: ast.AST, file: str, at_load: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(file, child.lineno, alias.name, at_load)
        elif isinstance(child, ast.ImportFrom):
            module = child.module if child.level == 0 else f"relative.{child.module}"
            names = [f"rollick.{alias.name}" for alias in child.names] if module == "rollick" else [module]
            for name in names:
                yield Import(file, child.lineno, name, at_load)
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child)
        yield from _visit(child, file, at_load and not inside)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


ALL = [
    found
    for path in sorted(ROOT.rglob("*.py"))
    for found in imports_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
]


def level(package: str) -> int:
    return next(index for index, packages in enumerate(LEVELS) if package in packages)


def wrong_direction(found: Import) -> bool:
    package = found.own_package
    if package is None or package in ANYONE or package.startswith("__"):
        return False
    if package == "algorithms":
        return found.importer not in ALGORITHM_USERS
    if found.importer in ("algorithms", "errors"):
        return True
    return level(package) < level(found.importer)


def test_every_package_has_a_level():
    packages = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages - set().union(*LEVELS) == {"algorithms"}


def test_imports_point_downwards_only():
    assert [str(found) for found in ALL if wrong_direction(found)] == []


def test_algorithms_import_torch_and_nothing_else():
    allowed = sys.stdlib_module_names | {"torch"}
    outside = [f for f in ALL if f.importer == "algorithms" and f.top not in allowed and f.own_package != "algorithms"]
    assert [str(found) for found in outside] == []


def test_heavy_packages_are_imported_where_they_are_used():
    assert [str(found) for found in ALL if found.at_load and found.top in HEAVY] == []


def test_settings_and_command_line_load_nothing_heavy():
    allowed = sys.stdlib_module_names | LIGHT
    light = [found for found in ALL if found.importer in LIGHT_PACKAGES and found.at_load]
    assert [str(found) for found in light if found.top not in allowed and found.own_package is None] == []
    reachable = LIGHT_PACKAGES | ANYONE | {"__version__"}
    assert [str(f) for f in light if f.own_package is not None and f.own_package not in reachable] == []


def test_no_relative_imports():
    assert [str(found) for found in ALL if found.top == "relative"] == []


@pytest.mark.parametrize(
    ("file", "source", "wrong"),
    [
        ("engines/torch.py", "from rollick.pipelines.rl import run", True),
        ("engines/torch.py", "def f():\n    import rollick.training.base", True),
        ("engines/torch.py", "from rollick import rollout", True),
        ("config/load.py", "from rollick.data.records import Task", True),
        ("rollout/driver.py", "from rollick.algorithms.kl import k3", True),
        ("algorithms/kl.py", "from rollick.errors import NumericsError", False),
        ("algorithms/kl.py", "from rollick.data.batch import Batch", True),
        ("training/fsdp.py", "from rollick.engines.base import Bucket", False),
        ("training/losses.py", "from rollick.algorithms.kl import k3", False),
        ("rewards/math.py", "from rollick.environments.base import Environment", False),
    ],
)
def test_the_rule_itself(file, source, wrong):
    assert [wrong_direction(found) for found in imports_of(source, file)] == [wrong]


def test_imports_inside_functions_and_type_checking_are_not_at_load():
    source = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c\nclass D:\n    import d\n"
    assert {found.module: found.at_load for found in imports_of(source, "x.py")} == {
        "a": True,
        "b": False,
        "c": False,
        "d": True,
    }


@pytest.mark.parametrize("module", ["rollick.cli", "rollick.config.load", "rollick.state.run_directory"])
def test_loading_brings_in_no_torch(module):
    """In a real interpreter, so that what third parties import counts too."""
    code = f"import sys, {module}; print([m for m in ('torch', 'transformers', 'ray', 'numpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
