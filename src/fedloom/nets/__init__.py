"""Networks by name. One is a callable (shape of a sample, classes, width factor) → nn.Module."""

from fedloom.registry import Registry

NETWORKS = Registry("network", "fedloom.networks", {"cnn": "fedloom.nets.cnn:SmallCNN"})
