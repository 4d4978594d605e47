"""Class names of several sites: one common list for all, and a notice if sites differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import shortened

MOST_SITES_NAMED = 5  # of those that lack classes, in a notice


def class_order(names: set[str]) -> tuple[str, ...]:
    """Sorts class names: by number if all are numbers (01 before 1), else by name."""
    if are_numbers(names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def are_numbers(names: Iterable[str]) -> bool:
    return all(name.isdecimal() and len(name) < 20 for name in names)


def united(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Returns the list that all sites share; if lists differ, all names of all lists, sorted."""
    distinct = {tuple(names) for names in lists}
    if len(distinct) == 1:
        return distinct.pop()
    return class_order(set().union(*distinct))


def renumbered(y: np.ndarray, before: Sequence[str], after: Sequence[str]) -> np.ndarray:
    """Translates class numbers from one list of names to another that contains all of them."""
    numbers = {name: number for number, name in enumerate(after)}
    table = np.array([numbers[name] for name in before], np.int64)
    numbered: np.ndarray = table[y]
    return numbered


def with_labels(source: Source, labels: Sequence[str]) -> Source:
    """Returns the same samples with classes numbered by a longer or reordered list of names.

    The source is returned unchanged if it has names that are not in the list. So is text, whose
    samples consist of the same symbols as its labels.
    """
    if source.labels == tuple(labels) or source.kind == "text":
        return source
    if not set(source.labels) <= set(labels):
        return source
    y = renumbered(source.y, source.labels, labels)
    return replace(source, y=y, labels=tuple(labels))


def label_notices(by_site: Mapping[str, Sequence[str]], labels: Sequence[str]) -> tuple[str, ...]:
    """Returns a notice for the user if the class names of some sites differ from the full list."""
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
            f"the sites list the same {len(labels)} classes in different orders: here {listed}",
        )
    named = "; ".join(lacking[:MOST_SITES_NAMED])
    if len(lacking) > MOST_SITES_NAMED:
        named = f"{named}; {len(lacking) - MOST_SITES_NAMED} more sites lack some"
    text = f"the sites have different classes: the model has all {len(labels)}, {listed}"
    return (f"{text}; {named}",)
