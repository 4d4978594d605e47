"""`space:NAME`: one network of a search space, drawn at random from a run's seed.

It is the control that a search has to beat: the same space, without a search. The draw depends only
on the seed and the space's name, so the network has the same operations at every width.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.config.models import validated
from fedloom.errors import FedloomError
from fedloom.options import Options
from fedloom.rng import rng
from fedloom.spaces import (
    DEFAULT,
    configured_space,
    full_name,
    is_foreign,
    open_family,
    open_space,
    split_name,
)
from fedloom.spaces.asking import asked
from fedloom.spaces.genotype import FixedArchitecture, GenotypeFile
from fedloom.spaces.layout import Graph
from fedloom.spaces.space import Space
from fedloom.types import Arch

MOST_DRAWS = 1000  # attempts to draw a network whose output depends on its input


@dataclass(frozen=True)
class DrawnArchitecture:
    """A network whose operations are drawn when the seed is known (`for_seed`)."""

    space: Space

    @property
    def takes_head(self) -> bool:
        return self.space.takes_head

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.space.kinds

    @property
    def refillable(self) -> bool:
        return self.space.refillable

    @property
    def is_built_in(self) -> bool:
        return not is_foreign(self.space.name)

    def for_seed(self, seed: int) -> FixedArchitecture:
        family = self.space.family
        draws = rng(seed, "network of a space", self.space.name)
        for _ in range(MOST_DRAWS):
            arch = asked(family, "draw an architecture", lambda: self.space.sample(draws))
            if is_connected(self.space, arch):
                return FixedArchitecture(arch, GenotypeFile())
        raise FedloomError(
            f"a network of the space {self.space.title} must lead from its input to its output",
            f"none of {MOST_DRAWS} draws does",
            "choose another space",
        )


def of_space(name: str) -> DrawnArchitecture:
    """Returns the network that `space:NAME` stands for. NAME may have parameters or be a file."""
    if not name:
        raise FedloomError(
            "a network of a space must name it", "got space:", f"try space:{DEFAULT}"
        )
    full = full_name(name)
    family, parameters = split_name(full)
    space_class = open_family(family)
    if parameters:
        return DrawnArchitecture(open_space(full))
    defaults = validated(space_class.schema, {}, prefix=f"{family} ")
    assert isinstance(defaults, Options)
    return DrawnArchitecture(configured_space(space_class, defaults))


def is_connected(space: Space, arch: Arch) -> bool:
    """Whether each cell's output depends on its inputs: `none` on all paths makes it constant.

    An architecture of a space without a drawing cannot be checked, and counts as connected.
    """
    graphs = asked(space.family, "draw a picture", lambda: space.graphs(arch))
    return all(leads_through(graph) for graph in graphs or [])


def leads_through(graph: Graph) -> bool:
    reached = set(range(graph.inputs))
    for state in range(graph.inputs, len(graph.names)):
        if any(link.source in reached for link in graph.into(state)):
            reached.add(state)
    if graph.gathered:
        return bool(reached & set(graph.gathered))
    return len(graph.names) - 1 in reached
