"""`fedloom adapt RUN --transform …`: models of a finished run meet a task that no client had."""

import json
from statistics import fmean, pstdev

import numpy as np
import pytest
import tiny
import torch

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.methods.fedavg import FedAvg
from fedloom.records.folder import RunFolder
from fedloom.runs.finished import open_finished

SHORT = ("--samples", "8", "--iterations", "3")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen")
    tiny.write_images(folder / "images.npz", samples=60)
    return folder


def tree(place, partition):
    setting = tiny.tree(place / "images.npz", rounds=1)
    setting["data"]["partition"] = partition
    return setting


@pytest.fixture(scope="module")
def shared(place):
    """A run with one model for all, on turned images."""
    tiny.start(place / "fedavg", "fedavg", tree(place, "iid+rotation:30"))
    return place / "fedavg"


@pytest.fixture(scope="module")
def personal(place):
    """A run in which every client has a head of its own, on tinted images."""
    tiny.start(place / "fedrep", "fedrep", tree(place, "iid+tint+each:hue:0.33/none"))
    return place / "fedrep"


def asked(run, out, capsys, *words):
    assert cli.main(["adapt", str(run), "--out", str(out), "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_shared_model_at_every_client(shared, tmp_path, capsys):
    adapted = asked(shared, tmp_path / "new", capsys, "--transform", "rotation:-90", *SHORT)
    assert adapted["from"] == "shared" and adapted["metric"] == "accuracy"
    assert adapted["transform"] == [{"name": "rotation", "amount": -90.0}]
    assert (adapted["samples"], adapted["iterations"], adapted["epochs"]) == (8, 3, None)
    assert [row["client"] for row in adapted["clients"]] == [0, 1, 2]
    assert [row["samples"] for row in adapted["clients"]] == [8, 8, 8]
    for part in ("before", "after"):
        figures = [row[part] for row in adapted["clients"]]
        assert adapted[part]["mean"] == pytest.approx(fmean(figures))
        assert adapted[part]["std"] == pytest.approx(pstdev(figures))
    finished = open_finished(tmp_path / "new")
    own = finished.served(1)
    assert adapted["frozen"] == 0
    assert adapted["trained"] == sum(weight.numel() for weight in own.network().parameters())
    before = open_finished(shared)
    weights_after = finished.served(None).network().state_dict()
    weights_before = before.served(None).network().state_dict()
    assert all(torch.equal(weights_after[name], weights_before[name]) for name in weights_before)
    steps = [
        value
        for name, value in own.network().state_dict().items()
        if name.endswith("num_batches_tracked")
    ]
    counted = [
        value for name, value in weights_before.items() if name.endswith("num_batches_tracked")
    ]
    assert [int(step) - int(count) for step, count in zip(steps, counted, strict=True)] == [
        3
    ] * len(counted)
    # The run's own samples: the first of the client's training part, turned by this and nothing
    # else.
    rest = before.site.data(1).train
    test = before.site.data(1).test
    x = torch.tensor(np.load(shared.parent / "images.npz")["x"])
    split = RunFolder.open(shared).path / "split.json"
    chosen = json.loads(split.read_text())
    begin = chosen["offsets"][1]
    tests = chosen["tests"][1]
    indices = chosen["indices"][begin : chosen["offsets"][2]]
    mine = finished.site.data(1)
    assert torch.equal(mine.test.x[:, 0], torch.rot90(x[indices[:tests]], -1, (1, 2)))
    assert torch.equal(mine.train.x[:, 0], torch.rot90(x[indices[tests : tests + 8]], -1, (1, 2)))
    assert torch.equal(mine.test.y, test.y) and torch.equal(mine.train.y, rest.y[:8])


def test_each_clients_own_model_and_its_personal_part_alone(personal, tmp_path, capsys):
    words = (
        "--transform",
        "rotation:90",
        "--from",
        "each",
        "--train",
        "personal",
        "--lr",
        "0.5",
        *SHORT,
    )
    adapted = asked(personal, tmp_path / "new", capsys, *words)
    assert (
        adapted["from"] == "each"
        and adapted["train"] == "personal"
        and len(adapted["clients"]) == 3
    )
    before = open_finished(personal)
    after = open_finished(tmp_path / "new")
    config = RunFolder.open(tmp_path / "new").config()
    assert config.data.partition == "iid+tint+each:rotation:90" and config.init.clients == [0, 1, 2]
    for client in range(3):
        original = before.served(client).network().state_dict()
        served = after.served(client)
        begun = served.method.network(served.order, served.data, None, served.run).state_dict()
        now = served.network().state_dict()
        changed = {name for name in original if not torch.equal(now[name], original[name])}
        assert all(
            torch.equal(begun[name], original[name]) for name in original
        )  # each began with its own
        assert changed == {
            "net.classifier.weight",
            "net.classifier.bias",
        }  # bodies keep BN statistics too
        head = sum(now[name].numel() for name in changed)
        assert (adapted["trained"], adapted["clients"][client]["trained"]) == (head, head)
    assert adapted["frozen"] > 0
    result = json.loads((tmp_path / "new" / "result.json").read_text())
    assert [client["transform"] for client in result["clients"]] == [
        [{"name": "rotation", "amount": 90.0}]
    ] * 3


def test_one_clients_model_with_its_own_samples(personal, tmp_path, capsys):
    adapted = asked(
        personal,
        tmp_path / "new",
        capsys,
        "--transform",
        "hue:-0.33",
        "--from",
        "2",
        "--epochs",
        "1",
    )
    assert adapted["from"] == "client 2" and [row["client"] for row in adapted["clients"]] == [2]
    assert (adapted["samples"], adapted["iterations"], adapted["epochs"]) == (None, None, 1)
    assert adapted["clients"][0]["samples"] == 16 and adapted["after"]["std"] == 0
    before = open_finished(personal)
    after = open_finished(tmp_path / "new")
    original = before.served(2).network().state_dict()
    weights_after = after.served(None).network().state_dict()
    assert all(torch.equal(weights_after[name], original[name]) for name in original)
    assert cli.main(["resume", str(tmp_path / "new"), "--quiet"]) == 0


def test_what_a_method_freezes_keeps_its_bits(shared, tmp_path, capsys, monkeypatch):
    def first_block(self, net):
        return frozenset(list(net.state_dict())[:6])

    monkeypatch.setattr(FedAvg, "frozen_names", first_block)
    adapted = asked(shared, tmp_path / "new", capsys, "--transform", "none", "--lr", "0.5", *SHORT)
    original = open_finished(shared).served(None).network()
    now = open_finished(tmp_path / "new").served(0).network().state_dict()
    frozen = first_block(None, original)
    for name, tensor in original.state_dict().items():
        assert torch.equal(now[name], tensor) == (name in frozen)
    assert adapted["frozen"] == sum(
        weight.numel() for name, weight in original.named_parameters() if name in frozen
    )
    assert adapted["transform"] == []


@pytest.mark.whole
@pytest.mark.parametrize("method", ["fedpnas", "ca-fedpnas"])
def test_what_chooses_in_two_stacks_keeps_its_bits(method, place, tmp_path, capsys):
    """Of FedPNAS: samplers, and the path that Π has chosen; the operations' weights are trained."""
    setting = tree(place, "iid+rotation:30")
    setting["options"] = {
        "base_cells": "1",
        "nodes": "1",
        "channels": "4",
        "batch": "8",
        "tune_share": "0.5",
    }
    setting["budget"]["rounds"] = 2
    tiny.start(tmp_path / "run", method, setting)
    words = ("--transform", "rotation:90", "--from", "each", "--lr", "0.5", *SHORT)
    adapted = asked(tmp_path / "run", tmp_path / "new", capsys, *words)
    for client in range(3):
        original = open_finished(tmp_path / "run").served(client).network()
        now = open_finished(tmp_path / "new").served(client).network()
        assert now.architecture == original.architecture
        before = original.state_dict()
        after = now.state_dict()
        samplers = {name for name in before if ".samplers." in name}
        changed = {name for name in before if not torch.equal(after[name], before[name])}
        assert bool(samplers) == (method == "ca-fedpnas")
        assert not changed & samplers
        for part in ("net.stem.", "net.base.", "net.classifier."):
            assert any(part in name for name in changed), part
        frozen = sum(before[name].numel() for name in samplers)
        weights = sum(
            weight.numel() for name, weight in original.named_parameters() if name not in samplers
        )
        client_row = adapted["clients"][client]
        assert (client_row["frozen"], client_row["trained"]) == (frozen, weights)


def test_in_words(shared, tmp_path, capsys):
    words = [
        "adapt",
        str(shared),
        "--transform",
        "rotation:90",
        *SHORT,
        "--out",
        str(tmp_path / "new"),
        "--quiet",
    ]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "rotation:90: 3 clients, each with its samples, 3 iterations on 8 samples" in text
    assert "before: accuracy " in text and " ± " in text and "after:  accuracy " in text


def test_a_newcomer_may_be_transformed_too(personal, place, tmp_path, capsys):
    file = str(tiny.write_images(tmp_path / "new.npz", samples=40))
    words = ("--data", file, "--from", "1", "--transform", "rotation:90", *SHORT)
    adapted = asked(personal, tmp_path / "new", capsys, *words)
    assert (adapted["samples"], adapted["iterations"], adapted["test_samples"]) == (8, 3, 8)
    assert adapted["transform"] == [{"name": "rotation", "amount": 90.0}]
    assert RunFolder.open(tmp_path / "new").config().data.partition == "iid+tint+each:rotation:90"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--transform", "rotation:90", "--iterations", "3", "--epochs", "1"],
         "one of --iterations and --epochs must say how long to train, but got both; leave one "
         "out."),
        (["--transform", "rotation:90", "--samples", "17"],
         "--samples must be at most what client 0 has to train on, but got 17 and there are 16; "
         "try --samples 16."),
        (["--transform", "turn:90"],
         "a change in --transform must be a known name, but got 'turn'"),
        (["--transform", "rotation:270"], "from -180 to 180, but got 270"),
        (["--transform", "rotation"], "must say by how many degrees"),
        (["--transform", "hue:0.33"],
         "--transform hue:0.33 must have images in red, green and blue, but those of "
         "images have 1 channel, which have no hue; take rotation, or a run with +tint in its "
         "--partition."),
        (["--transform", "none", "--train", "personal"],
         "--train personal must be used with a model that has a personal part, "
         "but that of fedavg has none; leave --train out: all weights are trained then."),
        (["--transform", "none", "--train", "head"],
         "--train must be weights or personal, but got 'head'"),
        (["--transform", "none", "--from", "3"],
         "--from must be one of the run's clients, but got 3; there are 3."),
        (["--transform", "none", "--from", "all"],
         "--from must be shared, each or the number of a client"),
        (["--transform", "none", "--tier", "1"], "--tier must come with a new client's samples"),
        ([], "--data or --transform must say what to adapt to, but got neither"),
    ],
)  # fmt: skip
def test_refused_in_one_sentence(shared, tmp_path, capsys, words, expected):
    out = tmp_path / "new"
    assert cli.main(["adapt", str(shared), "--out", str(out), "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not out.exists()


def test_bad_transforms_of_a_newcomer(shared, tmp_path):
    file = str(tiny.write_images(tmp_path / "new.npz", samples=40))
    with pytest.raises(
        FedloomError, match="--from each must be used with the clients' own samples"
    ):
        cli.dispatch(["adapt", str(shared), "--data", file, "--from", "each"])
    with pytest.raises(
        FedloomError, match="what the new client has to train on, but got 33 and there are 32"
    ):
        cli.dispatch(
            ["adapt", str(shared), "--data", file, "--samples", "33", "--out", str(tmp_path / "x")]
        )


def test_text_has_no_transforms(tmp_path):
    (tmp_path / "play.txt").write_text("to be or not to be that is the question " * 12)
    setting = tiny.tree(tmp_path / "play.txt", rounds=1)
    setting["data"]["name"] = f"{tmp_path / 'play.txt'}:8:8"
    setting["options"] = {"width": "0.05", "batch": "8"}
    tiny.start(tmp_path / "run", "fedavg", setting)
    with pytest.raises(
        FedloomError, match=r"--transform rotation:90 must have images, but .* is text"
    ):
        cli.dispatch(
            [
                "adapt",
                str(tmp_path / "run"),
                "--transform",
                "rotation:90",
                "--out",
                str(tmp_path / "x"),
            ]
        )
