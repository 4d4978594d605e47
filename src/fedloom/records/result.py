"""The types by which a run's result.json is written and read.

The file has the figures of the run and of each client, the networks, and what they cost. It names
figures by their metric: `accuracy` holds a run's figures, `shared_accuracy` the figure of the
shared model at a client. Here these are `spread` and `shared_figure`, whatever the metric is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

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
from fedloom.records.result_parts import (
    Capped,
    ClientTransform,
    ClusterOfRun,
    Confusion,
    Data,
    Input,
    Latency,
    LostState,
    PersonalGain,
    Phase,
    Privacy,
    RouteSummary,
    Simulated,
    Start,
    StepBack,
    TopologyOfRun,
    Traffic,
    Uphill,
    Versions,
)
from fedloom.types import Json

NAME = "result.json"
# Names in the file, and the names of the same fields here.
NAMES = {"global": "shared_pooled", "bytes": "traffic"}
NAMES_IN_FILE = {ours: in_file for in_file, ours in NAMES.items()}
TIER_NAMES = {"global": "pooled_over_all"}
TIER_NAMES_IN_FILE = {ours: in_file for in_file, ours in TIER_NAMES.items()}


class RunResult(Record):
    method: str
    options: dict[str, Json] = {}
    seed: int
    metric: str
    lower_is_better: bool = False
    beside: dict[str, Spread] = {}  # other figures, by their names
    spread: Spread  # of the metric
    shared_pooled: Figure | None  # of the shared model; None: there is none
    shared: Spread | None = None
    personal_gain: PersonalGain | None = None  # None: no client's own model differs
    # The mean accuracy of always answering each client's most common class; None: unknown.
    most_common_class: Figure | None = None
    cautions: Cautions | None = None  # None: an earlier version wrote the file
    clients: list[ClientResult]
    confusion: Confusion | None = None
    registered: Count = 0  # all clients of the run, of which perhaps only a sample was evaluated
    rounds: Count
    selected: Count | None = None  # the round that is reported
    # Its mean validation figure, if rounds were selected by it or evaluate.hold_back is set.
    validation: Figure | None = None
    macs: Count | None  # of all training; None: a site does not report them
    # Whether `macs` is the network's MACs times the number of samples. The server computes it so
    # where sites do not report theirs.
    macs_by_formula: bool = False
    server_macs: Count = 0  # of the server itself: planning, merging, scoring
    seconds: Seconds
    measured_clock: Seconds | None = None  # the time that clients in parallel would have taken
    clock: Seconds | None = None  # the same in a file of an earlier version
    memory: Count | None = None  # the peak memory of a client during its work, in bytes
    simulated: Simulated | None = None  # None: an earlier version's file, or a federation
    topology: TopologyOfRun | None = None  # None: an earlier version's file
    clusters: list[ClusterOfRun] = []
    traffic: Traffic
    input: Input | None = None
    data: Data
    versions: Versions | None = None
    privacy: Privacy
    init: Start | None = None
    latency: Latency | None = None
    phases: list[Phase] = []
    # The stages before the last one, to which the figures above belong; with costs, all stages.
    stages: list[StageEnd] = []
    tiers: list[TierResult] = []  # for methods that support tiers of devices
    fairness: Spread | None = None  # over the tiers' means over their own clients
    ops: list[dict[str, Count]] = []  # samples through each operation of each layer
    search: SearchSummary | None = None
    final: FinalGroup | None = None  # for a search for a group of cells
    supernet: SupernetFacts | None = None  # for a search whose samples may take their own paths
    decisions: list[Decision] = []  # for a method that decides on validation data, in order
    uphill: Uphill | None = None  # None: no step that anticipates fine-tuning ascended
    lost_states: list[LostState] = []
    taken_back: list[StepBack] = []
    capped: dict[str, Capped] = {}
    claims: list[str] = []  # about sites that reported many more samples than before
    # The test shares of sites whose policy chose another than the run's, by site.
    site_tests: dict[str, float] = {}
    checksums: dict[str, str] = {}  # SHA-256 of files of the run

    @property
    def judged_by(self) -> Metric:
        return METRICS[self.metric]

    @property
    def side_by_side(self) -> float | None:
        """The seconds that clients working in parallel would have taken, as measured."""
        if self.measured_clock is None:
            return self.clock
        return self.measured_clock

    @property
    def short_method(self) -> str:
        """The method's name, without the path of a file."""
        return self.method.rpartition("/")[2]

    @property
    def seen(self) -> int | None:
        """Test samples that the weights of `--init` were trained on; None: unknown."""
        if self.init is None:
            return None
        return self.init.seen

    def spread_of(self, name: str) -> Spread:
        """The spread of the metric or of another figure, which is empty if the file lacks it."""
        if name == self.metric:
            return self.spread
        return self.beside.get(name, Spread(mean=None))

    @property
    def columns(self) -> list[str]:
        """The further figures that tables show, by name. AUC is shown for two classes only."""
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
        """The number of classes; None: an earlier version's file, which does not have it."""
        if self.input is not None:
            return len(self.input.labels)
        if self.confusion is not None:
            return len(self.confusion.labels)
        return None

    @property
    def known_cautions(self) -> Cautions:
        """The cautions, counted here if an earlier version wrote the file."""
        if self.cautions is not None and self.cautions.one_class is not None:
            return self.cautions
        return cautions_of(self.clients)

    @property
    def known_gain(self) -> PersonalGain | None:
        """The gain of personal models, computed here if an earlier version wrote the file."""
        if self.personal_gain is not None:
            return self.personal_gain
        return personal_gain_of(self.clients, self.judged_by)

    @property
    def columns_of_classes(self) -> list[str]:
        """The `columns` in which every class has the same weight; text has none."""
        if not self.judged_by.counts_answers:
            return []
        return self.columns

    @property
    def shared_balanced_accuracy(self) -> float | None:
        """The shared model's balanced accuracy, mean over clients."""
        return mean_of_known([client.shared_balanced_accuracy for client in self.clients])

    @property
    def shared_auc(self) -> float | None:
        """The shared model's AUC, mean over clients, where there are two classes."""
        return mean_of_known([client.shared_auc for client in self.clients])

    @property
    def pooled_balanced_accuracy(self) -> float | None:
        """The balanced accuracy over all test samples.

        None: unknown, because not every client reported its confusion matrix.
        """
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
        """The content of the file."""
        metric = self.judged_by
        plain: dict[str, Json] = {}
        for name, value in self.given_fields().items():
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
        """Read the content of the file. Raises Unreadable, with the first place that is wrong."""
        bounded(object_in(raw, "it"), LARGEST_COUNT)
        metric = metric_in(raw)
        beside = figures_beside(raw, metric)
        others = {name: value for name, value in raw.items() if name not in beside}
        names = {**NAMES, metric.name: "spread"}
        fields = {**renamed(names, others), "beside": beside}
        if isinstance(fields.get("clients"), list):
            fields["clients"] = [ClientResult.fields_in(row, metric) for row in fields["clients"]]
        if isinstance(fields.get("tiers"), list):
            fields["tiers"] = [TierResult.fields_in(row) for row in fields["tiers"]]
        return cls.checked(fields, in_file_of(metric))

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Read the file. Raises Unreadable."""
        return cls.from_json(read_large_json(path))


class Spread(Record):
    """A figure over the clients."""

    mean: Figure | None
    std: Figure | None = None  # ddof 0, because these are all the clients
    worst: Figure | None = None
    worst10: Figure | None = None  # the mean of the worst 10 %
    pooled: Figure | None = None  # over all their samples, for the run's metric and MAE


class ClientResult(Record):
    """The final results of one client, on its own test part."""

    client: Count
    samples: Count  # for training, validation and test together
    test_samples: Count
    figure: Figure | None  # of the run's metric; None: `reason` says why
    interval: Interval | None
    beside: dict[str, Figure | None] = {}  # other figures, by their names
    answers: Count | None = None  # how many different classes its model predicted; None: unknown
    shared_figure: Figure | None = None  # of the shared model
    shared_interval: Interval | None = None
    shared_balanced_accuracy: Figure | None = None
    shared_auc: Figure | None = None  # where there are two classes
    shared_answers: Count | None = None
    params: Count | None  # None: the site does not report it
    macs: Count | None  # of one sample
    architecture: Json  # a fixed network's name, or a searched one as JSON
    # What the classifier gets of the last map; None: unknown, or there is no choice.
    head: str | None = None
    seconds: Seconds | None = None  # of its work, over all rounds
    memory: Count | None = None  # the peak memory of its process, in bytes
    reason: str | None = None  # why it has no figures
    # The latency of one sample, by the profile that was asked for. Where samples take their own
    # paths: the mean over the client's test samples, the 95th percentile and the worst.
    latency_ms: Figure | None = None
    latency_p95_ms: Figure | None = None
    latency_worst_ms: Figure | None = None
    tier: PositiveCount | None = None  # of its device; None: the method does not support tiers
    # In the order in which they are applied; None: the partition has no transforms.
    transform: list[ClientTransform] | None = None
    # For models whose samples take their own paths, over the client's test samples; `macs` is then
    # the mean. None: all samples take the same path.
    params_used: Figure | None = None
    macs_std: Figure | None = None
    macs_max: Figure | None = None
    shuffled_accuracy: Figure | None = None  # when every sample takes the path of another one
    routes: RouteSummary | None = None

    @property
    def transform_text(self) -> str:
        """For example `rotation −30`, `hue +0.33` or `none`; empty if there are no transforms."""
        if self.transform is None:
            return ""
        texts = [f"{transform.name} {transform.amount:+.3g}" for transform in self.transform]
        return ", ".join(texts).replace("-", "−") or "none"

    @property
    def is_searched(self) -> bool:
        return isinstance(self.architecture, dict)

    @property
    def is_personal(self) -> bool:
        """Whether its own model differs from the shared one, as far as the figures show."""
        return self.shared_figure is not None and self.shared_figure != self.figure

    @property
    def has_one_answer(self) -> bool | None:
        """Whether its model gives the same answer for every test sample; None: unknown."""
        return has_one_answer(self.answers, self.test_samples, self.figure)

    @property
    def has_one_shared_answer(self) -> bool | None:
        """Whether the shared model gives the same answer for every test sample; None: unknown."""
        return has_one_answer(self.shared_answers, self.test_samples, self.shared_figure)

    @property
    def has_one_class(self) -> bool | None:
        """Whether its test part has one class only; None: unknown, or the data is text.

        Balanced accuracy is null there. Earlier versions wrote a number instead, so that for their
        files it is unknown.
        """
        if self.figure is None or "balanced_accuracy" not in self.beside:
            return None
        return self.beside["balanced_accuracy"] is None

    def to_row(self, metric: Metric) -> dict[str, Json]:
        """This client as the file has it."""
        names = {"figure": metric.name, "shared_figure": f"shared_{metric.name}"}
        row: dict[str, Json] = {}
        for name, value in self.given_fields().items():
            if name == "beside":
                row.update(value)
            else:
                row[names.get(name, name)] = plain_of(value)
        return row

    @staticmethod
    def fields_in(raw: Json, metric: Metric) -> Json:
        """A row of the file with the names that its fields have here.

        A value that is not an object stays as it is.
        """
        if not isinstance(raw, dict):
            return raw
        names = {metric.name: "figure", f"shared_{metric.name}": "shared_figure"}
        beside = figures_beside(raw, metric)
        others = {name: value for name, value in raw.items() if name not in beside}
        return {**renamed(names, others), "beside": beside}


class StageEnd(Record):
    """The figures at the end of a stage, from the evaluation of its last round, and its cost.

    Costs are given for methods that send clients a part of their network.
    """

    stage: str
    rounds: Count  # rounds that asked clients
    # The part of the clients' data; None: the stage was not evaluated, or it is the last one.
    part: str | None = None
    # The mean over the evaluated clients, each with the model it would use.
    figure: Figure | None = None
    balanced_accuracy: Figure | None = None  # likewise; None: text, or an earlier version's file
    auc: Figure | None = None  # likewise, where there are two classes
    shared: Figure | None = None  # of the shared model; None: there is none
    shared_balanced_accuracy: Figure | None = None  # likewise; None: text, or unknown
    shared_auc: Figure | None = None  # likewise, where there are two classes
    down: Count | None = None  # bytes
    up: Count | None = None
    full_down: Count | None = None  # bytes, if every order had been the whole network
    macs: Count | None = None  # of the clients; None: unknown
    server_macs: Count | None = None
    share: Figure | None = None  # the share of the run's budget that it spent

    @property
    def beside(self) -> dict[str, float]:
        """The known figures other than the metric's, by their names."""
        return known_of({"balanced_accuracy": self.balanced_accuracy, "auc": self.auc})

    @property
    def shared_beside(self) -> dict[str, float]:
        """The known figures of the shared model other than the metric's, by their names."""
        balanced = self.shared_balanced_accuracy
        return known_of({"balanced_accuracy": balanced, "auc": self.shared_auc})


class PathScore(Record):
    """The figures of a path with the supernet's weights, on validation samples."""

    loss: Figure
    accuracy: Figure
    # None: the data is text, there is one class, or clients scored it, who send sums over all
    # classes.
    balanced_accuracy: Figure | None = None
    auc: Figure | None = None  # likewise, where there are two classes


class Control(Record):
    """A random path that costs about as much as a tier's own, scored with the same weights."""

    path: list[str] | None = None  # names of operations, by layer
    macs: Count | None = None
    validation: PathScore | None = None
    reason: str | None = None  # why there is no such path


class FrontPoint(Record):
    """A path that no other path of its tier beats in both loss and cost."""

    path: list[str]
    loss: Figure
    accuracy: Figure | None = None  # None: an earlier version wrote it
    balanced_accuracy: Figure | None = None  # None: as in a `PathScore`
    auc: Figure | None = None
    macs: Count


class TunedPath(Record):
    """One of the best paths of a tier, trained to compare its score with its final figure."""

    path: list[str]
    macs: Count
    validation: PathScore  # with the supernet's weights
    tuned_rounds: Count
    # Pooled over the test parts of all clients, after tuning; `global` in the file.
    pooled_over_all: Figure | None = None
    global_balanced_accuracy: Figure | None = None  # mean over them; None: text, or unknown
    global_auc: Figure | None = None  # likewise, where there are two classes

    def to_json(self) -> dict[str, Json]:
        plain = {}
        for name, value in super().to_json().items():
            plain[TIER_NAMES_IN_FILE.get(name, name)] = value
        return plain


class TierResult(Record):
    """The network of one tier of devices."""

    tier: PositiveCount  # counted from the tier of the smallest devices
    limit: dict[str, Figure]  # the most that its network may cost, by unit
    clients: Count  # in this tier
    eligible: Count  # clients that can run the network: those of this tier and above
    path: list[str] = []  # names of operations, by layer; empty where nothing is searched
    width: Figure | None = None  # of the layers, as a share of the widest network's
    architecture: Json
    head: str | None = None  # what the classifier gets of the last map; None: there is no choice
    params: Count
    macs: Count  # of one sample
    macs_paper: Count  # likewise, as FedorAS's tool counts them
    latency_ms: Figure | None = None  # by the tier's profile, where its limit is in milliseconds
    note: str | None = None  # a remark about what the numbers do not show
    validation: PathScore | None = None  # None: nothing was scored
    # Both are pooled over the test parts of all clients of all tiers.
    supernet: Figure | None = None  # with the supernet's weights, before tuning
    pooled_over_all: Figure | None = None  # `global` in the file
    # The means over all clients for the same two networks; None: the data is text, or unknown. AUC
    # is given where there are two classes.
    supernet_balanced_accuracy: Figure | None = None
    supernet_auc: Figure | None = None
    global_balanced_accuracy: Figure | None = None
    global_auc: Figure | None = None
    own: Spread | None = None  # over the clients of this tier
    balanced_accuracy: Figure | None = None  # mean over them; None: text, or unknown
    auc: Figure | None = None  # likewise, where there are two classes
    tuned_rounds: Count = 0
    control: Control = Control(reason="nothing was searched")
    front: list[FrontPoint] = []
    top: list[TunedPath] = []  # its network and the next best, if more than one was trained
    # Kendall's tau between their losses and their final figures: 1 if both rank them equally.
    top_tau: Figure | None = None
    reason: str | None = None  # why it has no figure

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
        """A row of the file with the names that its fields have here.

        A value that is not an object stays as it is.
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
    # Kendall's tau between the clients' and the server's scores; None: only one of them scored.
    tau: Figure | None = None
    tau_clients: Count | None = None  # clients that scored the last generation
    # By generation, the size of the smallest part of the supernet that has all its new paths.
    supernet_bytes: list[Count] = []


class FinalGroup(Record):
    """The network of a search for a group of cells: the group, stacked."""

    architecture: Json  # of the group
    group: PositiveCount  # cells
    stack: PositiveCount  # how often the network repeats the group
    cells: PositiveCount  # of the network
    reductions: list[Count]  # the cells that halve the map
    params: Count
    macs: Count
    candidates: list[FinalCandidate]


class FinalCandidate(Record):
    """A group of cells that a search ranked among the best."""

    architecture: Json
    validation: Figure | None  # accuracy with the supernet's weights; None: it was the only one
    chosen: bool


class SupernetFacts(Record):
    """The supernet of a search whose samples take their own paths."""

    space: str
    edges: Count
    params: Count  # without the samplers
    sampler_params: Count


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
    """What clients' own models gain over the shared one.

    None: no client's own model differs from the shared one, as far as the figures show. `differ`
    says that some are known to differ, although their figures may be equal.
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


def mean_of_known(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    return fmean(known)


def known_of(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: figure for name, figure in figures.items() if figure is not None}


def figures_beside(raw: Json, metric: Metric) -> dict[str, Json]:
    """The figures other than the metric's in an object of the file."""
    return {name: raw[name] for name in metric.beside if name in raw}


def in_file_of(metric: Metric) -> dict[str, str]:
    """The names of our fields in the file."""
    return {
        "spread": metric.name,
        "figure": metric.name,
        "shared_figure": f"shared_{metric.name}",
        "beside": "",
        **NAMES_IN_FILE,
        **TIER_NAMES_IN_FILE,
    }
