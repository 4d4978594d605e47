"""What a server asks of a site beside its orders: the facts of its data first, then how to divide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedloom.data.checks import KINDS, MAX_CLASSES, constants
from fedloom.data.mapped_clients import to_samples
from fedloom.data.parts import own_order, size_of_held, size_of_test
from fedloom.data.samples import ClientData, Samples
from fedloom.data.source import Source
from fedloom.data.sources import Floats
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.protocol.wire import read_json
from fedloom.types import Task

MOST_SAMPLES = 1 << 25  # of a site: a split lists them one by one
MOST_VALUES = 1 << 28  # of one sample
MOST_FACTS = 16 << 20  # characters


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Terms(Closed):
    """How a site divides its samples; the same for all sites of a run, and fixed by its configuration."""

    seed: int
    test: float = Field(gt=0, lt=1)
    hold: float = Field(ge=0, lt=1)

    @classmethod
    def read(cls, text: str) -> Terms:
        terms = cls.model_validate_json(text)
        read_json(text)  # refuses a key that stands twice
        return terms


class Facts(Closed):
    """What a site tells of its data before a run: no sample, no label's count. Nothing absurd, whoever sends it."""

    kind: str
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1, max_length=4)
    labels: tuple[Annotated[str, Field(max_length=1000)], ...] = Field(min_length=1, max_length=MAX_CLASSES)
    named: bool  # whether the labels have names of their own; numbers may go further at another site
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    samples: int = Field(ge=0, le=MOST_SAMPLES)

    @model_validator(mode="after")
    def consistent(self) -> Facts:
        if self.kind not in KINDS:
            raise ValueError("its kind of data is unknown")
        channels = 0 if self.kind == "text" else self.shape[0]
        if prod(self.shape) > MOST_VALUES:
            raise ValueError("a sample is too large")
        if not len(self.mean) == len(self.std) == channels:
            raise ValueError("mean and std are not one a channel")
        if not self.named and self.labels != tuple(map(str, range(len(self.labels)))):
            raise ValueError("labels without names are not numbers from 0")
        return self

    @classmethod
    def of(cls, source: Source, named: bool) -> Facts:
        shape = tuple(int(size) for size in source.x.shape[1:])
        return cls(
            kind=source.kind, shape=shape, labels=source.labels, named=named, mean=source.mean, std=source.std,
            samples=len(source.y),
        )  # fmt: skip

    @classmethod
    def read(cls, text: str) -> Facts:
        if len(text) > MOST_FACTS:
            raise ValueError(f"it has {len(text)} characters, at most {MOST_FACTS} are expected")
        try:
            facts = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'facts'}: {first['msg'].lower()}") from None
        read_json(text)  # refuses a key that stands twice
        return facts


def settled(facts: Mapping[str, Facts], mean: Floats, std: Floats) -> Facts:
    """What the run is about: what most sites have, with the normalisation that the user gave, if any.

    Without it all sites must use one: another one says that its values are in other units, and the network would be
    fed with them all the same.
    """
    common = agreed(facts)
    if mean is not None or std is not None:
        channels = common.shape[0]
        given = {
            "mean": constants("mean", common.mean if mean is None else mean, 0.0, channels),
            "std": constants("std", common.std if std is None else std, 1.0, channels),
        }
        return common.model_copy(update=given)
    for name, found in facts.items():
        if found.shape == common.shape and (found.mean, found.std) != (common.mean, common.std):
            raise FedloomError(
                "all sites must normalise their data alike",
                f"{name} has mean {list(found.mean)} and std {list(found.std)} where most have {list(common.mean)} and "
                f"{list(common.std)}",
                "bring its data into the units of the others, or set data.mean and data.std for all",
            )
    return common


def agreed(facts: Mapping[str, Facts]) -> Facts:
    """What most sites have; one that has something else is refused when it is described."""
    told = [facts[name] for name in sorted(facts)]  # of as many, the first in this order decide
    common = Counter((f.kind, f.shape, f.mean, f.std, f.labels if f.named else ()) for f in told)
    (kind, shape, mean, std, named), _ = common.most_common(1)[0]
    alike = [f for f in facts.values() if (f.kind, f.shape, f.mean, f.std) == (kind, shape, mean, std)]
    labels = named or max((f.labels for f in alike if not f.named), key=len)
    return Facts(
        kind=kind, shape=shape, labels=labels, named=bool(named), mean=mean, std=std,
        samples=sum(f.samples for f in facts.values()),
    )  # fmt: skip


def split_of(facts: Mapping[str, Facts], seed: int, test: float, least: int) -> Split:
    """The server's picture of a split whose samples it never sees: how many each site has, in client order."""
    for name, found in facts.items():
        if found.samples < least:
            must = f"every site must have at least {least} samples"
            raise FedloomError(must, f"{name} has {found.samples}", "leave it out, or lower data.min_samples")
    sizes = np.array([facts[name].samples for name in sorted(facts)])
    return Split(
        data="federation", digest="", samples=int(sizes.sum()), partition="sites", seed=seed, test_share=float(test),
        indices=np.arange(sizes.sum()), offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tests=np.array([size_of_test(int(size), test) for size in sizes]), server=np.zeros(0, np.int64),
    )  # fmt: skip


def own_data(source: Source, client: int, terms: Terms) -> ClientData:
    """A site's parts, exactly as an embedded run with `--partition sites` makes them."""
    order = own_order(terms.seed, client, len(source.y))
    tests = size_of_test(len(order), terms.test)
    rest, test = order[tests:], order[:tests]
    cut = len(rest) - size_of_held(len(rest), terms.hold)

    def samples(chosen: np.ndarray) -> Samples:
        return to_samples(source.x, source.y, chosen)

    return ClientData(samples(rest[:cut]), samples(rest[cut:]), samples(test))


def task_of(method: str, options: Mapping[str, Any], facts: Facts, seed: int) -> Task:
    return Task(method, dict(options), facts.kind, facts.shape, facts.labels, seed, facts.mean, facts.std)
