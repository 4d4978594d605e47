"""`fedloom auto` from beginning to end, on runs of a second.

FedAvg stands in for the main contestant: what is tested here is all that is around it.
"""

import html
import json
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import tiny

import fedloom
from fedloom import cli
from fedloom.config.variants import labelled
from fedloom.cost.limits import Limit
from fedloom.cost.timing import Timing
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.evaluate.leaderboard import Limits
from fedloom.federation.server.events import RoundEnded
from fedloom.methods import METHODS
from fedloom.metrics.metric import ACCURACY, PERPLEXITY, RMSE
from fedloom.records.auto import AutoResult
from fedloom.records.folder import RunFolder
from fedloom.records.plan import read_plan
from fedloom.records.result import RunResult
from fedloom.report.progress import Screen
from fedloom.runs import auto_latency
from fedloom.runs.auto import best_of, continue_auto, goodness
from fedloom.runs.auto_budget import AskedBudget
from fedloom.runs.auto_plan import AutoRequest, create_auto, with_fast_sizes
from result_files import client as client_row
from result_files import result

ROW = [
    "name",
    "validation",
    "test",
    "to_control",
    "params",
    "macs",
    "training_macs",
    "bytes",
    "chosen",
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def asked(images, *others, main="fedavg", **more):
    return AutoRequest(tree=tiny.tree(images), others=labelled(others), main=main, **more)


def carry_out(folder):
    return continue_auto(folder, Screen(None, None))


def found_in(path):
    return AutoResult.read(path / "result.json")


def test_one_split_one_budget_and_a_choice_by_validation(images, tmp_path):
    auto = carry_out(create_auto(asked(images, "ditto"), tmp_path / "a"))
    outcome = found_in(auto.path)
    assert outcome == auto.result
    assert {row.name for row in outcome.leaderboard} == {"local-adaptation", "fedavg", "ditto"}
    assert all(
        before.validation >= after.validation for before, after in pairwise(outcome.leaderboard)
    )
    assert [row.chosen for row in outcome.leaderboard] == [True, False, False]
    splits = [(run.path / "split.json").read_bytes() for run in auto.runs]
    assert splits[0] == splits[1] == splits[2]
    budgets = {RunFolder(run.path).config().budget for run in auto.runs}
    assert len(budgets) == 1 and budgets.pop().equal == "macs"
    for run in auto.runs:
        assert run.record.validation is not None
    parts = [len(Split.load(auto.runs[0].path / "split.json").client(k)[0]) for k in range(3)]
    assert [client.samples for client in outcome.clients] == [round(0.25 * rest) for rest in parts]
    assert auto.winner.path.name.startswith(outcome.winner.name)


def test_the_names_that_are_fixed(images, tmp_path):
    auto = carry_out(create_auto(asked(images), tmp_path / "a"))
    in_file = json.loads((auto.path / "result.json").read_text())
    plain = auto.to_json()
    for shown in (in_file, plain):
        assert {"runs", "methods", "verdict", "leaderboard", "decisions", "spent"} <= set(shown)
        assert [name for name in shown["leaderboard"][0] if name in ROW] == ROW
        assert list(shown["leaderboard"][0]["test"]) == [
            "mean",
            "std",
            "worst",
            "pooled",
            "interval",
        ]
        assert list(shown["decisions"][0]) == ["decision", "options", "counts", "chosen"]
        assert list(shown["spent"]) == ["macs", "bytes", "rounds", "share"]
    assert in_file["verdict"].startswith("Use ")
    assert in_file["spent"]["macs"] == sum(run.record.macs for run in auto.runs)
    assert set(in_file["spent"]["share"]) == {"local-adaptation", "fedavg: train"}


@pytest.mark.whole
def test_more_than_two_others_run_a_first_rung(images, tmp_path):
    setting = asked(images, "ditto", "fedprox", "fedrep@rep")
    setting = replace(setting, tree=tiny.tree(images, rounds=8))
    auto = carry_out(create_auto(setting, tmp_path / "a"))
    rungs = sorted(path.name for path in auto.path.glob("rung-*"))
    assert rungs == ["rung-ditto", "rung-fedprox", "rung-rep"]
    rung = next(
        decision for decision in auto.result.decisions if decision.decision.startswith("first rung")
    )
    assert rung.options == ["ditto", "fedprox", "rep"]
    chosen = rung.chosen.split(", ")
    by_validation = sorted(rung.counts, key=rung.counts.get, reverse=True)
    assert set(chosen) == set(by_validation[:2])
    assert {row.name for row in auto.leaderboard} == {"local-adaptation", "fedavg", *chosen}
    whole = RunFolder(auto.runs[0].path).config().budget.amount
    assert RunFolder(auto.path / "rung-rep").config().budget.amount == pytest.approx(whole / 4)
    page = (auto.path / "report.html").read_text()
    assert auto.verdict in page.replace("&#x27;", "'") and "Use this model" in page


class Enough(Exception):
    """The command is interrupted."""


def test_what_was_interrupted_goes_on_and_ends_the_same(images, tmp_path):
    whole = carry_out(create_auto(asked(images, "ditto"), tmp_path / "whole"))
    folder = create_auto(asked(images, "ditto"), tmp_path / "cut")

    class Interrupting(Screen):
        def listener(self, label):
            def listen(event):
                if (
                    label.startswith("fedavg")
                    and isinstance(event, RoundEnded)
                    and event.row.round == 2
                ):
                    raise Enough

            return listen

    with suppress(Enough):
        continue_auto(folder, Interrupting(None, None))
        raise AssertionError("it must be interrupted")
    assert not (folder.path / "result.json").exists()
    again = fedloom.resume(folder.path)
    for name in ("verdict", "leaderboard", "decisions", "spent", "clients"):
        assert getattr(again.result, name) == getattr(whole.result, name), name


def test_test_data_decide_nothing(tmp_path, monkeypatch):
    """The same samples with wrong labels in the test parts: the same is chosen, for everybody."""
    monkeypatch.setattr(
        Split, "check", lambda self, source: None
    )  # it would see that labels are other ones
    data = tiny.write_images(tmp_path / "x.npz", samples=120)
    first = carry_out(create_auto(asked(data, "ditto"), tmp_path / "a"))
    split = Split.load(first.runs[0].path / "split.json")
    arrays = dict(np.load(data))
    for client in range(3):
        _, test = split.client(client)
        arrays["y"][test] = (arrays["y"][test] + 1) % 3
    np.savez(data, **arrays)
    setting = asked(data, "ditto")
    tree = {
        **setting.tree,
        "data": {"name": str(data), "split": str(first.runs[0].path / "split.json")},
    }
    second = carry_out(create_auto(replace(setting, tree=tree), tmp_path / "b"))
    assert [row.name for row in second.leaderboard] == [row.name for row in first.leaderboard]
    assert [client.chosen for client in second.result.clients] == [
        client.chosen for client in first.result.clients
    ]
    assert second.winner.accuracy["mean"] != first.winner.accuracy["mean"]


@pytest.mark.whole
def test_a_limit_keeps_large_networks_from_being_chosen(images, tmp_path):
    small = "fedprox:width=0.05@small"
    first = create_auto(asked(images, small), tmp_path / "a")
    sizes = {row.name: row.params for row in carry_out(first).leaderboard}
    limit = Limit(params=(sizes["small"] + sizes["fedavg"]) / 2)
    auto = carry_out(create_auto(asked(images, small, limit=limit), tmp_path / "b"))
    assert auto.result.winner.name == "small"
    assert {client.chosen for client in auto.result.clients} == {"small"}
    with pytest.raises(
        FedloomError,
        match="--limit must leave at least one contestant, but no network is within",
    ):
        carry_out(create_auto(asked(images, limit=Limit(params=1)), tmp_path / "c"))


def test_minutes_are_told_as_macs(images, tmp_path):
    minutes = asked(images, budget=AskedBudget("minutes", 1))
    del minutes.tree["budget"]["rounds"]
    folder = create_auto(minutes, tmp_path / "a")
    contest = read_plan(folder).contest
    assert "MACs for each contestant: 1 minute on this machine for all of them" in contest.note
    assert contest.seconds == pytest.approx(60, rel=0.01)


@pytest.mark.whole
def test_the_python_interface_and_a_notebook(images, tmp_path):
    data = {"data": str(images), "clients": 3, "partition": "iid", "rounds": 3, "workers": 0}
    auto = fedloom.auto(
        main="fedavg:width=0.125", others=["ditto:width=0.125@own"], out=tmp_path / "a", **data
    )
    assert auto.verdict in auto._repr_html_().replace("&#x27;", "'")
    assert {row.name for row in auto.leaderboard} == {
        "local-adaptation",
        "fedavg:width=0.125",
        "own",
    }
    assert auto.winner.export(client=0).path.exists()
    with pytest.raises(
        FedloomError, match="a keyword of auto must be a known name, but got 'round'"
    ):
        fedloom.auto(main="fedavg", round=3)


def test_sizes_that_are_too_slow_are_not_tried(images, monkeypatch):
    times = {0.35: 1.0, 0.5: 2.0, 0.7: 3.0, 1.0: 4.0}
    monkeypatch.setattr(
        auto_latency,
        "in_turns",
        lambda works, *rest: [Timing(times[size], 0.0) for size in (1.0, 0.7, 0.5, 0.35)],
    )
    assert with_fast_sizes(asked(images, limit=Limit(latency_ms=2.5))).options == {
        "sizes": "0.5/0.35"
    }
    assert with_fast_sizes(asked(images)).options == {}


@pytest.fixture
def words(images, monkeypatch):
    monkeypatch.setattr(
        METHODS, "builtin", {**METHODS.builtin, "auto": "fedloom.methods.fedavg:fedavg"}
    )
    data = ["--data", str(images), "--clients", "3", "--partition", "iid", "--workers", "0"]
    return ["auto", *data, "--set", "options.width=0.125", "--set", "options.batch=8"]


def test_the_command(words, capsys, tmp_path):
    out = tmp_path / "a"
    assert cli.main([*words, "--rounds", "3", "--with", "ditto", "--small", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Use ")
    assert f"report: {out}/report.html" in shown.out
    assert f"fedloom export {out}/" in shown.out and "--data NEW" in shown.out
    assert "MACs for each contestant: what 3 rounds of local-adaptation take" in shown.err
    assert "--small has no effect on ditto" in shown.err
    assert cli.main(["resume", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] and printed["leaderboard"][0]["chosen"]
    assert cli.main(["report", str(out)]) == 0
    assert cli.main(["runs"]) == 0


@pytest.mark.whole
def test_the_command_on_the_page_makes_the_same_again(words, capsys, tmp_path):
    assert (
        cli.main([*words, "--rounds", "3", "--seed", "4", "--with", "ditto:lr=.1@d", "--out", "a"])
        == 0
    )
    page = html.unescape((tmp_path / "a" / "report.html").read_text())
    command = shlex.split(re.search(r"(fedloom auto --seed 4 .*?)</code>", page).group(1))
    assert cli.main([*command[1:], "--out", "b"]) == 0
    before = found_in(tmp_path / "a")
    after = found_in(tmp_path / "b")
    assert after.leaderboard == before.leaderboard


THREE = ["--with", "ditto", "--with", "fedprox", "--with", "fedrep"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--budget", "hours=2"], "--budget must be an amount of minutes, rounds"),
        (
            ["--budget", "macs=10"],
            "the budget must last for 2 rounds of local-adaptation, but got 10 MACs",
        ),
        (["--rounds", "1"], "--rounds must be at least 2 for a method of 2 stages, but got 1"),
        (
            ["--rounds", "2", *THREE],
            "must last for 8 rounds of local-adaptation, but got --rounds 2; try --rounds 8",
        ),
        (["--equal", "macs"], "the budget of `fedloom auto` must be given by --budget"),
        (["--federation", "x"], "`fedloom auto` must have the clients' data at hand"),
        (["--with", "local-adaptation"], "every contestant must take part once"),
        (["--with", "spidr"], "did you mean spider?"),
        (
            ["--with", "ditto:lr=1@a", "--with", "fedprox@a"],
            "two variants must not have one name in tables",
        ),
        (["--limit", "watts=3"], "a limit must be a known name"),
        (["--sizes", "1,wide"], "option `options.sizes"),
        (
            ["--sizes", "1,.5", "--widths", "1,.5"],
            "either sizes are tried or widths are trained together",
        ),
        (["--limit", "macs=1M", "--widths", "1,.5"], "--limit must be left out with --widths"),
        (
            ["--limit", "latency_ms=0.000001"],
            "--limit latency_ms must leave a size to try, but got 1e-06",
        ),
        (
            ["--limit", "latency_ms=9", "--sizes", "wide"],
            "--sizes must be shares of a network's channels",
        ),
        (
            ["--limit", "macs=1M", "--tiers", "2"],
            "either all networks have one limit (--limit) or every tier its own",
        ),
        (
            ["--rounds", "9", "--budget", "macs=1T"],
            "--rounds must be left out with --budget, but both are given",
        ),
        (["--nonsense", "1"], "a flag of auto must be a known name"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(words, more, says, capsys, tmp_path):
    assert cli.main([*words, *more, "--out", "a"]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and shown.err.count("\n") <= 1
    assert not (tmp_path / "a").exists()


@dataclass(frozen=True)
class Judged:
    """A run with a validation figure and one client's network."""

    record: RunResult
    metric = ACCURACY


def judged_run(validation, params, macs=10):
    record = RunResult.from_json(result([client_row(params=params, macs=macs)]))
    return Judged(record.replace(validation=validation))


def test_who_exceeds_the_limit_takes_no_place_in_the_first_rung():
    runs = {"large": judged_run(0.9, 500), "a": judged_run(0.5, 50), "b": judged_run(0.6, 60)}
    assert best_of(runs, 2, Limits()) == ("large", "b")
    assert best_of(runs, 2, Limits({"params": 100})) == ("a", "b")
    assert best_of(runs, 3, Limits({"params": 100})) == ("large", "a", "b")
    assert best_of(runs, 1, Limits({"params": 55})) == ("a",)


def test_of_equals_the_cheaper_goes_on():
    runs = {"dear": judged_run(0.9, 50, macs=1000), "cheap": judged_run(0.9, 50, macs=1)}
    assert best_of(runs, 1, Limits()) == ("cheap",)


def test_answers_are_compared_by_what_they_are_judged_by():
    scores = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert goodness(scores, np.array([0, 0]), ACCURACY).tolist() == [True, False]
    near = goodness(scores, np.array([0, 0]), PERPLEXITY)
    assert near.tolist() == pytest.approx([-np.log1p(np.exp(-2)), -np.log1p(np.exp(1))])
    assert goodness(scores, np.array([1.5, -1.0]), RMSE).tolist() == [-0.25, -1.0]


def test_a_dry_run_estimates_every_contestant_with_its_budget(images, tmp_path, capsys):
    """The rounds of the configuration are four times as many as the budget is worth."""
    flags = ["--data", str(images), "--clients", "4", "--set", "engine.workers=0", "--dry-run"]
    assert cli.main(["auto", *flags, "--budget", "rounds=20", "--sizes", "1", "--json"]) == 0
    in_rounds = json.loads(capsys.readouterr().out)
    assert in_rounds["runs"]["local-adaptation"]["rounds"] == 20
    amount = in_rounds["runs"]["local-adaptation"]["macs"]
    assert cli.main(["auto", *flags, "--budget", f"macs={amount}", "--sizes", "1"]) == 0
    text = capsys.readouterr().out
    assert "for each contestant" in text and "for 20 rounds of 4 clients" in text
    assert not list(tmp_path.glob("runs*"))
