"""Runs whose clusters need label counts: who is asked, what is told, and that it stays the same."""

import json

import numpy as np
import pytest
import tiny

from fedloom.cli import main
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.server.archive import Archive
from fedloom.records.folder import RunFolder
from fedloom.runs.preparing import reopen


def setting(images, clients=4, histograms="laplace:1.0", clusters="labels", **sections):
    topology = {"clusters": clusters, "histograms": histograms}
    engine = {"topology": "clustered:2", **sections.pop("engine", {})}
    tree = tiny.tree(
        images, clients=clients, rounds=2, topology=topology, engine=engine, **sections
    )
    tree["data"]["partition"] = "dirichlet:0.5"
    tree["data"]["min_samples"] = 4
    return tree


def told_in(out):
    """What the server has of every client's labels at the end."""
    archive = Archive(out)
    described = archive.load(archive.rounds()[-1]).described
    return {client: description.histogram for client, description in described.items()}


def counts_in(out):
    prepared = reopen(RunFolder.open(out))
    classes = len(prepared.task.labels)
    counts = {}
    for client in range(len(prepared.split)):
        rest, _ = prepared.split.client(client)
        counts[client] = tuple(np.bincount(prepared.source.y[rest], minlength=classes).tolist())
    return counts


def test_exact_counts_are_those_of_the_training_part(images, tmp_path):
    run = tiny.start(tmp_path / "run", "fedavg", setting(images, histograms="exact"))
    assert told_in(tmp_path / "run") == counts_in(tmp_path / "run")
    privacy = run.result["privacy"]
    assert (
        privacy["histograms"]["mechanism"] == "exact" and privacy["histograms"]["epsilon"] is None
    )
    assert "histogram" in privacy["left_the_clients"][0]["fields"]["values"]
    assert "confusion" in privacy["left_the_clients"][1]["fields"]["values"]
    assert "its confusion matrix" in privacy["notes"][0]
    assert run.result["confusion"] is not None


def test_noise_is_the_same_in_every_run_resume_and_worker(images, tmp_path, pool_of):
    run = tiny.start(tmp_path / "run", "fedavg", setting(images))
    rows = told_in(tmp_path / "run")
    assert rows != counts_in(tmp_path / "run") and len(rows) == 4
    tiny.start(tmp_path / "again", "fedavg", setting(images))
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "run"), tiny.left_behind(tmp_path / "again")) == []
    )
    tiny.stopped_after(1, tmp_path / "resumed", "fedavg", setting(images))
    tiny.go_on(tmp_path / "resumed")
    assert told_in(tmp_path / "resumed") == rows
    tiny.start(tmp_path / "two", "fedavg", setting(images, engine={"workers": 2}), pool=pool_of(2))
    assert told_in(tmp_path / "two") == rows
    tiny.start(tmp_path / "other", "fedavg", setting(images, histograms="laplace:0.9"))
    assert told_in(tmp_path / "other") != rows

    privacy = run.result["privacy"]
    expected = {"mechanism": "laplace", "epsilon": 1.0, "sensitivity": 1, "asked": 1}
    assert privacy["histograms"] == {**expected, "secret": "the seed of the simulation"}
    assert "confusion" not in privacy["left_the_clients"][1]["fields"]["values"]
    assert run.result["confusion"] is None
    page = (tmp_path / "run" / "report.html").read_text()
    assert "how label counts left the clients" in page
    assert "would undo the noise" in page and "comes from its seed" in page


def test_another_seed_is_another_secret(images, tmp_path):
    split = tmp_path / "run" / "split.json"
    tiny.start(tmp_path / "run", "fedavg", setting(images))
    for seed in (0, 1):
        tree = {**setting(images), "seed": seed}
        tree["data"]["split"] = str(split)
        tiny.start(tmp_path / f"seed{seed}", "fedavg", tree)
    assert (
        counts_in(tmp_path / "seed1")
        == counts_in(tmp_path / "seed0")
        == counts_in(tmp_path / "run")
    )
    assert told_in(tmp_path / "seed0") == told_in(tmp_path / "run") != told_in(tmp_path / "seed1")


def test_the_run_asks_whatever_the_method_asks_and_once(images, tmp_path):
    """Two stages, and a method that asks everybody itself."""
    (tmp_path / "asking.py").write_text(ASKING)
    run = tiny.start(tmp_path / "run", f"{tmp_path}/asking.py:asking", setting(images))
    rows = told_in(tmp_path / "run")
    assert len(rows) == 4 and None not in rows.values()
    # The second stage's method asks everybody anew: a client says the same.
    assert run.result["privacy"]["histograms"]["asked"] == 2
    tiny.start(tmp_path / "plain", "fedavg", setting(images))
    assert told_in(tmp_path / "plain") == rows


def test_nobody_is_asked_where_clusters_need_no_labels(images, tmp_path):
    run = tiny.start(tmp_path / "run", "fedavg", setting(images, clusters="random"))
    assert set(told_in(tmp_path / "run").values()) == {None}
    assert "histograms" not in run.result["privacy"]
    assert "histogram" not in run.result["privacy"]["left_the_clients"][0]["fields"]["values"]
    assert run.result["confusion"] is not None


def test_everybody_is_asked_even_if_few_work(images, tmp_path):
    tree = setting(images, budget={"participation": 0.5})
    tiny.start(tmp_path / "run", "fedavg", tree)
    assert len(told_in(tmp_path / "run")) == 4


def test_a_client_that_lies_is_left_out(images, tmp_path, monkeypatch):
    from fedloom.federation.client import site

    honest = site.histogram_of

    tree = setting(images)
    secret_of_liar = simulated_secret(tree.get("seed", 0), 2)

    def told(labels, names, rule, secret):
        if secret == secret_of_liar:
            return [-1] * len(names)
        return honest(labels, names, rule, secret)

    monkeypatch.setattr(site, "histogram_of", told)
    tiny.start(tmp_path / "run", "fedavg", tree)
    assert sorted(told_in(tmp_path / "run")) == [0, 1, 3]
    refused = {row["refused"][0]["reason"] for row in tiny.rows(tmp_path / "run") if row["refused"]}
    assert refused == {"its histogram: every count must be a whole number, not below 0"}


def test_clusters_of_a_file_stay_with_the_run(images, tmp_path):
    path = tmp_path / "clusters.json"
    path.write_text("[[0, 3], [1, 2]]")
    tiny.start(tmp_path / "run", "fedavg", setting(images, clusters=str(path)))
    path.unlink()
    again = reopen(RunFolder.open(tmp_path / "run"))
    assert again.config.topology.assigned == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([[0, 1], [1, 2, 3]], "must name every client once, but it names client 1 twice"),
        ([[0, 1], [3]], "must name each of the 4 clients, but it leaves client 2 out"),
    ],
)
def test_a_bad_file_is_an_error_before_a_folder_is_made(
    images, tmp_path, monkeypatch, capsys, content, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clusters.json").write_text(json.dumps(content))
    command = [
        "run",
        "fedavg",
        "--data",
        str(images),
        "--clients",
        "4",
        "--topology",
        "clustered:2",
    ]
    for dry in ([], ["--dry-run"]):
        assert main([*command, "--clusters", "clusters.json", *dry]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_labels_that_nobody_tells_are_an_error(images, capsys):
    command = ["run", "fedavg", "--data", str(images), "--clients", "4", "--clusters", "labels"]
    assert main([*command, "--topology", "clustered:2", "--set", "topology.histograms=none"]) == 2
    assert (
        "must be exact or laplace:E for --clusters labels, but got none" in capsys.readouterr().err
    )


def test_a_dry_run_counts_the_question(images, capsys):
    sizes = {}
    for clusters in ("random", "labels"):
        command = [
            "run",
            "fedavg",
            "--data",
            str(images),
            "--clients",
            "4",
            "--rounds",
            "1",
            "--workers",
            "0",
        ]
        command += ["--partition", "iid", "--topology", "clustered:2", "--clusters", clusters]
        assert main([*command, "--dry-run", "--json"]) == 0
        sizes[clusters] = json.loads(capsys.readouterr().out)
    assert sizes["labels"] != sizes["random"]


ASKING = """
from dataclasses import replace
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import fedavg

class Asks:
    describe = {"extra": "nothing"}

def stages(task):
    (stage,) = fedavg.stages(task)
    kind = type(stage.method)
    asks = type("Asking", (Asks, kind), {})
    method = object.__new__(asks)
    method.__dict__.update(stage.method.__dict__)
    return stage._replace(name="first", share=0.5), stage._replace(name="second", method=method)

asking = replace(fedavg, stages=stages)
"""
