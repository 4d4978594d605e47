"""What every operation of a chain adds to the latency of a path, by a profile of a device."""

from __future__ import annotations

from fedloom.cost.limits import Estimator
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.runs.profiles import find
from fedloom.searchers.paths import Path, PathCosts


def latency_costs(frame: Frame, profile: str) -> PathCosts:
    """In milliseconds. A path's sum is that of the profile for its network.

    A layer's fastest operation is free here, and its time is in the fixed part.
    """
    estimator = Estimator(frame.model(), find(profile), f"profile {profile}")

    def latency_of(path: Path) -> float:
        latency = estimator.latency_ms(frame.arch(as_sub_space(path)))
        assert latency is not None  # there is a profile
        return latency

    base: Path = (0,) * len(frame.space.slots)
    fixed = latency_of(base)
    layers = []
    for layer, slot in enumerate(frame.space.slots):
        differences = []
        for op in range(len(slot.options)):
            path = (*base[:layer], op, *base[layer + 1 :])
            differences.append(latency_of(path) - latency_of(base))
        least = min(differences)
        fixed += least
        layers.append([difference - least for difference in differences])
    return PathCosts.of_one_unit(fixed, layers)
