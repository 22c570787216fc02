"""Failure case 3: an option that parses must reach code that reads it."""

import ast
from pathlib import Path

import pytest

import rollick
from rollick.config.algorithm_parts import FAMILIES, find_part, part_names
from rollick.config.load import PIPELINES
from rollick.config.violations import field_paths

ROOT = Path(rollick.__file__).parent
NOT_READ_BY_NAME = {
    "preset": "applied when the settings are read",
    "advantage": "read as algorithm.part(family)",
    "sample_filter": "read as algorithm.part(family)",
    "staleness": "has one allowed value",
    "backend": "has one allowed value",
}


def names_read(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr


READ = {option for family in FAMILIES for name in part_names(family) for option in find_part(family, name).options}
"""Options of the parts of an algorithm are read by their names in a signature."""
READ |= {name for path in ROOT.rglob("*.py") if path.parent.name != "config" for name in names_read(path)}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_option_is_read_somewhere(pipeline):
    leaves = {path.rpartition(".")[2] for path in field_paths(PIPELINES[pipeline])}
    assert sorted(leaves - READ - NOT_READ_BY_NAME.keys()) == []


def test_the_exceptions_are_still_options():
    leaves = {path.rpartition(".")[2] for job in PIPELINES.values() for path in field_paths(job)}
    assert leaves >= NOT_READ_BY_NAME.keys()
