"""Count the classes of each client when a run begins, and store the counts in classes.json.

The data is open then anyway, and a report can be drawn later without the data.
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

MOST = 60  # clients whose classes are stored: as many as a report draws
MOST_JUDGED = 1000  # clients: as many as are evaluated at the end of a run


def count_classes(source: Source, split: Split) -> Classes:
    """Count classes from a source that is already open."""
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
    """Return the mean accuracy of always answering each client's most common training class.

    It is the least that a model must beat. None: it is not defined for this kind of data, or
    there are too many clients.
    """
    if len(split) > MOST_JUDGED or source.kind in ("text", "regression"):
        return None
    accuracies = []
    for client in range(len(split)):
        training, test = split.client(client)
        most_common = np.bincount(source.y[training]).argmax()
        accuracies.append(float((source.y[test] == most_common).mean()))
    return sum(accuracies) / len(accuracies)


def keep(folder: RunFolder, source: Source, split: Split) -> Classes:
    """Count the classes and write them into the run's folder."""
    classes = count_classes(source, split)
    folder.write_json(NAME, classes.to_json())
    return classes


def counted_again(folder: RunFolder) -> Classes | None:
    """Count again from the data, for a run whose classes.json is missing or damaged.

    None: the data is not there any more, or it lies at the sites of a federation.
    """
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
