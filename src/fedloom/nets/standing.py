"""Modules whose source an export copies, because a tracer cannot follow what they do.

One that loops over time is such a module. Its class stands alone: it subclasses `nn.Module`, its
source uses nothing but `torch` and `nn`, and it keeps what it was made with under the names of the
arguments.
"""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Kind = TypeVar("Kind", bound=type[nn.Module])

_CLASSES: set[type[nn.Module]] = set()


def mark_standing_alone(kind: Kind) -> Kind:
    _CLASSES.add(kind)
    return kind


def stands_alone(module: nn.Module) -> bool:
    return type(module) in _CLASSES
