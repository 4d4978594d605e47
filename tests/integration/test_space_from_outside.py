"""A search space that is no part of the package goes everywhere that one of ours goes.

It is the example of the documentation: a chain, which has no cells and brings no drawing.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from fedloom import cli, registry, spaces
from fedloom.report.page import NAME
from fedloom.runs.results import Run

CHAIN = Path(__file__).parents[2] / "docs" / "examples" / "chain.py"
TEXTS = Path(__file__).parents[1] / "outside" / "text_space.py"
SIZE = {"cells": "1", "depth": "2", "channels": "2", "batch": "8"}
SPIDER = {**SIZE, "t_s": "1", "tau": "1"}


@pytest.fixture
def chain(tmp_path) -> str:
    """Its name, in a folder of its own."""
    shutil.copy(CHAIN, tmp_path / "chain.py")
    return f"{tmp_path}/chain.py:Chain"


def tree(images, space, options, **more):
    setting = tiny.tree(images, **{"rounds": 4, **more})
    return {**setting, "options": {**options, "space": space}}


@pytest.fixture
def spider_run(images, tmp_path, chain):
    return tiny.start(tmp_path / "run", "spider", tree(images, chain, SPIDER))


def as_another_process(monkeypatch):
    """Nothing is left of what this one opened."""
    monkeypatch.setattr(spaces, "_OPENED", set())


def output_of(capsys, *words, code=0) -> str:
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(("method", "options"), [("fednas", SIZE), ("spider", SPIDER)])
def test_it_is_searched_stopped_and_resumed(images, tmp_path, chain, method, options):
    setting = tree(images, chain, options)
    whole = tiny.start(tmp_path / "whole", method, setting)
    for row in whole.clients:
        assert row.architecture["space"] == f"{chain}:2"
        assert all(len(live) == 1 for live in row.architecture["choice"])
    tiny.stopped_after(2, tmp_path / "stopped", method, setting)
    tiny.go_on(tmp_path / "stopped")
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "whole"), tiny.left_behind(tmp_path / "stopped"))
        == []
    )


def test_workers_open_it_too(images, tmp_path, chain, pool_of):
    setting = tree(images, chain, SIZE, rounds=2)
    alone = tiny.start(tmp_path / "alone", "fednas", setting)
    setting["engine"] = {"workers": 1}
    run = tiny.start(tmp_path / "worker", "fednas", setting, pool=pool_of(1))
    assert [row.accuracy for row in run.clients] == [row.accuracy for row in alone.clients]


def test_its_architectures_are_told_in_words(spider_run, capsys, monkeypatch):
    as_another_process(monkeypatch)
    folder = spider_run.path / "architectures"
    assert sorted(path.name for path in folder.iterdir())[:2] == ["client-0.json", "client-0.txt"]
    assert "layer.0 ── " in (folder / "client-0.txt").read_text()
    assert not (spider_run.path / "run.log").read_text()  # nothing is amiss
    (spider_run.path / NAME).unlink()
    output_of(capsys, "report", spider_run.path)
    page = (spider_run.path / NAME).read_text()
    assert "cannot be opened" not in page and "unknown" not in page
    section = page.partition(">Architectures</h2>")[2].partition("<h2")[0]
    assert "layer.0 ── " in section and "edge" not in section


def test_another_process_reads_the_result_in_words(spider_run, monkeypatch):
    as_another_process(monkeypatch)
    client = Run.open(spider_run.path).client(0)
    assert client.architecture._repr_svg_() is None
    names = ("skip", "conv1", "conv3")
    assert any(
        f"1 {name}" in client._repr_html_() or f"2 {name}" in client._repr_html_() for name in names
    )


def test_a_file_that_is_gone_leaves_the_result(spider_run, monkeypatch, tmp_path, capsys):
    as_another_process(monkeypatch)
    (tmp_path / "chain.py").unlink()
    assert Run.open(spider_run.path).result["clients"]
    output_of(capsys, "report", spider_run.path)
    assert (
        "3 of 3 architectures are of a space that cannot be opened here"
        in (spider_run.path / NAME).read_text()
    )


def test_its_models_are_exported_and_predict(spider_run, capsys, monkeypatch, tmp_path):
    as_another_process(monkeypatch)
    output = output_of(capsys, "export", spider_run.path, "--client", 0)
    assert "equals the run's own network on" in output and "bit for bit" in output
    assert (
        "fedloom"
        not in (spider_run.path / "exports/client-0/model.py")
        .read_text()
        .partition('"""\n\nimport')[2]
    )
    output = output_of(capsys, "export", spider_run.path, "--shared", "--out", tmp_path / "shared")
    assert "bit for bit" in output
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 6, 6), dtype=np.uint8))
    printed = json.loads(
        output_of(
            capsys,
            "predict",
            spider_run.path,
            "--client",
            0,
            "--data",
            tmp_path / "new.npz",
            "--json",
        )
    )
    assert len(printed["predictions"]) == 2


def test_what_was_found_is_trained_as_a_fixed_network(
    spider_run, images, tmp_path, capsys, monkeypatch
):
    output_of(capsys, "export", spider_run.path, "--client", 0)
    as_another_process(monkeypatch)
    expected = spider_run.client(0).architecture["choice"]
    for file in ("architectures/client-0.json", "exports/client-0/architecture.json"):
        options = {"network": str(spider_run.path / file), "width": "0.25", "batch": "8"}
        setting = {**tiny.tree(images, rounds=1), "options": options}
        run = tiny.start(tmp_path / Path(file).parent.name, "fedavg", setting)
        assert {json.dumps(row.architecture["choice"]) for row in run.clients} == {
            json.dumps(expected)
        }
    as_another_process(monkeypatch)
    output_of(capsys, "report", run.path)
    assert "layer.0 ── " in (run.path / NAME).read_text()


def test_its_operations_are_profiled(spider_run, chain, capsys, tmp_path, monkeypatch):
    as_another_process(monkeypatch)
    size = ["--cells", 1, "--channels", 2, "--shape", "1x6x6", "--classes", 3]
    table = tmp_path / "profile.json"
    printed = json.loads(
        output_of(
            capsys,
            "profile",
            "--space",
            f"{chain}:2",
            *size,
            "--repeats",
            3,
            "--out",
            table,
            "--json",
        )
    )
    names = {entry["op"] for entry in printed["entries"]}
    assert names == {"normalised", "conv_3x3", "conv1", "conv3", "add", "mean", "classifier"}
    again = output_of(
        capsys, "profile", "--run", spider_run.path, "--repeats", 3, "--out", table, "--json"
    )
    assert json.loads(again)["new"] == 0
    checked = output_of(
        capsys, "profile", "check", spider_run.path, "--profile", table, "--repeats", 3, "--json"
    )
    assert all(line["latency_ms"] > 0 for line in json.loads(checked)["clients"])


def flags(options):
    words = []
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value]
    return words


def test_a_dry_run(chain, images, capsys):
    words = ["--data", images, "--clients", 3, "--partition", "iid", "--rounds", 4, "--workers", 0]
    printed = json.loads(
        output_of(
            capsys, "run", "fednas", "--space", chain, *flags(SIZE), *words, "--dry-run", "--json"
        )
    )
    assert printed["dry_run"] and printed["seconds"] > 0


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The same as a package that was installed, with an entry point."""
    place = tmp_path / "site"
    (place / "chains-1.dist-info").mkdir(parents=True)
    shutil.copy(CHAIN, place / "outside_chain.py")
    (place / "chains-1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: chains\nVersion: 1\n"
    )
    (place / "chains-1.dist-info/entry_points.txt").write_text(
        "[fedloom.spaces]\nchain = outside_chain:Chain\n"
    )
    monkeypatch.syspath_prepend(place)
    registry.entry_points.cache_clear()
    yield "chain"
    registry.entry_points.cache_clear()
    sys.modules.pop("outside_chain", None)


def test_an_installed_one_has_a_name(installed, images, tmp_path, capsys):
    assert "chain        A chain of layers" in output_of(capsys, "list", "spaces")
    run = tiny.start(tmp_path / "run", "fednas", tree(images, installed, SIZE, rounds=2))
    assert run.client(0).architecture["space"] == "chain:2"
    assert "layer.0 ── " in (run.path / "architectures/client-0.txt").read_text()
    assert "bit for bit" in output_of(capsys, "export", run.path, "--client", 0)


@pytest.mark.parametrize("method", ["fednas", "spider"])
def test_a_space_for_text(method, tmp_path, capsys, monkeypatch):
    words = {"ANNE": "to be or not. ", "BOB": "that is it, sir. ", "CAT": "whether noble. "}
    blocks = [f"{role}:\n{line * 6}" for role, line in words.items()] * 3
    (tmp_path / "play.txt").write_text("\n\n".join(blocks))
    options = {"cells": "2", "channels": "4", "batch": "8", "space": f"{TEXTS}:Texts"}
    if method == "spider":
        options |= {"t_s": "1", "tau": "1", "prune_edges": "false"}
    setting = {**tiny.tree(Path(f"{tmp_path}/play.txt:12:3"), rounds=4), "options": options}
    run = tiny.start(tmp_path / "run", method, setting)
    assert run.metric.name == "perplexity"
    for client in run.clients:
        assert all(len(live) == 1 for live in client.architecture["choice"])
    as_another_process(monkeypatch)
    assert "bit for bit" in output_of(capsys, "export", run.path, "--client", 0)
    output_of(capsys, "report", run.path)
    assert "first ── " in (run.path / NAME).read_text()
