"""What every operation of a chain takes on a device, from its profile: milliseconds that add up.

An operation has the pieces that a path with it has and that no other operation of its layer would
share; all else is the fixed part. So a path's sum is that of its pieces.
"""

from __future__ import annotations

from collections import Counter

from fedloom.cost.profile import Profile
from fedloom.cost.steps import Piece, Steps
from fedloom.nets.model import Model
from fedloom.types import Arch, UnitCosts


def operation_latencies(model: Model, profile: Profile, name: str = "the profile") -> UnitCosts:
    """By layer and operation; a piece that the profile does not have is named."""
    steps = Steps(model)
    slots = steps.net.space.slots
    first = [0] * len(slots)  # a path to go out from: the first operation of every layer
    fixed = pieces_of(steps, first)
    rows = []
    for layer, slot in enumerate(slots):
        with_op = []
        for op in range(len(slot.options)):
            path = list(first)
            path[layer] = op
            with_op.append(pieces_of(steps, path))
        shared = with_op[0]
        for pieces in with_op[1:]:
            shared = shared & pieces
        rows.append(tuple(profile.latency_ms(pieces - shared, name) for pieces in with_op))
        fixed = fixed - (with_op[0] - shared)
    return UnitCosts(profile.latency_ms(fixed, name), tuple(rows))


def pieces_of(steps: Steps, path: list[int]) -> Counter[Piece]:
    arch = Arch(steps.net.space.name, tuple((op,) for op in path))
    return steps.of(arch)
