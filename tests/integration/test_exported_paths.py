"""Export of models whose samples take their own paths: with all paths, pruned, or with one path."""

import importlib.util
import json

import numpy as np
import pytest
import safetensors.numpy
import tiny
import torch

from fedloom import cli
from fedloom.export.bundle import export
from fedloom.export.tracing import Whole
from fedloom.runs.finished import open_finished
from fedloom.runs.results import Run
from fedloom.spaces.genotype import read

pytestmark = pytest.mark.whole

SMALL = {"channels": 2, "base_cells": 1, "personal_cells": 1, "nodes": 1, "batch": 8}
WAYS = {"each": {}, "likely": {"path": "likely"}, "pruned": {"prune": True}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`context` has a path for every sample (wide samplers make many paths), `one` has one path."""
    place = tmp_path_factory.mktemp("paths")
    tiny.write_images(place / "images.npz", samples=90)
    setting = tiny.tree(place / "images.npz", rounds=2, evaluate={"every": 9})
    tuned = {"tune_share": 0.5}
    tiny.start(
        place / "context",
        "ca-fedpnas",
        {**setting, "options": {**SMALL, **tuned, "search": "random"}},
    )
    tiny.start(place / "one", "fedpnas", {**setting, "options": {**SMALL, **tuned}})
    return place


@pytest.fixture(scope="module")
def exported(runs):
    finished = open_finished(runs / "context")
    return {name: export(finished, client=1, out=runs / name, **way) for name, way in WAYS.items()}


def loaded(place):
    spec = importlib.util.spec_from_file_location("written_model", place / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", WAYS)
@torch.no_grad()
def test_what_is_written_has_the_accuracy_that_is_said_of_it(runs, exported, name):
    """Another process counts right answers on the client's test part."""
    test = open_finished(runs / "context").site.data(1).test
    module = loaded(exported[name].path)
    answers = [label for label, _ in module.predict(test.x)]
    right = np.mean(
        [label == str(truth) for label, truth in zip(answers, test.y.tolist(), strict=True)]
    )
    assert exported[name].paths.accuracy == pytest.approx(right)
    network = module.load()
    alone = torch.cat([network(sample) for sample in test.x.split(1)])
    torch.testing.assert_close(alone, network(test.x), rtol=1e-4, atol=1e-5)


def test_with_all_paths_it_is_as_accurate_as_the_run_says(runs, exported):
    row = Run.open(runs / "context").record.client(1)
    assert exported["each"].paths.accuracy == row.figure
    assert exported["each"].about.macs == round(row.macs)
    assert exported["each"].about.params == row.params


def test_the_share_is_that_of_the_most_common_path_of_the_run(runs, exported):
    row = json.loads((runs / "context" / "result.json").read_text())["clients"][1]
    assert exported["likely"].paths.share == row["routes"]["top"][0]["share"] < 1


def test_fewer_operations_make_it_smaller(exported):
    sizes = [exported[name].about.params for name in ("each", "pruned", "likely")]
    assert sizes[0] > sizes[1] > sizes[2]
    assert exported["pruned"].paths.left_out > 0
    files = [
        (exported[name].path / "weights.safetensors").stat().st_size
        for name in ("each", "pruned", "likely")
    ]
    assert files == sorted(files, reverse=True)


@pytest.mark.parametrize("name", WAYS)
def test_tensors_have_the_names_of_their_places(exported, name):
    names = set(safetensors.numpy.load_file(exported[name].path / "weights.safetensors")) - {
        "mean",
        "std",
    }
    assert all(tensor.startswith(("stem", "base", "personal", "classifier")) for tensor in names)
    assert any("sampler" in tensor for tensor in names) == (name != "likely")


def test_the_card_says_which_paths_there_are_and_how_long_they_take(exported):
    cards = {name: (exported[name].path / "README.md").read_text() for name in WAYS}
    for name, card in cards.items():
        facts = exported[name].paths
        for by_batch in facts.latency_ms.values():
            assert f"| {by_batch[1]:.3g} | {by_batch[32]:.3g} |" in card
        assert "(`each`)" in card
        assert "(`likely`)" in card
        assert f"{100 * facts.accuracy:.1f} %" in card
        assert ("As exported" in card) == (name != "each")
        assert ("reveals something about the path" in card) == (name != "likely")
    assert f"the path of {100 * exported['likely'].paths.share:.1f} % of" in cards["likely"]
    facts = exported["pruned"].paths
    assert f"{facts.left_out} of {facts.operations} operations are left out" in cards["pruned"]


def test_a_description_tells_the_path_and_one_path_can_be_built_again(exported):
    description = {
        name: json.loads((exported[name].path / "architecture.json").read_text()) for name in WAYS
    }
    assert [description[name]["path"] for name in WAYS] == ["each", "likely", "each"]
    assert description["likely"]["share"] == exported["likely"].paths.share
    assert description["pruned"]["left_out"] == exported["pruned"].paths.left_out
    assert "choice" not in description["each"]  # it is no architecture that --network could build
    net = read(exported["likely"].path / "architecture.json")((1, 6, 6), 3)
    assert sum(p.numel() for p in net.parameters()) == description["likely"]["params"]


def test_the_command_tells_it(runs, capsys):
    command = [
        "export",
        str(runs / "context"),
        "--client",
        "0",
        "--path",
        "likely",
        "--out",
        str(runs / "told"),
        "--json",
    ]
    assert cli.main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["path"], printed["left_out"], printed["format"]) == ("likely", None, "torch")
    assert 0 < printed["share"] <= 1
    assert 0 <= printed["accuracy"] <= 1
    assert printed["latency_ms"].keys() == {"each", "likely"}
    assert (
        cli.main(
            ["export", str(runs / "one"), "--client", "0", "--out", str(runs / "plain"), "--json"]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert [printed[name] for name in ("path", "share", "accuracy", "left_out", "latency_ms")] == [
        None
    ] * 5


def test_the_command_says_it_in_words(runs, capsys):
    assert (
        cli.main(
            [
                "export",
                str(runs / "context"),
                "--client",
                "0",
                "--prune",
                "--out",
                str(runs / "words"),
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "the run's own network, pruned, on" in text
    assert "operations are left out" in text


def test_one_path_of_a_shared_model_is_that_of_all_clients_samples(runs):
    finished = open_finished(runs / "context")
    count = sum(len(finished.site.data(client).test) for client in range(3))
    shared = export(finished, out=runs / "shared", path="likely")
    assert shared.paths.samples == count


REFUSED = [
    ("one", ["--path", "each"], "has one path for all"),
    ("one", ["--path", "likely"], "has one path for all"),
    ("one", ["--prune"], "has one path for all"),
    ("context", ["--path", "some"], "--path must be a known name"),
    ("context", ["--path", "likely", "--prune"], "--prune must be used with --path each"),
    ("context", ["--format", "executorch"], "add --path likely"),
    ("context", ["--path", "each", "--format", "executorch"], "add --path likely"),
]


@pytest.mark.parametrize(("run", "flags", "words"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_written(runs, run, flags, words, capsys):
    out = runs / "refused"
    assert cli.main(["export", str(runs / run), "--client", "1", *flags, "--out", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_another_format_of_another_network_does_not_stay_beside_it(runs):
    finished = open_finished(runs / "context")
    place = runs / "again"
    export(finished, client=1, out=place)
    (place / "model.onnx").write_bytes(b"of all paths")
    export(finished, client=1, out=place)
    assert (place / "model.onnx").exists()
    export(finished, client=1, out=place, path="likely")
    assert not (place / "model.onnx").exists()


@pytest.mark.parametrize("method", ["context", "one"])
def test_predictions_of_the_run_go_on(runs, method, tmp_path):
    test = open_finished(runs / method).site.data(1).test
    np.savez(tmp_path / "new.npz", x=test.x[:, 0].numpy(), y=test.y.numpy())
    run = Run.open(runs / method)
    assert run.predict(tmp_path / "new.npz", client=1).figures["accuracy"] == run.client(1).accuracy


@pytest.mark.export
@pytest.mark.parametrize("name", WAYS)
def test_onnx_answers_alike_for_any_number_of_samples(runs, name):
    """This includes operations without any sample: one sample takes one operation per edge."""
    runtime = pytest.importorskip("onnxruntime")
    finished = open_finished(runs / "context")
    written = export(finished, client=1, format="onnx", out=runs / f"onnx-{name}", **WAYS[name])
    assert 0 <= written.difference < 2e-6
    session = runtime.InferenceSession(str(written.path / "model.onnx"))
    network = loaded(written.path).load()
    data = finished.site.data(1)
    x = torch.cat([data.test.x, data.train.x])
    for batch in (1, 5, 32):
        (scores,) = session.run(None, {"samples": x[:batch].numpy()})
        with torch.no_grad():
            assert np.abs(scores - network(x[:batch]).numpy()).max() < 2e-6


def test_an_exporter_is_told_no_bound_of_the_batch(runs):
    """A condition on the size of a map would become one on the number of samples."""
    whole = Whole(open_finished(runs / "one").served(1).network().cpu())
    x = torch.zeros(2, 1, 6, 6, dtype=torch.uint8)
    exported = torch.export.export(
        whole, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}
    )
    (bounds,) = exported.range_constraints.values()
    assert not bounds.upper.is_finite or bounds.upper > 10**9


@pytest.mark.export
def test_executorch_takes_one_path(runs):
    pytest.importorskip("executorch")
    written = export(
        open_finished(runs / "context"),
        client=1,
        format="executorch",
        out=runs / "pte",
        path="likely",
    )
    assert 0 <= written.difference < 1e-4
    assert (written.path / "model.pte").exists()
