"""Networks by name, by a genotype's .json file, or a supernet of any size:
`supernet:OPS:NODES:CELLS`.

One is a callable (sample's shape, classes, width) → nn.Module. It is for images and speech, unless
its attribute `kinds` names the kinds of data that it is for.
"""

from fedloom.registry import Registry

NETWORKS = Registry(
    "network",
    "fedloom.networks",
    {
        "alexnet": "fedloom.nets.alexnet:AlexNet",
        "cnn": "fedloom.nets.cnn:SmallCNN",
        "darts-v2": "fedloom.spaces.cells.networks:darts_v2",
        "densenet": "fedloom.nets.densenet:DenseNet",
        "lstm": "fedloom.nets.lstm:CharLSTM",
        "resnet18": "fedloom.nets.resnet:ResNet18",
        "supernet": "fedloom.spaces.cells.networks:supernet",
        "vgg16": "fedloom.nets.vgg:VGG16",
    },
    reader="fedloom.spaces.genotype:read",
    families={"supernet": "fedloom.spaces.cells.networks:sized_supernet"},
)
MAPS = ("image", "speech")  # kinds of data whose samples are [c,h,w]
DEFAULTS = {
    "text": "lstm"
}  # the network of a kind of data, if nobody names one; of the others the cnn


def default_network(kind: str) -> str:
    return DEFAULTS.get(kind, "cnn")
