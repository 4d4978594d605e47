"""The descriptions of clients in a checkpoint, stored as tables of whole numbers.

As JSON, the label counts of 100,000 clients with ten labels took seconds to read. A description
that contains more than counts is still written as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedloom.types import ClientDescription, Json, SampleCounts, Tensors

RESERVED = "checkpoint/"  # prefix of tensors in a checkpoint that are not the method's state
CLIENTS = f"{RESERVED}described.clients"
SAMPLES = f"{RESERVED}described.samples"
HISTOGRAMS = f"{RESERVED}described.histograms"
MOST = 2**62  # a larger count does not fit a table


@dataclass(frozen=True)
class WrittenDescriptions:
    """Tables for the clients that described counts only, and JSON for the others, by client."""

    tables: dict[str, torch.Tensor]
    as_json: dict[str, Json]


def written(described: Mapping[int, ClientDescription]) -> WrittenDescriptions:
    """Descriptions as a checkpoint stores them; `read_again` is the inverse."""
    labels = labels_described(described)
    clients = []
    samples = []
    histograms = []
    as_json = {}
    for client, description in described.items():
        if not fits_table(description, labels):
            as_json[str(client)] = description.to_json()
            continue
        counts = description.samples
        clients.append(client)
        samples.append((counts.train, counts.validation, counts.test))
        if description.histogram is not None:
            histograms.append(description.histogram)
    if not clients:
        return WrittenDescriptions({}, as_json)
    tables = {
        CLIENTS: torch.tensor(clients, dtype=torch.int64),
        SAMPLES: torch.tensor(samples, dtype=torch.int64),
    }
    if labels is not None:
        tables[HISTOGRAMS] = torch.tensor(histograms, dtype=torch.int64)
    return WrittenDescriptions(tables, as_json)


def labels_described(described: Mapping[int, ClientDescription]) -> int | None:
    """How many labels the first client's histogram has, or None if it has no histogram."""
    for description in described.values():
        if description.histogram is None:
            return None
        return len(description.histogram)
    return None


def fits_table(description: ClientDescription, labels: int | None) -> bool:
    """Whether a description is nothing but counts, of as many labels as the table has."""
    if description.extra:
        return False
    counts = description.samples
    if max(counts.train, counts.validation, counts.test) > MOST:
        return False
    if description.histogram is None:
        return labels is None
    if len(description.histogram) != labels:
        return False
    return max(map(abs, description.histogram), default=0) <= MOST


def read_again(tensors: Tensors, as_json: Mapping[str, Json]) -> dict[int, ClientDescription]:
    """The descriptions in a checkpoint's tensors and JSON. Earlier versions wrote JSON alone."""
    described = {}
    for name, description in as_json.items():
        described[int(name)] = ClientDescription.from_json(description)
    if CLIENTS not in tensors:
        return described
    clients = tensors[CLIENTS].tolist()
    histograms: list[tuple[int, ...] | None] = [None] * len(clients)
    if HISTOGRAMS in tensors:
        histograms = [tuple(row) for row in tensors[HISTOGRAMS].tolist()]
    for client, counts, histogram in zip(
        clients,
        tensors[SAMPLES].tolist(),
        histograms,
        strict=True,
    ):
        described[client] = ClientDescription(SampleCounts(*counts), {}, histogram)
    return dict(sorted(described.items()))


def without_reserved(tensors: Tensors) -> dict[str, torch.Tensor]:
    """The tensors of the method's state."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(RESERVED)}
