"""A client's sample counts are settled at its first contact, and no later claim raises them."""

from dataclasses import dataclass, field, replace

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.federation.protocol.wire import read_reply
from fedloom.federation.server.settings import Registered, Settings
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.records.rows import Refusal
from fedloom.testing import Toy
from fedloom.testing.engines import Passing, encoded, order_of, stamp_of
from fedloom.types import State


@dataclass(frozen=True)
class Boasting(Passing):
    """From its second description on, client 1 claims a thousand more samples, and their weight."""

    first: int = 1  # descriptions that are honest
    seen: list[int] = field(default_factory=list)

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            order = order_of(parcel)
            if parcel.client == 1 and order.kind != "evaluate":
                self._boast(order, parcel.reply)
            yield parcel, envelope

    def _boast(self, order, slot):
        reply = read_reply(slot.read_bytes())
        if order.kind == "describe":
            self.seen.append(stamp_of(order).round)
            if len(self.seen) > self.first:
                samples = {**reply.meta["samples"], "train": reply.meta["samples"]["train"] + 1000}
                slot.put([encoded(replace(reply, meta={**reply.meta, "samples": samples}))])
        elif len(self.seen) > self.first:
            slot.put([encoded(replace(reply, weight=1000.0))])


class Asking(FedAvg):
    describe = {"about": "size"}

    def init(self, setup, previous):
        state = super().init(setup, previous)
        counts = {str(client): facts.samples.train for client, facts in setup.clients.items()}
        return State(state.tensors, {**state.meta, "counts": counts})


def stages(task):
    options = FedAvgOptions(**task.options)
    return Stage("first", Asking(options), 0.5), Stage("second", Asking(options))


asking = Recipe("describes everybody before each of two stages", FedAvgOptions, stages)


def toy():
    return replace(Toy.of(f"{__file__}:asking", rounds=4), participation=1.0)


def test_a_later_stage_does_not_raise_it(tmp_path):
    trace = toy().run(tmp_path, engine=Boasting)
    honest = toy().run(tmp_path / "honest")
    assert trace.outcome.state.meta["counts"] == honest.outcome.state.meta["counts"]
    refused = [list(row.refused) for row in trace.rows]
    assert refused == [[], [], *[[Refusal(1, "its weight 1000 is not between 0 and 5")]] * 2]


class Known(Toy):
    """With the counts that a run's split has."""

    def loop(self, folder, engine, listen, watch):
        loop = super().loop(folder, engine, listen, watch)
        registered = [Registered(len(data.train), len(data.train) + 7) for data in self.data]
        loop.settings = replace(loop.settings, registered=registered)
        return loop


def test_more_than_when_the_run_began_are_refused(tmp_path):
    plain = toy()
    registered = Known(plain.task, plain.rounds, participation=1.0)
    trace = registered.run(tmp_path, engine=lambda inner: Boasting(inner, first=0))
    reason = "it describes 1005 samples to train on of 1012; when the run began it had 5 of 12"
    assert trace.rows[0].refused[0] == Refusal(1, reason)
    assert 1 not in trace.last.described and set(trace.last.described) == {0, 2, 3}
    assert registered.run(tmp_path / "honest").rows[0].refused == ()


def test_without_a_split_only_descriptions_tell():
    assert Settings("x", toy().task, 4, 1).registered == ()
