"""Heads: how a network that ends in a feature map turns it into a vector for its classifier.

`mean` is the mean over the whole map. `grid` is the mean over each quarter of it, concatenated: the
classifier still sees where something is. Comparing networks with different heads compares the
heads, so every network that ends in a map supports the same heads, and has the same default.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

from fedloom.errors import FedloomError

Head: TypeAlias = Literal["mean", "grid"]
# `auto` is the default; `old` is the head that a network had before there was a choice.
HeadChoice: TypeAlias = Literal["auto", "mean", "grid", "old"]

# Chosen on validation data: docs/results/heads.md. Runs store `auto` in their configuration, so
# another default would need another name than `auto`.
DEFAULT: Head = "grid"
SIDE = 2  # cells per side of the grid

Network = TypeVar("Network")


def ends_in_map(network: Network) -> Network:
    """Marks a network's class or function as one that takes the argument `head`.

    Its networks store their head in the attribute `head`.
    """
    setattr(network, "takes_head", True)  # noqa: B010 - on any callable
    return network


def takes_head(network: object) -> bool:
    """Whether this class or function is marked with `ends_in_map`."""
    return bool(getattr(network, "takes_head", False))


def head_of_network(net: object) -> Head | None:
    """Returns the head in a network's attribute `head`; None: it has no such head.

    In a network that is not ours, `head` may be anything, such as a layer.
    """
    head = getattr(net, "head", None)
    if head == "mean":
        return "mean"
    if head == "grid":
        return "grid"
    return None


def settled(choice: HeadChoice, height: int, width: int, *, old: Head = "mean") -> Head:
    """Returns the head for a map of this size; `mean` if the map is too small for a grid."""
    if choice == "old":
        return old
    if choice == "mean" or min(height, width) < SIDE:
        return "mean"
    if choice == "auto":
        return DEFAULT
    return choice


def vector_length(head: Head, channels: int) -> int:
    """Returns the length of the vector that a head makes from a map with this many channels."""
    if head == "grid":
        return SIDE * SIDE * channels
    return channels


def check_taken(name: str, network: object, choice: HeadChoice) -> None:
    """Refuses a head for a network that does not end in a map."""
    if choice in ("auto", "old") or takes_head(network):
        return
    raise FedloomError(
        f"network {name} must end in a feature map to have head={choice}",
        "it does not, or does not say so",
        "leave head out, or choose a network that does, such as cnn or resnet18",
    )
