"""Networks by name, or by a genotype's .json file. One is a callable (sample's shape, classes, width) → nn.Module."""

from fedloom.registry import Registry

NETWORKS = Registry(
    "network",
    "fedloom.networks",
    {
        "alexnet": "fedloom.nets.alexnet:AlexNet",
        "cnn": "fedloom.nets.cnn:SmallCNN",
        "darts-v2": "fedloom.nets.genotype:darts_v2",
        "densenet": "fedloom.nets.densenet:DenseNet",
        "resnet18": "fedloom.nets.resnet:ResNet18",
        "vgg16": "fedloom.nets.vgg:VGG16",
    },
    reader="fedloom.nets.genotype:read",
)
