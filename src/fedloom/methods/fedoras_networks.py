"""FedorAS, stage 3: the networks that are trained, as the server's state holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedloom.records.sections import other_model, tuned_model
from fedloom.searchers.paths import Path
from fedloom.types import Json, Meta, State


@dataclass(frozen=True)
class Network:
    """A path of a tier: its own, or one that is trained beside it (`tune_top`)."""

    tier: int
    place: int  # 1: the tier's own; from 2 on the others, ranked by their scores
    path: Path
    rounds: int = 0  # how many rounds it was trained for

    @property
    def name(self) -> str:
        """Its name among the models that every client evaluates."""
        if self.place == 1:
            return tuned_model(self.tier)
        return other_model(self.tier, self.place)

    @property
    def prefix(self) -> str:
        """The prefix of its tensors' names in the state."""
        return f"{self.name}/"

    def to_plain(self) -> Json:
        return {
            "tier": self.tier,
            "place": self.place,
            "path": list(self.path),
            "rounds": self.rounds,
        }

    @classmethod
    def from_plain(cls, raw: Meta) -> Network:
        return cls(raw["tier"], raw["place"], tuple(raw["path"]), raw["rounds"])


def networks_in(state: State) -> list[Network]:
    """Returns the networks in the order of their turns: every tier's own first."""
    networks = []
    rounds = state.meta["tuned"]
    for number, path in enumerate(state.meta["paths"]):
        networks.append(Network(number + 1, 1, tuple(path), rounds[number]))
    for raw in state.meta["others"]:
        networks.append(Network.from_plain(raw))
    return networks


def with_round(state: State, network: Network) -> State:
    """Returns the state with one more round of this network."""
    if network.place == 1:
        tuned = list(state.meta["tuned"])
        tuned[network.tier - 1] += 1
        return State(state.tensors, {**state.meta, "tuned": tuned})
    others = []
    for raw in state.meta["others"]:
        other = Network.from_plain(raw)
        if other.name == network.name:
            other = replace(other, rounds=other.rounds + 1)
        others.append(other.to_plain())
    return State(state.tensors, {**state.meta, "others": others})
