"""The registry of networks: by name, from a genotype's file, or from a search space.

`path/file.json` and `cells:FILE` are architectures that a search found. `space:NAME` is a network
of a space that is drawn from the run's seed; `network_for` draws it.

A network is a callable (sample's shape, classes, width) → nn.Module. It is for images and speech,
unless its attribute `kinds` names other kinds of data. A search space declares which networks of
its operations can be trained by name, such as `supernet:OPS:NODES:CELLS`.
"""

from typing import Any

from fedloom.registry import SPACE, Registry, is_file
from fedloom.spaces import SPACES, open_family

FIXED = {
    "alexnet": "fedloom.nets.alexnet:AlexNet",
    "cnn": "fedloom.nets.cnn:SmallCNN",
    "densenet": "fedloom.nets.densenet:DenseNet",
    "lstm": "fedloom.nets.lstm:CharLSTM",
    "mlp": "fedloom.nets.mlp:MLP",
    "resnet18": "fedloom.nets.resnet:ResNet18",
    "vgg16": "fedloom.nets.vgg:VGG16",
}
# By prefix, the function that returns a network for the rest of a name.
FAMILIES = {
    "cells": "fedloom.spaces.genotype:named_file",
    "space": "fedloom.spaces.drawn:of_space",
}
# The default network for each kind of data; for all other kinds, it is the cnn.
DEFAULTS = {"text": "lstm", "table": "mlp", "regression": "mlp"}


class NetworkRegistry(Registry):
    """Fixed networks, and the networks that built-in search spaces declare.

    Spaces are opened only for a name that is not a fixed network's: a worker that trains a fixed
    network does not wait for code that searches and draws. An installed space registers its
    networks by entry points.
    """

    def __init__(self) -> None:
        super().__init__(
            "network", "fedloom.networks", FIXED, reader="fedloom.spaces.genotype:read"
        )
        self.spaces_were_asked = False

    def get(self, name: str) -> Any:
        if name in FIXED:
            return super().get(name)
        family, colon, argument = name.partition(":")
        if colon and family in FAMILIES:  # the argument may look like a file's name
            return self._attribute(FAMILIES[family])(argument)
        self._ask_spaces()
        return super().get(name)

    def names(self) -> list[str]:
        self._ask_spaces()
        return super().names()

    def is_built_in(self, name: str) -> bool:
        """Whether a network is built in, fixed or from a space, and not in a file."""
        if name in FIXED:
            return True
        if is_file(name):
            return False
        if name.startswith(SPACE):
            return bool(self.get(name).is_built_in)
        self._ask_spaces()
        family, _, _ = name.partition(":")
        return name in self.builtin or family in self.families

    def _ask_spaces(self) -> None:
        if self.spaces_were_asked:
            return
        networks = dict(FIXED)
        sized_networks: dict[str, str] = {}
        for name in SPACES.builtin:
            space = open_family(name)
            networks.update(space.networks)
            sized_networks.update(space.sized_networks)
        self.builtin = networks
        self.families = sized_networks
        self.spaces_were_asked = True


NETWORKS = NetworkRegistry()


def network_for(name: str, seed: int) -> Any:
    """Returns the network of this name; `space:NAME` is drawn from the seed."""
    network = NETWORKS.get(name)
    if hasattr(network, "for_seed"):
        return network.for_seed(seed)
    return network


def default_network(kind: str) -> str:
    return DEFAULTS.get(kind, "cnn")
