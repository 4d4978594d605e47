"""What the documentation shows is what runs."""

import re
from pathlib import Path

import pytest
import torch

from fedloom.spaces import open_space
from fedloom.spaces.space import Size
from fedloom.testing import MethodContract, SpaceContract

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "fedper.py"
SPACE = ROOT / "docs" / "examples" / "chain.py"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.whole
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


def test_the_worked_space_is_the_file():
    """It is as the documentation prints it.

    tests/contract/test_spaces.py runs the contract on it, test_space_from_outside.py every command.
    """
    assert (
        blocks(ROOT / "docs" / "add-a-space.md", "python")[0].strip() == SPACE.read_text().strip()
    )
    assert len(SPACE.read_text().splitlines()) < 160


def test_the_asked_choice_of_the_page_runs():
    net = open_space(f"{SPACE}:Chain:3").network((1, 8, 8), 3, Size(cells=2, channels=4)).eval()
    samples = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    scope = {"torch": torch, "supernet": net, "samples": samples}
    exec(blocks(ROOT / "docs" / "add-a-space.md", "python")[1], scope)
    alone = [net(sample[None], scope["Brightness"]()) for sample in samples]
    torch.testing.assert_close(scope["scores"], torch.cat(alone))


def test_the_test_class_of_the_page_is_one(monkeypatch):
    monkeypatch.chdir(ROOT)
    scope: dict = {}
    exec(blocks(ROOT / "docs" / "add-a-space.md", "python")[2], scope)
    contract = scope["TestChain"]
    assert issubclass(contract, SpaceContract)
    assert open_space(contract.space).slots[0].options == ("skip", "conv1", "conv3")


def anchors(page: Path) -> set[str]:
    """The places of a page that can be linked to, as forges name them: its headings."""
    places = set()
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        places.add(re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-"))
    return places


def test_every_link_between_pages_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = []
    for page in pages:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", prose):
            if target.startswith("http"):
                continue
            file = page.parent / target if target else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def test_every_page_is_in_the_index():
    """docs/README.md names all pages of its folder.

    Results and decisions have indexes of their own.
    """
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "data").glob("*.md")]
    pages += (ROOT / "docs" / "tutorials").glob("*.ipynb")
    missing = []
    for page in pages:
        name = page.relative_to(ROOT / "docs").as_posix()
        if name != "README.md" and f"({name})" not in index:
            missing.append(name)
    assert missing == []
