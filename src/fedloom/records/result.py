"""result.json of a run: what was found, for whom, and what it cost.

It is written and read through these types.

The file names figures by their metric: `accuracy` holds a run's figures, `shared_accuracy` a
client's figure of the shared model. Here they are `spread` and `shared_figure`, whatever the metric
is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from fedloom.config.models import Fit, Unit
from fedloom.data.tables.encoding import Encoding
from fedloom.metrics.metric import METRICS, Metric
from fedloom.reading import bounded, read_large_json
from fedloom.records.cautions import FEW_SAMPLES, Cautions, both, has_one_answer, number_of
from fedloom.records.decision import Decision
from fedloom.records.record import (
    LARGEST_COUNT,
    Count,
    Figure,
    Interval,
    PositiveCount,
    Record,
    Seconds,
    metric_in,
    object_in,
    plain_of,
    renamed,
)
from fedloom.types import Json

NAME = "result.json"


class Spread(Record):
    """A figure over the clients."""

    mean: Figure | None
    std: Figure | None = None  # ddof 0: these are all the clients
    worst: Figure | None = None
    worst10: Figure | None = None  # the mean of the worst 10 %
    pooled: Figure | None = None  # over all their samples; the run's metric and MAE have it


class ClientTransform(Record):
    """What a partition does to every sample of a client, and how far."""

    name: str
    amount: Figure  # degrees of a rotation, turns of a hue


class CommonPath(Record):
    path: list[str]  # names of operations, by slot
    share: Figure  # of the samples


class RouteSummary(Record):
    """The ways that a client's test samples take."""

    samples: Count
    distinct: Count
    entropy: Figure  # in nats
    top: list[CommonPath]  # the most common first


class ClientResult(Record):
    """What one client ended with, on its own test part."""

    client: Count
    samples: Count  # training, validation and test
    test_samples: Count
    figure: Figure | None  # of the run's metric; None with a `reason`
    interval: Interval | None
    beside: dict[str, Figure | None] = {}  # other figures, by their names
    answers: Count | None = None  # how many different classes its model answered; None: not told
    shared_figure: Figure | None = None  # of the shared model
    shared_interval: Interval | None = None
    shared_balanced_accuracy: Figure | None = None
    shared_auc: Figure | None = None  # where there are two classes
    shared_answers: Count | None = None
    params: Count | None  # None: a site does not tell
    macs: Count | None  # of one sample
    architecture: Json  # a fixed network's name, or a searched one as JSON
    head: str | None = (
        None  # what its classifier sees of the last map; None: there is no choice, or nobody told
    )
    seconds: Seconds | None = None  # of its work, all rounds together
    memory: Count | None = None  # bytes that its process held at most
    reason: str | None = None  # why it has no figures
    # Of one sample, by the profile that was asked for; where samples take their own ways the mean
    # over the client's test samples, the 95th percentile and the worst.
    latency_ms: Figure | None = None
    latency_p95_ms: Figure | None = None
    latency_worst_ms: Figure | None = None
    tier: PositiveCount | None = None  # of its device; None: the method knows no tiers
    # In the order in which they are made; None: the partition transforms nobody's samples.
    transform: list[ClientTransform] | None = None
    # Of a model whose samples take their own ways, over the client's test samples; `macs` is the
    # mean then. None: all samples take the same way.
    params_used: Figure | None = None
    macs_std: Figure | None = None
    macs_max: Figure | None = None
    shuffled_accuracy: Figure | None = None  # every sample takes the way of another one
    routes: RouteSummary | None = None

    @property
    def transform_text(self) -> str:
        """`rotation −30`, `hue +0.33`, `none`; empty where the partition transforms nothing."""
        if self.transform is None:
            return ""
        texts = [f"{transform.name} {transform.amount:+.3g}" for transform in self.transform]
        return ", ".join(texts).replace("-", "−") or "none"

    @property
    def is_searched(self) -> bool:
        return isinstance(self.architecture, dict)

    @property
    def is_personal(self) -> bool:
        """Whether its own model is another than the shared one, as far as figures tell."""
        return self.shared_figure is not None and self.shared_figure != self.figure

    @property
    def has_one_answer(self) -> bool | None:
        """Whether its model says the same of every test sample; None: that is not known."""
        return has_one_answer(self.answers, self.test_samples, self.figure)

    @property
    def has_one_shared_answer(self) -> bool | None:
        """The same of the shared model."""
        return has_one_answer(self.shared_answers, self.test_samples, self.shared_figure)

    @property
    def has_one_class(self) -> bool | None:
        """Whether its test part has one class; None: text, or nobody tells.

        Balanced accuracy is null there. Earlier versions wrote one, so of their files it is not
        known.
        """
        if self.figure is None or "balanced_accuracy" not in self.beside:
            return None
        return self.beside["balanced_accuracy"] is None

    def to_row(self, metric: Metric) -> dict[str, Json]:
        """As the file has it."""
        names = {"figure": metric.name, "shared_figure": f"shared_{metric.name}"}
        row: dict[str, Json] = {}
        for name, value in self.given().items():
            if name == "beside":
                row.update(value)
            else:
                row[names.get(name, name)] = plain_of(value)
        return row

    @staticmethod
    def fields_in(raw: Json, metric: Metric) -> Json:
        """A row of the file by the names that its fields have here.

        Something else stays what it is.
        """
        if not isinstance(raw, dict):
            return raw
        names = {metric.name: "figure", f"shared_{metric.name}": "shared_figure"}
        beside, rest = figures_beside(raw, metric)
        return {**renamed(names, rest), "beside": beside}


class PathScore(Record):
    """A path with the supernet's weights, on validation samples."""

    loss: Figure
    accuracy: Figure
    # None: text, one class, or clients scored it, who send sums over all classes
    balanced_accuracy: Figure | None = None
    auc: Figure | None = None  # the same, where there are two classes


class Control(Record):
    """A random path that costs about as much as a tier's own, scored with the same weights."""

    path: list[str] | None = None  # names of operations, by layer
    macs: Count | None = None
    validation: PathScore | None = None
    reason: str | None = None  # why there is none


class FrontPoint(Record):
    """A path that no other path of its tier beats in both loss and cost."""

    path: list[str]
    loss: Figure
    accuracy: Figure | None = None  # None: an earlier version wrote it
    balanced_accuracy: Figure | None = None  # None: as of a `PathScore`
    auc: Figure | None = None
    macs: Count


class TunedPath(Record):
    """One of the best paths of a tier, trained to compare its score with what it comes to."""

    path: list[str]
    macs: Count
    validation: PathScore  # with the supernet's weights
    tuned_rounds: Count
    # Pooled over the test parts of all clients, after tuning; in the file `global`.
    pooled_over_all: Figure | None = None
    global_balanced_accuracy: Figure | None = None  # mean over them; None: text, or not known
    global_auc: Figure | None = None  # the same, where there are two classes

    def to_json(self) -> dict[str, Json]:
        plain = {}
        for name, value in super().to_json().items():
            plain[TIER_NAMES_IN_FILE.get(name, name)] = value
        return plain


class TierResult(Record):
    """The network of one tier of devices."""

    tier: PositiveCount  # from the smallest devices on
    limit: dict[str, Figure]  # the most that its network may cost, by unit
    clients: Count  # of this tier
    eligible: Count  # clients that can run it: of this tier and above
    path: list[str] = []  # names of operations, by layer; none where nothing is searched
    width: Figure | None = None  # of the layers, as a share of the widest network's
    architecture: Json
    head: str | None = None  # what its classifier sees of the last map; None: there is no choice
    params: Count
    macs: Count  # of one sample
    macs_paper: Count  # the same as FedorAS's tool counts
    latency_ms: Figure | None = None  # by the tier's profile, where its limit is in milliseconds
    note: str | None = None  # what its numbers do not show
    validation: PathScore | None = None  # None: nothing was scored
    # Both pooled over the test parts of all clients, whatever their tier is.
    supernet: Figure | None = None  # with the supernet's weights, before tuning
    pooled_over_all: Figure | None = None  # in the file `global`
    # Of the same two networks, means over all clients; None: text, or not known. AUC is told where
    # there are two classes.
    supernet_balanced_accuracy: Figure | None = None
    supernet_auc: Figure | None = None
    global_balanced_accuracy: Figure | None = None
    global_auc: Figure | None = None
    own: Spread | None = None  # over the clients of this tier
    balanced_accuracy: Figure | None = None  # mean over them; None: text, or not known
    auc: Figure | None = None  # the same, where there are two classes
    tuned_rounds: Count = 0
    control: Control = Control(reason="nothing was searched")
    front: list[FrontPoint] = []
    top: list[TunedPath] = []  # its network and the next best, if more than one was trained
    # Kendall's tau between their losses and their final figures: 1 if both rank them alike.
    top_tau: Figure | None = None
    reason: str | None = None  # why nobody told a figure of it

    @property
    def is_searched(self) -> bool:
        return isinstance(self.architecture, dict)

    def to_json(self) -> dict[str, Json]:
        plain = {}
        for name, value in super().to_json().items():
            plain[TIER_NAMES_IN_FILE.get(name, name)] = value
        return plain

    @staticmethod
    def fields_in(raw: Json) -> Json:
        """A row of the file by the names that its fields have here.

        Something else stays what it is.
        """
        if not isinstance(raw, dict):
            return raw
        fields = renamed(TIER_NAMES, raw)
        if isinstance(raw.get("top"), list):
            fields["top"] = []
            for row in raw["top"]:
                fields["top"].append(TierResult.fields_in(row))
        return fields


class SearchSummary(Record):
    """How the paths of tiers were found."""

    score: str  # who scored them: `central`, `federated` or `pooled`
    models: Count  # paths that were scored, all tiers together
    generations: Count
    # Kendall's tau between the clients' and the server's scores; None: there are not both.
    tau: Figure | None = None
    tau_clients: Count | None = None  # that scored the last generation
    supernet_bytes: list[Count] = []  # of the smallest part with a generation's new paths


class PersonalGain(Record):
    """What clients' own models are worth against the shared one, at the clients that have both."""

    clients: Count
    own: Figure  # mean over these clients
    shared: Figure
    better: Count  # clients whose own model is better
    worse: Count
    # Means over those of them that have both; None: text, or nobody tells.
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
    """How many test samples of each class (rows) were taken for each (columns)."""

    labels: list[str]
    clients: Count  # that told
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
        """Over all these samples; None: they are of one class, or there are none."""
        shares = []
        for number, row in enumerate(self.counts):
            if sum(row):
                shares.append(row[number] / sum(row))
        if len(shares) < 2:
            return None
        return fmean(shares)


class Traffic(Record):
    """Bytes of the messages. Those inside clusters are "lan"; evaluation is booked apart."""

    down: Count
    up: Count
    lan_down: Count
    lan_up: Count
    evaluate_down: Count
    evaluate_up: Count
    describe_down: Count = 0  # of `down` and `up`, what clients were described with
    describe_up: Count = 0

    @property
    def wan(self) -> int:
        """All bytes between server and clients, or aggregators."""
        return self.down + self.up

    @property
    def inside_clusters(self) -> int:
        return self.lan_down + self.lan_up

    @property
    def of_training(self) -> int:
        """All bytes that a network carried for the work."""
        return self.down + self.up + self.inside_clusters


class OverLimit(Record):
    """A round that went over a limit: it was dropped, and no other figure counts it."""

    round: PositiveCount
    limit: str
    cost: dict[str, Figure]  # by limit


class Simulated(Record):
    """What the simulated clock says of the run."""

    seconds: Seconds
    devices: str  # the table of them
    availability: str
    budget: dict[str, Figure]  # the most that might be spent, by limit
    stopped: Unit  # the limit that ended the run
    asked: Count  # orders for work
    dropped: Count  # clients that left during their work
    late: Count
    wasted_bytes: Count  # of those two
    wasted_macs: Count
    replaced: Count  # aggregators
    over: OverLimit | None = None  # the last round that was dropped, if one was

    @property
    def is_of_interest(self) -> bool:
        """Whether anybody asked for anything of the clock."""
        is_usual = self.devices == "equal" and self.availability == "always"
        return not is_usual or bool(self.budget or self.dropped or self.late)


class TopologyOfRun(Record):
    """Who talked to whom."""

    kind: str  # flat or clustered
    lambda1: Count | None  # local iterations before each mean in a cluster; None: epochs
    lambda2: Count | None  # means in a cluster before each of the server
    size: Count | None  # the most members of a cluster
    recluster: Count | None  # rounds
    aggregator: str | None  # how it was chosen; None: there was none
    relay: str | None  # "server": its process did the aggregators' work


class ClusterOfRun(Record):
    """One cluster of the last clustering."""

    cluster: Count
    members: list[Count]  # in the order in which they joined
    aggregator: Count | None  # None: the server's own process
    level: Figure | None  # distance of its labels to the population's
    histogram: list[Count] | None  # what the server saw of its labels


class FinalCandidate(Record):
    """A group of cells that a search held for the best."""

    architecture: Json
    validation: Figure | None  # its accuracy with the supernet's weights; None: it was the only one
    chosen: bool


class SupernetFacts(Record):
    """The network that a search whose samples take their own ways chooses from."""

    space: str
    edges: Count
    params: Count  # without what chooses
    sampler_params: Count


class Uphill(Record):
    """Rounds in which η₁‖g‖² passed 1: there the outer product of Eq. 5 turns steps uphill."""

    rounds: PositiveCount
    largest: float


class FinalGroup(Record):
    """The network of a search for a group of cells: the group, stacked."""

    architecture: Json  # of the group
    group: PositiveCount  # cells
    stack: PositiveCount  # times that the network has the group
    cells: PositiveCount  # of the network
    reductions: list[Count]  # the cells that halve the map
    params: Count
    macs: Count
    candidates: list[FinalCandidate]


class Input(Record):
    """What goes into the networks, and what comes out."""

    kind: str
    shape: list[int]
    labels: list[str]
    mean: list[Figure]
    std: list[Figure]
    resize: Count | None = None  # images were made so many pixels high and wide
    fit: Fit = "stretch"  # and so those that were not square
    table: dict[str, Json] | None = None  # what the columns of a table became; None: it was none

    @property
    def encoding(self) -> Encoding | None:
        if self.table is None:
            return None
        return Encoding.from_json(self.table)


class SkippedFile(Record):
    """A file that could not be read, and that the user let go."""

    file: str
    reason: str


class Data(Record):
    name: str
    partition: str
    split: str  # the hash of its file
    skipped: list[SkippedFile] = []  # by --skip-bad


class Versions(Record):
    fedloom: str
    torch: str
    python: str
    took_part: list[str] = []  # versions of fedloom, where there were several


class SentFields(Record):
    """What one kind of reply may hold."""

    tensors: list[str]  # "*": all of the order
    extra: list[str]
    values: list[str]
    optional: list[str] = []  # tensors of the order that need not come back


class Departure(Record):
    """Fields that left the clients, in answer to one kind of order."""

    stage: str
    order: str
    fields: SentFields
    seen_by: str


class ToldHistograms(Record):
    """How clients told the numbers of their labels, where clusters needed them."""

    mechanism: str  # exact or laplace
    epsilon: float | None  # of the noise
    sensitivity: Count  # how much one sample changes a count
    asked: Count  # times that a client was asked, at most; it says the same every time
    secret: str  # where the noise comes from


class Privacy(Record):
    left_the_clients: list[Departure]
    observer: str  # what the observer of a simulation saw beside that
    notes: list[str] = []  # what these fields may tell, by the method's own word
    histograms: ToldHistograms | None = None  # None: nobody asked for them


class Start(Record):
    """What `--init` made a run begin with."""

    run: str
    client: Count | None = None  # None: the shared weights
    clients: list[Count] | None = None  # one for each newcomer; None: all begin alike
    hash: str | None = None
    # test samples that the weights were trained on; None: that cannot be told
    seen: Count | None = None


class Latency(Record):
    """The profile of the clients' milliseconds, and the machine that it is of."""

    profile: str
    processor: str
    system: str
    device: str
    torch: str


class StageEnd(Record):
    """What a stage ended with, by the evaluation of its last round, and what it cost.

    Costs are told by methods that send clients a part of their network.
    """

    stage: str
    rounds: Count  # that asked clients
    part: str | None = None  # of the clients' data; None: it was not evaluated, or is the last one
    # the mean over the evaluated clients, each with the model it would use
    figure: Figure | None = None
    balanced_accuracy: Figure | None = None  # the same; None: text, or an earlier version wrote it
    auc: Figure | None = None  # the same, where there are two classes
    shared: Figure | None = None  # of the shared model; None: there is none
    shared_balanced_accuracy: Figure | None = None  # the same; None: text, or it is not known
    shared_auc: Figure | None = None  # the same, where there are two classes
    down: Count | None = None  # bytes
    up: Count | None = None
    full_down: Count | None = None  # bytes, had every order been the whole network
    macs: Count | None = None  # of the clients; None: sites do not tell
    server_macs: Count | None = None
    share: Figure | None = None  # of the run's budget that it spent

    @property
    def beside(self) -> dict[str, float]:
        """The figures beside the metric's that are known, by their names."""
        return known_of({"balanced_accuracy": self.balanced_accuracy, "auc": self.auc})

    @property
    def shared_beside(self) -> dict[str, float]:
        """The same of the shared model."""
        balanced = self.shared_balanced_accuracy
        return known_of({"balanced_accuracy": balanced, "auc": self.shared_auc})


class Phase(Record):
    phase: str
    rounds: PositiveCount
    paper: Figure | None  # the share of the budget that it has in the method's paper


class LostState(Record):
    client: Count
    round: Count
    how: Literal["fresh", "refused"]  # it went on with a fresh state, or was left out of the round


class StepBack(Record):
    """`resume --from`."""

    since: Count  # the round that the run had reached
    to: Count


class Capped(Record):
    """A client whose weight --max-weight-share lowered."""

    rounds: PositiveCount
    share: Figure  # the largest that it claimed


class RunResult(Record):
    method: str
    options: dict[str, Json] = {}
    seed: int
    metric: str
    lower_is_better: bool = False
    beside: dict[str, Spread] = {}  # other figures, by their names
    spread: Spread  # of the metric
    shared_pooled: Figure | None  # of the shared model alone; None: there is none
    shared: Spread | None = None
    personal_gain: PersonalGain | None = None  # None: no client's own model is another
    # mean accuracy of answering each client's most common class; None: not known
    most_common_class: Figure | None = None
    cautions: Cautions | None = None  # None: an earlier version wrote the file
    clients: list[ClientResult]
    confusion: Confusion | None = None
    registered: Count = 0  # clients of the run, of which a sample may have been evaluated
    rounds: Count
    selected: Count | None = None  # the round that is reported
    # its mean figure on validation data, if rounds were selected by it or evaluate.hold_back is set
    validation: Figure | None = None
    macs: Count | None  # of all training; None: a site does not tell
    server_macs: Count = 0  # of the server itself: planning, merging, scoring
    seconds: Seconds
    measured_clock: Seconds | None = None  # if clients had worked side by side
    clock: Seconds | None = None  # the same in a file of an earlier version
    memory: Count | None = None  # bytes that a client at work held at most
    simulated: Simulated | None = None  # None: of an earlier version, or of a federation
    topology: TopologyOfRun | None = None  # None: of an earlier version
    clusters: list[ClusterOfRun] = []
    traffic: Traffic
    input: Input | None = None
    data: Data
    versions: Versions | None = None
    privacy: Privacy
    init: Start | None = None
    latency: Latency | None = None
    phases: list[Phase] = []
    # Those before the last one, which the figures above are of; with costs, all of them.
    stages: list[StageEnd] = []
    tiers: list[TierResult] = []  # of a method that knows tiers of devices
    fairness: Spread | None = None  # of the means that tiers have over their own clients
    ops: list[dict[str, Count]] = []  # samples through each operation of each layer
    search: SearchSummary | None = None
    final: FinalGroup | None = None  # of a search for a group of cells
    supernet: SupernetFacts | None = None  # of a search whose samples may take their own ways
    decisions: list[Decision] = []  # of a method that chooses on validation data, in their order
    uphill: Uphill | None = None  # None: no step that expects fine-tuning turned uphill
    lost_states: list[LostState] = []
    taken_back: list[StepBack] = []
    capped: dict[str, Capped] = {}
    claims: list[str] = []  # of sites that told of many more samples than before
    checksums: dict[str, str] = {}  # SHA-256 of files of the run

    @property
    def judged_by(self) -> Metric:
        return METRICS[self.metric]

    @property
    def side_by_side(self) -> float | None:
        """Measured seconds, if clients had worked side by side."""
        if self.measured_clock is None:
            return self.clock
        return self.measured_clock

    @property
    def short_method(self) -> str:
        """Its method's name, without the path of a file."""
        return self.method.rpartition("/")[2]

    @property
    def seen(self) -> int | None:
        """Test samples that the weights of `--init` were trained on; None: that cannot be told."""
        if self.init is None:
            return None
        return self.init.seen

    def spread_of(self, name: str) -> Spread:
        """Of the metric, or of a figure beside it; one that the file does not have is not known."""
        if name == self.metric:
            return self.spread
        return self.beside.get(name, Spread(mean=None))

    @property
    def columns(self) -> list[str]:
        """Names of the figures that tables show beside the metric. AUC is shown of two classes."""
        names = []
        for name in self.judged_by.columns:
            if name != "auc" or self.has_two_classes:
                names.append(name)
        return names

    @property
    def has_two_classes(self) -> bool:
        return self.number_of_classes == 2

    @property
    def number_of_classes(self) -> int | None:
        """None: the file is of a version that does not tell."""
        if self.input is not None:
            return len(self.input.labels)
        if self.confusion is not None:
            return len(self.confusion.labels)
        return None

    @property
    def known_cautions(self) -> Cautions:
        """Counted here where the file is of an earlier version."""
        if self.cautions is not None and self.cautions.one_class is not None:
            return self.cautions
        return cautions_of(self.clients)

    @property
    def known_gain(self) -> PersonalGain | None:
        """Of the personal models, also where the file is of an earlier version."""
        if self.personal_gain is not None:
            return self.personal_gain
        return personal_gain_of(self.clients, self.judged_by)

    @property
    def columns_of_classes(self) -> list[str]:
        """Those of `columns` in which every class counts the same; text has none."""
        if not self.judged_by.counts_answers:
            return []
        return self.columns

    @property
    def shared_balanced_accuracy(self) -> float | None:
        """Mean over clients, of the shared model alone."""
        return mean_of_known([client.shared_balanced_accuracy for client in self.clients])

    @property
    def shared_auc(self) -> float | None:
        """The same, where there are two classes."""
        return mean_of_known([client.shared_auc for client in self.clients])

    @property
    def pooled_balanced_accuracy(self) -> float | None:
        """Over all test samples; None: not every client tells how it answered each of its own."""
        if self.confusion is None:
            return None
        samples = 0
        for client in self.clients:
            if client.figure is not None:
                samples += client.test_samples
        if self.confusion.samples != samples:
            return None
        return self.confusion.balanced_accuracy

    def client(self, number: int) -> ClientResult | None:
        for client in self.clients:
            if client.client == number:
                return client
        return None

    def to_json(self) -> dict[str, Json]:
        """As the file has it."""
        metric = self.judged_by
        plain: dict[str, Json] = {}
        for name, value in self.given().items():
            if name == "beside":
                plain.update(plain_of(value))
            elif name == "spread":
                plain[metric.name] = plain_of(value)
            elif name == "clients":
                plain[name] = [client.to_row(metric) for client in self.clients]
            else:
                plain[NAMES_IN_FILE.get(name, name)] = plain_of(value)
        return plain

    @classmethod
    def from_json(cls, raw: Json) -> RunResult:
        """Raises Unreadable, with the first place that is wrong."""
        bounded(object_in(raw, "it"), LARGEST_COUNT)
        metric = metric_in(raw)
        beside, rest = figures_beside(raw, metric)
        names = {**NAMES, metric.name: "spread"}
        fields = {**renamed(names, rest), "beside": beside}
        if isinstance(fields.get("clients"), list):
            fields["clients"] = [ClientResult.fields_in(row, metric) for row in fields["clients"]]
        if isinstance(fields.get("tiers"), list):
            fields["tiers"] = [TierResult.fields_in(row) for row in fields["tiers"]]
        return cls.checked(fields, in_file_of(metric))

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Raises Unreadable."""
        return cls.from_json(read_large_json(path))


def known_of(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: figure for name, figure in figures.items() if figure is not None}


def mean_of_known(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    return fmean(known)


def cautions_of(clients: Sequence[ClientResult]) -> Cautions:
    judged = [client for client in clients if client.figure is not None]
    few = [client for client in judged if client.test_samples < FEW_SAMPLES]
    return Cautions(
        clients=len(judged),
        one_answer=number_of(client.has_one_answer for client in judged),
        shared_one_answer=number_of(client.has_one_shared_answer for client in judged),
        few_samples=len(few),
        one_class=number_of(client.has_one_class for client in judged),
        one_answer_of_one_class=number_of(
            both(client.has_one_answer, client.has_one_class) for client in judged
        ),
        shared_of_one_class=number_of(
            both(client.has_one_shared_answer, client.has_one_class) for client in judged
        ),
    )


def personal_gain_of(
    clients: Sequence[ClientResult],
    metric: Metric,
    *,
    differ: bool = False,
) -> PersonalGain | None:
    """None: no client's own model is another than the shared one, as far as figures tell.

    `differ`: it is known that some are another, although they may have the same figures.
    """
    own = []
    shared = []
    own_balanced = []
    shared_balanced = []
    better = 0
    worse = 0
    for client in clients:
        if client.figure is None or client.shared_figure is None:
            continue
        own.append(client.figure)
        shared.append(client.shared_figure)
        balanced = client.beside.get("balanced_accuracy")
        if balanced is not None and client.shared_balanced_accuracy is not None:
            own_balanced.append(balanced)
            shared_balanced.append(client.shared_balanced_accuracy)
        better += metric.better(client.figure, client.shared_figure)
        worse += metric.better(client.shared_figure, client.figure)
    if not own or not (better or worse or differ):
        return None
    gain = PersonalGain(
        clients=len(own),
        own=fmean(own),
        shared=fmean(shared),
        better=better,
        worse=worse,
    )
    if not own_balanced:
        return gain
    return gain.replace(
        own_balanced_accuracy=fmean(own_balanced),
        shared_balanced_accuracy=fmean(shared_balanced),
    )


NAMES = {"global": "shared_pooled", "bytes": "traffic"}  # in the file, and here
NAMES_IN_FILE = {ours: in_file for in_file, ours in NAMES.items()}
TIER_NAMES = {"global": "pooled_over_all"}
TIER_NAMES_IN_FILE = {ours: in_file for in_file, ours in TIER_NAMES.items()}


def figures_beside(raw: Json, metric: Metric) -> tuple[dict[str, Json], dict[str, Json]]:
    """The figures that stand beside the metric's, and the rest of what the file has."""
    beside = {name: raw[name] for name in metric.beside if name in raw}
    rest = {name: value for name, value in raw.items() if name not in beside}
    return beside, rest


def in_file_of(metric: Metric) -> dict[str, str]:
    """What the file calls our fields."""
    return {
        "spread": metric.name,
        "figure": metric.name,
        "shared_figure": f"shared_{metric.name}",
        "beside": "",
        **NAMES_IN_FILE,
        **TIER_NAMES_IN_FILE,
    }
