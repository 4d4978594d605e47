"""The expected work of clients in a hop, for clusters that must not be slower than H^max."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.topology import Topology
from fedloom.runs.clusters import topology_of
from fedloom.runs.preparing import Prepared
from fedloom.runs.rehearsal import Rehearsal
from fedloom.threads import one_thread


def loop_topology(prepared: Prepared) -> Topology:
    """A run's topology, with everything that it must know before the first round.

    Work is estimated as `--dry-run` does it: one client carries out its order on a few samples.
    """
    topology = topology_of(prepared.config, prepared.task)
    if not isinstance(topology, Clustered) or topology.h_max is None:
        return topology
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        works = Rehearsal(prepared, Path(scratch)).works_of_a_hop()
    return replace(topology, expected={work.client: work for work in works})
