"""A split in numbers.

It has each client's samples per class, and how far its labels are from those of all clients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedloom.data.partition import Rule, parse
from fedloom.data.partitions.changes import NONE, amount_of, transform_of, transforms_of
from fedloom.data.partitions.rule import Change, Each
from fedloom.data.showing.labels import ShownLabels, labels_shown
from fedloom.data.source import Source
from fedloom.data.split import Split


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Picture:
    source: Source
    split: Split

    @property
    def rule(self) -> Rule:
        return parse(self.split.partition)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.diff(self.split.offsets)

    @cached_property
    def shown_labels(self) -> ShownLabels:
        return labels_shown(self.source)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.shown_labels.labels

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of samples, [client, class]."""
        clients = len(self.split)
        classes = len(self.labels)
        owner = np.repeat(np.arange(clients), self.sizes)
        cells = owner * classes + self.shown_labels.y[self.split.indices]
        return np.bincount(cells, minlength=clients * classes).reshape(clients, classes)

    @property
    def classes(self) -> np.ndarray:
        """How many classes each client has."""
        classes: np.ndarray = (self.counts > 0).sum(axis=1)
        return classes

    @cached_property
    def distances(self) -> np.ndarray:
        """The total variation between each client's label distribution and that of all clients.

        0 means equal, 1 means that they have nothing in common.
        """
        shares = self.counts / self.sizes[:, None]
        overall = self.counts.sum(axis=0) / self.sizes.sum()
        distances: np.ndarray = np.abs(shares - overall).sum(axis=1) / 2
        return distances

    def origin(self, client: int) -> str:
        """Names the group that a client's samples come from, or says how many groups there are.

        It is empty if the data has no groups.
        """
        if self.source.groups is None:
            return ""
        samples = self.split.indices[self.split.offsets[client] : self.split.offsets[client + 1]]
        groups = np.unique(self.source.groups[samples])
        if len(groups) == 1:
            return self.source.group_names[int(groups[0])]
        return f"{len(groups)} {self.source.grouping}s"

    def amounts(self, client: int) -> dict[str, float]:
        """Returns this client's amount of each transform that is spread over all clients."""
        amounts = {}
        for change in self.rule.changes:
            if isinstance(change, Change):
                amounts[change.name] = amount_of(change, client, len(self.split))
        return amounts

    def change_texts(self, client: int) -> dict[str, str]:
        """Describes each transform of this client's samples, by its name in the partition."""
        texts = {name: f"{amount:+.3g}" for name, amount in self.amounts(client).items()}
        for change in self.rule.changes:
            if isinstance(change, Each):
                transform = transform_of(change, client, len(self.split))
                texts[change.name] = str(transform or NONE)
        return texts

    def to_json(self) -> dict[str, Any]:
        split = self.split
        return {
            "data": split.data,
            "partition": split.partition,
            "seed": split.seed,
            "split": split.hash,
            "labels": list(self.labels),
            "samples": int(self.sizes.sum()),
            "server": len(split.server),
            "distance": float(self.distances.mean()),
            "clients": [self.client_json(client) for client in range(len(split))],
        }

    def client_json(self, client: int) -> dict[str, Any]:
        row: dict[str, Any] = {"client": client}
        origin = self.origin(client)
        if origin:
            row["group"] = origin
        row["samples"] = int(self.sizes[client])
        row["test"] = int(self.split.tests[client])
        row["counts"] = self.counts[client].tolist()
        row["distance"] = float(self.distances[client])
        row.update(self.amounts(client))
        if self.rule.changes:
            transforms = transforms_of(self.rule, client, len(self.split))
            row["transform"] = [asdict(transform) for transform in transforms]
        return row
