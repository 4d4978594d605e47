"""Parts of a run's result.json beside the figures of clients and tiers.

They say how the run was carried out: on which data, with which devices and clusters, what was sent,
and what happened to clients on the way.
"""

from __future__ import annotations

from statistics import fmean
from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedloom.config.models import Fit, Unit
from fedloom.data.tables.encoding import Encoding
from fedloom.records.record import Count, Figure, PositiveCount, Record, Seconds
from fedloom.types import Json


class Data(Record):
    name: str
    partition: str
    split: str  # the hash of split.json
    skipped: list[SkippedFile] = []  # with --skip-bad


class SkippedFile(Record):
    """A file that could not be read and was skipped, as the user allowed."""

    file: str
    reason: str


class Input(Record):
    """The inputs and the labels of the networks."""

    kind: str
    shape: list[int]
    labels: list[str]
    mean: list[Figure]
    std: list[Figure]
    resize: Count | None = None  # the side to which images were resized, in pixels
    fit: Fit = "stretch"  # what was done with images that are not square
    table: dict[str, Json] | None = None  # the encoding of a table's columns; None: not a table

    @property
    def encoding(self) -> Encoding | None:
        if self.table is None:
            return None
        return Encoding.from_json(self.table)


class Traffic(Record):
    """Bytes of messages. Those inside clusters are "lan"; evaluation is booked separately."""

    down: Count
    up: Count
    lan_down: Count
    lan_up: Count
    evaluate_down: Count
    evaluate_up: Count
    describe_down: Count = 0  # the part of `down` and `up` that describing the clients took
    describe_up: Count = 0

    @property
    def wan(self) -> int:
        """All bytes between the server and clients or aggregators."""
        return self.down + self.up

    @property
    def inside_clusters(self) -> int:
        return self.lan_down + self.lan_up

    @property
    def of_training(self) -> int:
        """The bytes on all links without evaluation."""
        return self.down + self.up + self.inside_clusters


class Simulated(Record):
    """What the simulated clock showed, and what was lost by it."""

    seconds: Seconds
    devices: str  # the name of the table of devices
    availability: str
    budget: dict[str, Figure]  # the most that could be spent, by limit
    stopped: Unit  # the limit that ended the run
    asked: Count  # orders for work
    dropped: Count  # clients that left during their work
    late: Count
    wasted_bytes: Count  # by `dropped` and `late` clients
    wasted_macs: Count
    replaced: Count  # aggregators that another client replaced
    over: OverLimit | None = None  # the last round that was dropped, if any

    @property
    def is_of_interest(self) -> bool:
        """Whether the run uses the clock for anything other than its defaults."""
        is_default = self.devices == "equal" and self.availability == "always"
        return not is_default or bool(self.budget or self.dropped or self.late)


class OverLimit(Record):
    """A round that exceeded a limit: it was dropped, and no other figure includes it."""

    round: PositiveCount
    limit: str
    cost: dict[str, Figure]  # by limit


class TopologyOfRun(Record):
    """Which clients, aggregators and servers exchanged messages."""

    kind: str  # flat or clustered
    lambda1: Count | None  # local iterations before each aggregation in a cluster; None: epochs
    lambda2: Count | None  # aggregations in a cluster before each one at the server
    size: Count | None  # the most members of a cluster
    recluster: Count | None  # rounds between two clusterings
    aggregator: str | None  # how it was chosen; None: there was none
    relay: str | None  # "server": the server's process did the aggregators' work


class ClusterOfRun(Record):
    """One cluster of the last clustering."""

    cluster: Count
    members: list[Count]  # in the order in which they joined
    aggregator: Count | None  # None: the server's own process
    level: Figure | None  # distance of its labels to the population's
    histogram: list[Count] | None  # of its labels, as the server saw them


class Start(Record):
    """The weights that a run started with, by `--init`."""

    run: str
    client: Count | None = None  # None: the shared weights
    clients: list[Count] | None = None  # one for each newcomer; None: the same for all
    hash: str | None = None
    # Test samples that the weights were trained on; None: unknown.
    seen: Count | None = None


class Latency(Record):
    """The profile from which latencies are computed, and the machine that it was measured on."""

    profile: str
    processor: str
    system: str
    device: str
    torch: str


class Versions(Record):
    fedloom: str
    torch: str
    python: str
    took_part: list[str] = []  # all versions of fedloom that worked on the run, if several did


class Phase(Record):
    """A phase of the method's schedule, and how many rounds of the run it had."""

    phase: str
    rounds: PositiveCount
    paper: Figure | None  # its share of the budget in the method's paper


class LostState(Record):
    """A client whose private state was damaged or missing."""

    client: Count
    round: Count
    how: Literal["fresh", "refused"]  # it continued with a fresh state, or missed the round


class StepBack(Record):
    """A step back to an earlier round, by `resume --from`."""

    since: Count  # the round that the run had reached
    to: Count


class Capped(Record):
    """A client whose weight --max-weight-share lowered."""

    rounds: PositiveCount
    share: Figure  # the largest share that it claimed


class Uphill(Record):
    """Rounds of FedPNAS in which η₁‖g‖² exceeded 1.

    There the outer product of the paper's Eq. 5 makes steps ascend.
    """

    rounds: PositiveCount
    largest: float


class PersonalGain(Record):
    """What personal models gain over the shared one, at the clients that have both."""

    clients: Count
    own: Figure  # mean over these clients
    shared: Figure
    better: Count  # clients whose own model is better
    worse: Count
    # Means over the clients that have both; None: unknown, or the data is text.
    own_balanced_accuracy: Figure | None = None
    shared_balanced_accuracy: Figure | None = None

    @property
    def difference(self) -> float:
        return self.own - self.shared

    @property
    def balanced_difference(self) -> float | None:
        if self.own_balanced_accuracy is None or self.shared_balanced_accuracy is None:
            return None
        return self.own_balanced_accuracy - self.shared_balanced_accuracy


class Confusion(Record):
    """How many test samples of each class (rows) were predicted as each class (columns)."""

    labels: list[str]
    clients: Count  # clients that reported their numbers
    counts: list[list[Count]]

    @model_validator(mode="after")
    def check_square(self) -> Confusion:
        size = len(self.labels)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            rule = "a matrix with a row and a column for each label"
            raise PydanticCustomError("square", f"Input should be {rule}")
        return self

    @property
    def samples(self) -> int:
        return sum(sum(row) for row in self.counts)

    @property
    def balanced_accuracy(self) -> float | None:
        """The balanced accuracy over all these samples; None: there are fewer than two classes."""
        shares = []
        for number, row in enumerate(self.counts):
            if sum(row):
                shares.append(row[number] / sum(row))
        if len(shares) < 2:
            return None
        return fmean(shares)


class ClientTransform(Record):
    """A transform that a partition applies to every sample of a client."""

    name: str
    amount: Figure  # degrees for a rotation, turns for a hue


class RouteSummary(Record):
    """The paths that a client's test samples take."""

    samples: Count
    distinct: Count
    entropy: Figure  # in nats
    top: list[CommonPath]  # the most common first


class CommonPath(Record):
    path: list[str]  # names of operations, by slot
    share: Figure  # of the samples that take it


class Privacy(Record):
    left_the_clients: list[Departure]
    observer: str  # what the observer of a simulation saw in addition
    notes: list[str] = []  # what these fields may reveal, as the method states it
    histograms: ReportedHistograms | None = None  # None: the run did not ask for them


class Departure(Record):
    """Fields that left the clients, in answer to one kind of order."""

    stage: str
    order: str
    fields: SentFields
    seen_by: str


class SentFields(Record):
    """What one kind of reply may contain."""

    tensors: list[str]  # "*": all of the order's
    extra: list[str]
    values: list[str]
    optional: list[str] = []  # tensors of the order that need not be returned


class ReportedHistograms(Record):
    """How clients reported their label counts, where clustering needed them."""

    mechanism: str  # exact or laplace
    epsilon: float | None  # of the noise
    sensitivity: Count  # how much one sample changes a count
    asked: Count  # how often a client was asked at most; it gives the same answer every time
    secret: str  # where the noise comes from
