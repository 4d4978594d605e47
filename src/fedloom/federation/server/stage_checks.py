"""What must hold for the stages of a method before they run, and for each of their rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.admission import check_fields
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.topology import Topology
from fedloom.records.rows import MetricsRow
from fedloom.types import Json, State


def check_stages(settings: Settings, stages: Sequence[Stage], topology: Topology) -> None:
    """Raise an error if these stages cannot run, before anything is created or trained."""
    least = sum(stage.share is not None for stage in stages)
    if settings.unit == "rounds" and settings.rounds < least:
        rule = f"--rounds must be at least {least} for a method of {least} stages"
        raise FedloomError(rule, f"got {settings.rounds}", "ask for more rounds")
    check_leaves(stages)
    if isinstance(topology, Clustered):
        if settings.overselect != 1:
            raise FedloomError(
                "--overselect must be left out in a clustered topology",
                f"got {settings.overselect:g}, and the clients of a cluster stay together",
                "leave it out, or use --topology flat",
            )
        clock = RoundClock(settings.devices, settings.phases)
        topology.check_clients(settings.active, clock)
    rounds_left = float(settings.rounds)
    shares = [stage.share for stage in stages]
    for number, stage in enumerate(stages):
        if not stage.is_flat:
            topology.check(stage.method)
        check_fields(stage.method)
        rounds = None
        if settings.unit == "rounds":
            rounds = settings.stage_budget(shares, number, rounds_left)
            rounds_left -= rounds
        if stage.share is None:  # it is open-ended
            rounds = None
        stage.method.check_rounds(rounds)


def check_leaves(stages: Sequence[Stage]) -> None:
    """Raise an error unless the state that each stage leaves can have a file of its own."""
    used_names = ["init"]  # --init stores the weights that a run begins with under this name
    for stage in stages:
        if stage.leaves is None:
            continue
        if stage.leaves in used_names or not stage.leaves.isidentifier():
            raise FedloomError(
                "the state that a stage leaves must have a unique name of letters, digits and _",
                f"stage {stage.name} leaves {stage.leaves!r}",
                "fix the method",
            )
        used_names.append(stage.leaves)


def check_change(before: State, after: State) -> None:
    """Raise an error if a round that asked no client left the state unchanged.

    Such a round costs nothing, so it would be planned again and again without end.
    """
    if before.meta != after.meta or before.tensors.keys() != after.tensors.keys():
        return
    for name, tensor in after.tensors.items():
        old = before.tensors[name]
        if tensor is not old and not torch.equal(tensor, old):
            return
    raise FedloomError(
        "a round that asks no client must change the server's state",
        "it has no orders and left the state as it was",
        "fix the method: its plan must ask clients, change the state, or return None",
    )


def check_notes(notes: Mapping[str, Json]) -> None:
    """Raise an error if a method's note uses a name that every row of metrics.jsonl has."""
    clashes = sorted(MetricsRow.OWN & notes.keys())
    if clashes:
        raise FedloomError(
            "a method's note must not use the names of a row of metrics.jsonl",
            f"it has {clashes[0]!r}",
            "fix the method",
        )
