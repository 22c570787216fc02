"""The documentation does what it says: code runs, jobs load, links lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest
import typer

from rollick.cli import app
from rollick.config.base import plugin_kinds
from rollick.config.load import load_job
from rollick.config.reference import settings_reference

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    found = []
    for page in PAGES:
        for number, (name, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if name == language:
                found.append(pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    runpy.run_path(str(tmp_path / "block.py"), run_name="block")


@pytest.mark.parametrize("job", blocks("yaml"))
def test_job_files_in_the_text_load(job, tmp_path):
    (tmp_path / "job.yaml").write_text(job, encoding="utf-8")
    load_job(tmp_path / "job.yaml", [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


def test_the_settings_reference_is_what_the_classes_say():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page.strip() == settings_reference().strip(), "run: python -m rollick.config.reference docs/settings.md"


def test_every_kind_of_reward_is_described():
    page = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    assert [kind for kind in plugin_kinds("rewards") if f"| `{kind}` |" not in page] == []


def test_commands_in_the_text_exist():
    known = set(typer.main.get_command(app).commands)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    used = set(re.findall(r"^rollick (\w+)", text, re.MULTILINE)) | set(re.findall(r"`rollick (\w+)", text))
    assert used
    assert used <= known


def test_files_named_in_the_text_exist():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"`((?:rollick|tests|examples|benchmarks|docs)/[\w/.-]+\.\w+)`", text))
    planned = {"rollick/rewards/brevity.py", "tests/rewards/test_brevity.py"}  # the guide's own example
    assert named - planned
    assert sorted(name for name in named - planned if not (ROOT / name).exists()) == []
