"""classes.json is written when a run begins, while its data is open anyway.

So a report needs no data.
"""

from __future__ import annotations

import numpy as np

from fedloom.data.configured import configured_source
from fedloom.data.showing.picture import Picture
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.records.classes import NAME, Classes
from fedloom.records.folder import RunFolder

MOST = 60  # clients whose classes are kept: as many as a report draws
MOST_JUDGED = 1000  # clients; so many are evaluated at the end of a run


def count_classes(source: Source, split: Split) -> Classes:
    """The figures of a source that is open."""
    names = []
    if split.partition == "sites":
        names = [str(name) for name in source.group_names]
    picture = Picture(source, split)
    return Classes(
        labels=list(picture.labels),
        counts=picture.counts[:MOST].tolist(),
        names=names,
        usual=usual_answer(source, split),
    )


def usual_answer(source: Source, split: Split) -> float | None:
    """What knowing a client's most common class alone would give: the least a model must beat."""
    if len(split) > MOST_JUDGED or source.kind in ("text", "regression"):
        return None
    accuracies = []
    for client in range(len(split)):
        rest, test = split.client(client)
        usual = np.bincount(source.y[rest]).argmax()
        accuracies.append(float((source.y[test] == usual).mean()))
    return sum(accuracies) / len(accuracies)


def keep(folder: RunFolder, source: Source, split: Split) -> Classes:
    classes = count_classes(source, split)
    folder.write_json(NAME, classes.to_json())
    return classes


def counted_again(folder: RunFolder) -> Classes | None:
    """For a run whose file is missing or damaged: from its data, if that is still there."""
    try:
        config = folder.config()
        if config.is_federated:
            return None
        source = configured_source(config.data)
        split = Split.load(folder.path / "split.json")
        split.check(source)
        return count_classes(source, split)
    except (FedloomError, OSError):
        return None
