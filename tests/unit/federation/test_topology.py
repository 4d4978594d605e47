from dataclasses import replace

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.parcels import encoded
from fedloom.federation.server.spool import Place, Spool, Spooled
from fedloom.federation.server.topology import Clustered, Flat, Worked, parse_topology
from fedloom.files import write_whole
from fedloom.records.totals import Totals
from fedloom.types import Order, Reply, Stamp, Task


class Exchange:
    """Clients that add their id to what they are sent; their weight is their id plus one."""

    def __init__(self, folder, refused=()):
        self.folder, self.refused, self.hops = folder, refused, []

    def __call__(self, orders, hop, timing):
        self.hops.append(list(orders))
        answered = sorted(order.client for order in orders if (order.client, hop) not in self.refused)
        by_client = {order.client: order for order in orders}
        for client in answered:
            tensors = {"w": by_client[client].tensors["w"] + client, "n": torch.tensor(10 * hop + client)}
            write_whole(self.path(hop, client), reply_chunks(Reply(client, tensors, client + 1.0)), durable=False)
        return Worked(Spooled(tuple(Place(client, self.path(hop, client)) for client in answered)))

    def path(self, hop, client):
        return self.folder / f"{hop}.{client}.reply"


START = {"w": torch.tensor([0.0]), "n": torch.tensor(0)}
ORDERS = [Order(client, "train", START, {"lr": 0.1}) for client in range(4)]


TASK = Task("fedavg", {"lr": 0.1}, "image", (1, 8, 8), ("a", "b"), 7, (0.5,), (0.25,))


def stamped(order, hop):
    """A stamp that is longer the higher the client's number is."""
    read = "1" * (100 * (order.client + 1))
    return replace(order, stamp=Stamp("experiment", TASK, "train", 3, hop, read, f"3.{hop}"))


def gathered(topology, orders, exchange):
    """The replies that the server merges, and the traffic between aggregators and server."""
    brought = topology.gather(orders, exchange, stamped, RoundClock())
    return brought.replies, brought.traffic


def told(reply):
    return reply.client, {name: tensor.item() for name, tensor in reply.tensors.items()}


# Names


@pytest.mark.parametrize(
    ("text", "expected"),
    [("flat", Flat()), ("clustered:2", Clustered(2, 1)), ("clustered:2x3", Clustered(2, 3))],
)
def test_the_names_of_topologies(text, expected):
    assert parse_topology(text) == expected


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "2.5", "2x0", "2x-1", "2xtwo", "x2", "2x2x2", " "])
def test_a_clustered_topology_without_a_number(value):
    with pytest.raises(
        FedloomError, match=f"clustered:{value}` must name a number of clusters above 0, but got '{value}'"
    ):
        parse_topology(f"clustered:{value}")


@pytest.mark.parametrize(("text", "near"), [("flatt", "flat"), ("clusterd:2", "clustered"), ("flat:2", "flat")])
def test_an_unknown_topology_names_the_nearest(text, near):
    with pytest.raises(FedloomError, match=f"got '{text}'; did you mean {near}?"):
        parse_topology(text)


def test_a_ring_is_unknown():
    with pytest.raises(FedloomError, match="choose from clustered, flat"):
        parse_topology("ring")


# Methods


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


# Flat


def test_flat_is_one_exchange_with_everybody(tmp_path):
    exchange = Exchange(tmp_path)
    replies, wan = gathered(Flat(), ORDERS, exchange)
    assert [reply.client for reply in replies] == [0, 1, 2, 3] and exchange.hops == [ORDERS]
    assert wan == Totals() and not Flat().lan


# Clustered


def test_two_levels_by_hand(tmp_path):
    replies, _ = gathered(Clustered(2), ORDERS, Exchange(tmp_path))
    # clients 0 and 2: (1·0 + 3·2) / 4; clients 1 and 3: (2·1 + 4·3) / 6
    assert [told(reply) for reply in replies] == [
        (0, {"w": 1.5, "n": 2}),
        (1, {"w": torch.tensor(14 / 6).item(), "n": 3}),
    ]
    assert [reply.weight["w"] for reply in replies] == [4.0, 6.0]
    assert [reply.count["w"] for reply in replies] == [2, 2]
    assert aggregate(START, replies)["w"].item() == pytest.approx(2.0)  # (0 + 2 + 6 + 12) / 10, as if flat


def test_the_next_hop_starts_from_the_clusters_mean(tmp_path):
    exchange = Exchange(tmp_path)
    replies, _ = gathered(Clustered(2, 2), ORDERS, exchange)
    first, second = exchange.hops
    assert [order.tensors["w"].item() for order in first] == [0.0] * 4
    assert [(o.client, o.tensors["w"].item(), o.tensors["n"].item()) for o in second] == [
        (0, 1.5, 2), (2, 1.5, 2), (1, pytest.approx(14 / 6), 3), (3, pytest.approx(14 / 6), 3),
    ]  # fmt: skip
    assert [told(reply)[1] for reply in replies] == [{"w": 3.0, "n": 12}, {"w": pytest.approx(28 / 6), "n": 13}]
    assert all(order.meta == {"lr": 0.1} and order.kind == "train" for order in second)


def test_members_of_a_cluster_share_their_tensors(tmp_path):
    exchange = Exchange(tmp_path)
    gathered(Clustered(2, 2), ORDERS, exchange)
    zero, two, one, _ = exchange.hops[1]
    assert zero.tensors["w"] is two.tensors["w"] is not one.tensors["w"]  # so that they are encoded once


def test_clients_are_dealt_round_unless_the_method_groups_them(tmp_path):
    dealt, chosen = Exchange(tmp_path), Exchange(tmp_path)
    gathered(Clustered(3), ORDERS, dealt)
    assert {order.client: order.group for order in dealt.hops[0]} == {0: 0, 1: 1, 2: 2, 3: 0}
    orders = [Order(client, "train", START, group=group) for client, group in enumerate((7, 0, 0, 7))]
    replies, _ = gathered(Clustered(2), orders, chosen)
    assert [(reply.client, reply.weight["w"]) for reply in replies] == [(0, 1.0 + 4.0), (1, 2.0 + 3.0)]


def test_keys_nobody_brought_back_stay(tmp_path):
    orders = [Order(client, "train", {**START, "hint": torch.tensor([5.0])}) for client in range(2)]
    exchange = Exchange(tmp_path)
    replies, _ = gathered(Clustered(1, 2), orders, exchange)
    assert exchange.hops[1][0].tensors["hint"].item() == 5.0
    assert "hint" not in replies[0].tensors


def test_the_refused_are_left_out_of_their_cluster(tmp_path):
    replies, _ = gathered(Clustered(2), ORDERS, Exchange(tmp_path, refused={(0, 0)}))
    assert told(replies[0]) == (0, {"w": 2.0, "n": 2})
    assert (replies[0].weight["w"], replies[0].count["w"]) == (3.0, 1)


def test_a_cluster_without_replies_sends_nothing_up(tmp_path):
    replies, wan = gathered(Clustered(2), ORDERS, Exchange(tmp_path, refused={(0, 0), (2, 0)}))
    assert [reply.client for reply in replies] == [1]
    assert wan.up == sum(len(chunk) for chunk in reply_chunks(replies[0]))


def test_a_cluster_silent_at_first_goes_on_from_the_servers_model(tmp_path):
    exchange = Exchange(tmp_path, refused={(0, 0), (2, 0)})
    replies, _ = gathered(Clustered(2, 2), ORDERS, exchange)
    assert [order.tensors["w"].item() for order in exchange.hops[1][:2]] == [0.0, 0.0]
    assert told(replies[0]) == (0, {"w": 1.5, "n": 12})


def test_one_order_down_and_one_reply_up_a_cluster_cross_the_wan(tmp_path):
    """The aggregators are clients 0 and 1, whatever the order of the plan is; they are sent what they would be sent
    in a flat topology, with its stamp."""
    exchange = Exchange(tmp_path)
    replies, wan = gathered(Clustered(2, 3), ORDERS[::-1], exchange)
    sent = [stamped(replace(order, group=order.client % 2), 0) for order in ORDERS[:2]]
    down = sum(len(parcel.head) + parcel.body.size for parcel in encoded(sent, Spool(tmp_path / "spool")))
    up = sum(len(chunk) for reply in replies for chunk in reply_chunks(reply))
    assert wan == Totals(down=down, up=up) and Clustered.lan


def test_a_participating_few(tmp_path):
    replies, _ = gathered(Clustered(2), ORDERS[1:2], Exchange(tmp_path))
    assert [told(reply) for reply in replies] == [(1, {"w": 1.0, "n": 1})]
