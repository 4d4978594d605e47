"""Exported models give the same scores as the run's own, without fedloom; and predictions."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import tiny
import torch

from fedloom import cli
from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.sources import open_source
from fedloom.deploy.settled import open_at_site, prepared_from
from fedloom.deploy.terms import Facts
from fedloom.errors import FedloomError
from fedloom.export.bundle import export
from fedloom.export.input_values import input_values
from fedloom.records.folder import RunFolder
from fedloom.runs.finished import open_finished
from fedloom.runs.loop_settings import experiment_id
from fedloom.runs.results import Run

CELLS = {"ops": "s2", "cells": 2, "nodes": 1, "channels": 2, "batch": 8, "epochs": 1}
OWN = {
    "local-adaptation": {**tiny.SMALL, "adapt_share": 0.5},
    "local": tiny.SMALL,
    "fedrep": tiny.SMALL,
    "knn-per": tiny.SMALL,
    "fedmn": tiny.SMALL,
    "fednas": {**CELLS, "personal": True},
    "spider": {**CELLS, "t_s": 1, "tau": 1},
    "auto": {**tiny.SMALL, "sizes": [1.0], "changes": "none", "tune": "always"},
}
SHARED = {"fedavg": tiny.SMALL}
SCRIPT = """
import importlib.util, sys
from pathlib import Path
sys.modules["fedloom"] = None  # an import of it fails
import numpy, torch
torch.set_num_threads(1)
x = torch.from_numpy(numpy.load(sys.argv[1])["x"]).unsqueeze(1)
for folder in map(Path, sys.argv[2:]):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    with torch.no_grad():
        numpy.save(folder / "scores.npy", model.load()(x).numpy())
    assert len(model.predict(x)) == len(x)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    tiny.write_images(folder / "images.npz", samples=45)
    return folder


@pytest.fixture(scope="module")
def runs(place):
    """A finished run of every kind."""
    for method, options in {**OWN, **SHARED}.items():
        rounds = {"auto": 5, "spider": 4, "fednas": 3}.get(method, 2)
        setting = tiny.tree(place / "images.npz", rounds=rounds, evaluate={"every": 9})
        tiny.start(place / method, method, {**setting, "options": options})
    return place


def new_samples(place, finished, client):
    """A client's test part as a file of new samples."""
    test = finished.site.data(client).test
    np.savez(place / f"new-{client}.npz", x=test.x[:, 0].numpy(), y=test.y.numpy())
    return place / f"new-{client}.npz"


@pytest.fixture(scope="module")
def exported(runs):
    """Client 1's model of every run, and the scores of the run's own network.

    Another process compares them.
    """
    opened = {method: open_finished(runs / method) for method in {**OWN, **SHARED}}
    new = new_samples(runs, opened["fedavg"], 1)
    folders = {method: export(run, client=1).path for method, run in opened.items()}
    script = runs / "apart.py"
    script.write_text(SCRIPT)
    subprocess.run(
        [sys.executable, str(script), str(new), *map(str, folders.values())],
        check=True,
        timeout=300,
    )
    return opened, folders, torch.from_numpy(np.load(new)["x"]).unsqueeze(1)


@pytest.mark.whole
@pytest.mark.parametrize("method", [*OWN, *SHARED])
@torch.no_grad()
def test_model_py_equals_the_runs_own_network_without_fedloom(exported, method):
    opened, folders, x = exported
    network = opened[method].served(1).network().eval()
    assert np.array_equal(np.load(folders[method] / "scores.npy"), network(x).numpy())


@pytest.mark.parametrize("method", [*OWN, *SHARED])
def test_predictions_are_those_that_the_run_reported(exported, method, tmp_path):
    """The method itself predicts: kNN-Per also uses the remembered samples."""
    opened, _, _ = exported
    run = Run.open(opened[method].run.path)
    new = new_samples(tmp_path, opened[method], 2)
    predictions = run.predict(new, client=2, out=tmp_path / "a.csv")
    assert predictions.figures["accuracy"] == run.client(2).accuracy
    assert np.allclose(predictions.chances.sum(1), 1) and predictions.chances.shape == (
        len(predictions.truth),
        3,
    )
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["label"] == row["truth"] for row in rows].count(True) == predictions.figures[
        "correct"
    ]


def test_the_folder_is_whole_and_opens_with_any_reader(exported):
    opened, folders, _ = exported
    folder = folders["spider"]
    names = {
        "weights.safetensors",
        "model.py",
        "README.md",
        "architecture.json",
        "scores.npy",
        "__pycache__",
    }
    assert {
        path.name for path in folder.iterdir()
    } <= names  # two are of the process that loaded it
    weights = safetensors.numpy.load_file(folder / "weights.safetensors")
    description = json.loads((folder / "architecture.json").read_text())
    assert description["params"] == opened["spider"].run.record.client(1).params and description[
        "labels"
    ] == [
        "0",
        "1",
        "2",
    ]
    assert weights["mean"].ravel().tolist() == description["input"]["mean"] == [127.5]
    assert (
        description["space"].startswith("darts")
        and description["cells"] == 2
        and description["channels"] == 2
    )
    for name, folder in folders.items():
        description = json.loads((folder / "architecture.json").read_text())
        assert description["head"] == opened[name].run.record.clients[0].head, name


def test_the_card_says_what_it_is(exported):
    opened, folders, _ = exported
    record = opened["local-adaptation"].run.record
    card = (folders["local-adaptation"] / "README.md").read_text()
    low, high = record.client(1).interval
    for text in (
        record.data.split,
        "local-adaptation",
        f"{100 * low:.1f} to ",
        "Privacy",
        "seed 0",
    ):
        assert text in card
    assert f"{100 * high:.1f}" in card
    assert "remembers the client's samples" in (folders["knn-per"] / "README.md").read_text()
    card_of_auto = (folders["auto"] / "README.md").read_text()
    assert "its answers lean to those that were common here" in card_of_auto
    assert "lean to those" not in card
    stop = opened["auto"].run.record.decisions[-1]
    assert f"Decided on validation samples during training: stop: {stop.chosen}." in card_of_auto
    assert "Decided on" not in card


def test_an_exported_architecture_builds_the_same_network_again(exported):
    from fedloom.spaces.genotype import read

    opened, folders, _ = exported
    net = read(folders["fednas"] / "architecture.json")((1, 6, 6), 3)
    network_of_run = opened["fednas"].served(1).network().net
    assert {k: v.shape for k, v in net.state_dict().items()} == {
        k: v.shape for k, v in network_of_run.state_dict().items()
    }


def test_what_users_named_stays_text(tmp_path):
    """Class names appear in a card and a program: neither may interpret them as markup or code."""
    odd = ["<script>alert(1)</script>", '"""\nimport os', "`|*"]
    x = np.arange(45 * 36).reshape(45, 6, 6) % 250
    y = np.arange(45) % 3
    np.savez(tmp_path / "odd.npz", x=x.astype(np.uint8), y=y, labels=np.array(odd))
    tiny.start(tmp_path / "run", "fedavg", tiny.tree(tmp_path / "odd.npz", rounds=1))
    exported = Run.open(tmp_path / "run").export(client=0, out=tmp_path / "out")
    assert json.loads((exported.path / "architecture.json").read_text())["labels"] == odd
    assert "import os" not in (exported.path / "model.py").read_text()
    card = (exported.path / "README.md").read_text()
    assert "<script>" not in card and "&#60;script&#62;" in card


def refused(*arguments):
    with pytest.raises(FedloomError) as error:
        cli.dispatch([str(word) for word in arguments])
    return str(error.value)


def test_bad_input_of_export(runs, tmp_path, capsys):
    fedavg = runs / "fedavg"
    assert "--client must be one of the run's clients, but got 7" in refused(
        "export", fedavg, "--client", "7"
    )
    assert "one of --client K, --shared, --tier N and --search NAME" in refused("export", fedavg)
    assert "one of --client K, --shared, --tier N and --search NAME" in refused(
        "export", fedavg, "--client", "0", "--shared"
    )
    assert "local gives every client its own" in refused("export", runs / "local", "--shared")
    assert "did you mean onnx?" in refused("export", fedavg, "--shared", "--format", "onx")
    (tmp_path / "mine.txt").write_text("mine")
    assert "has other content" in refused("export", fedavg, "--shared", "--out", tmp_path)
    assert "--kit must be for a run of a federation" in refused(
        "export", fedavg, "--client", "0", "--kit", tmp_path, "--kit-data", "digits"
    )
    shutil.copytree(fedavg, tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    assert "must be a finished run" in refused("export", tmp_path / "begun", "--shared")
    assert (
        cli.main(["export", str(fedavg), "--shared", "--json", "--out", str(tmp_path / "new")]) == 0
    )
    assert json.loads(capsys.readouterr().out)["files"][0] == "weights.safetensors"
    assert len(list((tmp_path / "new").iterdir())) == 4


def test_bad_input_of_predict(runs, tmp_path):
    def asked(**arrays):
        np.savez(tmp_path / "x.npz", **arrays)
        return refused("predict", runs / "fedavg", "--client", "0", "--data", tmp_path / "x.npz")

    good = np.zeros((4, 6, 6), np.uint8)
    assert "must have the shape [1, 6, 6]" in asked(x=np.zeros((4, 7, 7), np.uint8))
    assert "they have [3, 6, 6]" in asked(x=np.zeros((4, 3, 6, 6), np.uint8))
    assert "units that the run was trained on" in asked(x=good / 2)
    assert "'3' is not" in asked(x=good, y=np.array([0, 1, 2, 3]))
    assert "'horse' is not" in asked(x=good, y=np.arange(4) % 2, labels=np.array(["0", "horse"]))
    assert "pickled objects or no arrays" in asked(x=np.array([{}] * 4))
    assert "--out must be a .csv" in refused(
        "predict", runs / "fedavg", "--client", "0", "--data", tmp_path / "x.npz", "--out", "a.json"
    )


def test_samples_without_labels(runs, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=np.full((3, 6, 6), 9, np.uint8))
    assert (
        cli.main(
            [
                "predict",
                str(runs / "spider"),
                "--shared",
                "--data",
                str(tmp_path / "x.npz"),
                "--json",
            ]
        )
        == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["figures"] is None and answer["samples"] == len(answer["predictions"]) == 3
    assert (
        cli.main(
            ["predict", str(runs / "spider"), "--client", "0", "--data", str(tmp_path / "x.npz")]
        )
        == 0
    )
    assert "There are no labels" in capsys.readouterr().out


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A run as a federation leaves it on the server, made from a local one, with a site's kit."""
    place = tmp_path_factory.mktemp("federation")
    (place / "sites").mkdir()
    for number, name in enumerate(("north", "south")):
        file = tiny.write_images(place / "sites" / f"{name}.npz", samples=20 + 4 * number)
        arrays = dict(np.load(file))
        np.savez(file, x=arrays["x"] // (1 + number), y=arrays["y"])
    setting = tiny.tree(place / "sites", clients=2, rounds=2)
    setting["data"]["partition"] = "sites"
    tiny.start(
        place / "embedded", "local-adaptation", {**setting, "options": OWN["local-adaptation"]}
    )
    shutil.copytree(place / "embedded", place / "server")
    folder = RunFolder.open(place / "server")
    raw = folder.config().model_dump(mode="json", exclude_none=True)
    raw["engine"]["federation"] = "somewhere"
    raw["data"] = {"test": 0.2}
    config: Experiment = validated(Experiment, raw)
    folder.write_text("config.toml", config.to_toml())
    sources = {
        name: open_source(str(place / "sites" / f"{name}.npz"), classes=3)
        for name in ("north", "south")
    }
    facts = {name: Facts.of(source, False) for name, source in sources.items()}
    folder.write_json(
        "sites.json", {name: fact.model_dump(mode="json") for name, fact in facts.items()}
    )
    kit = place / "kit"
    (kit / "state").mkdir(parents=True)
    (kit / "kit.json").write_text(json.dumps({"site": "south", "server": "localhost:1"}))
    shutil.move(place / "server" / "clients", kit / "state" / experiment_id(prepared_from(folder)))
    return place


def weights(exported):
    return safetensors.numpy.load_file(exported.path / "weights.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def test_an_export_names_the_type_and_the_range_of_its_input(federation, tmp_path, capsys):
    """At a site they are those of its own samples; a server has none, and gives no range."""
    values = [np.load(federation / "sites" / f"{name}.npz")["x"] for name in ("north", "south")]
    whole = export(open_finished(federation / "embedded"), out=tmp_path / "whole")
    described = whole.about.input
    least = min(part.min() for part in values)
    largest = max(part.max() for part in values)
    assert (described.dtype, described.low, described.high) == ("uint8", least, largest)
    in_words = (
        "shape [1, 6, 6], uint8, in the data set's own units, "
        f"from {least} to {largest} in the run's data"
    )
    whole.table()
    assert f"input: {in_words}\n" in capsys.readouterr().out
    assert f"- Input: image, {in_words}." in (whole.path / "README.md").read_text()
    assert (
        whole.to_json()["input"]
        == json.loads((whole.path / "architecture.json").read_text())["input"]
    )
    at_server = export(open_finished(federation / "server"), out=tmp_path / "server").about.input
    assert (at_server.dtype, at_server.low, at_server.high) == ("uint8", None, None)
    south = str(federation / "sites" / "south.npz")
    opened = open_at_site(federation / "server", federation / "kit", DataConfig(name=south))
    at_site = export(opened, client=1, out=tmp_path / "c")
    assert (at_site.about.input.low, at_site.about.input.high) == (values[1].min(), values[1].max())


def test_a_server_does_not_know_the_type_of_other_units(federation):
    finished = open_finished(federation / "server")
    task = replace(finished.task, mean=(0.0,), std=(1.0,))
    assert input_values(replace(finished, task=task)).dtype == "unknown"


def test_a_private_model_stays_at_its_site(federation, tmp_path):
    server = federation / "server"
    data = str(federation / "sites" / "south.npz")
    message = refused("export", server, "--client", "1")
    assert "in a federation it never left south" in message and "--kit" in message
    assert "in a federation it never left" in refused(
        "predict", server, "--client", "0", "--data", data
    )
    assert "in a federation it never left" in refused(
        "adapt", server, "--from", "1", "--data", data
    )
    run = open_finished(server)
    embedded = open_finished(federation / "embedded")
    assert same(
        weights(export(run, out=tmp_path / "a")), weights(export(embedded, out=tmp_path / "b"))
    )
    at_site = open_at_site(server, federation / "kit", DataConfig(name=data))
    assert at_site.here == 1
    mine = weights(export(at_site, client=1, out=tmp_path / "c"))
    assert same(mine, weights(export(embedded, client=1, out=tmp_path / "d")))
    assert not same(mine, weights(export(embedded, client=0, out=tmp_path / "e")))
    with pytest.raises(FedloomError, match="never left north"):
        at_site.served(0)


def test_a_site_that_resized_its_images_exports_its_own_model(federation, tmp_path):
    """The run has no size: it is the one of the site's own command line, given again."""
    small = np.load(federation / "sites" / "south.npz")
    large = tmp_path / "large.npz"
    np.savez(large, x=small["x"].repeat(2, axis=1).repeat(2, axis=2), y=small["y"])
    flags = ["--kit", federation / "kit", "--kit-data", large, "--out"]
    message = refused("export", federation / "server", *flags, tmp_path / "a")
    assert "give the data, --kit-resize and --kit-fit that the site was started with" in message
    done = ["export", federation / "server", "--kit-resize", "6", *flags, tmp_path / "b", "--quiet"]
    assert cli.main([str(word) for word in done]) == 0
    plain = open_at_site(
        federation / "server",
        federation / "kit",
        DataConfig(name=str(federation / "sites" / "south.npz")),
    )
    resized_here = safetensors.numpy.load_file(tmp_path / "b" / "weights.safetensors")
    assert same(resized_here, weights(export(plain, client=1, out=tmp_path / "c")))
    assert "--kit-fit must come with --kit" in refused(
        "export", federation / "server", "--shared", "--kit-fit", "pad"
    )


def test_a_newcomer_adapts_what_a_federation_left(federation, tmp_path):
    data = federation / "sites" / "north.npz"
    out = tmp_path / "new"
    arguments = [
        "adapt",
        federation / "server",
        "--data",
        data,
        "--epochs",
        "1",
        "--out",
        out,
        "--quiet",
    ]
    assert cli.main([str(word) for word in arguments]) == 0
    before = open_finished(out).served(None).network().state_dict()
    shared = open_finished(federation / "server").served(None).network().state_dict()
    assert all(torch.equal(before[name], shared[name]) for name in shared)


def test_a_kit_must_be_the_sites_own(federation, tmp_path):
    def asked(kit, data="south"):
        path = federation / "sites" / f"{data}.npz"
        return refused(
            "export",
            federation / "server",
            "--kit",
            kit,
            "--kit-data",
            path,
            "--out",
            tmp_path / "x",
        )

    assert "must be the file of a site's start kit" in asked(tmp_path)
    (tmp_path / "kit.json").write_text(json.dumps({"site": "west", "server": "localhost:1"}))
    assert "west is not; they are north, south" in asked(tmp_path)
