"""What a reviewer once broke."""

import json
import os

import numpy as np
import pytest

import fedloom
from fedloom.cli import main

QUICK = ["--clients", "2", "--partition", "iid", "--rounds", "1", "--workers", "0"]
NOISY = """
print("module loaded")
from fedloom.methods.fedavg import fedavg as m
from fedloom.data.readers.digits import digits
def data(directory):
    print("downloading")
    return digits(directory)
def Net(shape, classes, width):
    from fedloom.nets.cnn import SmallCNN
    return SmallCNN(shape, classes, 0.25)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noisy.py").write_text(NOISY)
    return tmp_path


def said(capsys, words):
    code = main(words)
    return code, capsys.readouterr()


def test_a_method_that_prints_does_not_spoil_json(capsys):
    code, out = said(capsys, ["run", "noisy.py:m", "--data", "noisy.py:data", "--json", *QUICK])
    assert code == 0 and json.loads(out.out)["seed"] == 0
    assert "downloading" in out.err


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--width", "1e9"], "`options.width` must be less than or equal to 1000"),
        (["--network", "noisy.py:data"], "must be possible for samples of shape"),
    ],
)
def test_a_network_that_cannot_be_built_is_named_before_a_folder_is_made(
    capsys, here, wrong, sentence
):
    code, out = said(capsys, ["run", "fedavg", *wrong, *QUICK])
    assert code == 2 and sentence in out.err and not (here / "runs").exists()


def test_images_too_small_for_local_are_named_before_a_folder_is_made(capsys, here):
    np.savez("tiny.npz", x=np.zeros((40, 1, 1), np.uint8), y=np.arange(40) % 2)
    code, out = said(capsys, ["run", "local", "--data", "tiny.npz", *QUICK])
    assert (
        code == 2
        and "images for the cnn must be at least 4×4" in out.err
        and not (here / "runs").exists()
    )


def test_damaged_runs_are_listed_and_a_damaged_result_is_made_again(capsys, here):
    assert main(["run", "fedavg", "--json", *QUICK]) == 0
    first = json.loads(capsys.readouterr().out)
    (here / "runs/1-fedavg-digits/result.json").write_text("{")
    (here / "runs/2-x").mkdir()
    (here / "runs/2-x/run.json").write_text("{")
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "unfinished" in listed and "damaged" in listed
    assert main(["resume", "runs/1-fedavg-digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clients"] == first["clients"]


def test_compare_takes_a_seed_from_the_api():
    compared = fedloom.compare(["fedavg"], seed=5, clients=2, partition="iid", rounds=1, workers=0)
    assert compared.runs[0].result["seed"] == 5


def test_a_grid_refuses_what_a_variant_fixes(capsys):
    code, out = said(
        capsys, ["compare", "fedavg:lr=0.0001", "local", "--grid", "lr=.1,.03", *QUICK]
    )
    assert code == 2 and "fedavg:lr=0.0001 fixes lr" in out.err


def test_a_variants_network_may_come_from_a_file_and_resume_from_anywhere(
    capsys, here, monkeypatch
):
    code, out = said(capsys, ["compare", "fedavg", "fedavg:network=noisy.py:Net", "--json", *QUICK])
    assert code == 0
    params = [row["params"] for row in json.loads(out.out)["methods"]]
    assert params[1] < params[0]
    monkeypatch.chdir("/")
    os.remove(here / "runs/1-compare-digits/result.json")
    assert main(["resume", str(here / "runs/1-compare-digits"), "--json"]) == 0


def test_more_replies_than_the_cohort_are_refused(capsys):
    words = ["run", "fedavg", "--participation", "0.25", "--min-replies", "5", "--clients", "8"]
    code, out = said(capsys, words)
    assert code == 2 and "got 5 of 2" in out.err


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_divergence_is_named(capsys, here, method):
    code, out = said(capsys, ["run", method, "--lr", "1e30", "--clip", "1e30", *QUICK])
    assert code == 3 and "training diverged, try a smaller lr" in out.err


def test_an_edited_extension_counts(here):
    one = fedloom.search(
        "fedavg", network="noisy.py:Net", clients=2, partition="iid", rounds=1, workers=0
    )
    (here / "noisy.py").write_text(NOISY.replace("0.25", "0.5"))
    two = fedloom.search(
        "fedavg", network="noisy.py:Net", clients=2, partition="iid", rounds=1, workers=0
    )
    assert two.client(0).params > one.client(0).params


def test_data_may_be_a_path(here):
    np.savez(
        "images.npz",
        x=np.random.default_rng(0).integers(0, 255, (60, 8, 8), np.uint8),
        y=np.arange(60) % 3,
    )
    assert fedloom.search(
        "fedavg", data=here / "images.npz", clients=2, partition="iid", rounds=1, workers=0
    ).clients


@pytest.mark.parametrize("text", ["clustered:2x", "clustered:x2", "clustered:0"])
def test_half_a_topology_is_refused(capsys, text):
    code, out = said(capsys, ["run", "fedavg", "--topology", text, *QUICK])
    assert code == 2 and "must name a number of clusters above 0" in out.err
