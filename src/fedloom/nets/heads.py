"""How a network that ends in a map of features makes a vector of it for its classifier.

`mean` is the mean over the whole map. `grid` is the mean over each quarter of it, side by side: the
classifier still sees where something is. Comparing networks with different heads compares the
heads, so every network that ends in a map takes the same ones, and has the same by default.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

from fedloom.errors import FedloomError

Head: TypeAlias = Literal["mean", "grid"]
HeadChoice: TypeAlias = Literal["auto", "mean", "grid", "old"]
# `auto` is the default; `old` is what a network had before there was a choice

# Chosen on validation data: docs/results/heads.md. Runs keep `auto` in their configuration, so
# another default would need another name for this one.
DEFAULT: Head = "grid"
SIDE = 2  # of the grid

Network = TypeVar("Network")


def ends_in_map(network: Network) -> Network:
    """Marks a network's class or function: it takes `head`.

    Its networks say in `head` which one they have.
    """
    setattr(network, "takes_head", True)  # noqa: B010 - of any callable
    return network


def takes_head(network: object) -> bool:
    """Whether this class or function was marked so."""
    return bool(getattr(network, "takes_head", False))


def head_of_network(net: object) -> Head | None:
    """Which head a network says that it has.

    None: it says nothing. In a network from outside `head` may be anything, such as a layer.
    """
    head = getattr(net, "head", None)
    if head == "mean":
        return "mean"
    if head == "grid":
        return "grid"
    return None


def settled(choice: HeadChoice, height: int, width: int, *, old: Head = "mean") -> Head:
    """The head for a map of this size. Where there is no room for a grid it is `mean`."""
    if choice == "old":
        return old
    if choice == "mean" or min(height, width) < SIDE:
        return "mean"
    return DEFAULT if choice == "auto" else choice


def vector_length(head: Head, channels: int) -> int:
    """What a map of so many channels becomes."""
    if head == "grid":
        return SIDE * SIDE * channels
    return channels


def check_taken(name: str, network: object, choice: HeadChoice) -> None:
    """Refuses a head for a network that has no map to put it on."""
    if choice in ("auto", "old") or takes_head(network):
        return
    raise FedloomError(
        f"network {name} must end in a map of features to have head={choice}",
        "it does not, or does not say so",
        "leave head out, or choose a network that does, such as cnn or resnet18",
    )
