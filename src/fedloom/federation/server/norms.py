"""The rule that refuses replies that move the model absurdly far.

A reply can ruin a run even if it is finite: if one client sends 1e30, all clients diverge in the
next round. So the size of every update is measured on arrival (`update_sizes.py`), and written into
the journal. When all replies of a hop have arrived, one rule compares all sizes, in client order:
it refuses a client that exceeds a generous multiple of the usual size, in this hop or in earlier
rounds of the stage. The rule uses only the journal and the checkpoint, so its verdict does not
depend on the number of workers, the order of arrival, or whether the run was resumed.

Replies to different kinds of orders are judged separately, and so are the groups of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TypeAlias

from fedloom.federation.server.update_sizes import LARGEST, magnitude
from fedloom.records.rows import UpdateNorms
from fedloom.types import Order

Norms: TypeAlias = Mapping[str, float]  # by group, the root mean square of an update's elements
# By group, the usual size in each earlier round of a stage.
History: TypeAlias = Mapping[str, Sequence[float]]
ENOUGH = 3  # replies whose median counts as usual; of two, one may be absurd
REMEMBERED = 100  # rounds in a history


class UpdateBound:
    """The rule for one round, by the history of earlier rounds and the round's own hops."""

    def __init__(self, history: History, factor: float | None) -> None:
        self.history = history
        self.factor = factor  # None: no client is refused
        self.hops: list[Norms] = []  # the usual sizes in each hop
        self.updates: dict[str, UpdateNorms] = {}  # by group, for the hop with the largest update

    def refuse(self, orders: Sequence[Order], norms: Mapping[int, Norms]) -> dict[int, str]:
        """The clients of a complete hop whose updates are absurdly large, with the reasons."""
        judged = scales(norms, self.history, lambda group: size_of_sent(orders, group))
        self._note(judged)
        reasons = {}
        if self.factor is not None:
            reasons = excessive(judged, self.factor)
        accepted = [sizes for client, sizes in norms.items() if client not in reasons]
        self.hops.append(medians(accepted))
        return reasons

    def _note(self, judged: Mapping[str, Scale]) -> None:
        for group, scale in judged.items():
            before = self.updates.get(group)
            if before is None or scale.largest > before.largest:
                self.updates[group] = UpdateNorms(scale.usual, scale.largest)

    def history_after(self) -> History:
        """The history including this round."""
        return extended(self.history, medians(self.hops))


@dataclass(frozen=True)
class Scale:
    """How large the updates of one group were in one hop, and which size is usual."""

    sizes: Mapping[int, float]  # by client
    usual: float

    @property
    def largest(self) -> float:
        """The largest update, in multiples of the usual size."""
        return min(max(self.sizes.values()) / self.usual, LARGEST)


def scales(
    norms: Mapping[int, Norms],
    history: History,
    size_of_sent: Callable[[str], float],
) -> dict[str, Scale]:
    """The scales of those groups of a hop that can be judged. `norms` are by client.

    The usual size is the larger of the hop's median and the median of earlier rounds. Where updates
    are usually zero (frozen statistics), the size of the tensors that were sent takes its place. A
    group with too few replies and no history cannot be judged.
    """
    judged: dict[str, Scale] = {}
    groups = sorted(set().union(*norms.values()))
    for group in groups:
        sizes = sizes_in(norms, group)
        references = []
        if history.get(group):
            references.append(median_low(history[group]))
        if len(sizes) >= ENOUGH:
            references.append(median_low(sizes.values()))
        if references:
            judged[group] = Scale(sizes, max(references) or size_of_sent(group) or 1.0)
    return judged


def sizes_in(norms: Mapping[int, Norms], group: str) -> dict[int, float]:
    """How large the updates of one group were, by client, in client order."""
    sizes = {}
    for client in sorted(norms):
        if group in norms[client]:
            sizes[client] = norms[client][group]
    return sizes


def excessive(judged: Mapping[str, Scale], factor: float) -> dict[int, str]:
    """The clients whose updates are absurdly large, each with the reason for its refusal."""
    reasons: dict[int, str] = {}
    for group, scale in judged.items():
        for client, size in scale.sizes.items():
            if size > factor * scale.usual:
                reasons.setdefault(client, reason(group, size, scale.usual, factor))
    return reasons


def reason(group: str, size: float, usual: float, factor: float) -> str:
    measured = f"its update of {group} is {size:.3g} per element"
    return f"{measured}, usual is {usual:.3g} (--norm-bound {factor:g})"


def medians(norms: Sequence[Norms]) -> dict[str, float]:
    """By group, the median size of these updates."""
    by_group: dict[str, list[float]] = {}
    for sizes in norms:
        for group, size in sizes.items():
            by_group.setdefault(group, []).append(size)
    return {group: median_low(by_group[group]) for group in sorted(by_group)}


def extended(history: History, usual: Norms) -> dict[str, list[float]]:
    """The history after one more round, in which these sizes were usual."""
    longer = {group: list(values) for group, values in history.items()}
    for group, value in usual.items():
        longer[group] = [*longer.get(group, []), value][-REMEMBERED:]
    return longer


def size_of_sent(orders: Sequence[Order], group: str) -> float:
    """The size of a group's tensors in the first order of its kind.

    `group` is the kind of order and the group's own name, separated by a space.
    """
    kind, _, name = group.rpartition(" ")
    for order in orders:
        if order.kind == kind:
            return magnitude(order.tensors, name)
    return 0.0
