"""Runs by the simulated clock: from the command line to result.json, and what cannot be."""

import json

import pytest
import tiny

from fedloom import cli
from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult

CLOCK = {
    "devices": {"table": "phones"},
    "clock": {"availability": "duty:0.6,0.3", "dropout": 0.2, "overselect": 1.3},
    "budget": {"rounds": 30, "participation": 0.75, "limits": "seconds=0.5"},
}


def by_clock(images, workers=0):
    return tiny.tree(images, clients=4, engine={"workers": workers}, **CLOCK)


def test_what_a_run_tells(images, tmp_path):
    run = tiny.start(tmp_path / "run", "fedavg", by_clock(images))
    simulated = run.result["simulated"]
    names = (
        "seconds devices availability budget stopped asked dropped late wasted_bytes "
        "wasted_macs replaced"
    )
    assert " ".join(list(simulated)[:11]) == names
    assert (simulated["devices"], simulated["availability"]) == ("phones", "duty:0.6,0.3")
    assert simulated["budget"] == {"seconds": 0.5} and simulated["stopped"] == "seconds"
    assert 0 < simulated["seconds"] <= 0.5 and simulated["replaced"] == 0
    assert simulated["dropped"] + simulated["late"] > 0 < simulated["wasted_macs"]
    rows = tiny.rows(tmp_path / "run")
    assert (
        rows[-1]["simulated"]["end"] == simulated["seconds"]
        and rows[0]["simulated"]["begin"] == 0.0
    )
    refused = []
    for row in rows:
        refused += row["refused"]
    assert len(refused) == simulated["dropped"] + simulated["late"]
    assert all(refusal["reason"].startswith(("left: ", "late: ")) for refusal in refused)
    assert run.result["measured_clock"] >= 0 and "clock" not in run.result
    result = run.to_json()
    assert (
        set(result["bytes"]) == {"down", "up", "lan_down", "lan_up"}
        and result["simulated"] == simulated
    )
    assert RunResult.read(tmp_path / "run" / "result.json").to_json() == run.result


@pytest.mark.processes
def test_the_same_bits_for_any_number_of_workers_and_after_a_stop(images, tmp_path, pool_of):
    tiny.start(tmp_path / "0", "fedavg", by_clock(images))
    expected = tiny.left_behind(tmp_path / "0")
    assert len(tiny.rows(tmp_path / "0")) > 3
    for count in (1, 2):
        tiny.start(tmp_path / str(count), "fedavg", by_clock(images, count), pool=pool_of(count))
        assert tiny.unlike(expected, tiny.left_behind(tmp_path / str(count))) == []
    tiny.stopped_after(2, tmp_path / "resumed", "fedavg", by_clock(images))
    tiny.go_on(tmp_path / "resumed")
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "resumed")) == []


def test_a_resume_needs_no_file(images, tmp_path):
    devices, times, faults = (
        tmp_path / name for name in ("devices.csv", "times.csv", "faults.csv")
    )
    rows = [f"{client},1e9,1e6,1e6,1e6" for client in range(3)]
    devices.write_text("\n".join(["client,macs_per_second,lan,wan_down,wan_up", *rows, ""]))
    times.write_text("client,begin,end\n0,0,50\n1,0,90\n2,0,100\n")
    faults.write_text("round,hop,client\n2,0,1\n")
    setting = tiny.tree(
        images,
        devices={"table": str(devices)},
        clock={"availability": str(times), "faults": str(faults)},
    )
    tiny.start(tmp_path / "whole", "fedavg", setting)
    tiny.stopped_after(1, tmp_path / "run", "fedavg", setting)
    for path in (devices, times, faults):
        path.unlink()
    tiny.go_on(tmp_path / "run")
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "whole"), tiny.left_behind(tmp_path / "run")) == []
    )
    assert [
        row["refused"][0]["client"] for row in tiny.rows(tmp_path / "run") if row["refused"]
    ] == [1]


def common(images):
    return [
        "--data",
        str(images),
        "--clients",
        "3",
        "--partition",
        "iid",
        "--workers",
        "0",
        "--quiet",
        "--json",
    ]


def test_to_a_target(images, tmp_path, capsys):
    flags = [
        "--rounds",
        "3",
        "--evaluate-every",
        "1",
        "--target",
        "0.2",
        "--set",
        "options.width=0.125",
    ]
    out = str(tmp_path / "both")
    assert cli.main(["compare", "fedavg", "local", *common(images), *flags, "--out", out]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    target = methods[0]["target"]
    assert set(target) == {"seconds", "wan", "bytes", "macs", "rounds"} and target["seconds"] > 0
    row = next(
        row
        for row in tiny.rows(tmp_path / "both" / "fedavg-seed0")
        if row["evaluation"]["accuracy"] >= 0.2
    )
    assert row["evaluation"]["part"] == "validation"
    assert (target["rounds"], target["macs"]) == (row["round"], row["totals"]["macs"])
    assert target["seconds"] == row["simulated"]["end"]
    assert RunFolder.open(tmp_path / "both" / "fedavg-seed0").result() is not None


def test_a_target_that_nobody_reaches(images, tmp_path, capsys):
    flags = [
        "--rounds",
        "1",
        "--target",
        "1.0",
        "--set",
        "options.width=0.125",
        "--equal",
        "seconds",
    ]
    words = ["compare", "fedavg", "local", *common(images), *flags, "--out", str(tmp_path / "both")]
    assert cli.main([word for word in words if word != "--json"]) == 0
    assert capsys.readouterr().out.count("not reached") == 2
    result = json.loads((tmp_path / "both" / "result.json").read_text())
    assert [(row["target"], row["target_reached"]) for row in result["methods"]] == [(None, 0)] * 2


def test_a_dry_run_tells_simulated_seconds(images, capsys):
    flags = [
        "--devices",
        "phones",
        "--availability",
        "duty:600,300",
        "--budget",
        "seconds=900",
        "--dropout",
        "0.1",
    ]
    words = [
        "run",
        "fedavg",
        "--width",
        "0.125",
        *common(images),
        "--rounds",
        "5",
        *flags,
        "--dry-run",
    ]
    assert cli.main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["simulated"]["seconds"] > 0 and printed["rounds"] == 5
    assert cli.main([word for word in words if word != "--json"]) == 0
    assert "by the simulated clock" in capsys.readouterr().out


def test_a_dry_run_within_limits(images, capsys):
    words = ["run", "fedavg", "--width", "0.125", *common(images), "--rounds", "50", "--dry-run"]
    assert cli.main(words) == 0
    whole = json.loads(capsys.readouterr().out)
    assert cli.main([*words, "--budget", f"macs={whole['macs'] // 10}"]) == 0
    part = json.loads(capsys.readouterr().out)
    assert part["rounds"] == 5 and part["macs"] <= whole["macs"] // 10


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--budget wan=1k", "--budget wan must allow one round, which needs about"),
        ("--budget seconds=0", "must be greater than 0"),
        ("--budget wan=1M,wan=2M", "each of seconds, wan, bytes, macs once"),
        ("--budget joules=5", "each of seconds, wan, bytes, macs once"),
        ("--devices phone", "did you mean phones"),
        ("--device phones", "did you mean --devices phones"),
        ("--availability never", "must be a known name"),
        ("--availability duty:0,1", "above 0"),
        ("--availability absent.csv", "must be a CSV file with the columns client, begin, end"),
        ("--faults absent.csv", "must be a CSV file with the columns round, hop, client"),
        ("--dropout 1", "must be less than 1"),
        ("--overselect 0.5", "must be greater than or equal to 1"),
        ("--round-deadline 0", "must be greater than 0"),
    ],
)
def test_what_cannot_be(images, tmp_path, capsys, flags, words):
    command = ["run", "fedavg", *common(images), "--out", str(tmp_path / "run"), *flags.split()]
    assert cli.main(command) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
