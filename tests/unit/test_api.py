import json
import subprocess
import sys

import numpy as np
import pytest

import fedloom
from fedloom import cli


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.arange(60 * 25, dtype=np.uint8).reshape(60, 5, 5), y=np.arange(60) % 2)


SMALL = {
    "data": "x.npz",
    "clients": 3,
    "partition": "iid",
    "rounds": 2,
    "workers": 0,
    "width": 0.125,
}
WORDS = [
    "--data",
    "x.npz",
    "--clients",
    "3",
    "--partition",
    "iid",
    "--rounds",
    "2",
    "--workers",
    "0",
]


def untimed(comparison):
    return {**comparison, "run": "", "seconds": 0}


def test_search_is_what_the_command_does(capsys):
    run = fedloom.search("fedavg", **SMALL, lr=0.1)
    assert capsys.readouterr() == ("", "")
    assert cli.main(["run", "fedavg", *WORDS, "--width", "0.125", "--lr", "0.1", "--json"]) == 0
    assert untimed(json.loads(capsys.readouterr().out)) == untimed(run.to_json())
    assert isinstance(run, fedloom.Run)
    assert str(run.path) == "runs/1-fedavg-x"
    assert run.client(2).samples == 20
    assert run.accuracy["mean"] == np.mean([client.accuracy for client in run.clients])
    run.table()
    assert "fedavg on x, iid, seed 0" in capsys.readouterr().out


def test_search_takes_variants_and_a_folder(tmp_path):
    run = fedloom.search("fedavg:lr=0.01", **SMALL, out=tmp_path / "mine")
    assert run.path == tmp_path / "mine"
    assert run.result["options"]["lr"] == 0.01


def test_compare_is_what_the_command_does(capsys):
    shared = {name: value for name, value in SMALL.items() if name != "width"}
    comparison = fedloom.compare(
        ["fedavg:width=0.125", "local:width=0.125"], seeds=[0, 1], **shared
    )
    arguments = [
        "compare",
        "fedavg:width=0.125",
        "local:width=0.125",
        "--seeds",
        "0,1",
        *WORDS,
        "--json",
    ]
    assert cli.main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [untimed(run) for run in printed["runs"]] == [
        untimed(run.to_json()) for run in comparison.runs
    ]
    assert [row["difference"] for row in printed["methods"]] == [
        row["difference"] for row in comparison.methods
    ]
    comparison.table()
    assert "paired by seed" in " ".join(capsys.readouterr().out.split())


def test_compare_tunes():
    shared = {name: value for name, value in SMALL.items() if name != "width"}
    comparison = fedloom.compare(["fedavg:width=0.125"], grid={"lr": [1e-6, 0.1]}, **shared)
    assert comparison.methods[0]["tuned"] in ({"lr": 1e-6}, {"lr": 0.1})
    assert comparison.runs[0].result["options"]["lr"] == comparison.methods[0]["tuned"]["lr"]


def test_resume_gives_runs_and_comparisons_again():
    run = fedloom.search("local", **SMALL)
    assert fedloom.resume(run.path).to_json() == run.to_json()
    (run.path / "result.json").unlink()
    assert untimed(fedloom.resume(str(run.path)).to_json()) == untimed(run.to_json())
    shared = {name: value for name, value in SMALL.items() if name != "width"}
    comparison = fedloom.compare(["local"], **shared)
    assert fedloom.resume(comparison.path).to_json() == comparison.to_json()


def test_progress_if_wanted(capsys):
    fedloom.search("fedavg", **SMALL, quiet=False)
    output, errors = capsys.readouterr()
    assert output == ""
    assert "1-fedavg-x: train round 2" in errors


def test_errors():
    with pytest.raises(
        fedloom.FedloomError, match=r"a keyword of fedavg must be .* did you mean rounds\?"
    ):
        fedloom.search("fedavg", round=3)
    with pytest.raises(
        fedloom.FedloomError, match=r"a keyword of compare must be .* did you mean clients\?"
    ):
        fedloom.compare(["fedavg"], client=3)
    with pytest.raises(
        fedloom.FedloomError, match="`--rounds` must be greater than or equal to 1, but got 0"
    ):
        fedloom.search("fedavg", rounds=0)
    with pytest.raises(AttributeError, match="module 'fedloom' has no attribute 'sarch'"):
        _ = fedloom.sarch


def test_importing_costs_nothing():
    heavy = "('torch', 'numpy', 'pydantic')"
    probe = f"import sys, fedloom; print(any(name in sys.modules for name in {heavy}))"
    assert (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout
        == "False\n"
    )
    assert set(fedloom.__all__) >= {"search", "compare", "resume", "Run", "FedloomError"}
    for name in fedloom.__all__:
        assert getattr(fedloom, name) is not None
