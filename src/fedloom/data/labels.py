"""Class names that come from several places: one list for all, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import shortened

MOST_SITES_TOLD = 5  # by name, of those that lack classes


def class_order(names: set[str]) -> tuple[str, ...]:
    """By number if all are numbers (01 before 1), else by name."""
    if are_numbers(names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def are_numbers(names: Iterable[str]) -> bool:
    return all(name.isdecimal() and len(name) < 20 for name in names)


def united(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The list that all have; where they differ every name of any of them, sorted."""
    distinct = {tuple(names) for names in lists}
    if len(distinct) == 1:
        return distinct.pop()
    return class_order(set().union(*distinct))


def renumbered(y: np.ndarray, before: Sequence[str], after: Sequence[str]) -> np.ndarray:
    """Class numbers of one list of names as those of another that has all of these names."""
    numbers = {name: number for number, name in enumerate(after)}
    table = np.array([numbers[name] for name in before], np.int64)
    numbered: np.ndarray = table[y]
    return numbered


def with_labels(source: Source, labels: Sequence[str]) -> Source:
    """The same samples under a longer or reordered list of names.

    A source that has other names stays as it is, and so does text, whose samples are made of
    symbols too.
    """
    if source.labels == tuple(labels) or source.kind == "text":
        return source
    if not set(source.labels) <= set(labels):
        return source
    y = renumbered(source.y, source.labels, labels)
    return replace(source, y=y, labels=tuple(labels))


def label_notices(by_site: Mapping[str, Sequence[str]], labels: Sequence[str]) -> tuple[str, ...]:
    """What a person should hear of sites whose names differ from the list of all of them."""
    if all(tuple(names) == tuple(labels) for names in by_site.values()):
        return ()
    listed = f"in sorted order ({shortened(', '.join(labels), 120)})"
    lacking = []
    for site, names in by_site.items():
        missing = [label for label in labels if label not in names]
        if missing:
            lacking.append(f"{site} lacks {shortened(', '.join(missing), 60)}")
    if not lacking:
        return (
            f"the sites name the same {len(labels)} classes in different orders: here {listed}",
        )
    told = "; ".join(lacking[:MOST_SITES_TOLD])
    if len(lacking) > MOST_SITES_TOLD:
        told = f"{told}; {len(lacking) - MOST_SITES_TOLD} more sites lack some"
    text = f"the sites name different classes: a model has all {len(labels)}, {listed}"
    return (f"{text}; {told}",)
