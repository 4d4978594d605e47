"""The latency of every operation of a chain on a device, in milliseconds that add up.

They are computed from the device's profile. An operation is charged with the pieces of its path
that are not shared by all operations of its layer; all other pieces form the fixed part. So the
latencies of a path's operations and the fixed part sum to the latency of all its pieces.
"""

from __future__ import annotations

from collections import Counter

from fedloom.cost.profile import Profile
from fedloom.cost.steps import Piece, Steps
from fedloom.nets.model import Model
from fedloom.types import Arch, UnitCosts


def operation_latencies(model: Model, profile: Profile, name: str = "the profile") -> UnitCosts:
    """The latencies by layer and operation.

    A piece that the profile does not have is an error, which names the piece.
    """
    steps = Steps(model)
    slots = steps.net.space.slots
    first = [0] * len(slots)  # the path to start from: the first operation of every layer
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
