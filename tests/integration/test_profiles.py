"""`fedloom profile`, and what a run does with one."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedloom
from fedloom import cli
from fedloom.runs.profiles import Latencies, SampleLatency, find, place

SIZE = [
    "--space",
    "darts:s2:1",
    "--cells",
    "2",
    "--channels",
    "2",
    "--shape",
    "1x6x6",
    "--classes",
    "2",
]
NETWORK = {"network": "supernet:s2:1:2", "width": 0.125}  # 2 channels
MORE = {"clients": 2, "partition": "iid", "rounds": 1, "workers": 0}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path / "home"))
    np.savez("x.npz", x=np.arange(40 * 36, dtype=np.uint8).reshape(40, 6, 6), y=np.arange(40) % 2)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A profile of a small size, measured once."""
    file = tmp_path_factory.mktemp("profile") / "small.json"
    assert cli.main(["profile", *SIZE, "--repeats", "3", "--out", str(file), "--quiet"]) == 0
    return file


def said(capsys, *words, code=0):
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_measured_once_then_known(capsys, kept):
    assert json.loads(said(capsys, "profile", *SIZE, "--out", kept, "--json"))["new"] == 0
    whole = json.loads(said(capsys, "profile", "show", kept, "--json"))
    ops = {entry["op"] for entry in whole["entries"]}
    assert {
        "stem",
        "sep_conv_3x3",
        "reduce",
        "relu",
        "add",
        "join",
        "zero",
        "grid",
        "classifier",
    } <= ops
    assert all(entry["ms"] > 0 and entry["repeats"] == 3 for entry in whole["entries"])
    assert "sep_conv_3x3" in said(capsys, "profile", "show", kept)


def test_a_name_is_kept_in_the_users_folder(capsys, kept, tmp_path):
    assert "none yet in" in said(capsys, "profile", "list")
    place("mine").parent.mkdir(parents=True)
    place("mine").write_bytes(kept.read_bytes())
    place("bad").write_text("{")
    assert place("mine") == tmp_path / "home" / "profiles" / "mine.json"
    good, bad = sorted(
        json.loads(said(capsys, "profile", "list", "--json")), key=lambda row: row["name"] != "mine"
    )
    assert good["name"] == "mine" and "operations" in good["about"] and "damaged" in bad["about"]
    assert find("mine") == find(str(kept))


def test_a_run_tells_every_clients_latency(capsys, kept, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    run = fedloom.search("fedavg", data="x.npz", **MORE, **NETWORK, profile=kept)
    plain = fedloom.search("fedavg", data="x.npz", **MORE, **NETWORK)
    assert [client["latency_ms"] > 0 for client in run.to_json()["clients"]] == [True, True]
    assert run.result["latency"]["profile"] == str(kept)
    assert run.result["latency"]["torch"] == run.result["versions"]["torch"]
    assert "latency" not in plain.result and "latency_ms" not in plain.to_json()["clients"][0]
    run.table()
    assert " ms " in capsys.readouterr().out
    plain.table()
    assert " ms " not in capsys.readouterr().out
    sums(capsys, run, kept)
    measures_for(capsys, run, kept)


def test_latencies_of_samples_that_take_their_own_paths(capsys):
    """Mean, 95th percentile and worst over the client's test samples; the same sums by hand."""
    space = ["--space", "stacks:1:1:1", "--channels", "2", "--shape", "1x6x6", "--classes", "2"]
    said(capsys, "profile", *space, "--repeats", "3", "--out", "stacks.json", "--quiet")
    size = {"base_cells": 1, "nodes": 1, "channels": 2, "search": "random"}
    run = fedloom.search("ca-feddsnas", data="x.npz", **MORE, **size, profile="stacks.json")
    for client in run.record.clients:
        assert 0 < client.latency_ms <= client.latency_p95_ms <= client.latency_worst_ms
        assert client.routes.distinct > 1 and client.latency_ms < client.latency_worst_ms
    cut = fedloom.search("feddsnas", data="x.npz", **MORE, **size, profile="stacks.json")
    for client in cut.record.clients:
        assert client.latency_ms > 0 and client.latency_p95_ms is None
    assert "mean / 95th percentile / worst" in (run.path / "report.html").read_text()


def test_the_mean_the_95th_percentile_and_the_worst(monkeypatch):
    """Forty samples: 37 at 1 ms, one at 2, one at 3, one at 10."""
    latencies = object.__new__(Latencies)
    latencies.estimator = SimpleNamespace(
        steps=SimpleNamespace(net=SimpleNamespace(space=SimpleNamespace(name="any"))),
        latency_ms=lambda arch: float(arch.choice[0][0]),
    )
    paths = [
        {"path": [1], "samples": 37},
        {"path": [10], "samples": 1},
        {"path": [2], "samples": 1},
    ]
    assert latencies.of_paths([*paths, {"path": [3], "samples": 1}]) == SampleLatency(
        1.3, 2.0, 10.0
    )


def sums(capsys, run, kept):
    """`check`: the run's own figure, the measurement beside it, and limits."""
    words = ("profile", "check", run.path, "--profile", kept, "--repeats", "3")
    printed = json.loads(said(capsys, *words, "--limit", "params=1,macs=1G", "--json"))
    assert [row["latency_ms"] for row in printed["clients"]] == [
        row["latency_ms"] for row in run.result["clients"]
    ]
    assert [row["over"] for row in printed["clients"]] == [["params"], ["params"]]
    assert all(row["ratio"] == row["latency_ms"] / row["measured_ms"] for row in printed["clients"])
    assert "over: params" in " ".join(said(capsys, *words, "--limit", "params=1").split())
    strange = json.loads(kept.read_text())
    strange["machine"]["processor"] = "abacus"
    kept.with_name("strange.json").write_text(json.dumps(strange))
    other = said(capsys, *words[:4], kept.with_name("strange.json"), code=2)
    assert "must be of this machine and torch to be checked here, but it is of abacus" in other
    more = said(
        capsys, "profile", "--run", run.path, "--out", kept.with_name("strange.json"), code=2
    )
    assert "must be of this machine and torch to be added to" in more


def measures_for(capsys, run, kept):
    """`--run`: what this run needs, which is what the flags named."""
    printed = json.loads(said(capsys, "profile", "--run", run.path, "--repeats", "3", "--json"))
    assert printed["profile"] == str(place("this-machine"))
    assert {entry.piece for entry in find("this-machine").entries} == {
        entry.piece for entry in find(str(kept)).entries
    }
    assert "leave one of them out" in said(
        capsys, "profile", "--run", run.path, "--cells", "2", code=2
    )


def test_a_profile_of_another_size_is_refused_before_training(kept, tmp_path):
    with pytest.raises(
        fedloom.FedloomError, match="must have every operation of the network, but it has no"
    ):
        fedloom.search(
            "fedavg", data="x.npz", **MORE, network="supernet:s2:1:3", width=0.125, profile=kept
        )
    with pytest.raises(fedloom.FedloomError, match=r"nowhere\.json must be there, but there is no"):
        fedloom.search("fedavg", data="x.npz", **MORE, **NETWORK, profile="nowhere")
    assert not (tmp_path / "runs").exists()


def test_another_network_has_no_latency(kept, tmp_path):
    with pytest.raises(
        fedloom.FedloomError,
        match="--profile must be given to networks of a search space, but fedavg trains",
    ):
        fedloom.search("fedavg", data="x.npz", **MORE, width=0.125, profile=kept)
    assert not (tmp_path / "runs").exists()
    beside = "fedavg:network=supernet:s2:1:2,width=0.125"
    cells, other = fedloom.compare(
        [beside, "fedavg:width=0.125"], data="x.npz", **MORE, profile=kept
    ).runs
    assert all(row["latency_ms"] > 0 for row in cells.result["clients"])
    assert [row["latency_ms"] for row in other.result["clients"]] == [None, None]


def test_the_networks_of_tiers_have_latencies(capsys):
    """FedorAS searches a chain, which has a size of its own."""
    chain = Path(__file__).parents[1] / "contract" / "short_chain.toml"
    options = {"space": str(chain), "epochs": 1, "models": 2, "pool": 2, "sample": 2, "comm": "1"}
    more = {**MORE, **options, "rounds": 3}
    plain = fedloom.search("fedoras", data="x.npz", **more)
    words = ["--repeats", "3", "--json"]
    answer = json.loads(said(capsys, "profile", "--run", plain.path, "--out", "chain.json", *words))
    assert answer["new"] > 0
    printed = json.loads(
        said(capsys, "profile", "check", plain.path, "--profile", "chain.json", *words)
    )
    sums = [row["latency_ms"] for row in printed["clients"]]
    assert all(latency > 0 for latency in sums)
    run = fedloom.search("fedoras", data="x.npz", **more, profile="chain.json")
    assert [client["latency_ms"] for client in run.to_json()["clients"]] == sums


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "3x32"], "--shape must look like CxHxW, but got '3x32'"),
        (["--space", "x"], "search space must be a known name, but got 'x'; choose from cnn-l, "),
        (["--cells", "0"], "--cells must be a whole number of at least 1"),
        (["--repeats", "2"], "--repeats must be a whole number of at least 3"),
        (["--name", "a b"], "a profile must have a plain name"),
        (["--name", "a", "--out", "b.json"], "a profile must have one place"),
        (["--data", "x.npz", "--shape", "1x6x6"], "shape and classes must come from one place"),
        (["--data-dir", "x"], "--data-dir must come with --data"),
        (["--device", "abacus"], "--device abacus must be usable here"),
        (["--out", "/proc/x/y.json", *SIZE], "must be a file that can be written"),
        (
            ["--cells", "3", "list"],
            "`fedloom profile list` must be given flags that it knows, but got --cells",
        ),
        (["show", "nowhere"], "profile nowhere must be there, but there is no such file"),
        (["check", "nowhere"], "nowhere must be the folder of a run"),
    ],
)
def test_what_is_refused(capsys, words, message):
    assert message in said(capsys, "profile", *words, code=2)


def test_shape_and_classes_come_from_data(capsys):
    words = ["--space", "nasbench201", "--cells", "1", "--channels", "1"]
    np.savez("y.npz", x=np.zeros((12, 8, 4), np.uint8), y=np.arange(12) % 3)
    printed = json.loads(
        said(capsys, "profile", *words, "--data", "y.npz", "--repeats", "3", "--json")
    )
    sizes = {
        entry["op"]: (entry["height"], entry["width"], entry["outputs"])
        for entry in printed["entries"]
    }
    assert sizes["stem"] == (8, 4, 1) and sizes["classifier"] == (1, 1, 3)
