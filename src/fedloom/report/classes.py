"""classes.json: how many samples of each class the clients of a simulation hold.

Written when a run begins, while its data is open anyway, so that a report needs no data. The server of a federation
never knows this: there is no such file, and the report says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedloom.data.configured import configured_source
from fedloom.data.showing.picture import Picture
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder
from fedloom.types import Json

NAME = "classes.json"
MOST = 60  # clients whose classes are kept: as many as a report draws
MOST_JUDGED = 1000  # clients; so many are evaluated at the end of a run


@dataclass(frozen=True)
class Classes:
    labels: list[str]
    counts: list[list[int]]  # of the first clients
    names: list[str]  # of all clients, where they have names; else empty
    usual: float | None  # mean accuracy of answering each client's most common class, on its test part

    @classmethod
    def of(cls, source: Source, split: Split) -> Classes:
        counts = Picture(source, split).counts[:MOST]
        names = [str(name) for name in source.group_names] if split.partition == "sites" else []
        return cls(list(source.labels), counts.tolist(), names, usual_answer(source, split))

    @classmethod
    def from_json(cls, raw: Json) -> Classes:
        """Raises ValueError, KeyError or TypeError for anything that is not one."""
        counts = [[int(count) for count in row] for row in raw["counts"]]
        labels = [str(label) for label in raw["labels"]]
        if any(len(row) != len(labels) for row in counts):
            raise ValueError("a row of counts is not as long as the labels")
        usual = raw["usual"]
        return cls(labels, counts, [str(name) for name in raw["names"]], None if usual is None else float(usual))


def usual_answer(source: Source, split: Split) -> float | None:
    """What knowing a client's most common class alone would give: the least a model must beat."""
    if len(split) > MOST_JUDGED or source.kind == "text":
        return None
    found = []
    for client in range(len(split)):
        rest, test = split.client(client)
        usual = np.bincount(source.y[rest]).argmax()
        found.append(float((source.y[test] == usual).mean()))
    return sum(found) / len(found)


def keep(folder: RunFolder, source: Source, split: Split) -> Classes:
    made = Classes.of(source, split)
    folder.write_json(NAME, dict(vars(made)))
    return made


def find(folder: RunFolder) -> Classes | None:
    """What was kept; for a run of before, made from its data if that is still there."""
    try:
        return Classes.from_json(folder.read_json(NAME))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        config = folder.config()
        if config.is_federated:
            return None
        source, split = configured_source(config.data), Split.load(folder.path / "split.json")
        split.check(source)
        return Classes.of(source, split)
    except (FedloomError, OSError):
        return None
