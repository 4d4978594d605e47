"""FINCH: which sub-space each cluster searches in a round (Algorithm 3), and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.federation.protocol.method import shared
from fedloom.federation.protocol.packing import bytes_in_message
from fedloom.methods.finch_options import FinchOptions
from fedloom.records.rows import ClusterNote
from fedloom.searchers.allocation import ResourceCost, allotted, worths_of
from fedloom.searchers.subspaces import MacsTable, draw_subspace, macs_table
from fedloom.stages.group_pretraining import MixtureStage
from fedloom.types import Arch, Round, State, Together

# Keys in a state's meta.
ALLOTTED = "allotted"  # every cluster's note, by its number
DRAWN = "drawn"  # the round in which the clusters' sub-spaces were drawn


@dataclass(frozen=True)
class SubSpaceStage(MixtureStage):
    """A stage whose clusters work in sub-spaces of the supernet."""

    options: FinchOptions

    @property
    def table(self) -> MacsTable:
        size = self.options.searched_size
        return macs_table(self.options.group_space, self.task.shape, len(self.task.labels), size)

    @property
    def flops_max(self) -> int | None:
        if self.options.flops_max is None:
            return None
        return int(self.options.flops_max)

    @property
    def most_macs(self) -> int:
        """FLOPS_max, or the MACs of the whole supernet if there is no limit."""
        return self.flops_max or self.table.everything()

    def allot(
        self,
        state: State,
        clusters: Sequence[Together],
        clients: Sequence[int],
        r: Round,
    ) -> State:
        """Returns the state with a sub-space for every cluster, by Algorithm 3."""
        drawn = state.meta[DRAWN]
        if self._are_kept(state, clusters, r):
            notes = notes_in(state).values()
            archs = [Arch.from_plain(note.space) for note in notes]
            accuracies = [note.c for note in notes]
        else:
            drawn = r.number
            archs = self._drawn(len(clusters), r)
            accuracies = self._new_accuracies(state, archs, clients, r)
        costs = self._costs(state, archs, clusters, r)
        worths = worths_of(accuracies, costs)
        places = self._places(clusters, worths, r)
        new_notes = {}
        for cluster, place in zip(clusters, places, strict=True):
            space = archs[place].to_plain()
            note = ClusterNote(space, accuracies[place], costs[place], worths[place])
            new_notes[str(cluster.number)] = vars(note)
        return State(state.tensors, {**state.meta, ALLOTTED: new_notes, DRAWN: drawn})

    def _are_kept(self, state: State, clusters: Sequence[Together], r: Round) -> bool:
        """Whether the sub-spaces stay, because they are young and the clusters are the same."""
        numbers = {cluster.number for cluster in clusters}
        is_young = r.number < state.meta[DRAWN] + self.options.resample
        return is_young and numbers == set(notes_in(state))

    def _drawn(self, count: int, r: Round) -> list[Arch]:
        """Draws a sub-space for each cluster, or one for all (Algorithm 1, line 8)."""
        draws = r.rng("sub-spaces")
        different = count
        if self.options.spaces == "same":
            different = 1
        archs = []
        for _ in range(different):
            archs.append(
                draw_subspace(
                    self.options.group_space,
                    self.table,
                    self.options.ops_per_edge,
                    self.flops_max,
                    draws,
                )
            )
        return archs * (count // different)

    def _new_accuracies(
        self,
        state: State,
        archs: Sequence[Arch],
        clients: Sequence[int],
        r: Round,
    ) -> list[float | None]:
        """Returns c of new sub-spaces.

        It is None in the first round, and if the allocation does not depend on it.
        """
        is_first = not state.meta[ALLOTTED]
        if is_first or len(set(archs)) == 1 or self.options.allocation == "random":
            return [None] * len(archs)
        parts = [self.part(state.tensors, arch) for arch in archs]
        return self.accuracies(parts, archs, clients, r)

    def _costs(
        self,
        state: State,
        archs: Sequence[Arch],
        clusters: Sequence[Together],
        r: Round,
    ) -> list[float]:
        """Returns R of every sub-space (Eq. 12)."""
        bandwidth = bandwidth_of_transfer(clusters, r)
        if bandwidth is None:
            bandwidth = bytes_in_message(shared(state))
        cost = ResourceCost(bandwidth, self.most_macs, self.options.weigh)
        costs = []
        for arch in archs:
            size = bytes_in_message(self.part(state.tensors, arch))
            costs.append(cost.of(size, self.table.of(arch)))
        return costs

    def _places(
        self,
        clusters: Sequence[Together],
        worths: Sequence[float],
        r: Round,
    ) -> list[int]:
        """Returns the place of every cluster's sub-space.

        If the clients' labels are unknown, all clusters count as being on the same level.
        """
        if self.options.allocation == "random":
            return [int(place) for place in r.rng("allocation").permutation(len(worths))]
        if self.options.allocation == "reverse":
            worths = [-worth for worth in worths]
        return allotted([cluster.level or 0.0 for cluster in clusters], worths)


def notes_in(state: State) -> dict[int, ClusterNote]:
    """Returns the notes about the clusters' sub-spaces, by the number of the cluster."""
    notes = {}
    for number, note in state.meta[ALLOTTED].items():
        notes[int(number)] = ClusterNote(**note)
    return notes


def bandwidth_of_transfer(clusters: Sequence[Together], r: Round) -> float | None:
    """Returns B, the bytes that the budget allows for one transfer of a round.

    It is None if there is no budget of bytes. In a round, each cluster has two transfers over the
    WAN, and in each hop every member but the aggregator has two over the LAN.
    """
    members = sum(len(cluster.members) for cluster in clusters)
    over_wan = 2 * len(clusters)
    inside = 2 * r.hops * (members - len(clusters))
    if "wan" in r.allowance:
        return r.allowance["wan"] / over_wan
    if "bytes" in r.allowance:
        return r.allowance["bytes"] / (over_wan + inside)
    return None
