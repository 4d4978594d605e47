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

LATE = {
    "search": "fedloom.api",
    "auto": "fedloom.api",
    "compare": "fedloom.api",
    "resume": "fedloom.api",
    "Run": "fedloom.runs.results",
}


def __getattr__(name: str) -> Any:
    """torch is imported by the first use of one of these, not by `import fedloom`."""
    if name in LATE:
        import importlib

        return getattr(importlib.import_module(LATE[name]), name)
    raise AttributeError(f"module 'fedloom' has no attribute {name!r}")
