"""A space's file that is changed after its run: one sentence, and never a result."""

import json
from pathlib import Path

import pytest
import tiny

from fedloom import cli
from fedloom.report.page import NAME

pytestmark = pytest.mark.whole

CHAIN = Path(__file__).parents[2] / "docs" / "examples" / "chain.py"
SIZE = {"cells": "1", "depth": "2", "channels": "2", "batch": "8"}
SPIDER = {**SIZE, "t_s": "1", "tau": "1"}
FEDORAS = {
    "depth": "2",
    "batch": "8",
    "epochs": "1",
    "models": "4",
    "pool": "2",
    "sample": "2",
    "comm": "1",
}
METHODS = {"fednas": SIZE, "spider": SPIDER, "fedoras": FEDORAS}
SIZED = Path(__file__).parents[1] / "contract" / "sized.py"
# The example's chain as FedorAS can search it; fednas and spider give it a size of their own.
OWN_SIZE = f"""

from fedloom.registry import from_file

Sized = from_file("{SIZED}:Sized")


class Own(Sized, Chain):
    pass
"""
RAISES = (
    "    def slots(self):\n",
    "    def slots(self):\n        raise RuntimeError('it was changed')\n",
)
LEAVES = ("    def slots(self):\n", "    def slots(self):\n        raise SystemExit(7)\n")
ONE_MORE = ('"conv3": 3}', '"conv3": 3, "conv5": 5}')
WIDER = ("size.channels, 3, padding=1)", "size.channels, 5, padding=2)")
DRAWS = "    def graphs(self, arch):\n        raise KeyError('no pen')\n\n    def sample("
CROOKED = (
    "    def graphs(self, arch):\n"
    "        from fedloom.spaces.layout import Graph, Link\n\n"
    "        return [Graph('chain', ('input',), 1, (Link(0, 5, ('conv3',), 0),))]\n\n"
    "    def sample("
)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "chain.py").write_text(CHAIN.read_text() + OWN_SIZE)
    return tmp_path / "chain.py"


def change(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def space_in(file, method):
    if method == "fedoras":
        return f"{file}:Own"
    return f"{file}:Chain"


def setting(images, file, method):
    options = {**METHODS[method], "space": space_in(file, method)}
    return {**tiny.tree(images, rounds=4), "options": options}


def answer(capsys, *words) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main([str(word) for word in words])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("fault", [RAISES, LEAVES], ids=["raises", "leaves"])
@pytest.mark.parametrize("method", METHODS)
def test_a_finished_run_whose_space_no_longer_answers(
    method, fault, images, tmp_path, file, capsys
):
    run = tiny.start(tmp_path / "run", method, setting(images, file, method))
    change(file, *fault)
    assert answer(capsys, "resume", run.path) == (0, "")
    (run.path / NAME).unlink()
    assert answer(capsys, "report", run.path) == (0, "")
    page = (run.path / NAME).read_text()
    undrawn = "3 of 3 architectures are of a space that cannot be opened here"
    if method == "fedoras":
        undrawn = "It cannot be drawn here; architectures/tier-1.json has it."
    assert undrawn in page
    code, errors = answer(capsys, "export", run.path, "--client", 0)
    assert code == 2
    space = space_in("chain.py", method)
    assert (
        errors.startswith(f"fedloom: the search space {space} must ") and "but it raised" in errors
    )
    code, errors = answer(capsys, "resume", run.path, "--from", 3)
    assert code == 2 and "but it raised" in errors
    assert (run.path / "result.json").exists()  # nothing was thrown away


@pytest.mark.parametrize("fault", [ONE_MORE, WIDER], ids=["an option more", "another stem"])
@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_goes_on_with_its_own_space_alone(
    method, fault, images, tmp_path, file, capsys
):
    tiny.stopped_after(1, tmp_path / "run", method, setting(images, file, method))
    before = file.read_text()
    space = space_in("chain.py", method)
    change(file, *fault)
    for words in (["resume", tmp_path / "run"], ["resume", tmp_path / "run", "--from", 1]):
        code, errors = answer(capsys, *words)
        assert code == 2
        assert (
            f"the search space {space} must be the one that the run was begun with, but " in errors
        )
        assert "in the checkpoint of round 1; put it back as it was" in errors
    file.write_text(before)
    assert answer(capsys, "resume", tmp_path / "run", "--quiet")[0] == 0


def test_the_networks_of_tiers_are_of_the_same_space_too(images, tmp_path, file, capsys):
    """While each tier's network is trained there is no supernet any more."""
    run = tiny.start(tmp_path / "run", "fedoras", setting(images, file, "fedoras"))
    assert tiny.rows(run.path)[-1]["stage"] == "tune"
    change(file, *WIDER)
    code, errors = answer(capsys, "export", run.path, "--client", 0)
    assert code == 2
    assert (
        "the search space chain.py:Own must be the one that the run was begun with, but "
        "net.stem.weight" in errors
    )


def test_a_run_begins_anew_with_a_changed_space(images, tmp_path, file, capsys):
    tiny.stopped_after(1, tmp_path / "run", "fednas", setting(images, file, "fednas"))
    change(file, *ONE_MORE)
    assert answer(capsys, "resume", tmp_path / "run", "--from", 0, "--quiet")[0] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_space_whose_slots_raise_begins_no_run(method, images, tmp_path, file, capsys):
    change(file, *RAISES)
    words = ["--data", images, "--clients", 3, "--partition", "iid", "--rounds", 8, "--workers", 0]
    code, errors = answer(
        capsys, "run", method, "--space", space_in(file, method), *words, "--out", tmp_path / "run"
    )
    assert code == 2
    space = space_in("chain.py", method)
    assert (
        f"the search space {space} must name its slots, but it raised RuntimeError: it was changed"
        in errors
    )


@pytest.mark.parametrize("drawing", [DRAWS, CROOKED], ids=["raises", "crooked"])
def test_a_drawing_that_fails_leaves_the_words(drawing, images, tmp_path, file):
    change(file, "    def sample(", drawing)
    run = tiny.start(tmp_path / "run", "fednas", setting(images, file, "fednas"))
    text = (run.path / "architectures/client-0.txt").read_text()
    assert "layer.0 ── " in text and "Its drawing failed: " in text
    assert json.loads((run.path / "architectures/client-0.json").read_text())["choice"]
    log = (run.path / "run.log").read_text()
    assert (
        "the architecture of client 0 is described in text: an architecture must be of a space "
        "that can be drawn" in log
    )
    page = (run.path / NAME).read_text()
    assert "cannot be opened" not in page
    assert "layer.0 ── " in page and "drawing failed" in page
