"""Runs on every partition.

They have the same bits for any number of workers, from a split file, and after a resume.
"""

import json

import numpy as np
import pytest
import tiny

from fedloom.cli import main
from fedloom.config.models import Experiment, validated
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.results import Run

TURNED = "dirichlet-equal:1+rotation:90"


def setting(images, rounds=1, **data):
    tree = tiny.tree(images, rounds=rounds)
    return {**tree, "data": {**tree["data"], **data}}


def test_workers_change_no_bit_of_turned_images(images, tmp_path, pool_of):
    turned = setting(images, 2, partition=TURNED)
    tiny.start(tmp_path / "0", "fedavg", turned)
    expected = tiny.left_behind(tmp_path / "0")
    tiny.start(tmp_path / "2", "fedavg", {**turned, "engine": {"workers": 2}}, pool=pool_of(2))
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "2")) == []
    tiny.start(tmp_path / "plain", "fedavg", setting(images, 2, partition="dirichlet-equal:1"))
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "plain")) != []


def test_a_saved_split_gives_the_same_run(images, tmp_path):
    turned = setting(images, partition=TURNED)
    tiny.start(tmp_path / "made", "fedavg", turned)
    split = Split.load(tmp_path / "made" / "split.json")
    data = {"name": str(images), "split": str(tmp_path / "made" / "split.json")}
    run = tiny.start(tmp_path / "given", "fedavg", {**turned, "data": data})
    assert run.result["data"] == {"name": "images", "partition": TURNED, "split": split.hash}
    one, two = (
        json.loads((tmp_path / name / "result.json").read_text())["clients"]
        for name in ("made", "given")
    )
    assert [row["accuracy"] for row in one] == [row["accuracy"] for row in two]


def test_a_wrong_split_is_refused_before_a_folder_is_made(images, tmp_path):
    tiny.start(tmp_path / "made", "fedavg", tiny.tree(images, rounds=1))
    other = tiny.write_images(tmp_path / "other.npz", samples=80)
    data = {"name": str(other), "split": str(tmp_path / "made" / "split.json")}
    with pytest.raises(FedloomError, match="the split must be of the data other as it is now"):
        create(configure("fedavg", {"data": data}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--partition", "label_skew:2"], "did you mean label-skew?"),
        (["--partition", "iid+hue"], "which have no hue"),
        (["--partition", "iid+each:hue:0.33/none"], "put +tint before it, or leave hue out"),
        (["--partition", "iid+each:blur:3/none"], "must be a known name, but got 'blur'"),
        (["--partition", "iid+tint+each:hue:0.6"], "from -0.5 to 0.5, but got 0.6"),
        (["--partition", "natural"], "images does not; try iid"),
        (["--parts", "official"], "images has none"),
        (["--parts", "offical"], "`--parts` must be 'own' or 'official'"),
        (["--min-samples", "40"], "there are 72 samples; try 1 client or fewer"),
        (
            ["--split", "none.json"],
            "none.json must be a split file as fedloom wrote it, but there is none",
        ),
    ],
)
def test_refused_in_one_sentence(words, expected, images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "fedavg", "--data", str(images), "--clients", "3", *words]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_the_list_of_partitions(capsys):
    assert main(["list", "partitions"]) == 0
    output = capsys.readouterr().out
    for name in (
        "dirichlet",
        "dirichlet-equal",
        "dominant",
        "iid",
        "label-skew",
        "missing",
        "natural",
        "sites",
    ):
        assert f"\n{name} " in f"\n{output}"
    assert "+rotation" in output
    assert "+hue" in output
    assert "+each" in output
    assert "+tint" in output


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"partition": "sites+rotation:30"},
            "partition must be sites, but got sites\\+rotation:30",
        ),
        ({"partition": "iid"}, "a federation's partition must be sites, but got iid"),
        ({"parts": "official"}, "--parts must not be given to a federation"),
    ],
)
def test_a_federation_takes_its_sites_as_they_are(data, expected):
    submission = pytest.importorskip("fedloom.deploy.submission", reason="needs fedloom[flower]")
    with pytest.raises(FedloomError, match=expected):
        submission.check(validated(Experiment, {"data": data, "engine": {"federation": "here"}}))


def test_official_parts_through_a_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from fedloom.data.sources import Source\n\n"
        "def marked(directory):\n"
        "    y = np.arange(90) % 3\n"
        "    x = np.repeat(y * 80, 36).reshape(90, 1, 6, 6).astype(np.uint8)\n"
        "    return Source('marked', x, y, official=np.repeat([0, 1, 2], 30).astype(np.uint8))\n"
    )
    tiny.start(
        tmp_path / "run", "fedavg", setting(f"{tmp_path / 'mine.py'}:marked", parts="official")
    )
    split = Split.load(tmp_path / "run" / "split.json")
    tested = np.concatenate([split.client(client)[1] for client in range(3)])
    assert sorted(tested.tolist()) == list(range(60, 90))


HIGH = "iid+tint+each:hue:-0.33/hue:0.33/none/rotation:-90/rotation:90"


def test_a_change_for_each_client_through_a_run(images, tmp_path, pool_of):
    """Any number of workers, a split file and a resume give the same bits.

    The result says which transform each client has.
    """
    changing = setting(images, 2, partition=HIGH, clients=6)
    run = tiny.start(tmp_path / "0", "fedavg", changing)
    expected = tiny.left_behind(tmp_path / "0")
    clients = json.loads((tmp_path / "0" / "result.json").read_text())["clients"]
    assert [client["transform"] for client in clients] == [
        [{"name": "hue", "amount": -0.33}],
        [{"name": "hue", "amount": 0.33}],
        [],
        [{"name": "rotation", "amount": -90.0}],
        [{"name": "rotation", "amount": 90.0}],
        [{"name": "hue", "amount": -0.33}],
    ]
    assert run.result["input"]["shape"] == [3, 6, 6] and len(run.result["input"]["mean"]) == 3
    assert Run.open(tmp_path / "0").record.clients[3].transform_text == "rotation −90"
    page = (tmp_path / "0" / "report.html").read_text()
    assert "client 0, hue −0.33" in page and "client 2, none" in page
    tiny.start(tmp_path / "2", "fedavg", {**changing, "engine": {"workers": 2}}, pool=pool_of(2))
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "2")) == []
    tiny.stopped_after(1, tmp_path / "stopped", "fedavg", changing)
    tiny.go_on(tmp_path / "stopped")
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "stopped")) == []
    data = {"name": str(images), "split": str(tmp_path / "0" / "split.json")}
    again = tiny.start(tmp_path / "given", "fedavg", {**changing, "data": data})
    assert again.accuracy == run.accuracy


def test_plain_runs_say_nothing_of_transforms(images, tmp_path):
    run = tiny.start(tmp_path / "run", "fedavg", setting(images))
    assert "transform" not in run.result["clients"][0]
    assert "client 0," not in (tmp_path / "run" / "report.html").read_text()


def test_models_of_tinted_images_take_grey_ones(images, tmp_path, capsys):
    tiny.start(tmp_path / "run", "fedavg", setting(images, partition="iid+tint", server_share=0.1))
    assert (
        main(["predict", str(tmp_path / "run"), "--data", str(images), "--shared", "--json"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert (
        printed["samples"] == 72 and printed["trained_on"] > 0
    )  # samples of the run are known again
    assert (
        main(
            [
                "export",
                str(tmp_path / "run"),
                "--shared",
                "--out",
                str(tmp_path / "model"),
                "--quiet",
            ]
        )
        == 0
    )
    assert "Grey images were tinted" in (tmp_path / "model" / "README.md").read_text()


def test_a_run_goes_on_from_one_with_tinted_images(images, tmp_path):
    tinted = setting(images, partition="iid+tint")
    before = tiny.start(tmp_path / "before", "fedavg", tinted)
    after = tiny.start(
        tmp_path / "after", "fedavg", {**tinted, "init": {"run": str(tmp_path / "before")}}
    )
    assert after.result["input"] == before.result["input"]
    split = {"name": str(images), "split": str(tmp_path / "before" / "split.json")}
    again = {**tinted, "data": split, "init": {"run": str(tmp_path / "before")}}
    assert (
        tiny.start(tmp_path / "by-file", "fedavg", again).result["input"] == before.result["input"]
    )


def test_a_split_shows_what_each_client_has(images, capsys):
    words = [
        "data",
        "show",
        str(images),
        "--clients",
        "3",
        "--partition",
        "iid+rotation:30+tint+each:none/hue:0.33",
    ]
    assert main([*words, "--json"]) == 0
    clients = json.loads(capsys.readouterr().out)["clients"]
    assert [client["rotation"] for client in clients] == [-30, 0, 30]
    assert clients[1]["transform"] == [
        {"name": "rotation", "amount": 0.0},
        {"name": "hue", "amount": 0.33},
    ]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "hue:0.33" in shown and "none" in shown
