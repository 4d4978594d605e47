import numpy as np
import pytest
import torch
from clustered import DEVICES, MB, START, Exchange, orders_of, round_of, situation_of

from fedloom.cost.devices import Device
from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.clock import Departure, RoundClock
from fedloom.federation.server.cluster_round import ClusterRound, Heartbeats
from fedloom.federation.server.clustered import Clustered, parse_topology
from fedloom.federation.server.clusters import Clustering, FormedCluster
from fedloom.federation.server.ledger import HopClient
from fedloom.federation.server.topology import Flat
from fedloom.federation.server.work_times import HopWork
from fedloom.types import Order

ORDERS = orders_of(range(4))


def told(reply):
    return reply.client, {name: tensor.item() for name, tensor in reply.tensors.items()}


# Names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flat", Flat()),
        ("clustered", Clustered()),
        ("clustered:2", Clustered(2, 1)),
        ("clustered:2x3", Clustered(2, 3)),
    ],
)
def test_the_names_of_topologies(text, expected):
    assert parse_topology(text) == expected


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "two", "2.5", "2x0", "2x-1", "2xtwo", "x2", "2x2x2", " "]
)
def test_a_clustered_topology_without_a_number(value):
    with pytest.raises(
        FedloomError,
        match=f"clustered:{value}` must name a number of clusters above 0, but got '{value}'",
    ):
        parse_topology(f"clustered:{value}")


@pytest.mark.parametrize(
    ("text", "near"), [("flatt", "flat"), ("clusterd:2", "clustered"), ("flat:2", "flat")]
)
def test_an_unknown_topology_names_the_nearest(text, near):
    with pytest.raises(FedloomError, match=f"got '{text}'; did you mean {near}?"):
        parse_topology(text)


def test_a_ring_is_unknown():
    with pytest.raises(FedloomError, match="choose from clustered, flat"):
        parse_topology("ring")


# Methods and clients


class Relaying(Method):
    relays = True


class Personal(Method):
    pass


def test_a_method_that_does_not_relay_is_refused():
    with pytest.raises(FedloomError, match=r"this one does not: .*; use --topology flat"):
        Clustered(2).check(Personal())


def test_all_others_pass():
    Clustered(2).check(Relaying())
    Flat().check(Personal())
    Flat().check(Relaying())


def test_more_clusters_than_clients():
    Clustered(4).check_clients(4, RoundClock())
    with pytest.raises(FedloomError, match="5 clusters were asked for, and 4 clients take part"):
        Clustered(5).check_clients(4, RoundClock())


def test_clusters_by_updates_need_two_rounds():
    with pytest.raises(FedloomError, match=r"topology\.recluster must be at least 2"):
        Clustered(2, rule="updates", recluster=1).check_clients(4, RoundClock())


def test_h_max_that_a_client_alone_exceeds_names_it_and_the_least_that_would_do():
    """Client 2 alone: 2 MB down at 4, 10⁹ MACs at ½·10⁹, 2 MB up at 2: .5 + 2 + 1."""
    expected = {client: HopWork(client, 2 * MB, 2 * MB, 10**9) for client in (2, 3)}
    clock = RoundClock(DEVICES)
    Clustered(1, expected=expected, h_max=3.5).check_clients(2, clock)
    with pytest.raises(FedloomError, match=r"at least 3\.5 simulated seconds, but client 2 alone"):
        Clustered(1, expected=expected, h_max=3.4).check_clients(2, clock)


@pytest.mark.parametrize(
    ("topology", "active", "size"),
    [
        (Clustered(3), 10, 4),
        (Clustered(3, size=2), 10, 2),
        (Clustered(), 10, 4),
        (Clustered(), 3, 2),
        (Clustered(5), 3, 1),  # three of ten were there
    ],
)
def test_how_many_are_together(topology, active, size):
    assert topology.size_of(active) == size


# Flat


def test_flat_is_one_exchange_with_everybody(tmp_path):
    exchange = Exchange(tmp_path)
    gathered = Flat().gather(ORDERS, exchange, situation_of())
    assert [reply.client for reply in gathered.replies] == [0, 1, 2, 3]
    assert exchange.hops == [ORDERS] and gathered.clusters == () and gathered.clustering is None


# Clustered


def test_two_levels_by_hand(tmp_path):
    replies = Clustered(2).gather(ORDERS, Exchange(tmp_path), situation_of()).replies
    # clients 0 and 2: (1·0 + 3·2) / 4; clients 1 and 3: (2·1 + 4·3) / 6
    assert [told(reply) for reply in replies] == [
        (0, {"w": 1.5, "n": 2}),
        (1, {"w": torch.tensor(14 / 6).item(), "n": 3}),
    ]
    assert [reply.weight["w"] for reply in replies] == [4.0, 6.0]
    assert [reply.count["w"] for reply in replies] == [2, 2]
    assert aggregate(START, replies)["w"].item() == pytest.approx(
        2.0
    )  # (0 + 2 + 6 + 12) / 10, as if flat


def test_plain_numbers_go_up_as_means_by_samples(tmp_path):
    replies = Clustered(2).gather(ORDERS, Exchange(tmp_path), situation_of()).replies
    assert [reply.meta for reply in replies] == [
        {"loss": (1 * 0 + 3 * 2) / 4},
        {"loss": (2 * 1 + 4 * 3) / 6},
    ]


def test_of_some_numbers_the_largest_goes_up(tmp_path):
    replies = (
        Clustered(2)
        .gather(ORDERS, Exchange(tmp_path), situation_of(largest=frozenset(["loss"])))
        .replies
    )
    assert [reply.meta for reply in replies] == [{"loss": 2}, {"loss": 3}]


def test_the_next_hop_starts_from_the_clusters_mean(tmp_path):
    exchange = Exchange(tmp_path)
    replies = Clustered(2, 2).gather(ORDERS, exchange, situation_of()).replies
    first, second = exchange.hops
    assert [order.tensors["w"].item() for order in first] == [0.0] * 4
    assert [(o.client, o.tensors["w"].item(), o.tensors["n"].item()) for o in second] == [
        (0, 1.5, 2), (2, 1.5, 2), (1, pytest.approx(14 / 6), 3), (3, pytest.approx(14 / 6), 3),
    ]  # fmt: skip
    assert [told(reply)[1] for reply in replies] == [
        {"w": 3.0, "n": 12},
        {"w": pytest.approx(28 / 6), "n": 13},
    ]
    assert all(order.meta == {"lr": 0.1} and order.kind == "train" for order in second)


def test_members_of_a_cluster_share_their_tensors(tmp_path):
    exchange = Exchange(tmp_path)
    Clustered(2, 2).gather(ORDERS, exchange, situation_of())
    zero, two, one, _ = exchange.hops[1]
    assert (
        zero.tensors["w"] is two.tensors["w"] is not one.tensors["w"]
    )  # so that they are encoded once


def test_clients_are_dealt_round_unless_the_method_groups_them(tmp_path):
    dealt = Exchange(tmp_path)
    chosen = Exchange(tmp_path)
    Clustered(3).gather(ORDERS, dealt, situation_of())
    assert {order.client: order.group for order in dealt.hops[0]} == {0: 0, 1: 1, 2: 2, 3: 0}
    orders = orders_of(range(4), (7, 0, 0, 7))
    gathered = Clustered(2).gather(orders, chosen, situation_of())
    assert [(reply.client, reply.weight["w"]) for reply in gathered.replies] == [
        (0, 1.0 + 4.0),
        (1, 2.0 + 3.0),
    ]
    assert [(row.cluster, row.members) for row in gathered.clusters] == [(0, (1, 2)), (7, (0, 3))]


def test_a_plan_that_groups_some_clients_only(tmp_path):
    with pytest.raises(FedloomError, match="client 1 has none"):
        Clustered(2).gather(orders_of((0, 1), (3, None)), Exchange(tmp_path), situation_of())


def test_members_must_work_in_one_region(tmp_path):
    orders = [
        Order(client, "train", START, region={"w": ((client,),)}, group=0) for client in range(2)
    ]
    with pytest.raises(FedloomError, match="all clients of a cluster must work in one region"):
        Clustered(1).gather(orders, Exchange(tmp_path), situation_of())


def test_keys_nobody_brought_back_stay(tmp_path):
    orders = [Order(client, "train", {**START, "hint": torch.tensor([5.0])}) for client in range(2)]
    exchange = Exchange(tmp_path)
    replies = Clustered(1, 2).gather(orders, exchange, situation_of()).replies
    assert exchange.hops[1][0].tensors["hint"].item() == 5.0
    assert "hint" not in replies[0].tensors


def test_the_refused_are_left_out_of_their_cluster_and_speak_for_nobody(tmp_path):
    gathered = Clustered(2).gather(ORDERS, Exchange(tmp_path, refused={(0, 0)}), situation_of())
    assert told(gathered.replies[1]) == (2, {"w": 2.0, "n": 2})
    assert (gathered.replies[1].weight["w"], gathered.replies[1].count["w"]) == (3.0, 1)
    assert [(row.aggregator, row.replaced) for row in gathered.clusters] == [(2, (0,)), (1, ())]


def test_a_cluster_without_replies_sends_nothing_up(tmp_path):
    exchange = Exchange(tmp_path, refused={(0, 0), (2, 0)}, megabytes=dict.fromkeys(range(4), 1))
    gathered = Clustered(2).gather(ORDERS, exchange, situation_of())
    assert [reply.client for reply in gathered.replies] == [1]
    silent, other = gathered.clusters
    assert (silent.aggregator, silent.replaced, silent.wan_up) == (None, (0,), 0)
    assert (
        other.wan_up
        == gathered.traffic.up
        == sum(len(chunk) for chunk in reply_chunks(gathered.replies[0]))
    )


def test_a_participating_few(tmp_path):
    replies = Clustered(2).gather(ORDERS[1:2], Exchange(tmp_path), situation_of()).replies
    assert [told(reply) for reply in replies] == [(1, {"w": 1.0, "n": 1})]


# From one clustering to the next


def test_clusters_stay_until_the_next_clustering(tmp_path):
    topology = Clustered(size=2, rule="random", recluster=3, aggregator="random")
    clustering = None
    clusterings = []
    for number in range(1, 8):
        situation = situation_of(number, clustering=clustering)
        clustering = topology.gather(ORDERS, Exchange(tmp_path), situation).clustering
        clusterings.append(clustering)
    assert [clustering.since for clustering in clusterings] == [1, 1, 1, 4, 4, 4, 7]
    assert clusterings[0] == clusterings[1] == clusterings[2] != clusterings[3]
    first_round = topology.gather(ORDERS, Exchange(tmp_path), situation_of(1))
    assert first_round.clustering == clusterings[0]


def test_the_cohort_of_a_clustering_stays(tmp_path):
    topology = Clustered(2, recluster=3)
    clustering = topology.gather(ORDERS, Exchange(tmp_path), situation_of(4)).clustering
    assert clustering.clients == (0, 1, 2, 3)
    assert topology.valid_clustering(clustering, "train", 6) is clustering
    assert topology.valid_clustering(clustering, "train", 7) is None  # a new one is drawn
    assert topology.valid_clustering(clustering, "search", 5) is None
    assert Flat().valid_clustering(clustering, "train", 5) is None


def test_somebody_in_no_cluster_makes_them_anew(tmp_path):
    topology = Clustered(2)
    clustering = topology.gather(ORDERS, Exchange(tmp_path), situation_of(1)).clustering
    few = topology.gather(ORDERS[:2], Exchange(tmp_path), situation_of(2, clustering=clustering))
    assert few.clustering.since == 1 and [row.members for row in few.clusters] == [(0,), (1,)]
    more = topology.gather(
        orders_of(range(5)), Exchange(tmp_path), situation_of(2, clustering=clustering)
    )
    assert more.clustering.since == 2


def test_a_checkpoint_keeps_a_clustering():
    clusters = (FormedCluster(0, (3, 1), (1, 3), 0.25, (4, 5)), FormedCluster(7, (2,)))
    clustering = Clustering("search", 11, clusters)
    assert Clustering.from_json(clustering.to_json()) == clustering
    assert Clustering.from_json(None) is None


def test_labels_decide_who_is_together(tmp_path):
    """[4,0] with [0,4]: each cluster is as the population."""
    histograms = {0: [4, 0], 1: [4, 0], 2: [0, 4], 3: [0, 4]}
    topology = Clustered(size=2, rule="labels")
    gathered = topology.gather(ORDERS, Exchange(tmp_path), situation_of(histograms=histograms))
    for cluster in gathered.clustering.clusters:
        assert {client // 2 for client in cluster.members} == {0, 1}
        assert cluster.histogram == (4, 4) and cluster.level == 0.0
    assert [row.level for row in gathered.clusters] == [0.0, 0.0]


def test_the_methods_own_groups_have_their_levels(tmp_path):
    histograms = {0: [4, 0], 1: [4, 0], 2: [0, 4], 3: [0, 4]}
    orders = orders_of(range(4), (0, 0, 1, 1))
    gathered = Clustered(2).gather(orders, Exchange(tmp_path), situation_of(histograms=histograms))
    assert [row.level for row in gathered.clusters] == [1.0, 1.0]


def test_the_first_round_of_clusters_by_updates_is_flat(tmp_path):
    """Clients move by their id: 0 with 3 and 1 with 2 are nearest to the mean of all."""
    topology = Clustered(size=2, rule="updates", recluster=2)
    exchange = Exchange(tmp_path)
    first = topology.gather(ORDERS, exchange, situation_of(1))
    assert len(first.replies) == 4 and first.clusters == () and len(exchange.hops) == 1
    members = {frozenset(cluster.members) for cluster in first.clustering.clusters}
    assert members == {frozenset({0, 3}), frozenset({1, 2})}
    second = topology.gather(ORDERS, exchange, situation_of(2, clustering=first.clustering))
    assert len(second.clusters) == 2 and second.clustering.since == 1
    third = topology.gather(ORDERS, exchange, situation_of(3, clustering=second.clustering))
    assert third.clusters == () and third.clustering.since == 3


def test_the_clusters_of_a_file(tmp_path):
    topology = Clustered(rule="who.json", assigned=((3, 0), (2, 1)))
    gathered = topology.gather(ORDERS, Exchange(tmp_path), situation_of())
    assert [row.members for row in gathered.clusters] == [(3, 0), (2, 1)]


def test_a_cluster_is_no_slower_than_h_max(tmp_path):
    """Each member more shares the aggregator's link."""
    device = Device(1e9, 1e6, 1e6, 1e6)
    clock = RoundClock([device] * 4)
    expected = {client: HopWork(client, MB, MB, 0) for client in range(4)}
    histograms = {client: [1, 1] for client in range(4)}
    sizes = []
    for h_max in (4.0, 6.0, 8.0):
        topology = Clustered(size=4, rule="labels", h_max=h_max, expected=expected)
        situation = situation_of(clock=clock, histograms=histograms)
        gathered = topology.gather(ORDERS, Exchange(tmp_path), situation)
        sizes.append(max(len(row.members) for row in gathered.clusters))
    assert sizes == [2, 3, 4]  # down and up take 2 s; n members wait 2 (n − 1) for the link


# The clock's worked example


def example(tmp_path, topology=None, **facts):
    """Clusters {0,1,2} and {3,4}: 2 MB each way and 10⁹ MACs a hop, 1 MB and 5·10⁸."""
    exchange = Exchange(
        tmp_path,
        megabytes={0: 2, 1: 2, 2: 2, 3: 1, 4: 1},
        macs={0: 10**9, 1: 10**9, 2: 10**9, 3: 5 * 10**8, 4: 5 * 10**8},
    )
    orders = orders_of(range(5), (0, 0, 0, 1, 1))
    clock = RoundClock(DEVICES, **facts)
    topology = topology or Clustered(2, 2)
    return topology.gather(orders, exchange, situation_of(2, clock=clock)), exchange


@pytest.fixture
def replies_as_large_as_orders(monkeypatch):
    """A mean is as large as what came down, as it would be of a network; here it is a few bytes."""
    sizes = {0: 2 * MB, 1: 2 * MB, 2: 2 * MB, 3: MB, 4: MB}

    def chunks(reply):
        return [b"x" * sizes[reply.client]]

    monkeypatch.setattr("fedloom.federation.server.cluster_round.reply_chunks", chunks)


def test_delay_takes_two_and_four(tmp_path, replies_as_large_as_orders):
    gathered, _ = example(tmp_path)
    first, second = gathered.clusters
    assert (first.aggregator, second.aggregator) == (2, 4)
    assert (first.seconds, second.seconds, gathered.seconds) == (7.5, 6.0, 7.5)
    assert first.lan_down + first.lan_up == 16 * MB and second.lan_down + second.lan_up == 4 * MB
    assert first.wan_down + first.wan_up == 4 * MB and second.wan_down + second.wan_up == 2 * MB
    assert (gathered.traffic.down, gathered.traffic.up) == (3 * MB, 3 * MB)
    assert (first.macs, second.macs) == (6 * 10**9, 2 * 10**9)


@pytest.mark.parametrize(
    ("ranking", "seconds"), [((0, 1, 2), 14.0), ((1, 0, 2), 9.0), ((2, 0, 1), 7.5)]
)
def test_the_round_by_aggregator(tmp_path, replies_as_large_as_orders, ranking, seconds):
    clustering = Clustering(
        "train", 1, (FormedCluster(0, (0, 1, 2), ranking), FormedCluster(1, (3, 4), (3, 4)))
    )
    exchange = Exchange(tmp_path, megabytes={0: 2, 1: 2, 2: 2}, macs=dict.fromkeys(range(3), 10**9))
    orders = orders_of(range(3))
    situation = situation_of(2, clock=RoundClock(DEVICES), clustering=clustering)
    gathered = Clustered(2, 2).gather(orders, exchange, situation)
    assert gathered.seconds == seconds and gathered.clusters[0].aggregator == ranking[0]


def test_an_aggregator_that_is_gone_is_replaced(tmp_path, replies_as_large_as_orders):
    """2 is gone in hop 1, 1 takes over: .5 + 3 + 3 + 20 + .5 + 2 = 29 s."""
    events = []
    exchange = Exchange(
        tmp_path,
        megabytes={0: 2, 1: 2, 2: 2},
        macs=dict.fromkeys(range(3), 10**9),
    )
    clock = RoundClock(DEVICES, departures={2: Departure(1)})
    situation = situation_of(2, clock=clock, note=events.append)
    gathered = Clustered(1, 2).gather(orders_of(range(3)), exchange, situation)
    row = gathered.clusters[0]
    assert row.seconds == gathered.seconds == 29.0
    # WAN down, twice the slowest member's order, work and reply, a wait, 0 sends again, WAN up.
    steps = [(step.doing, step.seconds) for step in row.steps]
    assert steps == [
        ("aggregation", 0.5), ("transfer", 1.0), ("training", 1.0), ("transfer", 2.0),
        ("training", 1.0), ("transfer", 1.0), ("heartbeat", 20.0), ("transfer", 0.5),
        ("aggregation", 2.0),
    ]  # fmt: skip
    assert (row.aggregator, row.replaced) == (1, (2,))
    assert [(event.hop, event.lost, event.client) for event in events] == [(1, 2, 1)]
    # The mean that the old one would have sent, minus its own reply.
    refused = Exchange(tmp_path, refused={(2, 1)})
    alike = Clustered(1, 2).gather(orders_of(range(3)), refused, situation_of(2))
    assert told(gathered.replies[0])[1] == told(alike.replies[0])[1]
    # LAN: two hops down and up of two members, and 0 sends the second up again.
    assert row.lan_down == 8 * MB and row.lan_up == (4 + 4 + 2) * MB
    # What 0 and 1 had sent up to 2 came to nothing.
    assert gathered.traffic.replaced == 1 and gathered.traffic.wasted_bytes == 4 * MB
    assert exchange.times[1].lost_work[2].kind == "dropped"


def test_the_rest_of_the_round_is_at_the_new_ones_speed(tmp_path, replies_as_large_as_orders):
    """2 leaves in hop 0: .5 + 3 + 20 + .5, then a hop of 0 and 1 at 1 (4/4 + 1 = 2 s), 2 s up."""
    gathered, exchange = example(tmp_path, departures={2: Departure(0)})
    assert gathered.clusters[0].seconds == 0.5 + 3 + 20 + 0.5 + 2 + 2
    assert [order.client for order in exchange.hops[1]] == [0, 1, 3, 4]  # who left is not asked


def test_a_cluster_that_lost_everybody(tmp_path):
    departures = {3: Departure(0), 4: Departure(0)}
    gathered, exchange = example(tmp_path, departures=departures)
    assert [reply.client for reply in gathered.replies] == [2]
    row = gathered.clusters[1]
    assert (row.aggregator, row.wan_up) == (None, 0)
    assert [order.client for order in exchange.hops[1]] == [0, 1, 2]
    # 1 MB came down to 4 in vain; what 3 and 4 lost themselves is told with their own work.
    assert (gathered.traffic.wasted_bytes, gathered.traffic.wasted_macs) == (MB, 0)


def test_of_a_cluster_that_sends_nothing_all_hops_are_wasted(tmp_path):
    """3 and 4 leave in hop 1, so hop 0, with 5·10⁸ MACs and 1 MB each way, is wasted too."""
    departures = {3: Departure(1), 4: Departure(1)}
    gathered, exchange = example(tmp_path, departures=departures)
    row = gathered.clusters[1]
    assert (row.lan_down, row.lan_up, row.wan_down, row.wan_up) == (2 * MB, MB, MB, 0)
    own_bytes = gathered.transfers[HopClient(1, 3)].down  # and no reply
    own_macs = sum(exchange.times[1].lost_work[client].macs for client in (3, 4))
    assert gathered.traffic.wasted_bytes == 4 * MB - own_bytes
    assert gathered.traffic.wasted_macs == row.macs - own_macs == 10**9
    assert gathered.traffic.late == 0


def test_a_member_that_leaves_while_nobody_gathers_is_lost_too(tmp_path):
    """After 26.5 s 1 takes over; 0 went away at 10 s, with its reply of hop 1."""
    stays = {0: 10.0}
    gathered, exchange = example(tmp_path, departures={2: Departure(1)}, stays=stays)
    assert exchange.times[1].lost_work.keys() == {0, 2}
    assert gathered.replies[0].client == 1 and gathered.replies[0].count["w"] == 1


def test_a_cluster_that_is_late(tmp_path, replies_as_large_as_orders):
    gathered, _ = example(tmp_path, deadline=7.0)
    assert [reply.client for reply in gathered.replies] == [4]
    assert gathered.seconds == 7.0 and gathered.traffic.late == 3
    assert gathered.traffic.wasted_bytes == 20 * MB and gathered.traffic.wasted_macs == 6 * 10**9


def test_what_a_member_of_a_late_cluster_lost_itself_is_wasted_once(
    tmp_path, replies_as_large_as_orders
):
    """0 leaves in hop 0, with 2 MB down and half of its MACs."""
    gathered, exchange = example(tmp_path, deadline=5.0, departures={0: Departure(0, 0.5)})
    row = gathered.clusters[0]
    loss = exchange.times[0].lost_work[0]
    assert gathered.traffic.late == 2 + 2  # the other cluster is late too
    other = gathered.clusters[1]
    assert gathered.traffic.wasted_macs + loss.macs == row.macs + other.macs
    traffic = sum(
        part.lan_down + part.lan_up + part.wan_down + part.wan_up for part in (row, other)
    )
    assert gathered.traffic.wasted_bytes + 2 * MB == traffic


def test_another_place_is_reached_over_the_wan(tmp_path):
    """An aggregator talks with itself for nothing, with its place on the LAN, with others not."""
    devices = [Device(place="north"), Device(place="north"), Device(place="south")]
    exchange = Exchange(tmp_path, megabytes=dict.fromkeys(range(3), 1))
    situation = situation_of(clock=RoundClock(devices))
    topology = Clustered(1, aggregator="lowest")
    gathered = topology.gather(orders_of(range(3)), exchange, situation)
    row = gathered.clusters[0]
    assert (row.lan_down, row.lan_up) == (MB, MB)
    up = sum(map(len, reply_chunks(gathered.replies[0])))
    assert (row.wan_down, row.wan_up) == (2 * MB, MB + up)


def test_the_servers_process_may_do_the_aggregators_work(tmp_path):
    """Every byte is WAN, every hop as long as its slowest member over its own WAN: 0's 2+1+4 s."""
    relayed, _ = example(tmp_path, Clustered(2, 2, relayed=True))
    by_members, _ = example(tmp_path, Clustered(2, 2))
    values = [told(reply)[1] for reply in by_members.replies]
    assert [told(reply)[1] for reply in relayed.replies] == values
    first, second = relayed.clusters
    assert first.aggregator is None and first.seconds == 14.0
    assert (first.lan_down, first.lan_up) == (0, 0)
    assert (first.wan_down, first.wan_up) == (12 * MB, 12 * MB)
    assert (relayed.traffic.down, relayed.traffic.up) == (
        0,
        0,
    )  # members' bytes are booked as theirs
    assert second.wan_down == 4 * MB


@pytest.mark.parametrize("choice", ["delay", "random", "lowest"])
def test_aggregators_are_ranked_once(tmp_path, choice):
    topology = Clustered(2, aggregator=choice)
    first = topology.gather(orders_of(range(10)), Exchange(tmp_path), situation_of(1))
    rankings = [cluster.ranking for cluster in first.clustering.clusters]
    for cluster in first.clustering.clusters:
        assert sorted(cluster.ranking) == sorted(cluster.members)
    if choice == "random":
        drawn = round_of(1).rng("aggregators 0").permutation([0, 2, 4, 6, 8])
        assert rankings[0] == tuple(drawn)
    else:
        assert rankings[0] == (0, 2, 4, 6, 8)
    away = first.clusters[0].aggregator
    present = [client for client in range(10) if client != away]
    situation = situation_of(2, clustering=first.clustering)
    second = topology.gather(orders_of(present), Exchange(tmp_path), situation)
    assert second.clusters[0].aggregator == rankings[0][1]  # the next best that is there
    assert second.clusters[0].replaced == ()


# What a row tells of time and labels


def test_the_first_round_of_a_clustering_tells_its_labels(tmp_path):
    histograms = {0: [4, 0], 1: [3, 1], 2: [0, 4], 3: [1, 3], 9: [5, 5]}  # 9 does not take part
    topology = Clustered(2, rule="labels")
    first = topology.gather(ORDERS, Exchange(tmp_path), situation_of(1, histograms=histograms))
    assert first.population == (13, 13)  # of everybody who told
    formed = {cluster.number: cluster.histogram for cluster in first.clustering.clusters}
    assert {row.cluster: row.histogram for row in first.clusters} == formed
    later = situation_of(2, histograms=histograms, clustering=first.clustering)
    second = topology.gather(ORDERS, Exchange(tmp_path), later)
    assert second.population is None and [row.histogram for row in second.clusters] == [None, None]


def test_steps_of_clusters_add_up_to_their_seconds(tmp_path):
    """Whoever is slow, leaves or is replaced, and wherever clients are: 200 random rounds."""
    draws = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        devices = []
        for _ in range(6):
            speeds = draws.uniform(0.1, 3.0, 4) * (1e9, 1e6, 1e6, 1e6)
            devices.append(Device(*speeds.tolist(), place=str(draws.integers(2))))
        departures = {}
        for client in draws.permutation(6)[: draws.integers(4)].tolist():
            departures[client] = Departure(int(draws.integers(2)), float(draws.random()))
        exchange = Exchange(
            tmp_path,
            megabytes={client: int(draws.integers(1, 4)) for client in range(6)},
            macs={client: int(draws.integers(10**9)) for client in range(6)},
        )
        clock = RoundClock(devices, departures=departures)
        gathered = Clustered(2, 2, relayed=bool(draws.integers(2))).gather(
            orders_of(range(6)), exchange, situation_of(2, clock=clock)
        )
        for row in gathered.clusters:
            assert sum(step.seconds for step in row.steps) == pytest.approx(row.seconds, rel=1e-12)
            assert all(step.seconds > 0 for step in row.steps)
            heartbeats = [step for step in row.steps if step.doing == "heartbeat"]
            assert len(heartbeats) == len(row.replaced)
            seen.update(step.doing for step in row.steps)
    assert seen == {"training", "transfer", "aggregation", "heartbeat"}


def test_every_lost_aggregator_is_a_step_of_its_own():
    """Two in a row, as where the second has nobody to collect from; transfers in a row are one."""
    cluster = ClusterRound(FormedCluster(0, (0,)), [], RoundClock(), Heartbeats(), 1)
    for doing, seconds in (
        ("heartbeat", 20.0),
        ("heartbeat", 20.0),
        ("transfer", 1.0),
        ("transfer", 2.0),
    ):
        cluster._pass(doing, seconds)
    steps = [(step.doing, step.seconds) for step in cluster.steps]
    assert (
        steps == [("heartbeat", 20.0), ("heartbeat", 20.0), ("transfer", 3.0)]
        and cluster.elapsed == 43.0
    )
