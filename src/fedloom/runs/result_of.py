"""Building a run's result from the final evaluation, the ledger and the folder's records."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fedloom.cost.devices import EQUAL
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import transforms_of
from fedloom.data.partitions.rule import Tint
from fedloom.data.split import Split
from fedloom.evaluate.summary import most, spread, summarise
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import Metric, metric_of
from fedloom.metrics.regression import MAE, pooled_mae
from fedloom.reading import Unreadable
from fedloom.records.claims import claims_in
from fedloom.records.classes import Classes
from fedloom.records.folder import RunFolder
from fedloom.records.result import (
    Capped,
    ClientResult,
    ClientTransform,
    ClusterOfRun,
    Confusion,
    Data,
    Input,
    Latency,
    LostState,
    OverLimit,
    Phase,
    RouteSummary,
    RunResult,
    Simulated,
    SkippedFile,
    Spread,
    StageEnd,
    Start,
    StepBack,
    TopologyOfRun,
    Traffic,
    Uphill,
    Versions,
    cautions_of,
    personal_gain_of,
)
from fedloom.records.rows import Evaluation, MetricsRow, are_by_formula
from fedloom.records.sites import own_test_shares
from fedloom.records.totals import Totals
from fedloom.runs import profiles
from fedloom.runs.clusters import CLUSTERED, FLAT, hierarchy_of, topology_of
from fedloom.runs.loop_settings import settings_of
from fedloom.runs.preparing import Prepared
from fedloom.runs.privacy import privacy
from fedloom.runs.stage_accounts import stage_accounts, with_ends
from fedloom.runs.tier_results import with_sections
from fedloom.types import Json, Task
from fedloom.version import __version__


@dataclass(frozen=True)
class Work:
    """What a client's work took, over all rounds."""

    seconds: float | None = None
    memory: int | None = None  # its process's peak in bytes


def result_of(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> RunResult:
    """Everything in result.json except the checksums. Sections without content are left out."""
    result = build_result(prepared, outcome, work_of_clients(folder.rows()))
    result = with_latencies(prepared, result, outcome.clients)
    sections = prepared.stages[-1].method.sections(outcome.state)
    result = with_sections(result, sections, outcome.clients)
    changes: dict[str, Json] = {}
    took_part = folder.head().versions
    if len(took_part) > 1 and result.versions is not None:
        changes["versions"] = result.versions.replace(took_part=took_part)
    most_common_class = most_common_answer(folder)
    if most_common_class is not None:
        changes["most_common_class"] = most_common_class
    by_formula = are_by_formula(folder.rows())
    if by_formula:
        changes["macs"] = outcome.totals.macs
        changes["macs_by_formula"] = True
    phases = in_phases(prepared.stages, folder.rows())
    if phases:
        changes["phases"] = phases
    names = [stage.name for stage in prepared.stages]
    earlier_stages = stage_ends(names[:-1], folder.rows())
    if sections.left_out is not None:
        accounts = stage_accounts(
            names,
            folder.rows(),
            sections.left_out,
            prepared.config.budget,
            has_macs=by_formula or not prepared.config.is_federated,
        )
        changes["stages"] = with_ends(accounts, earlier_stages)
    elif earlier_stages:
        changes["stages"] = earlier_stages
    lost = lost_states(folder.rows())
    if lost:
        changes["lost_states"] = lost
    if outcome.taken_back:
        changes["taken_back"] = [StepBack(**asdict(step)) for step in outcome.taken_back]
    capped_clients = capped(folder.rows())
    if capped_clients:
        changes["capped"] = capped_clients
    steps_uphill = uphill(folder.rows())
    if steps_uphill is not None and prepared.config.options.get("hessian", "outer") == "outer":
        changes["uphill"] = steps_uphill
    claims = claims_in(folder)
    if claims:
        changes["claims"] = claims
    test_shares = own_test_shares(folder.path, prepared.config.data.test)
    if test_shares:
        changes["site_tests"] = test_shares
    return result.replace(**changes)


def most_common_answer(folder: RunFolder) -> float | None:
    """The accuracy of always predicting each client's most common class; None in a federation."""
    try:
        return Classes.read(folder.path).usual
    except Unreadable:
        return None


def lost_states(rows: Iterable[MetricsRow]) -> list[LostState]:
    """Which clients had lost their private state in which round, and what was done about it."""
    events = []
    for row in rows:
        for client in row.fresh:
            events.append(LostState(client=client, round=row.round, how="fresh"))
        for refusal in row.refused:
            if refusal.reason.startswith("lost: "):
                events.append(LostState(client=refusal.client, round=row.round, how="refused"))
    return events


def capped(rows: Iterable[MetricsRow]) -> dict[str, Capped]:
    """The clients whose weight --max-weight-share lowered.

    Each has the number of such rounds, and the largest share that it claimed.
    """
    clients: dict[str, Capped] = {}
    for row in rows:
        for client, share in row.capped.items():
            before = clients.get(str(client))
            if before is None:
                clients[str(client)] = Capped(rounds=1, share=share)
            else:
                clients[str(client)] = Capped(
                    rounds=before.rounds + 1,
                    share=max(share, before.share),
                )
    return clients


def uphill(rows: Iterable[MetricsRow]) -> Uphill | None:
    """In how many rounds a client's η₁‖g‖² was above 1, and the largest value."""
    bends = []
    for row in rows:
        bend = row.notes.get("bend")
        if bend is not None and bend > 1:
            bends.append(bend)
    if not bends:
        return None
    return Uphill(rounds=len(bends), largest=max(bends))


def work_of_clients(rows: Iterable[MetricsRow]) -> dict[int, Work]:
    """What each client's work took.

    Descriptions and evaluations, whose hop is below 0 in the ledger, do not count as work.
    """
    seconds: dict[int, list[float]] = {}
    memory: dict[int, list[int]] = {}
    for row in rows:
        for line in row.ledger:
            if line.hop < 0:
                continue
            if line.seconds is not None:
                seconds.setdefault(line.client, []).append(line.seconds)
            if line.memory is not None:
                memory.setdefault(line.client, []).append(line.memory)
    work = {}
    for client, parts in seconds.items():
        work[client] = Work(round(sum(parts), 3), most(memory.get(client, [])))
    return work


def stage_ends(names: Sequence[str], rows: Iterable[MetricsRow]) -> list[StageEnd]:
    """The final figures of each of these stages, by its last evaluation."""
    rounds: Counter[str] = Counter()
    evaluations: dict[str, Evaluation] = {}
    for row in rows:
        rounds[row.stage] += 1
        if row.evaluation is not None:
            evaluations[row.stage] = row.evaluation
    ends = []
    for name in names:
        if name in evaluations:
            evaluation = evaluations[name]
            end = StageEnd(
                stage=name,
                rounds=rounds[name],
                part=evaluation.part,
                figure=evaluation.value,
                shared=evaluation.shared,
            )
            ends.append(end.replace(**evaluation.beside, **evaluation.shared_beside))
    return ends


def in_phases(stages: Sequence[Stage], rows: Iterable[MetricsRow]) -> list[Phase]:
    """The rounds of each phase of a schedule, and its share of the budget in the paper."""
    paper_shares: dict[str, float] = {}
    for stage in stages:
        paper_shares.update(stage.method.phases)
    counts = Counter(row.phase for row in rows if "phase" in row.notes)
    phases = []
    for name, rounds in counts.items():
        phases.append(Phase(phase=name, rounds=rounds, paper=paper_shares.get(name)))
    return phases


def build_result(prepared: Prepared, outcome: Outcome, work: Mapping[int, Work]) -> RunResult:
    """The result's main part, from the final evaluation and the ledger."""
    metric = metric_of(prepared.task.kind)
    config = prepared.config
    split = prepared.split
    totals = outcome.totals
    evaluations = outcome.clients
    personal = own_figures(evaluations)
    shared = [client.shared for client in evaluations if client.shared is not None]
    spread_of_shared = summarise(shared, metric)
    clients = [client_result(prepared, evaluation, metric, work) for evaluation in evaluations]
    macs = None  # unknown in a federation, whose sites do not report them
    if not config.is_federated:
        macs = totals.macs
    result = RunResult(
        method=config.method,
        options=dict(prepared.task.options),
        seed=config.seed,
        metric=metric.name,
        lower_is_better=metric.lower_is_better,
        beside=spreads_beside(personal, metric),
        spread=summarise(personal, metric),
        shared_pooled=spread_of_shared.pooled,
        shared=spread_of_shared if shared else None,
        cautions=cautions_of(clients),
        clients=clients,
        confusion=summed_confusion(prepared.task, evaluations),
        registered=len(split),
        rounds=totals.rounds,
        selected=outcome.selected,
        validation=outcome.validation,
        macs=macs,
        seconds=round(totals.wall, 3),
        measured_clock=round(totals.measured_clock, 3),
        memory=most(client_work.memory for client_work in work.values()),
        traffic=traffic(totals),
        input=input_of(prepared),
        data=data_of(prepared),
        versions=versions_here(),
        privacy=privacy(prepared),
    )
    if totals.server_macs:
        result = result.replace(server_macs=totals.server_macs)
    result = with_clusters(result, prepared, outcome)
    simulated = simulated_of(prepared, outcome)
    if simulated is not None:
        result = result.replace(simulated=simulated)
    gain = personal_gain_of(clients, metric, differ=any(map(has_another_model, evaluations)))
    if gain is not None:
        result = result.replace(personal_gain=gain)
    if config.init is None:
        return result
    return result.replace(init=Start(**config.init.model_dump(mode="json")))


def own_figures(evaluations: Iterable[ClientEvaluation]) -> list[Figures]:
    """Figures of the clients that replied, each with the model that it uses."""
    figures = []
    for evaluation in evaluations:
        if evaluation.own.figures is not None:
            figures.append(evaluation.own.figures)
    return figures


def has_another_model(evaluation: ClientEvaluation) -> bool:
    """Whether a client's own model has other figures than the shared one."""
    return evaluation.shared is not None and evaluation.own.figures != evaluation.shared


def spreads_beside(clients: Sequence[Figures], metric: Metric) -> dict[str, Spread]:
    """Spreads of the figures that are reported besides the metric."""
    spreads = {}
    for name in metric.beside:
        values = [figures.of(name) for figures in clients]
        if name == MAE:
            over_clients = spread(values, lower_is_better=True)
            spreads[name] = over_clients.replace(pooled=pooled_mae(clients))
        else:
            spreads[name] = spread(values)
    return spreads


def versions_here() -> Versions:
    return Versions(
        fedloom=__version__,
        torch=str(torch.__version__),
        python=platform.python_version(),
    )


def traffic(totals: Totals) -> Traffic:
    return Traffic(
        down=totals.down,
        up=totals.up,
        lan_down=totals.lan_down,
        lan_up=totals.lan_up,
        evaluate_down=totals.evaluate_down,
        evaluate_up=totals.evaluate_up,
        describe_down=totals.describe_down,
        describe_up=totals.describe_up,
    )


def with_clusters(result: RunResult, prepared: Prepared, outcome: Outcome) -> RunResult:
    """Add the topology, and the clusters at the end of the run."""
    topology = topology_of(prepared.config, prepared.task)
    if not isinstance(topology, Clustered):
        return result.replace(topology=flat_topology())
    described = TopologyOfRun(
        kind=CLUSTERED,
        lambda1=None,
        lambda2=topology.hops,
        size=topology.size_of(settings_of(prepared).active),
        recluster=topology.recluster,
        aggregator=topology.aggregator,
        relay=None,
    )
    hierarchy = hierarchy_of(prepared.task.method, prepared.task.options)
    if hierarchy is not None:
        described = described.replace(lambda1=hierarchy.lambda1)
    if topology.relayed:
        described = described.replace(relay="server", aggregator=None)
    result = result.replace(topology=described)
    if outcome.clustering is None:
        return result
    clusters = []
    for cluster in outcome.clustering.clusters:
        row = ClusterOfRun(
            cluster=cluster.number,
            members=list(cluster.members),
            aggregator=None,
            level=cluster.level,
            histogram=None,
        )
        if not topology.relayed:
            row = row.replace(aggregator=cluster.aggregator(cluster.members))
        if cluster.histogram is not None:
            row = row.replace(histogram=list(cluster.histogram))
        clusters.append(row)
    return result.replace(clusters=clusters)


def flat_topology() -> TopologyOfRun:
    return TopologyOfRun(
        kind=FLAT,
        lambda1=None,
        lambda2=None,
        size=None,
        recluster=None,
        aggregator=None,
        relay=None,
    )


def simulated_of(prepared: Prepared, outcome: Outcome) -> Simulated | None:
    """What the simulated clock says; None in a federation, which has none."""
    if not prepared.devices:
        return None
    config = prepared.config
    totals = outcome.totals
    simulated = Simulated(
        seconds=totals.simulated,
        devices=config.devices.table or EQUAL,
        availability=config.clock.availability,
        budget={str(name): amount for name, amount in (config.budget.limits or {}).items()},
        stopped=outcome.stopped,
        asked=totals.asked,
        dropped=totals.dropped,
        late=totals.late,
        wasted_bytes=totals.wasted_bytes,
        wasted_macs=totals.wasted_macs,
        replaced=totals.replaced,
    )
    if outcome.over_budget is None:
        return simulated
    return simulated.replace(over=OverLimit(**outcome.over_budget.to_json()))


def data_of(prepared: Prepared) -> Data:
    split = prepared.split
    data = Data(name=split.data, partition=split.partition, split=split.hash)
    if not prepared.source.skipped:
        return data
    skipped = []
    for file in prepared.source.skipped:
        skipped.append(SkippedFile(file=file.file, reason=file.reason))
    return data.replace(skipped=skipped)


def input_of(prepared: Prepared) -> Input:
    task = prepared.task
    network_input = Input(
        kind=task.kind,
        shape=list(task.shape),
        labels=list(task.labels),
        mean=list(task.mean),
        std=list(task.std),
    )
    if prepared.source.table is not None:
        return network_input.replace(table=prepared.source.table.encoding.to_json())
    data = prepared.config.data
    if data.resize is None:
        return network_input
    return network_input.replace(resize=data.resize, fit=data.fit)


def with_latencies(
    prepared: Prepared, result: RunResult, evaluations: Sequence[ClientEvaluation]
) -> RunResult:
    """Add every client's latency by the profile of --profile, and which machine that is."""
    name = prepared.config.evaluate.profile
    if name is None:
        return result
    latencies = profiles.Latencies(prepared.task, name)
    clients = []
    for client, evaluation in zip(result.clients, evaluations, strict=True):
        routes = evaluation.own.network.routes
        if routes is None or client.is_searched:
            latency = latencies.of_network(client.architecture)
        else:
            latency = latencies.of_paths(routes["paths"])
        clients.append(
            client.replace(
                latency_ms=latency.mean,
                latency_p95_ms=latency.p95,
                latency_worst_ms=latency.worst,
            )
        )
    machine = profiles.find(name).machine
    return result.replace(clients=clients, latency=Latency(profile=name, **dict(machine)))


def summed_confusion(task: Task, evaluations: Iterable[ClientEvaluation]) -> Confusion | None:
    """The sum of the confusion matrices that clients reported."""
    matrices = []
    for evaluation in evaluations:
        if evaluation.own.confusion is not None:
            matrices.append(evaluation.own.confusion)
    if not matrices:
        return None
    counts = np.sum(matrices, axis=0).tolist()
    return Confusion(labels=list(task.labels), clients=len(matrices), counts=counts)


def client_result(
    prepared: Prepared,
    evaluation: ClientEvaluation,
    metric: Metric,
    work: Mapping[int, Work],
) -> ClientResult:
    """A client's result by the final evaluation; without a reply, a reason and no figures."""
    rest, test = prepared.split.client(evaluation.client)
    personal = evaluation.own.figures or no_figures(metric)
    shared = evaluation.shared or no_figures(metric)
    network = evaluation.own.network
    own_work = work.get(evaluation.client, Work())
    client = ClientResult(
        client=evaluation.client,
        samples=len(rest) + len(test),
        test_samples=len(test),
        figure=personal.value,
        interval=ends_of(personal.interval),
        beside={name: personal.of(name) for name in metric.beside},
        shared_figure=shared.value,
        shared_interval=ends_of(shared.interval),
        params=network.params,
        macs=network.macs,
        architecture=network.architecture,
        head=network.head,
        seconds=own_work.seconds,
        memory=own_work.memory,
    )
    changes: dict[str, Json] = {}
    if metric.counts_answers:
        changes["answers"] = personal.answers
        changes["shared_answers"] = shared.answers
        changes["shared_balanced_accuracy"] = shared.of("balanced_accuracy")
        if len(prepared.task.labels) == 2:
            changes["shared_auc"] = shared.of("auc")
    if evaluation.own.reason is not None:
        changes["reason"] = evaluation.own.reason
    transforms = transforms_in(prepared.split, evaluation.client)
    if transforms is not None:
        changes["transform"] = transforms
    changes.update(spread_of_costs(network.routes))
    return client.replace(**changes)


def spread_of_costs(routes: Json) -> dict[str, Json]:
    """Costs of a model whose samples take different paths; empty if all take the same."""
    if routes is None:
        return {}
    changes = {"macs": round(routes["macs"]), "routes": RouteSummary(**routes["routes"])}
    for name in ("params_used", "macs_std", "macs_max", "shuffled_accuracy"):
        changes[name] = routes[name]
    return changes


def transforms_in(split: Split, client: int) -> list[ClientTransform] | None:
    """How this client's samples are transformed; None if the partition transforms no samples."""
    rule = parse(split.partition)
    if all(isinstance(change, Tint) for change in rule.changes):
        return None
    transforms = []
    for transform in transforms_of(rule, client, len(split)):
        transforms.append(ClientTransform(name=transform.name, amount=transform.amount))
    return transforms


def no_figures(metric: Metric) -> Figures:
    return Figures(metric.name, samples=0, correct=0, value=None, interval=None, beside={})


def ends_of(interval: tuple[float, float] | None) -> list[float] | None:
    """The interval as a list, for JSON."""
    if interval is None:
        return None
    return list(interval)
