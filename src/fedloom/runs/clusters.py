"""The clusters of a run, as flags, the section [topology] and its method ask for them.

Files of clusters are read here, and contradictions are refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedloom.config.histograms import NONE
from fedloom.config.models import Experiment
from fedloom.config.topology import BY_LABELS, TopologyConfig, is_cluster_file
from fedloom.errors import FedloomError
from fedloom.federation.protocol.cluster_files import check_assigned, read_clusters
from fedloom.federation.protocol.clustering import size_for
from fedloom.federation.protocol.method import Hierarchy
from fedloom.federation.server.cluster_round import Heartbeats
from fedloom.federation.server.clustered import ROUND, UPDATES, Clustered, parse_topology
from fedloom.federation.server.topology import Flat, Topology
from fedloom.methods import recipe
from fedloom.types import Meta, Task

FLAT = "flat"
CLUSTERED = "clustered"
BY_SPEED = "speed"
USE_CLOCK = ("labels", UPDATES)  # rules that add clients one by one, and so can obey h_max
FOR_FLAT_RUNS = ("phases",)  # options of section [topology] that flat runs use too
FLAGS = ("clusters", "relay")  # options of that section that have a flag


def hierarchy_of(method: str, options: Meta) -> Hierarchy | None:
    """The hierarchy that a method with these options asks for; None if it asks for none."""
    hierarchy = recipe(method).hierarchy
    if hierarchy is None:
        return None
    return hierarchy(options)


def with_topology(config: Experiment, options: Meta, population: int) -> Experiment:
    """The configuration with its complete topology, so that a resumed run has the same.

    `options` are all options of the method.
    """
    hierarchy = hierarchy_of(config.method, options)
    shape = config.engine.topology
    if shape is None:
        shape = FLAT
        if hierarchy is not None:
            shape = CLUSTERED
    topology = parse_topology(shape)
    check_shape(config.method, hierarchy, topology)
    section = config.topology
    if isinstance(topology, Flat):
        section = TopologyConfig(phases=section.phases)
    else:
        if hierarchy is not None:
            section = with_method_settings(section, hierarchy)
        section = with_clusters_read(section, population)
        check_one_size(topology, section)
        check_h_max_binds(section)
    engine = config.engine.model_copy(update={"topology": shape})
    return config.model_copy(update={"engine": engine, "topology": section})


def check_shape(method: str, hierarchy: Hierarchy | None, topology: Topology) -> None:
    """Refuse a topology that contradicts the method's option for clusters."""
    says_flat = hierarchy is None and recipe(method).hierarchy is not None
    says_clusters = hierarchy is not None and hierarchy.is_chosen
    is_flat = isinstance(topology, Flat)
    if (says_flat and not is_flat) or (says_clusters and is_flat):
        contradiction = "clustered, and the method's option says that there are no clusters"
        if is_flat:
            contradiction = "flat, and the method's option says that there are clusters"
        raise FedloomError(
            "--topology must be what the method's option clustering says",
            f"it is {contradiction}",
            "leave one of them out",
        )


def with_method_settings(section: TopologyConfig, hierarchy: Hierarchy) -> TopologyConfig:
    """The section with what the method's options say, which it must not contradict."""
    changes: dict[str, Any] = {}
    if section.clusters is None:
        changes["clusters"] = hierarchy.clusters
    elif hierarchy.is_chosen and section.clusters != hierarchy.clusters:
        raise given_twice(section.clusters, hierarchy)
    elif section.clusters in hierarchy.by_option and section.clusters != hierarchy.clusters:
        raise FedloomError(
            f"clusters by {section.clusters} must be asked for by the method's option clustering",
            f"got --clusters {section.clusters}",
            f"use --clustering {section.clusters} instead",
        )
    for name, value in hierarchy.settings.items():
        if value is None:
            continue
        given = getattr(section, name)
        default = TopologyConfig.model_fields[name].default
        # A comparison's configuration has every field, so a default need not be the user's wish.
        if given not in (None, default, value):
            raise FedloomError(
                f"topology.{name} must be what the method's option {name} says",
                f"got {given}, and the option says {value}",
                f"leave it out, and use --{name.replace('_', '-')}",
            )
        changes[name] = value
    return section.model_copy(update=changes)


def given_twice(clusters: str, hierarchy: Hierarchy) -> FedloomError:
    return FedloomError(
        "the rule of clusters must be given once",
        f"got --clusters {clusters}, and the method's option clustering says {hierarchy.clusters}",
        "leave one of them out",
    )


def check_h_max_binds(section: TopologyConfig) -> None:
    """Refuse h_max with rules that form clusters without looking at the clock."""
    rule = section.clusters or ROUND
    if section.h_max is None or rule in USE_CLOCK:
        return
    raise FedloomError(
        f"h_max must come with clusters by {' or by '.join(USE_CLOCK)}",
        f"got clusters by {rule}, which do not depend on how long a round takes",
        "leave h_max out, or form clusters by labels",
    )


def check_one_size(topology: Topology, section: TopologyConfig) -> None:
    """Refuse both a number of clusters and their size: one follows from the other."""
    if not isinstance(topology, Clustered) or topology.groups is None:
        return
    if section.cluster_size is not None:
        raise FedloomError(
            "a cluster's size must be given once",
            f"--topology asks for {topology.groups} clusters, and cluster_size for "
            f"{section.cluster_size} clients in each",
            "use --topology clustered, or leave cluster_size out",
        )


def check_for_federation(config: Experiment, active: int) -> None:
    """Refuse clusters that a real federation cannot have.

    No site may see another site's update, so the server must do the aggregators' work. `active` is
    the number of sites that take part in a round.
    """
    topology = parse_topology(config.engine.topology or FLAT)
    if not isinstance(topology, Clustered):
        return
    if topology.groups is not None:
        size_for(topology.groups, active)
    if config.topology.relay != "server":
        raise FedloomError(
            "a federation's clusters must be relayed by its server",
            f"got --topology {config.engine.topology} without --relay server",
            "add it, use --topology flat, or simulate the clients (docs/hierarchy.md)",
        )
    if config.topology.h_max is not None:
        rule = "topology.h_max must be left out in a federation"
        raise FedloomError(rule, "its sites' devices have no simulated clock", "leave it out")
    if config.topology.clusters == BY_SPEED:
        rule = "--clusters must not be speed in a federation"
        advice = "use another rule, or a file of clusters"
        raise FedloomError(rule, "its server does not know how fast its sites are", advice)


def check_clusters_used(given: Experiment, config: Experiment) -> None:
    """Refuse options of clusters for a flat run, and clusters that are given twice.

    `given` is the user's configuration, `config` the completed one.
    """
    if config.engine.topology != FLAT:
        check_given_once(given, config)
        return
    defaults = TopologyConfig()
    for name in TopologyConfig.model_fields:
        if name in FOR_FLAT_RUNS or getattr(given.topology, name) == getattr(defaults, name):
            continue
        setting = f"topology.{name}"
        if name in FLAGS:
            setting = f"--{name}"
        raise FedloomError(
            f"{setting} must come with a clustered topology",
            "this one is flat",
            f"add --topology clustered, or leave {setting} out",
        )


def check_given_once(given: Experiment, config: Experiment) -> None:
    """The rule of clusters must come from the flag or from the method's option, not from both."""
    clusters = given.topology.clusters
    if clusters is None:
        return
    hierarchy = hierarchy_of(config.method, config.options)
    if hierarchy is not None and hierarchy.is_chosen:
        raise given_twice(clusters, hierarchy)


def topology_of(config: Experiment, task: Task) -> Topology:
    """The topology of a configuration that `with_topology` completed."""
    topology = parse_topology(config.engine.topology or FLAT)
    if not isinstance(topology, Clustered):
        return topology
    section = config.topology
    hierarchy = hierarchy_of(task.method, task.options)
    hops = topology.hops
    if hierarchy is not None and topology.groups is None:
        hops = hierarchy.lambda2
    assigned = tuple(tuple(members) for members in section.assigned or ())
    return replace(
        topology,
        hops=hops,
        size=section.cluster_size,
        rule=section.clusters or ROUND,
        recluster=section.recluster,
        aggregator=section.aggregator,
        heartbeats=Heartbeats(section.heartbeat, section.misses),
        relayed=section.relay == "server",
        assigned=assigned,
        h_max=section.h_max,
    )


def with_clusters_read(config: TopologyConfig, population: int) -> TopologyConfig:
    """The section with the clusters of its file, which a resumed run does not need then."""
    check_histograms(config)
    if config.clusters is None or not is_cluster_file(config.clusters):
        return config
    if config.assigned is not None:
        check_assigned(config.assigned, population, config.clusters)
        return config
    clusters = read_clusters(Path(config.clusters), population)
    assigned = [list(members) for members in clusters]
    return config.model_copy(update={"assigned": assigned})


def check_histograms(config: TopologyConfig) -> None:
    """Refuse clusters by labels if clients do not report their label counts."""
    if config.clusters in BY_LABELS and config.histograms == NONE:
        raise FedloomError(
            f"topology.histograms must be exact or laplace:E for --clusters {config.clusters}",
            "got none",
            "let clients report them, or try --clusters updates",
        )
