"""Whole runs on text.

They cover every method that trains a fixed network, perplexity, the best round and resume.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import fedloom
from fedloom.cli import main
from fedloom.data.samples import ClientData, Samples
from fedloom.federation.server.events import RoundEnded
from fedloom.federation.server.loop import Loop
from fedloom.metrics.metric import PERPLEXITY
from fedloom.testing.toy import Toy

SHARED = Path(__file__).parents[3] / "shared/data"
SMALL = {"width": 0.03, "batch": 8}


@pytest.fixture
def play(tmp_path):
    """Three roles who each repeat themselves: easy to predict."""
    words = {"ANNE": "to be or not. ", "BOB": "that is it, sir. ", "CAT": "whether noble. "}
    blocks = [f"{role}:\n{line * 6}" for role, line in words.items()] * 3
    path = tmp_path / "play.txt"
    path.write_text("\n\n".join(blocks))
    return path


def tree(play, **sections):
    sections = {"options": SMALL, **sections}
    return tiny.tree(Path(f"{play}:12:3"), **sections)


@pytest.mark.whole
@pytest.mark.parametrize(
    "method",
    [
        "fedavg",
        "fedprox",
        "fedadam",
        "fedyogi",
        "fedadagrad",
        "local",
        "local-adaptation",
        "ditto",
        "perfedavg",
        "perfedavg:hf",
        "knn-per",
        "fedmn",
        "fedrep",
    ],
)
def test_every_method_of_a_fixed_network(play, tmp_path, method):
    run = tiny.start(tmp_path / "run", method, tree(play))
    assert (run.metric.name, run.result["lower_is_better"]) == ("perplexity", True)
    assert all(
        1 <= client.figure < 1e6 and client.architecture.startswith("lstm:0.03")
        for client in run.clients
    )
    assert run.figures["worst"] == max(client.figure for client in run.clients)
    assert (run.result["global"] is None) == (method in ("local", "fedmn", "fedrep"))
    assert run.result["macs"] > 0


def test_perplexity_falls(play, tmp_path):
    """Twenty symbols foretold at random are a perplexity of about 20."""
    options = {"width": 0.1, "batch": 8, "lr": 0.5, "epochs": 3}
    tiny.start(tmp_path / "run", "fedavg", tree(play, options=options, budget={"rounds": 6}))
    curve = [row["evaluation"]["perplexity"] for row in tiny.rows(tmp_path / "run")]
    assert curve[-1] < 0.7 * curve[0] < 20


def test_a_resumed_run_has_the_same_bits(play, tmp_path):
    settings = tree(play, evaluate={"select": "best", "every": 1}, budget={"rounds": 4})
    tiny.start(tmp_path / "whole", "local-adaptation", settings)
    folder, prepared = tiny.create(
        tiny.configure("local-adaptation", settings), tmp_path / "halves"
    )

    def stop(event):
        if isinstance(event, RoundEnded) and event.row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.carry_out(folder, prepared, stop)
    tiny.go_on(tmp_path / "halves")
    whole, halves = (tiny.left_behind(tmp_path / name) for name in ("whole", "halves"))
    assert whole == halves


def test_workers_make_the_same_bits(play, tmp_path, pool_of):
    tiny.start(tmp_path / "inline", "fedavg", tree(play))
    tiny.start(tmp_path / "worker", "fedavg", tree(play, engine={"workers": 1}), pool=pool_of(1))
    inline, worker = (tiny.left_behind(tmp_path / name) for name in ("inline", "worker"))
    assert inline.keys() == worker.keys()
    assert [
        name for name in inline if name.startswith("checkpoint") and inline[name] != worker[name]
    ] == []


# The best round


def symbols(count, *path):
    generator = np.random.default_rng([count, *path])
    return Samples(
        torch.tensor(generator.integers(3, size=(count, 5)), dtype=torch.uint8),
        torch.arange(count) % 3,
    )


@pytest.mark.parametrize(("kind", "selected"), [("text", 2), ("image", 4)])
def test_the_best_round_is_the_lowest_where_lower_is_better(tmp_path, monkeypatch, kind, selected):
    toy = replace(Toy.of("fedavg"), select="best", evaluate_every=1)
    if kind == "text":
        data = tuple(
            ClientData(symbols(6, k), symbols(3, k, 1), symbols(4, k, 2)) for k in range(4)
        )
        toy = replace(
            toy, data=data, task=replace(toy.task, kind="text", shape=(5,), mean=(), std=())
        )
    metric = {"text": "perplexity", "image": "accuracy"}[kind]
    figures = {1: 0.5, 2: 0.25, 3: 0.5, 4: 0.75}
    real = Loop.evaluate

    def evaluate(self, at, part, clients, *, final=False):
        evaluated = real(self, at, part, clients, final=final)
        clients = []
        for client in evaluated.clients:
            assert client.own.figures.metric == metric
            changed = replace(client.own.figures, value=figures[at.round])
            clients.append(replace(client, own=replace(client.own, figures=changed)))
        return replace(evaluated, clients=tuple(clients))

    monkeypatch.setattr(Loop, "evaluate", evaluate)
    trace = toy.run(tmp_path)
    assert (trace.outcome.selected, trace.outcome.validation) == (selected, figures[selected])
    assert [row.evaluation.value for row in trace.rows] == list(figures.values())


# The command line


def said(capsys, *words):
    code = main(list(words))
    output = capsys.readouterr()
    return code, output.out, output.err


QUICK = ["--clients", "2", "--partition", "iid", "--rounds", "2", "--workers", "0"]


def test_json_and_runs(capsys, play, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    data = ["--data", "play.txt:12:3", *QUICK]
    code, out, _ = said(capsys, "run", "fedavg", *data, "--width", "0.03", "--json")
    printed = json.loads(out)
    assert (code, printed["metric"], printed["lower_is_better"]) == (0, "perplexity", True)
    assert all(row["perplexity"] >= 1 for row in printed["clients"])
    shown = " ".join(said(capsys, "runs")[1].split())
    assert f"perplexity {PERPLEXITY.text(printed['perplexity']['mean'])}" in shown
    code, out, _ = said(
        capsys, "compare", "fedavg", "local", *data, "--set", "options.width=0.03", "--json"
    )
    rows = json.loads(out)["methods"]
    assert [(row["metric"], row["lower_is_better"]) for row in rows] == [("perplexity", True)] * 2
    assert all(row["worst"]["mean"] >= row["perplexity"]["mean"] for row in rows)


def test_a_window_survives_a_resume_from_elsewhere(play, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = fedloom.search(
        "fedavg", data="play.txt:12:3", clients=2, partition="iid", rounds=1, workers=0, **SMALL
    )
    (run.path / "result.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fedloom.resume(tmp_path / run.path).figures == run.figures


def test_leafs_json_under_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pairs = [("abcd"[k % 4 :] + "abcd"[: k % 4], "abcd"[k % 4]) for k in range(40)]
    user = {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}
    raw = {"users": ["u"], "num_samples": [40], "user_data": {"u": user}}
    (tmp_path / "data").mkdir()
    (tmp_path / "data/leaf.json").write_text(json.dumps(raw))
    run = fedloom.search(
        "fedavg",
        data="leaf.json",
        data_dir="data",
        clients=2,
        partition="iid",
        rounds=1,
        workers=0,
        **SMALL,
    )
    assert run.metric.name == "perplexity"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["fedavg", "--network", "cnn"],
            "network cnn must be for text data, but it is for image and speech",
        ),
        (["local", "--network", "resnet18"], "network resnet18 must be for text data"),
        (["fednas"], "the search space darts must be for text data"),
        (
            ["fednas", "--space", "nasbench201"],
            "the search space nasbench201 must be for text data",
        ),
    ],
)
def test_a_network_of_another_kind_is_refused_before_a_folder_is_made(
    capsys, play, monkeypatch, tmp_path, words, reason
):
    monkeypatch.chdir(tmp_path)
    code, _, errors = said(capsys, "run", *words, "--data", "play.txt:12:3", *QUICK)
    assert code == 2 and reason in " ".join(errors.split())
    assert not (tmp_path / "runs").exists()


def test_the_lstm_is_refused_for_images(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, _, errors = said(capsys, "run", "fedavg", "--network", "lstm", *QUICK)
    assert code == 2 and "network lstm must be for image data, but it is for text" in " ".join(
        errors.split()
    )
    assert not (tmp_path / "runs").exists()


def test_dry_run(capsys, play, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, _ = said(
        capsys, "run", "fedavg", "--data", "play.txt:12:3", *QUICK, "--width", "0.03", "--dry-run"
    )
    assert code == 0 and "of training for 2 rounds of 2 clients" in out


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of real data is absent")
def test_perplexity_of_shakespeare_falls(tmp_path):
    run = fedloom.search(
        "fedavg",
        data="shakespeare:20:400",
        data_dir=SHARED,
        clients=3,
        partition="iid",
        rounds=4,
        workers=0,
        width=0.125,
        batch=16,
        lr=0.5,
        evaluate_every=1,
        out=tmp_path / "run",
    )
    curve = [row["evaluation"]["perplexity"] for row in tiny.rows(tmp_path / "run")]
    assert curve[-1] < curve[0] < 40  # of 65 symbols
    assert 10 < run.figures["pooled"] < 30
