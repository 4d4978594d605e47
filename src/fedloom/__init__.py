"""Federated neural architecture search: find the network where the data is.

>>> import fedloom
>>> run = fedloom.search("fedavg", data="digits", clients=8, partition="dirichlet:0.2")
>>> run.table()
"""

from typing import TYPE_CHECKING, Any

from fedloom.errors import FedloomError
from fedloom.version import __version__

if TYPE_CHECKING:
    from fedloom.api import auto, compare, resume, search
    from fedloom.runs.results import Run

__all__ = ["FedloomError", "Run", "__version__", "auto", "compare", "resume", "search"]

# Names that are imported on first use, and the module that each comes from.
LATE = {
    "search": "fedloom.api",
    "auto": "fedloom.api",
    "compare": "fedloom.api",
    "resume": "fedloom.api",
    "Run": "fedloom.runs.results",
}


def __getattr__(name: str) -> Any:
    """Import one of these on first use, so that `import fedloom` itself does not import torch."""
    if name in LATE:
        import importlib

        return getattr(importlib.import_module(LATE[name]), name)
    raise AttributeError(f"module 'fedloom' has no attribute {name!r}")
