"""Finds what a method's file remembers outside of the states, in classes and in globals.

A file that is executed anew shows how its classes and globals begin.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from fedloom.federation.protocol.method import Method

PLAIN = (bool, int, float, str, bytes, type(None))


def changed_beside_states(kinds: Sequence[type[Method]]) -> list[str]:
    """The globals and class attributes of these methods' files that are not as at the beginning."""
    names = set[str]()
    for kind in kinds:
        for base in kind.__mro__:
            if issubclass(base, Method) and base is not Method:
                names.add(base.__module__)
    changed = []
    for name in sorted(names):
        module = sys.modules[name]
        if not str(getattr(module, "__file__", "")).endswith(".py"):
            continue  # there is no source to execute, as in a notebook
        changed += changed_in(module, executed_anew(module))
    return changed


def changed_in(module: ModuleType, anew: ModuleType) -> list[str]:
    """Where a module is not as it is when it is imported: NAME, or CLASS.NAME."""
    changed = []
    for name, value in vars(anew).items():
        now = vars(module).get(name)
        if name.startswith("__"):
            continue
        if isinstance(value, type) and value.__module__ == module.__name__:
            if isinstance(now, type):
                for attribute in changed_attributes(now, value):
                    changed.append(f"{name}.{attribute}")
        elif fingerprint(now) != fingerprint(value):
            changed.append(name)
    for name, value in vars(module).items():
        if not name.startswith("__") and name not in vars(anew) and is_memory(value):
            changed.append(name)
    return changed


def is_memory(value: object) -> bool:
    """Whether this is a value that can be remembered, rather than code."""
    return isinstance(fingerprint(value), tuple)


def changed_attributes(now: type, anew: type) -> list[str]:
    """The attributes of a class that are not as in the class when it is made anew."""
    names = []
    for name, value in vars(now).items():
        # What Python, abc or pydantic keep in a class is not the method's.
        is_own = not name.startswith(("__", "_abc_"))
        if is_own and fingerprint(value) != fingerprint(vars(anew).get(name)):
            names.append(name)
    return names


@cache
def executed_anew(module: ModuleType) -> ModuleType:
    """A second copy of a module, which no other code knows."""
    file = Path(str(module.__file__))
    copy = ModuleType(module.__name__)
    copy.__file__ = module.__file__
    copy.__package__ = module.__package__
    exec(compile(file.read_bytes(), str(file), "exec"), vars(copy))
    return copy


def fingerprint(value: object) -> object:
    """A value that changes with what is remembered in `value`: numbers, texts and containers."""
    if isinstance(value, PLAIN):
        return (type(value).__name__, repr(value))
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), repr(value.tolist()))
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), repr(value.tolist()))
    if isinstance(value, Mapping):
        entries = []
        for key in value:
            entries.append((fingerprint(key), fingerprint(value[key])))
        return ("mapping", entries)
    if isinstance(value, (list, tuple)):
        return ("sequence", [fingerprint(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return ("set", sorted(repr(fingerprint(item)) for item in value))
    return type(value).__name__
