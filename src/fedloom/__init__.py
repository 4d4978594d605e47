"""Federated neural architecture search: find the network where the data is."""

from fedloom.version import __version__

__all__ = ["__version__"]
