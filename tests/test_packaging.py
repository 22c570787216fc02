"""What a user installs: pins that satisfy the package's own limits, files that are shipped, targets that exist."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rollick

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)])
def test_the_pinned_set_satisfies_every_requirement(requirement):
    wanted = Requirement(requirement)
    known = {canonicalize_name(name): version for name, version in pins().items()}
    assert wanted.specifier.contains(known[canonicalize_name(wanted.name)])


def test_packages_that_break_the_set_stay_out():
    assert "latex2sympy2" not in {canonicalize_name(name) for name in pins()}


def test_the_version_is_said_once():
    assert PROJECT["version"] == rollick.__version__


def test_extras_named_in_error_messages_exist():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "rollick").rglob("*.py"))
    named = set(re.findall(r"rollick\[([\w-]+)\]", sources))
    assert named
    assert named <= set(EXTRAS)


def test_files_that_are_read_at_run_time_are_shipped():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    shipped = {path for pattern in patterns["package-data"]["rollick"] for path in (ROOT / "rollick").glob(pattern)}
    data = {path for path in (ROOT / "rollick").rglob("*") if path.suffix in (".yaml", ".jinja", ".json", ".txt")}
    assert data
    assert data <= shipped


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("target", ["venv", "demo", "test", "lint", "docs", "smollm2"])
def test_make_targets_start_from_the_environment(target, tmp_path):
    """In a checkout without .venv every target first creates it."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    plan = subprocess.run(
        ["make", "-n", target], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert plan.index("-m venv .venv") < plan.index("--editable '.[dev]'")


def test_the_licence_is_apache_2():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
