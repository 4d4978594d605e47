"""`fedloom auto` and `fedloom run auto` where data or budgets are poor.

See docs/auto.md, "Poor data and small budgets". Each command ends with one sentence before anything
is trained, or as that section says.
"""

import json
import math

import numpy as np
import pytest
import torch

from fedloom import cli
from fedloom.learning.prior import log_prior

pytestmark = pytest.mark.whole

QUICK = ["--workers", "0", "--quiet"]
FEW_ROUNDS = ["--rounds", "17", *QUICK]
NARROW = ["--width", "0.125", *FEW_ROUNDS]
BOTH = pytest.mark.parametrize(
    "command",
    [["run", "auto", "--rounds", "17", *QUICK], ["auto", "--rounds", "12", *QUICK]],
    ids=["run", "auto"],
)


def write_images(file, labels, clients):
    """Images of 8×8, the brighter the larger their label."""
    draw = np.random.default_rng(3)
    labels = np.asarray(labels)
    x = draw.normal(size=(len(labels), 1, 8, 8)) + 2 * labels[:, None, None, None]
    np.savez(file, x=x.astype(np.float32), y=labels, client=np.asarray(clients))
    return str(file)


def write_table(file, rows=90):
    """Age decides. One column never changes, and one has no values."""
    draw = np.random.default_rng(3)
    lines = ["age,pressure,note,empty,client,label"]
    for row in range(rows):
        age = draw.normal(50, 10)
        label = "ill" if age > 50 else "well"
        lines.append(f"{age:.2f},{draw.normal():.2f},same,,{row % 3},{label}")
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def refusal(words, place, capsys):
    """What is said of a command that ends before anything is made."""
    assert cli.main([*words, "--out", str(place / "out")]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "Traceback" not in errors
    assert not (place / "out").exists()
    return errors


def result_of(words, place):
    assert cli.main([*words, "--out", str(place / "out")]) == 0
    return json.loads((place / "out" / "result.json").read_text())


def decisions_of(result):
    return {decision["decision"]: decision for decision in result["decisions"]}


# Budgets and limits


WINE = ["--data", "wine", "--clients", "4", *QUICK]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "auto", "--rounds", "5"], "--rounds must be at least 17 for auto with 4 sizes"),
        (
            ["run", "auto", "--rounds", "30", "--budget", "macs=600k"],
            "--budget macs must let auto decide and train",
        ),
        (
            ["run", "auto", "--rounds", "30", "--budget", "bytes=100k"],
            "--budget bytes must let auto decide and train",
        ),
        (["auto", "--rounds", "5"], "but got --rounds 5; try --rounds 10"),
        (["auto", "--budget", "rounds=5"], "--rounds must be at least 17 for auto with 4 sizes"),
        (
            ["auto", "--budget", "macs=60M,bytes=400k"],
            "--budget bytes must let auto decide and train",
        ),
        (["auto", "--budget", "seconds=0.001"], "but got 0.001 simulated seconds; "),
        (["auto", "--budget", "wan=10k"], "but got 10 kB of the WAN; "),
        (["auto", "--limit", "params=10"], "limits must leave at least one size of the network"),
        (
            ["auto", "--limit", "macs=10"],
            "the smallest, 0.35 of the width, takes 1,641 MACs a sample",
        ),
        (
            ["run", "auto", "--rounds", "20", "--limit-params", "10"],
            "limits must leave at least one size",
        ),
    ],
)
def test_too_little_is_refused_before_training(words, says, tmp_path, capsys):
    assert says in refusal([*words, *WINE], tmp_path, capsys)


def amount_in(said, before, after):
    number = said.split(before)[1].split(after)[0]
    return number.replace(" ", "")


def test_the_least_that_a_limit_must_allow_lets_the_race_decide(tmp_path, capsys):
    words = ["run", "auto", "--rounds", "30", *WINE]
    error = refusal([*words, "--budget", "macs=600k"], tmp_path, capsys)
    least = amount_in(error, "allow ", ", or use")
    result = result_of([*words, "--budget", f"macs={least}"], tmp_path)
    assert decisions_of(result)["size, slice 2"]["chosen"] in ("0.35", "0.5", "0.7", "1")
    assert "stop" in decisions_of(result)


# Clients


def test_a_client_with_one_class(tmp_path):
    clients = np.arange(90) // 30
    labels = np.where(clients == 0, 1, np.arange(90) % 3)
    data = write_images(tmp_path / "x.npz", labels, clients)
    result = result_of(["run", "auto", "--data", data, *NARROW], tmp_path)
    first, second = result["clients"][:2]
    assert first["accuracy"] == 1.0
    assert first["balanced_accuracy"] is None and second["balanced_accuracy"] is not None
    assert 0 < result["balanced_accuracy"]["mean"] <= 1


def test_the_prior_of_one_class_leaves_the_others_possible():
    shift = log_prior(torch.ones(20, dtype=torch.long), 3)
    assert shift.tolist() == pytest.approx(
        [math.log(0.5 / 21.5), math.log(20.5 / 21.5), math.log(0.5 / 21.5)]
    )


@BOTH
def test_a_class_of_one_site_alone_and_a_site_of_one_class(command, tmp_path):
    """The first site has nobody ill; the last alone has a label of its own."""
    draw = np.random.default_rng(3)
    lines = ["age,pressure,client,label"]
    for row in range(90):
        age = draw.normal(50, 10)
        label = {0: "well", 1: "ill", 2: "odd"}[row % 3] if age > 50 else "well"
        lines.append(f"{age:.2f},{draw.normal():.2f},{row % 3},{label}")
    data = tmp_path / "x.csv"
    data.write_text("\n".join(lines) + "\n")
    result = result_of([*command, "--data", str(data)], tmp_path)
    if command[0] == "auto":
        assert math.isfinite(result["leaderboard"][0]["test"]["mean"])
        result = json.loads((tmp_path / "out" / "auto-seed0" / "result.json").read_text())
    assert result["input"]["labels"] == ["ill", "odd", "well"]
    assert result["clients"][0]["balanced_accuracy"] is None
    assert all(math.isfinite(client["accuracy"]) for client in result["clients"])


@BOTH
def test_one_client(command, tmp_path):
    result = result_of([*command, "--data", "wine", "--clients", "1"], tmp_path)
    if command[0] == "auto":
        assert "at the only client, which may be chance" in result["verdict"]
        assert result["leaderboard"][0]["test"]["interval"] is None
    else:
        assert len(result["clients"]) == 1 and result["accuracy"]["std"] == 0.0
    assert decisions_of(result)["size, slice 2"]["counts"]


@BOTH
def test_clients_that_are_too_small_to_be_one(command, tmp_path, capsys):
    data = write_images(tmp_path / "x.npz", np.arange(15) % 3, np.arange(15) // 3)
    error = refusal([*command, "--data", data], tmp_path, capsys)
    assert (
        "each client must have at least 10 samples to be a client, but 5 of 5 have fewer" in error
    )


def test_nobody_has_a_validation_part(tmp_path, capsys):
    """Four samples each: one is for testing, and of three none is held back."""
    data = write_images(tmp_path / "x.npz", np.arange(24) % 3, np.arange(24) // 4)
    result = result_of(["run", "auto", "--data", data, "--min-samples", "4", *NARROW], tmp_path)
    assert "no client has enough samples to hold 20 % of them back" in capsys.readouterr().err
    decisions = decisions_of(result)
    assert decisions["size, slice 2"]["chosen"] == "0.35"
    assert decisions["augmentation"]["chosen"] == "none"
    assert decisions["fine-tuning"]["chosen"] == "one network"
    assert decisions["fine-tuning"]["counts"]["samples"] == 0


def test_a_verdict_says_nothing_of_what_nobody_could_compare(tmp_path):
    """Of three samples beside the test part the contest keeps one, so `auto` can hold none back."""
    data = write_table(tmp_path / "x.csv", rows=12)
    words = ["auto", "--rounds", "12", "--sizes", ".5,1", "--min-samples", "4", *QUICK]
    result = result_of([*words, "--data", data], tmp_path)
    decisions = decisions_of(result)
    assert decisions["size, slice 1"]["chosen"] == "0.5"
    assert decisions["fine-tuning"]["counts"] == {"up": 0, "down": 0, "samples": 0}
    assert "personal networks" not in result["verdict"]
    assert [client["samples"] for client in result["clients"]] == [1, 1, 1]


def test_some_have_no_validation_part(tmp_path, capsys):
    clients = [*np.arange(60) // 30, *np.repeat([2, 3, 4], 4)]
    data = write_images(tmp_path / "x.npz", np.arange(72) % 3, clients)
    result = result_of(["run", "auto", "--data", data, "--min-samples", "4", *NARROW], tmp_path)
    errors = capsys.readouterr().err
    assert (
        "3 of 5 clients have too few samples to hold 20 % back: they train, the others decide"
        in errors
    )
    counts = decisions_of(result)["size, slice 1"]["counts"]
    assert {sums["samples"] for sums in counts.values()} == {10}  # a fifth of 24, of two clients


# Tables


@BOTH
def test_columns_that_say_nothing_are_left_out(command, tmp_path, capsys):
    data = write_table(tmp_path / "x.csv")
    result_of([*command, "--data", data], tmp_path)
    errors = capsys.readouterr().err
    assert "the column note has the same value in every row: left out" in errors
    assert "the column empty has no value in any row: left out" in errors


@BOTH
@pytest.mark.parametrize(
    ("cell", "says"), [("", "have no value in any row"), ("3", "have the same value")]
)
def test_a_table_of_such_columns_alone(command, cell, says, tmp_path, capsys):
    lines = ["a,b,client,label"]
    for row in range(90):
        lines.append(f"{cell},{cell},{row % 3},{'ill' if row % 2 else 'well'}")
    file = tmp_path / "x.csv"
    file.write_text("\n".join(lines) + "\n")
    error = refusal([*command, "--data", str(file)], tmp_path, capsys)
    assert (
        "a table must have a column beside its label that says something" in error and says in error
    )


# Families


def test_sizes_of_a_drawn_network_race_and_so_do_those_of_its_genotype(tmp_path):
    data = write_images(tmp_path / "x.npz", np.arange(36) % 3, np.arange(36) // 18)
    asked = [
        "--data",
        data,
        "--sizes",
        ".5,1",
        "--width",
        "0.125",
        "--changes",
        "none",
        "--tune",
        "never",
    ]
    drawn = ["run", "auto", *asked, "--rounds", "5", *QUICK, "--network", "space:darts:s2:2"]
    result = result_of(drawn, tmp_path)
    assert decisions_of(result)["size, slice 1"]["chosen"] in ("0.5", "1")
    genotype = tmp_path / "genotype.json"
    genotype.write_text((tmp_path / "out" / "architectures" / "client-0.json").read_text())
    place = tmp_path / "again"
    place.mkdir()
    again = result_of([*drawn[:-1], f"cells:{genotype}"], place)
    assert decisions_of(again)["size, slice 1"]["options"] == ["0.5", "1"]
    assert again["clients"][0]["architecture"] == result["clients"][0]["architecture"]
