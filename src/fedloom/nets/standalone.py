"""Modules whose source code an export copies, because a tracer cannot follow them.

A module that loops over time is an example. Its class stands alone: it subclasses `nn.Module`, its
source uses only `torch` and `nn`, and it stores the arguments of its constructor as attributes of
the same names.
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
