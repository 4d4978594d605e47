"""What crosses: every byte is booked, nothing undeclared or sealed goes up, options arrive as they were."""

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
from fedloom.federation.protocol.wire import Body, order_head, read_order, reply_chunks
from fedloom.federation.server import ledger
from fedloom.federation.server.ledger import Booking
from fedloom.federation.server.parcels import Engine
from fedloom.methods import recipe
from fedloom.records.rows import LedgerLine
from fedloom.records.totals import Totals
from fedloom.runs.experiment import create, reopen
from fedloom.testing.engines import Exchange, Forging, stamp_of
from fedloom.testing.subject import Subject, described, finished, work_of
from fedloom.testing.toy import Toy, made_up, unlike
from fedloom.testing.watch import ClientLog
from fedloom.types import Order, Stamp, Task


class Crossing(Subject):
    def test_ledger_is_the_payload(self, toy: Toy) -> None:
        """Every byte in the ledger is one of a message, encoded anew here, and every message is in it."""
        trace, booked = finished(toy).trace, Totals()
        for row in trace.rows:
            work = [
                exchange for exchange in trace.exchanges
                if stamp_of(exchange.order).round == row.round and exchange.order.kind != "evaluate"
            ]  # fmt: skip
            sent = [replace(line, seconds=None, memory=None) for line in row.ledger]
            assert sorted(sent, key=place_of) == sorted(map(ledger_line, work), key=place_of)
            booked = booked.plus(spent(work))
            assert (row.totals.down, row.totals.up) == (booked.down, booked.up)
        evaluations = spent([exchange for exchange in trace.exchanges if exchange.order.kind == "evaluate"])
        totals = trace.outcome.totals
        assert (totals.down, totals.up, totals.macs) == (booked.down, booked.up, booked.macs)
        assert (totals.evaluate_down, totals.evaluate_up) == (evaluations.down, evaluations.up)

    def test_declared_fields_cover_the_replies(self, toy: Toy) -> None:
        """Nothing in a reply that its kind did not declare: no honest reply is refused."""
        trace = finished(toy).trace
        assert [row.refused for row in trace.rows if row.refused] == []
        methods = {stage.name: stage.method for stage in toy.stages}
        for exchange in work_of(trace):
            order, reply, method = exchange.order, exchange.reply, methods[stamp_of(exchange.order).stage]
            assert order.kind in method.fields, f"no fields are declared for orders of kind {order.kind!r}"
            samples = len(toy.data[order.client].train)
            most, steps = method.most_weight(order, samples), method.most_steps(order, samples)
            expected = admission.Expected(order, fields_of(method, order.kind))
            assert admission.refuse(reply, order, expected, most, steps) is None

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
        """What config.toml holds makes the same task and stages."""
        np.savez(tmp_path / "toy.npz", x=np.zeros((40, 6, 6), np.uint8), y=np.arange(40) % 3)
        raw = {"method": toy.task.method, "options": dict(toy.task.options), "budget": {"rounds": toy.rounds}}
        data = {"name": str(tmp_path / "toy.npz"), "clients": 2, "partition": "iid", "server_share": 0.2}
        folder, prepared = create(Experiment.model_validate({**raw, "data": data}), tmp_path / "run")
        again = reopen(folder).task
        assert again == prepared.task and again.options == toy.task.options
        assert described(again) == described(prepared.task)

    def test_sealed_state_leaves_no_trace(self, toy: Toy, tmp_path: Path) -> None:
        """With what a method seals replaced by noise, or by another client's, every reply has the same bytes."""
        if not any(stage.method.seals for stage in toy.stages):
            pytest.skip("it seals nothing")
        site, forgers = toy.site(tmp_path), list[Forging]()

        def forging(inner: Engine) -> Engine:
            forgers.append(Forging(inner, site, tmp_path / "forged"))
            return forgers[0]

        toy.run(tmp_path, engine=forging)
        assert forgers[0].leaks == []
        assert forgers[0].tried, "no client ever read the state that is sealed: ask for more rounds"

    def test_never_sees_the_test_part(self, toy: Toy, tmp_path: Path) -> None:
        """Client code gets the training part alone, and another test part changes no state and no reply."""
        log = ClientLog()
        other = replace(toy, data=made_up(test="another test part")).run(tmp_path, client=log.watch)
        for call, client, samples in log.data:
            train = toy.data[client].train
            assert len(samples) == len(train), f"{call} of client {client} got {len(samples)} samples"
            assert torch.equal(samples.x, train.x), (
                f"{call} of client {client} got other samples than its training part"
            )
        trace = finished(toy).trace
        assert unlike(trace.outcome.state, other.outcome.state) == []
        assert [exchange.answer for exchange in work_of(trace)] == [exchange.answer for exchange in work_of(other)]
        assert {key: unlike(own, other.owns[key]) for key, own in trace.owns.items()} == {key: [] for key in other.owns}


def ledger_line(exchange: Exchange) -> LedgerLine:
    """The ledger's line for an exchange, without what is measured: its decoded messages, encoded anew."""
    order = exchange.order
    body = Body(order.tensors)
    assert body.size == sum(tensor.numel() * tensor.element_size() for tensor in order.tensors.values())
    down = len(order_head(order, body)) + body.size
    up = 0 if exchange.answer is None else sum(len(chunk) for chunk in reply_chunks(exchange.reply))
    return LedgerLine(order.client, stamp_of(order).hop, down, up, exchange.envelope.macs, None)


def place_of(line: LedgerLine) -> tuple[int, int, int, int]:
    return line.client, line.hop, line.down, line.up


def spent(exchanges: Sequence[Exchange]) -> Totals:
    return ledger.work_of([Booking(ledger_line(exchange)) for exchange in exchanges], lan=False)


def over_the_wire(task: Task) -> Task:
    order = Order(0, "train", stamp=Stamp("toy", task, "train", 1, 0))
    body = Body({})
    return stamp_of(read_order(order_head(order, body), b"")).task
