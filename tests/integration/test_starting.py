"""`--init RUN` and `fedloom adapt`: runs that begin where another ended."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from fedloom import cli
from fedloom.config.models import Experiment, InitConfig, validated
from fedloom.errors import FedloomError
from fedloom.export.bundle import export
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.fitting import fitted
from fedloom.federation.server.loop import Loop
from fedloom.reading import read_json
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan
from fedloom.records.warm_start import WarmStart
from fedloom.runs.comparison import create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.finished import open_finished
from fedloom.runs.preparing import prepare
from fedloom.runs.results import Run
from fedloom.runs.running import carry_out
from fedloom.runs.warm_start import read_start
from fedloom.types import Setup, State

CELLS = {"ops": "s2", "cells": 2, "nodes": 1, "channels": 2, "batch": 8, "epochs": 1}
SPIDER = {**CELLS, "t_s": 1, "tau": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("starting")
    tiny.write_images(folder / "images.npz", samples=45)
    return folder


def tree(place, rounds=2, options=None, **sections):
    setting = tiny.tree(place / "images.npz", rounds=rounds, evaluate={"every": 9})
    return {**setting, "options": dict(tiny.SMALL if options is None else options), **sections}


@pytest.fixture(scope="module")
def first(place):
    tiny.start(place / "first", "fedavg", tree(place))
    return place / "first"


def weights(path):
    return Archive(path).final().state.tensors


def starting_weights(out, method, given):
    """What the first round of a run sends down."""
    folder, prepared = create(configure(method, given), out)
    state = prepared.stages[0].method.init(
        Setup(prepared.task, len(prepared.split)), prepared.start
    )
    return fitted(state, prepared.start), folder, prepared


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedadam", "local-adaptation"])
def test_the_first_state_has_the_other_runs_weights(place, first, tmp_path, method):
    state, folder, prepared = starting_weights(
        tmp_path / "new", method, tree(place, init={"run": str(first)})
    )
    assert equal(state.tensors, dict(weights(first)))
    assert prepared.config.init.run == str(first.resolve()) and len(prepared.config.init.hash) == 64
    assert folder.config().init == prepared.config.init


def test_the_loop_sends_them_down(place, first, tmp_path):
    """With a learning rate of next to nothing a round leaves the weights where they were."""
    setting = tree(
        place,
        rounds=1,
        options={**tiny.SMALL, "lr": 1e-30, "bn": "frozen"},
        init={"run": str(first)},
    )
    tiny.start(tmp_path / "new", "fedavg", setting)
    assert equal(dict(weights(tmp_path / "new")), dict(weights(first)))


@pytest.mark.parametrize(("method", "options"), [("fedavg", tiny.SMALL), ("adapt", {"batch": "8"})])
def test_it_resumes_to_the_bit_even_without_the_old_run(place, first, tmp_path, method, options):
    shutil.copytree(first, tmp_path / "old")
    setting = tree(place, rounds=3, options=options, init={"run": str(tmp_path / "old")})
    tiny.start(tmp_path / "whole", method, setting)
    folder, prepared = create(configure(method, setting), tmp_path / "cut")

    class Killed(Exception):
        pass

    original = Loop._round

    def dies(loop, at):
        if at.round == 1:
            raise Killed
        return original(loop, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_round", dies)
        with pytest.raises(Killed):
            carry_out(folder, prepared, lambda event: None)
    shutil.rmtree(tmp_path / "old")
    tiny.go_on(tmp_path / "cut")
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "whole"), tiny.left_behind(tmp_path / "cut")) == []
    )


def test_it_is_the_same_in_worker_processes(place, first, tmp_path, pool_of):
    setting = tree(place, init={"run": str(first)})
    tiny.start(tmp_path / "none", "fedavg", setting)
    tiny.start(tmp_path / "two", "fedavg", {**setting, "engine": {"workers": 2}}, pool=pool_of(2))
    assert equal(dict(weights(tmp_path / "none")), dict(weights(tmp_path / "two")))


def flip_last_bit(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_last_bit, Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_damaged_beginning_is_taken_from_the_old_run_once_more(
    place, first, tmp_path, caplog, damage
):
    setting = tree(place, init={"run": str(first)})
    tiny.start(tmp_path / "undisturbed", "fedavg", setting)
    create(configure("fedavg", setting), tmp_path / "new")
    file = tmp_path / "new" / "init.state"
    whole = file.read_bytes()
    damage(file)
    tiny.go_on(tmp_path / "new")
    assert "was damaged: what the run began with is taken from" in caplog.text
    assert file.read_bytes() == whole
    assert equal(dict(weights(tmp_path / "new")), dict(weights(tmp_path / "undisturbed")))


def test_what_it_begins_with_is_written_as_before(place, first):
    """Hashes in configurations of earlier versions cover these names in this order."""
    start = read_start(InitConfig(run=str(first)), "fedavg")
    assert list(start.meta) == [
        "method",
        "options",
        "seed",
        "stage",
        "meta",
        "own",
        "input",
        "prefix",
    ]
    assert start.meta["input"] == json.loads((first / "result.json").read_text())["input"]
    assert (start.meta["own"], start.meta["prefix"]) == (None, "own/")
    assert WarmStart.read(start.meta).to_json() == start.meta


def test_without_either_it_is_refused(place, first, tmp_path):
    """The old run is there, but it is not what the new one began with."""
    shutil.copytree(first, tmp_path / "old")
    create(configure("fedavg", tree(place, init={"run": str(tmp_path / "old")})), tmp_path / "new")
    flip_last_bit(tmp_path / "new" / "init.state")
    shutil.rmtree(tmp_path / "old")
    with pytest.raises(
        FedloomError, match="must be what the run began with, but it cannot be used"
    ):
        tiny.go_on(tmp_path / "new")


def test_runs_without_it_are_what_they_were(place):
    plain = validated(Experiment, tree(place))
    assert "init" not in plain.to_toml() and prepare(plain).start is None


def test_what_does_not_fit_is_named(place, first, tmp_path):
    def asked(method, **changes):
        with pytest.raises(FedloomError) as error:
            create(
                configure(method, tree(place, **{"init": {"run": str(first)}, **changes})),
                tmp_path / "x",
            )
        assert not (tmp_path / "x").exists()
        return str(error.value)

    assert "must have net.features.0.weight of shape [4, 1, 3, 3], but its shape is [2," in asked(
        "fedavg", options={"width": "0.25"}
    )
    assert "(1 of" not in asked("fedavg", options={"network": "vgg16", "width": "0.02"})
    assert "must be for a method that shares weights" in asked("local")
    assert "it has no valid run.json" in asked("fedavg", init={"run": str(place)})
    assert "must stay its own" in asked("fedavg", init={"run": str(first), "client": 1})
    assert "option `init.ran` must be a known name" in asked(
        "fedavg", init={"run": str(first), "ran": 1}
    )
    shutil.copytree(first, tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    assert "must be a finished run, but it has no result yet" in asked(
        "fedavg", init={"run": str(tmp_path / "begun")}
    )


def test_a_body_may_come_from_a_whole_network_but_not_the_other_way_round():
    whole = {"net.body": torch.ones(2), "net.head": torch.ones(3)}
    body = State({"net.body": torch.zeros(2), "server/m/net.body": torch.zeros(2)}, {"kept": 1})
    fitted_state = fitted(body, State(whole))
    assert fitted_state.tensors["net.body"].tolist() == [1, 1]
    assert fitted_state.tensors["server/m/net.body"].tolist() == [0, 0]
    assert fitted_state.meta == {"kept": 1} and "net.head" not in fitted_state.tensors
    with pytest.raises(
        FedloomError, match=r"must have net.head of shape \[3\], but it is missing \(1 of 2"
    ):
        fitted(
            State({name: torch.zeros_like(value) for name, value in whole.items()}),
            State(body.tensors),
        )


def test_what_a_method_shares_beside_its_network_may_begin_anew():
    begun = State({"net.body": torch.zeros(2), "control/net.body": torch.full((2,), 0.5)})
    weights = {"net.body": torch.ones(2)}
    assert fitted(begun, State(weights)).tensors["control/net.body"].tolist() == [0.5, 0.5]
    both = {**weights, "control/net.body": torch.full((2,), 3.0)}
    assert fitted(begun, State(both)).tensors["control/net.body"].tolist() == [3, 3]
    with pytest.raises(FedloomError, match="it is missing"):  # nothing at all would be taken over
        fitted(State({"control/net.body": torch.zeros(2)}), State(weights))


def test_a_searched_network_goes_on_in_fedavg(place, tmp_path):
    """FedNAS's global mode, then more rounds of FedAvg on what it found."""
    tiny.start(tmp_path / "nas", "fednas", tree(place, options=CELLS))
    exported = export(open_finished(tmp_path / "nas"), out=tmp_path / "out")
    options = {"network": str(exported.path / "architecture.json"), "batch": "8"}
    setting = tree(place, options=options, init={"run": str(tmp_path / "nas")})
    state, _, _ = starting_weights(tmp_path / "new", "fedavg", setting)
    assert equal(state.tensors, dict(weights(tmp_path / "nas")))


def test_spider_goes_on(place, tmp_path):
    tiny.start(tmp_path / "one", "spider", tree(place, rounds=4, options=SPIDER))
    setting = tree(place, rounds=4, options=SPIDER, init={"run": str(tmp_path / "one")})
    state, _, _ = starting_weights(tmp_path / "two", "spider", setting)
    assert equal(state.tensors, dict(weights(tmp_path / "one")))
    assert not list((tmp_path / "two").glob("clients/*"))  # nothing private is taken over


def test_test_samples_that_were_trained_on_are_counted(place, first, tmp_path, capsys):
    same = tree(place, rounds=1, init={"run": str(first)})
    assert create(configure("fedavg", same), tmp_path / "a")[1].config.init.seen == 0
    run = tiny.start(tmp_path / "b", "fedavg", {**same, "seed": 1})
    seen = run.result["init"]["seen"]
    assert 0 < seen <= 9
    run.table()
    assert f"trained on {seen} of these test samples" in " ".join(capsys.readouterr().out.split())
    assert run.to_json()["init"]["seen"] == seen


def test_they_are_counted_through_runs_on_other_data(place, first, tmp_path):
    tiny.write_images(tmp_path / "images.npz", samples=60)
    between = tiny.start(
        tmp_path / "between", "fedavg", tree(tmp_path, rounds=1, init={"run": str(first)})
    )
    assert between.result["init"]["seen"] is None
    setting = {**tree(place, rounds=1, init={"run": str(tmp_path / "between")}), "seed": 1}
    direct = {**setting, "init": {"run": str(first)}}
    found, expected = (create(configure("fedavg", each), tmp_path / name)[1].config.init.seen
                       for name, each in (("a", setting), ("b", direct)))  # fmt: skip
    assert found == expected and found


def test_adapt_tells_of_test_samples_that_were_trained_on(place, first, tmp_path, capsys):
    words = [
        "adapt",
        str(first),
        "--data",
        str(place / "images.npz"),
        "--epochs",
        "1",
        "--seed",
        "3",
        "--quiet",
    ]
    assert cli.main([*words, "--out", str(tmp_path / "a")]) == 0
    output = capsys.readouterr().out
    assert cli.main([*words, "--out", str(tmp_path / "b"), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)["seen"]
    assert (
        seen
        and f"NOT A FAIR TEST: the --init run was trained on {seen} of these test samples."
        in output
    )
    assert cli.main(["export", str(tmp_path / "a"), "--client", "0", "--quiet"]) == 0
    card = (tmp_path / "a" / "exports" / "client-0" / "README.md").read_text()
    assert f"- NOT A FAIR TEST: the --init run was trained on {seen} of" in card
    assert "- Its run began with the weights of /" in card


def test_a_comparison_is_not_a_run_to_begin_with(place, first, tmp_path):
    folder = create_comparison(
        Plan(("fedavg", "fedprox"), (0,), {}, tree(place, rounds=1)), tmp_path / "compare"
    )
    with pytest.raises(
        FedloomError, match="compare must be one run, but it is a comparison; name one of the"
    ):
        create(configure("fedavg", tree(place, init={"run": str(folder.path)})), tmp_path / "x")


def test_all_methods_of_a_comparison_begin_alike(place, first, tmp_path):
    setting = tree(place, rounds=2, init={"run": str(first)})
    plan = Plan(("fedavg", "fedprox"), (0,), {}, setting)
    folder = create_comparison(plan, tmp_path / "compare")
    init = read_json(folder.path / "compare.json")["tree"]["init"]
    assert init["run"] == str(first.resolve()) and len(init["hash"]) == 64


# A newcomer


@pytest.fixture
def newcomer(tmp_path):
    """Two of the three classes, other images."""
    file = tiny.write_images(tmp_path / "new.npz", samples=40, classes=2)
    arrays = dict(np.load(file))
    np.savez(file, x=255 - arrays["x"], y=arrays["y"])
    return file


def test_a_newcomer_adapts_the_shared_model(first, newcomer, tmp_path, capsys):
    out = tmp_path / "adapted"
    words = [
        "adapt",
        str(first),
        "--data",
        str(newcomer),
        "--epochs",
        "8",
        "--lr",
        "0.05",
        "--out",
        str(out),
    ]
    assert cli.main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (
        printed["test_samples"] == 8
        and printed["after"]["accuracy"] > printed["before"]["accuracy"]
    )
    assert (
        printed["before"]["interval"][0]
        <= printed["before"]["accuracy"]
        <= printed["before"]["interval"][1]
    )
    config = RunFolder.open(out).config()
    assert config.data.classes == 3 and config.data.mean == [127.5]  # as the federation's
    finished = open_finished(out)
    assert equal(dict(finished.served(None).network().state_dict()), dict(weights(first)))
    assert export(finished, client=0).samples == 40
    assert Run.open(out).predict(newcomer, client=0).figures["samples"] == 40


@pytest.mark.parametrize(
    ("method", "options"), [("fedrep", tiny.SMALL), ("spider", SPIDER), ("fedmn", tiny.SMALL)]
)
def test_a_newcomer_begins_with_a_clients_own_model(place, newcomer, tmp_path, method, options):
    tiny.start(
        tmp_path / "run",
        method,
        tree(place, rounds=4 if method == "spider" else 2, options=options),
    )
    words = [
        "adapt",
        str(tmp_path / "run"),
        "--data",
        str(newcomer),
        "--epochs",
        "1",
        "--from",
        "1",
        "--quiet",
    ]
    assert cli.main([*words, "--out", str(tmp_path / "new")]) == 0
    before = open_finished(tmp_path / "new").served(None).network().eval()
    own = open_finished(tmp_path / "run").served(1).network().eval()
    x = torch.randint(0, 255, (4, 1, 6, 6), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.equal(before(x), own(x))
    again = [
        "adapt",
        str(tmp_path / "new"),
        "--data",
        str(newcomer),
        "--epochs",
        "1",
        "--from",
        "0",
        "--quiet",
    ]
    assert (
        cli.main([*again, "--out", str(tmp_path / "third")]) == 0
    )  # a newcomer's model is a client's model
    adapted, third = (open_finished(tmp_path / name) for name in ("new", "third"))
    with torch.no_grad():
        assert torch.equal(
            third.served(None).network().eval()(x), adapted.served(0).network().eval()(x)
        )


def test_bad_input_of_adapt(place, first, newcomer, tmp_path):
    def asked(*words, data=newcomer, run=first):
        with pytest.raises(FedloomError) as error:
            cli.dispatch(
                ["adapt", str(run), "--data", str(data), "--out", str(tmp_path / "x"), *words]
            )
        return str(error.value)

    assert "--from must be one of the run's clients, but got 9" in asked("--from", "9")
    assert "--epochs must be a whole number of at least 1" in asked("--epochs", "0")
    assert "`data.test` must be" in asked("--test", "2")
    tiny.start(tmp_path / "rep", "fedrep", tree(place))
    assert "fedrep has no shared one; begin with a client's: --from K" in asked(
        run=tmp_path / "rep"
    )
    np.savez(
        tmp_path / "named.npz",
        x=np.zeros((20, 6, 6), np.uint8),
        y=np.arange(20) % 3,
        labels=np.array(list("abc")),
    )
    assert "the labels must be those of the --init run" in asked(data=tmp_path / "named.npz")
    with pytest.raises(FedloomError, match="adapt must begin with a finished run"):
        create(configure("adapt", tree(place, options={})), tmp_path / "y")
