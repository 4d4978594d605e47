"""Sites do not report their MACs, so the method computes them.

Ledger, totals and budget are those of a metered run.
"""

from dataclasses import dataclass, replace

import pytest

from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.server.events import Replied
from fedloom.records.rows import MetricsRow, are_by_formula, read_rows
from fedloom.testing.engines import Passing, Spoiling
from fedloom.testing.toy import Toy
from fedloom.threads import one_thread

AUTO = {"sizes": [0.5, 1.0]}


@dataclass(frozen=True)
class Silent(Passing):
    """As in a deployment: no MACs beside a reply."""

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            yield parcel, replace(envelope, macs=None)


class Enough(Exception):
    pass


def finished(folder, toy, engine, listen=lambda event: None, **settings):
    """The rows of a run, and its totals."""
    with one_thread():
        loop = toy.loop(
            folder, engine(InlineEngine(toy.site(folder))), listen, lambda method: method
        )
        loop.settings = replace(loop.settings, **settings)
        outcome = loop.run()
    return list(read_rows(folder / "metrics.jsonl")), outcome.totals


def plainly(engine):
    return engine


def computed(rows):
    """For every round the (client, hop, MACs) of the work in it."""
    of_rounds = []
    for row in rows:
        work = [(line.client, line.hop, line.macs) for line in row.ledger if line.hop >= 0]
        of_rounds.append(work)
    return of_rounds


def macs_of_all_work(rows):
    macs = []
    for work in computed(rows):
        macs += [macs_of_line for _, _, macs_of_line in work]
    return macs


@pytest.mark.parametrize(
    ("method", "options", "budget"),
    [
        ("fedavg", {}, {}),
        ("local-adaptation", {"adapt_share": 0.5}, {"unit": "macs", "amount": 2e5}),
        ("auto", AUTO, {"unit": "macs", "amount": 3e5}),
        ("auto", AUTO, {"limits": {"macs": 2e5}}),
    ],
)
def test_a_silent_federation_computes_what_a_metered_one_does(tmp_path, method, options, budget):
    toy = Toy.of(method, options, 12)
    metered, totals = finished(tmp_path / "metered", toy, plainly, **budget)
    computed_rows, computed_totals = finished(
        tmp_path / "told", toy, Silent, macs_by_formula=True, **budget
    )
    assert computed(computed_rows) == computed(metered)
    assert computed_totals.macs == totals.macs > 0
    assert are_by_formula(computed_rows) and not are_by_formula(metered)
    assert MetricsRow.from_line(computed_rows[0].to_line()) == computed_rows[0]
    assert (
        b"macs_by_formula" in computed_rows[0].to_line()
        and b"macs_by_formula" not in metered[0].to_line()
    )


def test_without_a_formula_nobody_tells(tmp_path):
    rows, totals = finished(tmp_path, Toy.of("fedavg"), Silent)
    assert set(macs_of_all_work(rows)) == {None}
    assert totals.macs == 0 and not are_by_formula(rows)


def test_a_meter_is_believed_where_there_is_one(tmp_path):
    rows, _ = finished(tmp_path, Toy.of("fedavg"), plainly, macs_by_formula=True)
    assert not any(row.macs_by_formula for row in rows)


def test_of_a_refused_reply_nothing_is_known(tmp_path):
    rows, totals = finished(
        tmp_path, Toy.of("fedavg"), lambda inner: Silent(Spoiling(inner)), macs_by_formula=True
    )
    refused = set()
    unknown = set()
    for row in rows:
        for refusal in row.refused:
            refused.add((row.round, refusal.client))
        for line in row.ledger:
            if line.hop >= 0 and line.macs is None:
                unknown.add((row.round, line.client))
    assert refused == unknown != set()
    assert totals.macs == sum(macs or 0 for macs in macs_of_all_work(rows)) > 0
    assert are_by_formula(rows)


def test_a_run_that_began_without_is_not_by_formula():
    row = MetricsRow("train", 2, 0.5, replies=3, macs_by_formula=True)
    assert are_by_formula([row, MetricsRow("train", 3, 0.6)])  # it asked nobody
    assert not are_by_formula([MetricsRow("train", 1, 0.0, replies=3), row])
    assert not are_by_formula([])


def test_a_resumed_round_books_what_was_told(tmp_path):
    toy = Toy.of("fedavg")
    whole = finished(tmp_path / "whole", toy, Silent, macs_by_formula=True)

    def listen(event):
        if isinstance(event, Replied):
            raise Enough

    stops = 0
    while True:
        try:
            pieces = finished(tmp_path / "pieces", toy, Silent, listen, macs_by_formula=True)
            break
        except Enough:
            stops += 1
    assert stops > toy.rounds
    assert computed(pieces[0]) == computed(whole[0])
    assert [row.macs_by_formula for row in pieces[0]] == [True] * toy.rounds
    assert pieces[1].macs == whole[1].macs
