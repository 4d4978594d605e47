"""FedorAS on a device whose owner limits it: what a client trains, and what it declines.

The owner's limit (`ClientRun.limit`) holds beside the tier's limit that an order carries; the
tighter one counts. If nothing fits, the client declines, which is not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from fedloom.federation.protocol.method import Declined
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.types import latency_in

if TYPE_CHECKING:
    from fedloom.federation.protocol.method import ClientRun
    from fedloom.searchers.paths import Path, PathCosts, SubSpace
    from fedloom.spaces.cost_table import Unit
    from fedloom.types import Meta

COUNTED: tuple[Unit, ...] = ("macs", "params")  # costs that a table has for every path


@dataclass(frozen=True)
class Allowance:
    """What the networks of an order may cost on this device."""

    limit: Mapping[str, float]
    unsupported: tuple[str, ...]

    @classmethod
    def of_order(cls, frame: Frame, meta: Meta, run: ClientRun) -> Allowance:
        limit: dict[str, float] = dict(meta["limit"])
        for unit in (*COUNTED, "latency_ms"):
            limit_of_owner = getattr(run.limit.most, unit)
            if limit_of_owner is None:
                continue
            if unit in limit:
                limit[unit] = min(limit[unit], limit_of_owner)
            elif unit in COUNTED:  # latencies are known only if the order limits them
                limit[unit] = limit_of_owner
        unsupported = set(meta["unsupported"]) | operations_without(frame, run)
        return cls(limit, tuple(sorted(unsupported)))

    def check(self, costs: PathCosts) -> None:
        """Raises Declined if no path can fit."""
        for unit, least in zip(self.limit, costs.cheapest(), strict=True):
            most = self.limit[unit]
            if least == inf:
                raise Declined("this device supports no operation of a layer that it was sent")
            if least > most:
                cheapest = f"the cheapest network that it was sent has {least:,.10g} {unit}"
                raise Declined(f"{cheapest}, and this device may spend {most:,.10g}")


def operations_without(frame: Frame, run: ClientRun) -> set[str]:
    """Returns the operations of the space that the device does not support.

    Its owner may also name operations of other spaces.
    """
    names: set[str] = set()
    for slot in frame.space.slots:
        names.update(slot.options)
    return names & run.limit.unsupported


def check_network(frame: Frame, path: Path, meta: Meta, run: ClientRun) -> None:
    """Raises Declined if a network is too expensive for the device.

    Its latency is known only if the order has the latencies of operations.
    """
    sub_space = as_sub_space(path)
    costs: dict[str, float] = {}
    for unit in COUNTED:
        costs[unit] = frame.table.of(frame.arch(sub_space), unit)
    latency = latency_in(meta)
    if latency is not None:
        costs["latency_ms"] = latency.of(path)
    for name, cost in costs.items():
        most = getattr(run.limit.most, name)
        if most is not None and cost > most:
            allowed = f"this device may spend {most:,.10g}"
            raise Declined(f"the network has {cost:,.10g} {name}, and {allowed}")
    check_operations_of(frame, sub_space, run)


def supported_paths(frame: Frame, paths: Sequence[Path], run: ClientRun) -> list[int]:
    """Returns the numbers of the paths whose operations the device all supports.

    Raises Declined if there are none.
    """
    missing = operations_without(frame, run)
    supported = []
    for number, path in enumerate(paths):
        names = {slot.options[op] for slot, op in zip(frame.space.slots, path, strict=True)}
        if not names & missing:
            supported.append(number)
    if not supported:
        listed = ", ".join(sorted(missing))
        raise Declined(f"every path has an operation that this device does not support ({listed})")
    return supported


def check_operations_of(frame: Frame, sub_space: SubSpace, run: ClientRun) -> None:
    """Raises Declined if the device does not support one of these operations."""
    missing = operations_without(frame, run)
    for slot, ops in zip(frame.space.slots, sub_space, strict=True):
        for op in ops:
            if slot.options[op] in missing:
                raise Declined(f"this device does not support {slot.options[op]}")
