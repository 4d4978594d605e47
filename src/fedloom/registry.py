"""Names to objects: built in, from an entry point, or from `path/file.py:Name`."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedloom.errors import FedloomError, unknown


class Registry:
    """One kind of thing that can be chosen by name. Built-ins are "module:attribute", imported when asked for."""

    def __init__(
        self, what: str, group: str, builtin: Mapping[str, str], reader: str | None = None,
        families: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.what, self.group, self.builtin = what, group, builtin
        self.reader = reader  # of a .json file, which names one too
        self.families = families or {}  # `name:rest` is what the named one makes of the rest

    @staticmethod
    def _attribute(place: str) -> Any:
        module, attribute = place.split(":")
        return getattr(importlib.import_module(module), attribute)

    def names(self) -> list[str]:
        return sorted({*self.builtin, *(entry.name for entry in entry_points(self.group))})

    def get(self, name: str) -> Any:
        if ".py:" in name:
            return from_file(name)
        if self.reader is not None and name.endswith(".json"):
            return self._attribute(self.reader)(Path(name))
        if name in self.builtin:
            return self._attribute(self.builtin[name])
        family, colon, rest = name.partition(":")
        if colon and family in self.families:
            return self._attribute(self.families[family])(rest)
        for entry in entry_points(self.group):
            if entry.name == name:
                return entry.load()
        raise unknown(self.what, name, self.names())


@cache
def entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))


def absolute(name: str) -> str:
    """`file.py:Name` or `file.json` with its full path: a worker or a later resume finds it from any folder."""
    if name.endswith(".json"):
        return str(Path(name).resolve())
    path, colon, attribute = name.partition(".py:")
    return f"{Path(path).resolve()}.py:{attribute}" if colon else name


def is_file(name: object) -> bool:
    """Whether a name would be looked up in a file."""
    return isinstance(name, str) and (".py:" in name or name.endswith(".json"))


def from_file(reference: str) -> Any:
    path, attribute = reference.rsplit(":", 1)
    where = resolved(path, os.getcwd())
    module = load_module(where, changed(where))
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise unknown(f"the name in {reference}", attribute, public)
    return getattr(module, attribute)


def changed(path: Path) -> int:
    """When a file was last written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@cache
def resolved(path: str, folder: str) -> Path:
    """Looked up once a name: a worker asks for every order."""
    return (Path(folder) / path).resolve()


@cache
def load_module(path: Path, version: int) -> ModuleType:
    """Imported once for each version of the file: edited and run again, the new one counts."""
    if not path.is_file():
        raise FedloomError(f"{path} must be a Python file", "there is none", "check the path before the colon")
    mark = hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()  # two files may have one name
    spec = importlib.util.spec_from_file_location(f"fedloom_extension_{path.stem}_{mark}", path)
    assert spec is not None and spec.loader is not None  # a .py path always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        found = f"it raised {type(error).__name__}: {error}"
        raise FedloomError(f"{path} must be importable", found, "mend it; --debug shows where") from error
    return module
