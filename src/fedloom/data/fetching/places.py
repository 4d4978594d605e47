"""Where data sets that were fetched by name lie, unless --data-dir says otherwise."""

import os
from pathlib import Path


def home() -> Path:
    """$FEDLOOM_DATA, or `fedloom` in the folder that this system keeps a user's data in."""
    chosen = os.environ.get("FEDLOOM_DATA")
    if chosen:
        return Path(chosen).expanduser()
    system = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(system).expanduser() / "fedloom"


def fetched(name: str) -> Path | None:
    """What --data-dir means when it is left out.

    That is `home()` if the data set lies there, else nothing.
    """
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
    """Whether a data set lies at home, and else how it gets there.

    It is empty for one that needs no files.
    """
    from fedloom.data.fetching.catalogue import read_by

    dataset = read_by(name)
    if dataset is None:
        return ""
    place = fetched(name)
    if place is None:
        return f"(`fedloom data get {dataset.name}`)"
    return f"(in {place / dataset.folder})"
