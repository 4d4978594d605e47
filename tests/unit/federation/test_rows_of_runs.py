"""Rows of metrics.jsonl, as all kinds of runs write them, are read back exactly, to the byte."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fedloom.errors import FedloomError
from fedloom.federation.protocol.deaths import Death
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.federation.server.clustered import Clustered
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.records.rows import MetricsRow, Refusal, WorkerDeath
from fedloom.testing import Toy
from fedloom.testing.engines import Absent, Passing, order_of, stamp_of
from fedloom.testing.toy import made_up
from fedloom.types import State

FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True)
class Dying(Passing):
    """The process of client 1 dies once for every order of some kinds, and another completes it."""

    kinds: tuple[str, ...] = ()

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            if parcel.client == 1 and order_of(parcel).kind in self.kinds:
                envelope = replace(envelope, deaths=(Death(-6), Death(3)))
            yield parcel, envelope


@dataclass(frozen=True)
class Forgetful(Passing):
    """Before its work of the second round the disk of client 1 is emptied, once."""

    states: Path
    emptied: list[int] = field(default_factory=list)

    def ask(self, parcels, deadline):
        stamp = stamp_of(order_of(parcels[0]))
        if (stamp.round, stamp.hop) == (2, 0) and not self.emptied:
            self.emptied.append(1)
            shutil.rmtree(self.states / "1")
        yield from self.inner.ask(parcels, deadline)


def run_of(method, folder, engine=lambda inner: inner, rounds=2, options=None, **changes):
    toy = replace(Toy.of(method, options, rounds), participation=1.0, evaluate_every=1, **changes)
    return toy.run(folder, engine=engine)


def lines_of(folder):
    return (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)


KINDS = {
    "plain": lambda folder: run_of("fedavg", folder),
    "clustered": lambda folder: run_of("fedavg", folder, topology=Clustered(2, 2)),
    "refused": lambda folder: run_of("fedavg", folder, Absent),
    "capped": lambda folder: run_of(
        "fedavg", folder, data=made_up((20, 5, 6, 7)), max_weight_share=0.4
    ),
    "deaths at work": lambda folder: run_of(
        "fedavg", folder, lambda inner: Dying(inner, ("train", "evaluate"))
    ),
    "deaths in evaluation": lambda folder: run_of(
        "fedavg", folder, lambda inner: Dying(inner, ("evaluate",))
    ),
    "lost state": lambda folder: run_of(
        "ditto",
        folder,
        lambda inner: Forgetful(inner, folder / "clients"),
        rounds=4,
        lost_state="fresh",
    ),
    "search": lambda folder: run_of(
        "spider", folder, rounds=4, options={"nodes": 1, "t_s": 1, "tau": 1}
    ),
    "selected": lambda folder: run_of("local-adaptation", folder, select="best"),
}
TOLD = {
    "clustered": lambda row: row.totals.lan_down > 0,
    "refused": lambda row: len(row.refused) == 1 and row.replies == 3,
    "capped": lambda row: row.capped == {0: 0.526316},
    "deaths at work": lambda row: len(row.deaths) == 4 and row.all_deaths == row.deaths,
    "deaths in evaluation": lambda row: row.deaths == () and len(row.all_deaths) == 2,
    "lost state": lambda row: row.fresh == ((1,) if row.round == 2 else ()),
    "search": lambda row: row.phase in ("warm-up", "search", "final") and "search" in row.notes,
    "selected": lambda row: row.evaluation.part == "validation",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_returns(kind, tmp_path):
    KINDS[kind](tmp_path)
    lines = lines_of(tmp_path)
    assert len(lines) >= 2
    for line in lines:
        row = MetricsRow.from_line(line)
        assert row.to_line() == line
        assert kind not in TOLD or TOLD[kind](row)


def test_every_line_of_earlier_versions_returns():
    paths = sorted(FIXTURES.rglob("metrics.jsonl"))
    assert len(paths) > 20
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            renamed = line.replace(b'"clock": ', b'"measured_clock": ')  # what they called it
            assert MetricsRow.from_line(line).to_line() == renamed


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (("train", "evaluate"), ["updates", "deaths", "evaluation", "totals"]),
        (("evaluate",), ["updates", "evaluation", "deaths", "totals"]),
        ((), ["ledger", "updates", "evaluation", "totals"]),
    ],
)
def test_the_order_of_names_in_a_line(kinds, names, tmp_path):
    run_of("fedavg", tmp_path, lambda inner: Dying(inner, kinds))
    (row, _) = map(json.loads, lines_of(tmp_path))
    assert list(row)[:7] == ["stage", "round", "progress", "meta", "replies", "refused", "ledger"]
    assert list(row)[-4:] == names
    if kinds:
        died = [{"client": 1, "signal": "SIGABRT"}, {"client": 1, "exit": 3}]
        assert row["deaths"] == died * len(kinds)


def test_the_loop_tells_the_row_that_it_writes(tmp_path):
    rows_of_events = []
    toy = Toy.of("fedavg", rounds=2)
    trace = toy.run(tmp_path, listen=rows_of_events.append)
    assert [event.row for event in rows_of_events if hasattr(event, "row")] == list(trace.rows)
    assert trace.rows[-1].totals.rounds == 2


class Hiding(FedAvg):
    def note(self, state, r):
        return {"phase": "x", "ledger": []}


hiding = Recipe(
    "a test", FedAvgOptions, lambda task: (Stage("train", Hiding(FedAvgOptions(**task.options))),)
)


def test_a_note_may_not_hide_what_the_row_tells(tmp_path):
    with pytest.raises(
        FedloomError, match=r"a method's note must not use the names of a row .* has 'ledger'"
    ):
        run_of(f"{__file__}:hiding", tmp_path)


class Counting(FedAvg):
    """Notes how many merges its state has behind it, before and after each."""

    def merge(self, state, orders, replies, r):
        merged = super().merge(state, orders, replies, r)
        return State(merged.tensors, {**merged.meta, "merges": state.meta.get("merges", 0) + 1})

    def note(self, state, r):
        return {"before": state.meta.get("merges", 0)}

    def note_after(self, state, r):
        return {"after": state.meta["merges"]}


counting = Recipe(
    "a test", FedAvgOptions, lambda task: (Stage("train", Counting(FedAvgOptions(**task.options))),)
)


def test_a_round_is_noted_before_its_merge_and_after_it(tmp_path):
    run_of(f"{__file__}:counting", tmp_path)
    rows = [json.loads(line) for line in lines_of(tmp_path)]
    assert [(row["before"], row["after"]) for row in rows] == [(0, 1), (1, 2)]


def test_deaths_and_refusals_in_json():
    assert WorkerDeath(1, exit=None).to_json() == {"client": 1, "exit": None}
    row = MetricsRow(
        "train", 1, 0.5, refused=(Refusal(2, "late"),), deaths=(WorkerDeath(1, signal="SIGKILL"),)
    )
    assert row.to_json()["refused"] == [{"client": 2, "reason": "late"}]
    assert row.to_json()["deaths"] == [{"client": 1, "signal": "SIGKILL"}]
    assert "evaluation" not in row.to_json() and "capped" not in row.to_json()
