"""What a server and a site agree on besides orders: facts about the data, and how to divide it.

For a table, a site reports sums of its columns. From the sums of all sites the server derives how
columns are encoded, and sends the encoding with the terms.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fedloom.config.models import LEAST_SIDE, MOST_SIDE, DataConfig, Fit, TableTask
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.data.checks import KINDS, LEAST_CLASSES, MAX_CLASSES, constants
from fedloom.data.labels import are_numbers, united
from fedloom.data.mapped_clients import to_samples
from fedloom.data.parts import own_order, size_of_held, size_of_test
from fedloom.data.samples import ANYBODY, ClientData, Owner, Samples
from fedloom.data.source import Source
from fedloom.data.sources import Floats
from fedloom.data.split import Split
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.rules import TableRules
from fedloom.data.tables.sums import Agreement, TableSums, agreement
from fedloom.deploy.closed import Closed
from fedloom.errors import FedloomError
from fedloom.federation.protocol.strict_json import read_json
from fedloom.types import Json, Task

MOST_SAMPLES = 1 << 25  # of a site, because a split lists them one by one
MOST_VALUES = 1 << 28  # of one sample
MOST_FACTS = 16 << 20  # characters of a site's facts
MOST_OPERATIONS = 1000  # that a device does not support

# In a survey: whether the site's device limits are asked for. In a policy: whether they may leave.
DEVICE = "device"
SIZE = "size"  # in a survey: the size to which images are resized
TABLE = "table"  # in a survey: the roles of a table's columns
COLUMNS = "columns"  # in a policy: whether sums of a table's columns may leave

# The kinds of labels that a site can have, if the labels of all sites are joined.
NUMBERS = "numbers"
NAMES = "names"

Label = Annotated[str, Field(max_length=1000)]


class ImageSize(Closed):
    """The size to which every site of a run resizes its images."""

    resize: int = Field(ge=LEAST_SIDE, le=MOST_SIDE)
    fit: Fit = "stretch"

    @classmethod
    def of(cls, data: DataConfig) -> ImageSize | None:
        """The size that a run's configuration names, or None if images keep their sizes."""
        if data.resize is None:
            return None
        return cls(resize=data.resize, fit=data.fit)


class Terms(Closed):
    """How a site reads and divides its samples.

    The terms are the same for all sites of a run, and follow from its configuration.
    """

    seed: int
    test: float = Field(gt=0, lt=1)
    hold: float = Field(ge=0, lt=1)
    size: ImageSize | None = None  # to which images are resized; None: they stay as they are
    table: Encoding | None = None  # how a table's columns are encoded; None: there is no table
    # How often the run will ask a site to train, at most. The site's operator may have to approve
    # it. None: the run's budget does not say.
    trainings: int | None = Field(None, ge=1)

    def to_json(self) -> str:
        """The terms without unset fields, which sites of earlier versions would not know."""
        return self.model_dump_json(exclude_none=True)


class TableQuestion(Closed):
    """The roles of a table's columns, as the run's configuration gives them."""

    label: Label | None = None
    task: TableTask = "auto"
    ignore: tuple[Label, ...] = ()
    categorical: tuple[Label, ...] = ()

    @classmethod
    def of(cls, data: DataConfig) -> TableQuestion:
        return cls(
            label=data.label,
            task=data.task,
            ignore=tuple(data.ignore),
            categorical=tuple(data.categorical),
        )

    def to_json(self) -> str:
        return self.model_dump_json(exclude_none=True)

    @property
    def rules(self) -> TableRules:
        return TableRules(self.label, self.task, self.ignore, self.categorical)


USUAL_TABLE = TableQuestion()  # for a run whose configuration has no options for tables


class DeviceFacts(Closed):
    """What a network may cost on a site's device. A missing value means no limit."""

    macs: float | None = Field(None, gt=0)
    params: float | None = Field(None, gt=0)
    latency_ms: float | None = Field(None, gt=0)
    unsupported: tuple[Label, ...] = Field((), max_length=MOST_OPERATIONS)

    @classmethod
    def of(cls, limit: DeviceLimit) -> DeviceFacts:
        most = limit.most
        return cls(
            macs=most.macs,
            params=most.params,
            latency_ms=most.latency_ms,
            unsupported=tuple(sorted(limit.unsupported)),
        )

    @property
    def limit(self) -> DeviceLimit:
        most = Limit(params=self.params, macs=self.macs, latency_ms=self.latency_ms)
        return DeviceLimit(most, frozenset(self.unsupported))


class Facts(Closed):
    """What a site reports about its data before a run: no samples, and no counts per label.

    If the method uses device tiers, the site also reports its device's limits. The schema refuses
    absurd values, whoever sends them.
    """

    kind: str
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1, max_length=4)
    labels: tuple[Label, ...] = Field(min_length=1, max_length=MAX_CLASSES)
    named: bool  # whether labels have names; if they are numbers, another site may have more
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    samples: int = Field(ge=0, le=MOST_SAMPLES)
    skipped: int = Field(0, ge=0, le=MOST_SAMPLES)  # unreadable files, if it uses --skip-bad
    device: DeviceFacts | None = None  # None: the server did not ask, or the policy forbids it
    # The share of its samples that the site tests on, by its policy; None: the run's own share.
    test: float | None = Field(None, gt=0, lt=1)
    # The sums of a table's columns. All sites together determine columns and labels of a table, so
    # the other fields say nothing about them.
    table: TableSums | None = None

    @model_validator(mode="after")
    def consistent(self) -> Facts:
        if self.kind not in KINDS:
            raise ValueError("its kind of data is unknown")
        channels = self.shape[0]
        if self.kind == "text":
            channels = 0
        if prod(self.shape) > MOST_VALUES:
            raise ValueError("a sample is too large")
        if not len(self.mean) == len(self.std) == channels:
            raise ValueError("mean and std do not have one value per channel")
        if not self.named and self.labels != tuple(map(str, range(len(self.labels)))):
            raise ValueError("labels without names are not numbers from 0")
        return self

    @classmethod
    def of(
        cls,
        source: Source,
        named: bool,
        device: DeviceFacts | None = None,
        test: float | None = None,
    ) -> Facts:
        return cls(
            kind=source.kind,
            shape=tuple(int(size) for size in source.x.shape[1:]),
            labels=source.labels,
            named=named,
            mean=source.mean,
            std=source.std,
            samples=len(source.y),
            skipped=len(source.skipped),
            device=device,
            test=test,
        )

    @classmethod
    def of_table(
        cls,
        sums: TableSums,
        samples: int,
        device: DeviceFacts | None = None,
        test: float | None = None,
    ) -> Facts:
        """The facts about a table: only its sums. All sites together determine its form."""
        return cls(
            kind="table",
            shape=(1,),
            labels=(sums.label,),
            named=True,
            mean=(0.0,),
            std=(1.0,),
            samples=samples,
            device=device,
            test=test,
            table=sums,
        )

    def test_share(self, of_run: float) -> float:
        """The share of its samples that this site tests on in a run with this share."""
        if self.test is None:
            return of_run
        return self.test

    def to_json(self) -> str:
        return json.dumps(self.to_row())

    def to_row(self) -> dict[str, Json]:
        """The facts without unset fields, which servers of earlier versions would not know."""
        row = self.model_dump(mode="json", exclude_none=True)
        if self.skipped == 0:
            del row["skipped"]
        return row

    @classmethod
    def read(cls, text: str) -> Facts:
        if len(text) > MOST_FACTS:
            raise ValueError(f"it has {len(text)} characters, at most {MOST_FACTS} are expected")
        try:
            facts = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "facts"
            raise ValueError(f"{place}: {first['msg'].lower()}") from None
        read_json(text)  # refuses an object with the same key twice
        return facts


# What all sites have in common


def settled(
    facts: Mapping[str, Facts],
    mean: Floats,
    std: Floats,
    *,
    joins_labels: bool = True,
) -> Facts:
    """The facts of the run: those of most sites, with the user's normalisation if there is one.

    Without it, all sites must normalise alike: a different normalisation means that a site's values
    are in other units, and the network would not notice. `joins_labels` is False for runs of
    earlier versions, which took the classes of most sites and refused the other sites.
    """
    common = agreed(facts, joins_labels=joins_labels)
    if mean is None and std is None:
        check_units(facts, common)
        return common
    if mean is None:
        mean = common.mean
    if std is None:
        std = common.std
    channels = common.shape[0]
    normalisation = {
        "mean": constants("mean", mean, 0.0, channels),
        "std": constants("std", std, 1.0, channels),
    }
    return common.model_copy(update=normalisation)


def check_units(facts: Mapping[str, Facts], common: Facts) -> None:
    """Raise an error unless all sites with samples of the common shape normalise them alike."""
    for name, site in facts.items():
        if site.shape == common.shape and (site.mean, site.std) != (common.mean, common.std):
            deviating = f"mean {list(site.mean)} and std {list(site.std)}"
            usual = f"{list(common.mean)} and {list(common.std)}"
            advice = "convert its data to the units of the others"
            raise FedloomError(
                "all sites must normalise their data alike",
                f"{name} has {deviating} where most have {usual}",
                f"{advice}, or set data.mean and data.std for all",
            )


def agreed_table(facts: Mapping[str, Facts], task: TableTask) -> Agreement | None:
    """The agreed columns and labels of all sites' tables, or None if they have no tables."""
    sums: dict[str, TableSums] = {}
    for name in sorted(facts):
        table = facts[name].table
        if table is not None:
            sums[name] = table
    if not sums:
        return None
    if len(sums) < len(facts):
        with_table = next(iter(sums))
        without = next(name for name in sorted(facts) if name not in sums)
        rule = "all sites must have tables if one has"
        problem = f"{with_table} has one and {without} has {facts[without].kind} data"
        raise FedloomError(rule, problem, "leave one out")
    return agreement(sums, task)


def facts_agreed(agreed: Agreement, facts: Mapping[str, Facts]) -> Facts:
    """The facts of a run whose sites have tables."""
    encoding = agreed.encoding
    return Facts(
        kind=agreed.kind,
        shape=(len(encoding.inputs),),
        labels=agreed.labels,
        named=agreed.labels != tuple(map(str, range(len(agreed.labels)))),
        mean=encoding.mean,
        std=encoding.std,
        samples=sum(site.samples for site in facts.values()),
    )


@dataclass(frozen=True)
class Traits:
    """The facts by which sites are compared to find what most of them have."""

    kind: str
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, facts: Facts) -> Traits:
        return cls(facts.kind, facts.shape, facts.mean, facts.std)


def agreed(facts: Mapping[str, Facts], *, joins_labels: bool) -> Facts:
    """The facts that most sites share. Other sites are refused when they are described."""
    votes: Counter[tuple[Traits, tuple[str, ...]]] = Counter()
    for name in sorted(facts):  # if there is a tie, the first in this order wins
        votes[Traits.of(facts[name]), ballot_of(facts[name], joins_labels)] += 1
    (traits, ballot), _ = votes.most_common(1)[0]
    voters = []
    for site in facts.values():
        if (Traits.of(site), ballot_of(site, joins_labels)) == (traits, ballot):
            voters.append(site)
    labels = united(site.labels for site in voters)
    if len(labels) > MAX_CLASSES:
        rule = f"all sites together must have at most {MAX_CLASSES} classes"
        raise FedloomError(rule, f"they name {len(labels)}", "correct their label names")
    if len(labels) < LEAST_CLASSES:
        rule = f"all sites together must have at least {LEAST_CLASSES} classes"
        raise FedloomError(rule, f"all samples are {labels[0]!r}", "add a site that has another")
    return Facts(
        kind=traits.kind,
        shape=traits.shape,
        labels=labels,
        named=labels != tuple(map(str, range(len(labels)))),
        mean=traits.mean,
        std=traits.std,
        samples=sum(site.samples for site in facts.values()),
    )


def ballot_of(site: Facts, joins_labels: bool) -> tuple[str, ...]:
    """A key that is equal for sites whose classes can be joined into one list.

    Numbers are joined with numbers, and names with names. In a text, symbols are also its samples,
    so they must be the same everywhere.
    """
    if joins_labels and site.kind != "text":
        return (NUMBERS,) if are_numbers(site.labels) else (NAMES,)
    return site.labels if site.named else (NUMBERS,)


# How samples are divided


def nobodys(begin: int) -> Owner:
    """The owner of samples that may be divided in any way."""
    return ANYBODY


def split_of(facts: Mapping[str, Facts], seed: int, test: float, least: int) -> Split:
    """The split as the server knows it, by the number of samples at each site.

    The server never sees the samples. Sites are in client order. `test` is the share of samples to
    test on, for sites whose policy does not choose their own.
    """
    for name, site in facts.items():
        if site.samples < least:
            raise FedloomError(
                f"every site must have at least {least} samples",
                f"{name} has {site.samples}",
                "leave it out, or lower data.min_samples",
            )
    sites = [facts[name] for name in sorted(facts)]
    sizes = np.array([site.samples for site in sites])
    tests = [size_of_test(site.samples, site.test_share(test)) for site in sites]
    return Split(
        data="federation",
        digest="",
        samples=int(sizes.sum()),
        partition="sites",
        seed=seed,
        test_share=float(test),
        indices=np.arange(sizes.sum()),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tests=np.array(tests),
        server=np.zeros(0, np.int64),
    )


def own_data(
    source: Source,
    client: int,
    terms: Terms,
    test: float | None = None,
    owner: Callable[[int], Owner] = nobodys,
) -> ClientData:
    """A site's parts, exactly as in an embedded run with `--partition sites`.

    `test` is the share of samples to test on if the site has chosen one. `owner` gives the owner of
    the part that begins at a place in the order of the samples.
    """
    if test is None:
        test = terms.test
    order = own_order(terms.seed, client, len(source.y))
    tests = size_of_test(len(order), test)
    remaining = order[tests:]
    cut = len(remaining) - size_of_held(len(remaining), terms.hold)

    def samples(begin: int, end: int) -> Samples:
        chosen = to_samples(source.x, source.y, order[begin:end])
        return replace(chosen, owner=owner(begin))

    return ClientData(
        train=samples(tests, tests + cut),
        validation=samples(tests + cut, len(order)),
        test=samples(0, tests),
    )


def task_of(
    method: str,
    options: Mapping[str, Any],
    facts: Facts,
    seed: int,
    target: tuple[float, float] | None = None,
) -> Task:
    return Task(
        method=method,
        options=dict(options),
        kind=facts.kind,
        shape=facts.shape,
        labels=facts.labels,
        seed=seed,
        mean=facts.mean,
        std=facts.std,
        target=target,
    )
