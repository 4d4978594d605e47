"""Where downloaded data sets lie, unless --data-dir says otherwise."""

import os
from pathlib import Path


def home() -> Path:
    """Returns $FEDLOOM_DATA, or else `fedloom` in the system's folder for a user's data."""
    chosen = os.environ.get("FEDLOOM_DATA")
    if chosen:
        return Path(chosen).expanduser()
    system = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(system).expanduser() / "fedloom"


def fetched(name: str) -> Path | None:
    """Returns what --data-dir means if it is left out: `home()` if the data set lies there."""
    from fedloom.data.fetching.catalogue import read_by

    dataset = read_by(name)
    if dataset is None:
        return None
    folder = home() / dataset.folder
    if not folder.is_dir():
        return None
    for file in folder.iterdir():
        if not file.name.endswith((".part", ".part.json")):
            return home()
    return None


def availability(name: str) -> str:
    """Says in which folder a downloaded data set lies, or how to download it.

    It is empty for a data set that needs no files.
    """
    from fedloom.data.fetching.catalogue import read_by

    dataset = read_by(name)
    if dataset is None:
        return ""
    place = fetched(name)
    if place is None:
        return f"(`fedloom data get {dataset.name}`)"
    return f"(in {place / dataset.folder})"
