"""Whole runs in clusters: what they equal, and what a lost aggregator costs."""

import json
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch.nn import functional

from fedloom.cost.devices import Device
from fedloom.errors import FedloomError
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.topology import Flat
from fedloom.methods import stages
from fedloom.networks.building import build_model
from fedloom.testing import Toy
from fedloom.testing.engines import Passing, order_of, stamp_of
from fedloom.testing.repeating import interrupted
from fedloom.testing.toy import differences

PLAIN = {
    "batch": 64, "lr": 0.05, "schedule": "constant", "momentum": 0.0, "weight_decay": 0.0,
    "clip": 1e9, "bn": "frozen",
}  # fmt: skip
ONE_CLUSTER = {"lambda1": 1, "lambda2": 1, "cluster_size": 4}


def weights(toy, folder):
    return toy.run(folder).outcome.state.tensors


def largest_gap(one, other):
    assert one.keys() == other.keys()
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one)


# Equivalences


def test_one_cluster_of_one_hop_is_fedavg(tmp_path):
    hfl = replace(Toy.of("hfl", {**PLAIN, **ONE_CLUSTER}), participation=1.0)
    fedavg = replace(Toy.of("fedavg", PLAIN), participation=1.0)
    assert isinstance(hfl.topology, Clustered) and hfl.topology.size == 4
    assert largest_gap(weights(hfl, tmp_path / "hfl"), weights(fedavg, tmp_path / "fedavg")) <= 1e-6


def test_clusters_of_one_hop_are_flat_averaging(tmp_path):
    options = {**PLAIN, **ONE_CLUSTER, "cluster_size": 2, "lambda1": 3}
    hfl = replace(Toy.of("hfl", options), participation=1.0)
    flat = replace(hfl, topology=Flat())
    assert largest_gap(weights(hfl, tmp_path / "hfl"), weights(flat, tmp_path / "flat")) <= 1e-6


def test_theorem_3(tmp_path):
    """λ₁ = 1, full batches, plain SGD, one cluster: a hop is one step on the union of the data."""
    options = {**PLAIN, **ONE_CLUSTER, "lambda2": 3}
    toy = replace(Toy.of("hfl", options, rounds=2), participation=1.0)
    trained = weights(toy, tmp_path)
    net = build_model(toy.task, None, 0.125, head=toy.task.options["head"]).eval()
    x = torch.cat([client.train.x for client in toy.data])
    y = torch.cat([client.train.y for client in toy.data])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(6):
        optimizer.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    central = {name: tensor for name, tensor in net.state_dict().items() if name in trained}
    assert largest_gap(trained, central) <= 1e-5


def test_more_hops_in_clusters_are_something_else(tmp_path):
    """Otherwise the equivalences above would say nothing."""
    one = replace(Toy.of("hfl", {**PLAIN, **ONE_CLUSTER, "cluster_size": 2}), participation=1.0)
    two = replace(
        Toy.of("hfl", {**PLAIN, **ONE_CLUSTER, "cluster_size": 2, "lambda2": 2}), participation=1.0
    )
    assert largest_gap(weights(one, tmp_path / "one"), weights(two, tmp_path / "two")) > 1e-4


# Who is together


def test_the_cohort_stays_with_its_clusters(tmp_path):
    toy = replace(Toy.of("hfl", {"recluster": 2}, rounds=6), participation=0.5)
    trace = toy.run(tmp_path)
    asked = []
    for row in trace.rows:
        members = []
        for cluster in row.clusters:
            members += cluster.members
        asked.append(sorted(members))
    assert asked[0] == asked[1] and asked[2] == asked[3] and asked[4] == asked[5]
    assert len({tuple(clients) for clients in asked}) > 1 and all(
        len(clients) == 2 for clients in asked
    )


def test_a_resumed_run_goes_on_in_its_clusters(tmp_path):
    toy = replace(Toy.of("hfl", {"aggregator": "random"}, rounds=3), participation=0.5)
    resumed, stops = interrupted(toy, tmp_path / "stopped", {"round"})
    assert stops >= 2 and differences(toy.run(tmp_path / "whole"), resumed) == []


@dataclass(frozen=True)
class WithFlatStage(Toy):
    @property
    def stages(self):
        (only,) = stages(self.task)
        return only._replace(name="before", share=0.5, is_flat=True), only

    def site(self, folder, watch):
        return replace(super().site(folder, watch), resolve=lambda task: self.stages)


def test_a_stage_may_be_flat_inside_a_clustered_run(tmp_path):
    toy = replace(Toy.of("hfl"), participation=1.0)
    trace = WithFlatStage(**vars(toy)).run(tmp_path)
    assert [(row.stage, len(row.clusters)) for row in trace.rows] == [
        ("before", 0), ("before", 0), ("train", 2), ("train", 2),
    ]  # fmt: skip


# Faults


DEVICES = (
    Device(1e9, 4e6, 1e6, 0.5e6),
    Device(2e9, 8e6, 2e6, 1e6),
    Device(0.5e9, 4e6, 4e6, 2e6),
    Device(1e9, 2e6, 2e6, 2e6),
)


@dataclass(frozen=True)
class Clocked(Toy):
    """A toy whose clients have devices, and may be gone from a hop on."""

    faults: dict[tuple[int, int], int] = field(default_factory=dict)  # hop, by round and client

    def loop(self, folder, engine, listen, watch):
        loop = super().loop(folder, engine, listen, watch)
        attendance = Attendance(len(self.data), faults=self.faults)
        loop.settings = replace(loop.settings, devices=DEVICES, attendance=attendance)
        return loop


@dataclass(frozen=True)
class Refusing(Passing):
    """A client that cannot be reached in the second round, from hop 1 on."""

    client: int = 0

    def ask(self, parcels, deadline):
        reached = []
        for parcel in parcels:
            stamp = stamp_of(order_of(parcel))
            if parcel.client == self.client and stamp.round == 2 and stamp.hop >= 1:
                yield parcel, Envelope(fault=Fault("died", "out of reach"))
            else:
                reached.append(parcel)
        yield from self.inner.ask(reached, deadline)


@pytest.fixture
def whole():
    """Three hops, clusters {0, 1, 2} and {3}, whose aggregators the clock chooses."""
    toy = Toy.of("hfl", {"lambda2": 3, "cluster_size": 3}, rounds=3)
    topology = replace(toy.topology, rule="who.json", assigned=((0, 1, 2), (3,)))
    return Clocked(**{**vars(toy), "participation": 1.0, "topology": topology, "histograms": None})


@pytest.fixture
def lost(whole, tmp_path):
    """The aggregator of the first cluster."""
    return whole.run(tmp_path / "whole").rows[1].clusters[0].aggregator


def test_a_lost_aggregator_is_as_one_that_was_refused(whole, lost, tmp_path):
    gone = replace(whole, faults={(2, lost): 1}).run(tmp_path / "gone")
    refused = whole.run(tmp_path / "refused", engine=lambda inner: Refusing(inner, lost))
    assert differences(gone, refused, ledger=False) == []
    assert differences(gone, whole.run(tmp_path / "whole"), ledger=False) != []
    row = gone.rows[1].clusters[0]
    assert row.replaced == (lost,) and row.aggregator not in (lost, None)
    assert [refusal.client for refusal in gone.rows[1].refused] == [lost]
    assert "hop 1" in gone.rows[1].refused[0].reason
    assert gone.rows[2].clusters[0].aggregator == lost  # it is back
    assert gone.outcome.totals.replaced == 1 and gone.outcome.totals.dropped == 1


def test_what_a_lost_aggregator_costs(whole, lost, tmp_path):
    """The end of the lost hop, two heartbeats, one LAN up, and the rest at the new one's speed."""
    ran = whole.run(tmp_path / "whole").rows[1].clusters[0]
    gone = replace(whole, faults={(2, lost): 1}).run(tmp_path / "gone").rows[1]
    row = gone.clusters[0]
    new = row.aggregator
    (other,) = {0, 1, 2} - {lost, new}
    lines = {}
    seconds_of_hops = [0.0, 0.0, 0.0]
    for line in gone.ledger:
        if line.cluster == 0:
            lines[line.hop, line.client] = line
            if line.hop >= 0:
                slowest = max(seconds_of_hops[line.hop], line.simulated)
                seconds_of_hops[line.hop] = slowest
    up = lines[0, other].up
    assert lines[1, other].up == 2 * up  # sent again
    again = up / min(DEVICES[other].lan, DEVICES[new].lan)
    down = ran.wan_down / DEVICES[lost].wan_down
    expected = down + sum(seconds_of_hops) + 20 + again + row.wan_up / DEVICES[new].wan_up
    assert row.seconds == pytest.approx(expected, abs=1e-12)
    # Hop 2 has one sender less, and hop 1 was sent by one of them twice.
    assert row.lan_up == ran.lan_up
    assert lines.get((2, lost)) is None  # who left is not asked again


def test_killed_and_resumed_there(whole, lost, tmp_path):
    gone = replace(whole, faults={(2, lost): 1})
    through = gone.run(tmp_path / "through")
    resumed, stops = interrupted(gone, tmp_path / "stopped", {"reply", "round", "work"})
    assert stops > 20 and differences(through, resumed) == []


def test_the_journal_tells_of_it_once(whole, lost, tmp_path, monkeypatch):
    written = []
    gone = replace(whole, faults={(2, lost): 1})

    def stop(event):
        journal = tmp_path / "spool" / "journal.jsonl"
        if journal.exists():
            lines = journal.read_text().splitlines()
            events = [json.loads(line.rpartition(" ")[0]) for line in lines]
            written.append([event["reason"] for event in events if event["hop"] < -3])

    gone.run(tmp_path, listen=stop)
    longest = max(written, key=len)
    assert len(longest) == 1 and longest[0].startswith(
        f"client {lost}, the aggregator of cluster 0, was gone at hop 1"
    )


def test_extra_clients_cannot_be_drawn_for_clusters(whole, tmp_path):
    loop = whole.loop(tmp_path, None, lambda event: None, lambda method: method)
    with pytest.raises(FedloomError, match="--overselect must be left out"):
        replace(loop, settings=replace(loop.settings, overselect=1.3))
