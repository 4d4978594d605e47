"""Networks by name, by a genotype's .json file, or one of a search space in any size.

One is a callable (sample's shape, classes, width) → nn.Module. It is for images and speech, unless
its attribute `kinds` names the kinds of data that it is for. A search space says itself which
networks of its operations can be trained as they are: `supernet:OPS:NODES:CELLS`.
"""

from typing import Any

from fedloom.registry import Registry
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
# The network of a kind of data, if nobody names one; of the others the cnn.
DEFAULTS = {"text": "lstm", "table": "mlp", "regression": "mlp"}


class NetworkRegistry(Registry):
    """Fixed networks, and those that our search spaces name.

    A space is opened when a name is not that of a fixed network: a worker that trains one does not
    wait for code that searches and draws. An installed space names its networks by entry points.
    """

    def __init__(self) -> None:
        super().__init__(
            "network", "fedloom.networks", FIXED, reader="fedloom.spaces.genotype:read"
        )
        self.spaces_were_asked = False

    def get(self, name: str) -> Any:
        if name not in FIXED:
            self._ask_spaces()
        return super().get(name)

    def names(self) -> list[str]:
        self._ask_spaces()
        return super().names()

    def is_built_in(self, name: str) -> bool:
        """Whether it is ours, fixed or of a space, and in no file."""
        if name in FIXED:
            return True
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


def default_network(kind: str) -> str:
    return DEFAULTS.get(kind, "cnn")
