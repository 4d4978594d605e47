"""versions.json in a federation's folder: the version of fedloom that each site last said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json

NAME = "versions.json"


def read_versions(folder: Path) -> dict[str, str]:
    try:
        raw = read_json(folder / NAME)
        return {str(site): str(version) for site, version in raw.items()}
    except (Unreadable, AttributeError):
        return {}


def note_versions(folder: Path, versions: Mapping[str, str]) -> None:
    content = json.dumps({**read_versions(folder), **versions}, indent=1)
    write_whole(folder / NAME, [content.encode()], durable=False)
