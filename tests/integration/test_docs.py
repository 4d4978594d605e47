"""What the documentation shows is what runs."""

import re
from pathlib import Path

import pytest

from fedloom.testing import MethodContract

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "fedper.py"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(blocks(ROOT / "README.md", "python")[0], scope)
    assert "local-adaptation on digits" in capsys.readouterr().out
    assert len(scope["run"].clients) == 8


def test_the_readme_example_is_three_lines():
    lines = [line for line in blocks(ROOT / "README.md", "python")[0].splitlines() if line.strip()]
    assert len(lines) == 3


def test_the_worked_example_is_the_file_and_under_60_lines():
    text = EXAMPLE.read_text()
    assert blocks(ROOT / "docs" / "add-a-method.md", "python")[0].strip() == text.strip()
    assert len(text.splitlines()) < 60


@pytest.mark.slow
class TestWorkedExample(MethodContract):
    method = f"{EXAMPLE}:fedper"


def test_every_link_between_pages_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
