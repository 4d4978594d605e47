"""Where data sets that were fetched by name lie, unless --data-dir says otherwise."""

import os
from pathlib import Path


def home() -> Path:
    """$FEDLOOM_DATA, or `fedloom` in the folder that this system keeps a user's data in."""
    if chosen := os.environ.get("FEDLOOM_DATA"):
        return Path(chosen).expanduser()
    system = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(system).expanduser() / "fedloom"


def fetched(name: str) -> Path | None:
    """What --data-dir means when it is left out: `home()` if the data set lies there, else nothing."""
    from fedloom.data.fetching.catalogue import read_by

    known = read_by(name)
    folder = None if known is None else home() / known.folder
    if folder is None or not folder.is_dir():
        return None
    whole = (file for file in folder.iterdir() if not file.name.endswith((".part", ".part.json")))
    return home() if any(whole) else None


def availability(name: str) -> str:
    """Whether a data set lies at home, and else how it gets there; empty for one that needs no files."""
    from fedloom.data.fetching.catalogue import read_by

    known = read_by(name)
    if known is None:
        return ""
    place = fetched(name)
    return f"(`fedloom data get {known.name}`)" if place is None else f"(in {place / known.folder})"
