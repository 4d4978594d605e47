"""Finding objects by name: built-in ones, entry points, and `path/file.py:Name`."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from fedloom.errors import FedloomError, raised, unknown

# Prefixes of network names: a genotype's file, or a network drawn from a search space.
CELLS = "cells:"
SPACE = "space:"
EXTENSION = "fedloom_extension_"  # the modules' names of files that users name


class Registry:
    """The objects of one kind that can be chosen by name, such as methods or networks.

    Built-ins are given as "module:attribute", and imported when they are asked for.
    """

    def __init__(
        self,
        what: str,
        group: str,
        builtin: Mapping[str, str],
        reader: str | None = None,
        families: Mapping[str, str] | None = None,
        fits: Callable[[object], bool] | None = None,
    ) -> None:
        self.what = what
        self.group = group
        self.builtin = builtin
        self.reader = reader  # makes an object from a .json file, which can be a name too
        # For the name `family:argument`, the function of that family is called with the argument.
        self.families = families or {}
        # Where a file lacks the name that was asked for, the error offers those that fit.
        self.fits = fits

    @staticmethod
    def _attribute(place: str) -> Any:
        module, attribute = place.split(":")
        return getattr(importlib.import_module(module), attribute)

    def names(self) -> list[str]:
        names = set(self.builtin)
        names.update(entry.name for entry in entry_points(self.group))
        return sorted(names)

    def get(self, name: str) -> Any:
        if ".py:" in name:
            return from_file(name, self.fits)
        if self.reader is not None and name.endswith(".json"):
            return self._attribute(self.reader)(Path(name))
        if name in self.builtin:
            return self._attribute(self.builtin[name])
        family, colon, argument = name.partition(":")
        if colon and family in self.families:
            return self._attribute(self.families[family])(argument)
        for entry in entry_points(self.group):
            if entry.name == name:
                return load_entry_point(self.what, entry)
        if name.endswith(".py"):
            raise without_attribute(self.what, name, self.fits)
        raise unknown(self.what, name, self.names())


@cache
def entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))


def load_entry_point(what: str, entry: importlib.metadata.EntryPoint) -> Any:
    """Load what an installed package offers. Whatever its import raises becomes a FedloomError."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        rule = f"{what} {entry.name} must be importable, as {entry.value}"
        raise FedloomError(
            rule,
            raised(error),
            "repair or remove the package that provides it",
        ) from error


def absolute(name: str) -> str:
    """`file.py:Name`, `file.json` or `file.toml` with its full path, also behind a prefix.

    With the full path a worker or a later resume finds the file from any folder. The prefixes are
    `cells:` and `space:`.
    """
    if name.startswith(CELLS):
        file = name.removeprefix(CELLS)
        if not file:
            return name
        return f"{CELLS}{Path(file).resolve()}"
    if name.startswith(SPACE):
        return f"{SPACE}{absolute(name.removeprefix(SPACE))}"
    if name.endswith((".json", ".toml")):
        return str(Path(name).resolve())
    path, colon, attribute = name.partition(".py:")
    if not colon:
        return name
    return f"{Path(path).resolve()}.py:{attribute}"


def is_file(name: object) -> bool:
    """Whether a name would be looked up in a file."""
    if not isinstance(name, str):
        return False
    return ".py:" in name or name.endswith((".json", ".toml")) or name.startswith(CELLS)


def from_file(reference: str, fits: Callable[[object], bool] | None = None) -> Any:
    path, attribute = reference.rsplit(":", 1)
    where = resolved(path, os.getcwd())
    module = load_module(where, modification_time(where))
    if not hasattr(module, attribute):
        raise unknown(f"the name in {reference}", attribute, offered(module, fits))
    return getattr(module, attribute)


def without_attribute(
    what: str,
    path: str,
    fits: Callable[[object], bool] | None,
) -> FedloomError:
    """The error for a Python file without the name of an object in it."""
    where = resolved(path, os.getcwd())
    names = offered(load_module(where, modification_time(where)), fits)
    advice = "add the name of the object that the file defines"
    if names:
        advice = f"try {path}:{names[-1]}"  # a file ends with what it defines
    return FedloomError(f"{what} of a file must be given as FILE.py:NAME", f"got {path}", advice)


def offered(module: ModuleType, fits: Callable[[object], bool] | None) -> list[str]:
    """The public names of a file to suggest: those that fit, or all that it did not import."""
    names = []
    for name, value in vars(module).items():
        if not name.startswith("_") and may_be_meant(value, module, fits):
            names.append(name)
    return names


def may_be_meant(
    value: object,
    module: ModuleType,
    fits: Callable[[object], bool] | None,
) -> bool:
    if fits is not None:
        return fits(value)
    return not is_imported(value, module)


def is_imported(value: object, module: ModuleType) -> bool:
    if inspect.ismodule(value):
        return True
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__module__ != module.__name__
    return False


def modification_time(path: Path) -> int:
    """When a file was last written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@cache
def resolved(path: str, folder: str) -> Path:
    """The absolute path, cached: a worker asks for it with every order."""
    return (Path(folder) / path).resolve()


@cache
def load_module(path: Path, version: int) -> ModuleType:
    """Import a file, once for each version of it: after an edit the new version is imported."""
    if not path.is_file():
        raise FedloomError(
            f"{path} must be a Python file",
            "there is none",
            "check the path before the colon",
        )
    # The module's name has a hash of the path: two files may have the same name.
    path_hash = hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()
    module_name = f"{EXTENSION}{path.stem}_{path_hash}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and isinstance(spec.loader, SourceFileLoader)  # as for every .py path
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        # Not from a compiled file: Python takes an old one for an edit within the same second.
        content = spec.loader.get_data(str(path))
        exec(spec.loader.source_to_code(content, str(path)), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise FedloomError(
            f"{path} must be importable",
            raised(error),
            "fix it; --debug shows where",
        ) from error
    return module
