"""Tests of what is sent: every byte is booked, only declared and unsealed fields leave clients.

Options, too, must survive the wire and a run's folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedloom.config.models import Experiment
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.method import fields_of
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.protocol.wire import Body, order_head, read_order, reply_chunks
from fedloom.federation.server import ledger
from fedloom.federation.server.ledger import Booking
from fedloom.methods import recipe
from fedloom.records.rows import LedgerLine, MetricsRow
from fedloom.records.totals import Totals
from fedloom.runs.experiment import create
from fedloom.runs.preparing import reopen
from fedloom.testing.engines import Exchange, Forging, stamp_of
from fedloom.testing.subject import Subject, described, finished, nothing_differs, work_of
from fedloom.testing.toy import Toy, Trace, made_up, unlike
from fedloom.testing.watch import ClientLog
from fedloom.types import Order, Stamp, Task

TEST_PART_SEEN = "another test part changes the result: a client's work used its test samples"


class Crossing(Subject):
    def test_ledger_is_the_payload(self, toy: Toy) -> None:
        """The ledger has every message, and every byte in it belongs to a message.

        The messages are encoded again here. In clusters, what an aggregator sends to itself is not
        transferred, and what it sends to the server is in the cluster's row.
        """
        trace = finished(toy).trace
        down = 0
        up = 0
        macs = 0
        for row in trace.rows:
            expected_lines = lines_of_round(trace, row)
            lines = [comparable_line(line) for line in row.ledger]
            assert sorted(lines, key=place_of) == sorted(expected_lines, key=place_of)
            for line in expected_lines:
                down += line.down
                up += line.up
                macs += line.macs or 0
            for cluster in row.clusters:
                down += cluster.wan_down
                up += cluster.wan_up
            assert row.totals.down + row.totals.lan_down == down
            assert row.totals.up + row.totals.lan_up == up
        totals = trace.outcome.totals
        assert totals.down + totals.lan_down == down
        assert totals.up + totals.lan_up == up
        assert totals.macs == macs
        evaluated = spent(evaluations_of(trace))
        assert totals.evaluate_down == evaluated.down
        assert totals.evaluate_up == evaluated.up

    def test_formula_is_what_a_meter_shows(self, toy: Toy) -> None:
        """If the server computes a client's MACs by formula, they are exact."""
        if not recipe(toy.task.method).has_macs_formula:
            pytest.skip("this method does not compute MACs by formula")
        methods = {stage.name: stage.method for stage in toy.stages}
        by_formula = {}
        metered = {}
        for exchange in work_of(finished(toy).trace):
            order = exchange.order
            stamp = stamp_of(order)
            place = (stamp.round, stamp.hop, order.client, order.kind)
            method = methods[stamp.stage]
            by_formula[place] = method.macs_by_formula(toy.task, order, exchange.reply)
            metered[place] = exchange.envelope.macs
        assert by_formula == metered

    def test_declared_fields_cover_the_replies(self, toy: Toy) -> None:
        """Replies contain only fields that their kind declares, so that none is refused."""
        trace = finished(toy).trace
        for row in trace.rows:
            assert list(row.refused) == [], f"round {row.round}"
        methods = {stage.name: stage.method for stage in toy.stages}
        for exchange in work_of(trace):
            order = exchange.order
            method = methods[stamp_of(order).stage]
            undeclared = f"no fields are declared for orders of kind {order.kind!r}"
            assert order.kind in method.fields, undeclared
            fields = fields_of(method, order.kind)
            samples = len(toy.data[order.client].train)
            weight = method.most_weight(order, samples)
            steps = method.most_steps(order, samples)
            expected = admission.Expected(order, fields)
            assert admission.refuse(exchange.reply, order, expected, weight, steps) is None
            assert method.check_reply(order, exchange.reply, samples) is None

    def test_options_are_frozen_and_cross_the_wire(self, toy: Toy) -> None:
        options = recipe(toy.task.method).options.model_validate(dict(toy.task.options))
        for name in type(options).model_fields:
            with pytest.raises(ValidationError):
                setattr(options, name, getattr(options, name))
        task = over_the_wire(toy.task)
        assert task == toy.task
        assert json.loads(json.dumps(toy.task.options, allow_nan=False)) == toy.task.options
        assert described(task) == described(toy.task)

    def test_options_come_back_from_a_run_folder(self, toy: Toy, tmp_path: Path) -> None:
        """The task and stages that config.toml describes are the same as those of the run."""
        file = tmp_path / "toy.npz"
        np.savez(file, x=np.zeros((40, 6, 6), np.uint8), y=np.arange(40) % 3)
        raw = {
            "method": toy.task.method,
            "options": dict(toy.task.options),
            "budget": {"rounds": toy.rounds},
            "data": {"name": str(file), "clients": 2, "partition": "iid", "server_share": 0.2},
        }
        folder, prepared = create(Experiment.model_validate(raw), tmp_path / "run")
        again = reopen(folder).task
        assert again == prepared.task and again.options == toy.task.options
        assert described(again) == described(prepared.task)

    def test_sealed_state_leaves_no_trace(self, toy: Toy, tmp_path: Path) -> None:
        """Sealed state has no influence on any byte of a reply.

        To test that, it is replaced by noise, and by the state of another client.
        """
        if not any(stage.method.seals for stage in toy.stages):
            pytest.skip("it seals nothing")
        site = toy.site(tmp_path)
        forgers: list[Forging] = []

        def forging(inner: Engine) -> Engine:
            forgers.append(Forging(inner, site, tmp_path / "forged"))
            return forgers[0]

        toy.run(tmp_path, engine=forging)
        leaks = forgers[0].leaks
        nothing_differs(leaks, "sealed state changed a reply: nothing sent may depend on it")
        never_read = "no client ever read the state that is sealed: ask for more rounds"
        assert forgers[0].forgeries, never_read

    def test_never_sees_the_test_part(self, toy: Toy, tmp_path: Path) -> None:
        """Client code gets only the training part of the data.

        With another test part, all states and replies stay the same.
        """
        log = ClientLog()
        with_other_tests = replace(toy, data=made_up(test="another test part"))
        other = with_other_tests.run(tmp_path, client=log.watch)
        for call in log.data:
            train = toy.data[call.client].train
            called = f"{call.name} of client {call.client}"
            assert len(call.samples) == len(train), f"{called} got {len(call.samples)} samples"
            same = torch.equal(call.samples.x, train.x)
            assert same, f"{called} got other samples than its training part"
        trace = finished(toy).trace
        nothing_differs(unlike(trace.outcome.state, other.outcome.state), TEST_PART_SEEN)
        assert answers_of(trace) == answers_of(other), TEST_PART_SEEN
        assert trace.owns.keys() == other.owns.keys()
        for key, own in trace.owns.items():
            nothing_differs(unlike(own, other.owns[key]), TEST_PART_SEEN)


def evaluations_of(trace: Trace) -> list[Exchange]:
    """The exchanges that evaluated models, of all rounds."""
    return [exchange for exchange in trace.exchanges if exchange.order.kind == "evaluate"]


def lines_of_round(trace: Trace, row: MetricsRow) -> list[LedgerLine]:
    """The expected lines of the ledger for the work of one round."""
    aggregators = {cluster.aggregator for cluster in row.clusters}
    lines = []
    for exchange in trace.exchanges:
        order = exchange.order
        if order.kind == "evaluate" or stamp_of(order).round != row.round:
            continue
        line = ledger_line(exchange)
        if line.hop >= 0 and line.client in aggregators:
            line = replace(line, down=0, up=0)
        lines.append(line)
    return lines


def answers_of(trace: Trace) -> list[bytes | None]:
    return [exchange.answer for exchange in work_of(trace)]


def ledger_line(exchange: Exchange) -> LedgerLine:
    """The expected line of the ledger for an exchange, without measured values.

    The decoded messages are encoded again.
    """
    order = exchange.order
    body = Body(order.tensors)
    size = 0
    for tensor in order.tensors.values():
        size += tensor.numel() * tensor.element_size()
    assert body.size == size
    up = 0
    if exchange.answer is not None:
        up = sum(len(chunk) for chunk in reply_chunks(exchange.reply))
    return LedgerLine(
        client=order.client,
        hop=stamp_of(order).hop,
        down=len(order_head(order, body)) + body.size,
        up=up,
        macs=exchange.envelope.macs,
        seconds=None,
    )


def place_of(line: LedgerLine) -> tuple[int, int, int, int]:
    return line.client, line.hop, line.down, line.up


def comparable_line(line: LedgerLine) -> LedgerLine:
    """A line without measured values, and without those of the clock and the topology."""
    return replace(line, seconds=None, memory=None, cluster=None, simulated=None)


def spent(exchanges: Sequence[Exchange]) -> Totals:
    bookings = [Booking(ledger_line(exchange)) for exchange in exchanges]
    return ledger.work_of(bookings)


def over_the_wire(task: Task) -> Task:
    order = Order(0, "train", stamp=Stamp("toy", task, "train", 1, 0))
    body = Body({})
    return stamp_of(read_order(order_head(order, body), b"")).task
