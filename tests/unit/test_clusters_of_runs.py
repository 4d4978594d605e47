"""What a run's flags, its section [topology] and its method's options make of its topology."""

import pytest

from fedloom.config.models import Experiment, validated
from fedloom.config.topology import TopologyConfig
from fedloom.errors import FedloomError
from fedloom.federation.server.cluster_round import Heartbeats
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.topology import Flat
from fedloom.runs.clusters import (
    check_clusters_used,
    check_for_federation,
    topology_of,
    with_topology,
)
from fedloom.runs.configure import resolve_options
from fedloom.types import Task


def made(method="fedavg", options=None, population=12, **tree):
    """A completed configuration and its topology; completing it again changes nothing."""
    chosen = resolve_options(method, options or {})
    config = validated(Experiment, {"method": method, **tree})
    completed = with_topology(config, chosen, population)
    assert with_topology(completed, chosen, population) == completed
    read_again = validated(Experiment, completed.model_dump(mode="json", exclude_none=True))
    assert with_topology(read_again, chosen, population) == completed
    task = Task(method, chosen, "image", (1, 8, 8), ("a", "b"), 7, (0.5,), (0.25,))
    return completed, topology_of(completed, task)


def test_without_a_word_a_run_is_flat():
    config, topology = made()
    assert (
        topology == Flat()
        and config.engine.topology == "flat"
        and config.topology == TopologyConfig()
    )


def test_a_method_names_its_clusters():
    config, topology = made(
        "hfl", {"lambda2": 3, "cluster_size": 5, "recluster": 4, "aggregator": "random"}
    )
    assert config.engine.topology == "clustered" and config.topology.clusters == "labels"
    assert str(config.topology.histogram_rule) == "laplace:1.0"
    assert topology == Clustered(None, 3, 5, "labels", 4, "random")


def test_a_flag_overrides_what_a_method_names():
    assert made("hfl", engine={"topology": "flat"})[1] == Flat()
    assert (
        made("hfl", engine={"topology": "flat"})[0].topology.histogram_rule is None
    )  # nobody is asked
    _, topology = made("hfl", engine={"topology": "clustered:3x4"})
    assert (topology.groups, topology.hops) == (3, 4)
    _, topology = made("hfl", topology={"clusters": "alike"})
    assert (topology.rule, topology.hops) == ("alike", 2)


def test_without_label_counts_updates_decide():
    config, topology = made("hfl", {"histograms": "none"})
    assert topology.rule == "updates" and config.topology.histogram_rule is None


def test_the_section_fills_the_clusters_of_any_method():
    section = {
        "cluster_size": 3,
        "heartbeat": 5,
        "misses": 4,
        "clusters": "random",
        "relay": "server",
    }
    _, topology = made(engine={"topology": "clustered"}, topology=section)
    assert (topology.size, topology.rule, topology.relayed) == (3, "random", True)
    assert topology.heartbeats == Heartbeats(5.0, 4) and topology.heartbeats.wait == 20.0


@pytest.mark.parametrize(
    ("method", "tree", "message"),
    [
        ("hfl", {"topology": {"aggregator": "random"}}, "got random, and the option says delay"),
        (
            "fedavg",
            {"engine": {"topology": "clustered:2"}, "topology": {"cluster_size": 3}},
            "must be given once",
        ),
        (
            "fedavg",
            {
                "engine": {"topology": "clustered"},
                "topology": {"clusters": "labels", "histograms": "none"},
            },
            "must be exact or laplace:E",
        ),
    ],
)
def test_what_contradicts_itself(method, tree, message):
    with pytest.raises(FedloomError, match=message):
        made(method, **tree)


def test_clusters_that_a_flat_run_would_not_use():
    config = validated(Experiment, {"topology": {"clusters": "random"}})
    completed = with_topology(config, resolve_options("fedavg", {}), 4)
    with pytest.raises(FedloomError, match="--clusters must come with a clustered topology"):
        check_clusters_used(config, completed)


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ({"relay": "server"}, "--relay"),
        ({"recluster": 3}, "topology.recluster"),
        ({"h_max": 2.0}, "topology.h_max"),
    ],
)
def test_no_setting_of_clusters_is_silently_unused(section, setting):
    config = validated(Experiment, {"topology": {**section, "phases": "parallel"}})
    completed = with_topology(config, resolve_options("fedavg", {}), 4)
    with pytest.raises(FedloomError, match=f"^{setting} must come with a clustered topology"):
        check_clusters_used(config, completed)
    check_clusters_used(
        validated(Experiment, {"topology": {"phases": "parallel", "recluster": 10}}), completed
    )


@pytest.mark.parametrize(
    ("options", "tree", "message"),
    [
        ({"clustering": "random"}, {"topology": {"clusters": "labels"}}, "must be given once"),
        ({}, {"topology": {"clusters": "updates"}}, "use --clustering updates instead"),
        ({"clustering": "none"}, {"engine": {"topology": "clustered"}}, "it is clustered, and"),
        ({"clustering": "random"}, {"engine": {"topology": "flat"}}, "it is flat, and"),
        ({"histograms": "none", "pretrain": 0}, {}, "speed, random or none"),
        ({"clustering": "updates", "pretrain": 0}, {}, "another one with pretrain=0"),
        ({"clustering": "labels", "histograms": "none"}, {}, "clients do not reveal their labels"),
    ],
)
def test_what_finch_is_told_twice_or_cannot_know(options, tree, message):
    with pytest.raises(FedloomError, match=message):
        made("finch", options, **tree)


def test_finch_and_the_flag_may_not_even_agree():
    config = validated(Experiment, {"method": "finch", "options": {"clustering": "random"}})
    section = config.topology.model_copy(update={"clusters": "random"})
    config = config.model_copy(update={"topology": section})
    completed = with_topology(config, resolve_options("finch", config.options), 12)
    with pytest.raises(FedloomError, match="must be given once"):
        check_clusters_used(config, completed)


def test_a_federation_relays_by_its_server():
    check_for_federation(made()[0], 2)
    check_for_federation(made("hfl", topology={"relay": "server"})[0], 2)
    with pytest.raises(FedloomError, match="got --topology clustered without --relay server"):
        check_for_federation(made("hfl")[0], 2)
    with pytest.raises(FedloomError, match="no simulated clock"):
        check_for_federation(made("hfl", {"h_max": 3.0}, topology={"relay": "server"})[0], 2)
    with pytest.raises(FedloomError, match="does not know how fast its sites are"):
        check_for_federation(made("hfl", topology={"relay": "server", "clusters": "speed"})[0], 2)
    three = made(engine={"topology": "clustered:3"}, topology={"relay": "server"})[0]
    with pytest.raises(FedloomError, match="3 clusters were asked for, and 2 clients take part"):
        check_for_federation(three, 2)
    check_for_federation(three, 3)


def test_a_comparisons_configuration_is_no_wish():
    """It is written whole, with the usual values of [topology], and each method may have others."""
    written = Experiment(method="hfl", topology=TopologyConfig(clusters="random")).model_dump(
        exclude_none=True
    )
    assert "histograms" in written["topology"]
    options = resolve_options(
        "hfl", {"histograms": "exact", "recluster": 3, "aggregator": "lowest"}
    )
    completed = with_topology(validated(Experiment, written), options, 12)
    assert completed.topology.histograms == "exact"
    assert (completed.topology.recluster, completed.topology.aggregator) == (3, "lowest")


@pytest.mark.parametrize("rule", ["random", "alike", "speed", "round"])
def test_h_max_must_bind(rule):
    with pytest.raises(
        FedloomError,
        match=f"^h_max must come with clusters by labels or by updates, but got .*{rule}",
    ):
        made("hfl", {"h_max": 9.0}, topology={"clusters": rule})
    assert made("hfl", {"h_max": 9.0})[1].h_max == 9.0
