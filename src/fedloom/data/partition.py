"""Partitions, which decide who holds which samples: `name:value[+transform:value…]`.

Examples are `dirichlet:0.2`, `iid+rotation:30` and `iid+tint+each:hue:0.33/none`. A partition is a
function that names one client for every sample, so each sample is dealt out exactly once by
construction. To add a partition, add an entry to `PARTITIONS`; nothing else is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedloom.data.partitions import rule as values
from fedloom.data.partitions.changes import CHANGES, OTHER_CHANGES, check_changes, parse_change
from fedloom.data.partitions.dirichlet import DRAWS, dirichlet, dirichlet_equal
from fedloom.data.partitions.groups import natural, sites
from fedloom.data.partitions.rule import Assignment, Change, PartitionRequest, Rule, client_count
from fedloom.data.partitions.skew import dominant, label_skew, missing
from fedloom.data.source import Source
from fedloom.errors import FedloomError, unknown
from fedloom.rng import rng

__all__ = [
    "DRAWS",
    "PARTITIONS",
    "Change",
    "Rule",
    "brings_clients",
    "catalogue",
    "parse",
    "partition",
]


@dataclass(frozen=True)
class Kind:
    """One partition that `--partition` can name."""

    about: str  # one line for `fedloom list partitions`
    value: Callable[[str, str | None], float | None]  # (whole text, its value) -> checked value
    assign: Callable[[PartitionRequest], Assignment]
    brings_clients: bool = False  # whether the data itself says how many clients there are
    counts_classes: bool = False  # whether it deals out samples by their labels


def partition(
    source: Source,
    indices: np.ndarray,
    clients: int | None,
    text: str,
    seed: int,
    min_samples: int,
) -> list[np.ndarray]:
    """Deals samples out to clients. Returns each client's samples as sorted indices.

    `clients` may be None for `sites` and `natural`, where the data says how many clients there are.
    """
    rule = parse(text)
    check_changes(rule, source)
    if source.kind == "regression" and PARTITIONS[rule.name].counts_classes:
        raise FedloomError(
            f"--partition {rule.name} must be for labels that are classes",
            f"those of {source.name} are numbers",
            "try --partition iid, or a client column",
        )
    request = PartitionRequest(rule, source, np.sort(indices), clients, seed, min_samples)
    assignment = PARTITIONS[rule.name].assign(request)
    order = np.argsort(assignment.owner, kind="stable")  # stable: sorted within each client
    grouped = request.indices[order]
    sizes = np.bincount(assignment.owner, minlength=assignment.clients)
    return np.split(grouped, np.cumsum(sizes)[:-1])


def parse(text: str) -> Rule:
    """Reads the text of `--partition` and checks every name and value in it."""
    first, *transforms = re.split(r"\+(?!\d)", text.strip())  # 1e+3 is a number
    name, colon, value = first.strip().partition(":")
    if name not in PARTITIONS:
        raise unknown("--partition", name, PARTITIONS)
    changes = tuple(parse_change(text, part) for part in transforms)
    names = [change.name for change in changes]
    for change_name in names:
        if names.count(change_name) > 1:
            rule = f"`--partition {text}` must name a transform once"
            raise FedloomError(rule, f"{change_name} comes twice", "leave one out")
    check = PARTITIONS[name].value
    if not colon:
        return Rule(name, check(first, None), changes)
    return Rule(name, check(first, value), changes)


def brings_clients(text: str) -> bool:
    """Whether the data itself says how many clients there are."""
    return PARTITIONS[parse(text).name].brings_clients


def catalogue() -> list[tuple[str, str]]:
    """Returns every partition and transform with a one-line description."""
    lines = []
    for name, kind in sorted(PARTITIONS.items()):
        lines.append((name, kind.about))
    for name, change in CHANGES.items():
        lines.append((f"…+{name}", f"+{name}:{change.unit.upper()}, {change.about}"))
    for name, about in OTHER_CHANGES.items():
        lines.append((f"…+{name}", about))
    return lines


def iid(request: PartitionRequest) -> Assignment:
    """Random shares, whose sizes differ by one sample at most."""
    clients = client_count(request)
    owners = np.arange(len(request.indices)) % clients
    shuffled = rng(request.seed, "partition", "iid").permutation(owners)
    return Assignment(shuffled, clients)


PARTITIONS: Mapping[str, Kind] = {
    "iid": Kind("equal random shares", values.no_value, iid),
    "dirichlet": Kind(
        "dirichlet:ALPHA, label skew; the smaller ALPHA, the fewer classes per client",
        values.concentration,
        dirichlet,
        counts_classes=True,
    ),
    "dirichlet-equal": Kind(
        "dirichlet-equal:ALPHA, the same, with clients of equal size",
        values.concentration,
        dirichlet_equal,
        counts_classes=True,
    ),
    "label-skew": Kind(
        "label-skew:N, every client has N classes; equal sizes",
        values.class_count,
        label_skew,
        counts_classes=True,
    ),
    "dominant": Kind(
        "dominant:SHARE, this share of every client's samples has one class; equal sizes",
        values.dominant_share,
        dominant,
        counts_classes=True,
    ),
    "missing": Kind(
        "missing:SHARE, every client lacks this share of the classes; equal sizes",
        values.missing_share,
        missing,
        counts_classes=True,
    ),
    "natural": Kind(
        "one client per writer, speaker, role or site; --clients splits or joins them",
        values.no_value,
        natural,
        brings_clients=True,
    ),
    "sites": Kind(
        "one client per .npz file of a folder",
        values.no_value,
        sites,
        brings_clients=True,
    ),
}
