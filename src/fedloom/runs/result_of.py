"""Building a run's result from the final evaluation, the ledger and the folder's records."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict

import torch

from fedloom.cost.devices import EQUAL
from fedloom.evaluate.summary import most, summarise
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.metric import metric_of
from fedloom.reading import Unreadable
from fedloom.records.claims import claims_in
from fedloom.records.classes import Classes
from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult, StageEnd, cautions_of, personal_gain_of
from fedloom.records.result_parts import (
    ClusterOfRun,
    Data,
    Input,
    OverLimit,
    Simulated,
    SkippedFile,
    Start,
    StepBack,
    TopologyOfRun,
    Traffic,
    Versions,
)
from fedloom.records.rows import are_by_formula
from fedloom.records.sections import Sections
from fedloom.records.sites import own_test_shares
from fedloom.records.totals import Totals
from fedloom.runs.clusters import CLUSTERED, FLAT, hierarchy_of, topology_of
from fedloom.runs.loop_settings import settings_of
from fedloom.runs.preparing import Prepared
from fedloom.runs.privacy import privacy
from fedloom.runs.result_of_clients import (
    client_result,
    has_another_model,
    own_figures,
    spreads_beside,
    summed_confusion,
    with_latencies,
)
from fedloom.runs.result_of_rounds import (
    Work,
    capped,
    in_phases,
    lost_states,
    stage_ends,
    uphill,
    work_of_clients,
)
from fedloom.runs.stage_accounts import stage_accounts, with_ends
from fedloom.runs.tier_results import with_sections
from fedloom.version import __version__


def result_of(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> RunResult:
    """Everything in result.json except the checksums. Sections without content are left out."""
    result = build_result(prepared, outcome, work_of_clients(folder.rows()))
    result = with_latencies(prepared, result, outcome.clients)
    sections = prepared.stages[-1].method.sections(outcome.state)
    result = with_sections(result, sections, outcome.clients)
    if are_by_formula(folder.rows()):
        result = result.replace(macs=outcome.totals.macs, macs_by_formula=True)
    further = {
        "versions": several_versions(folder, result.versions),
        "most_common_class": most_common_answer(folder),
        "phases": in_phases(prepared.stages, folder.rows()),
        "stages": stages_of(folder, prepared, sections),
        "lost_states": lost_states(folder.rows()),
        "taken_back": [StepBack(**asdict(step)) for step in outcome.taken_back],
        "capped": capped(folder.rows()),
        "uphill": uphill(folder.rows(), prepared.config.options),
        "claims": claims_in(folder),
        "site_tests": own_test_shares(folder.path, prepared.config.data.test),
    }
    for name, section in further.items():
        if section is not None and section not in ([], {}):
            result = result.replace(**{name: section})
    return result


def several_versions(folder: RunFolder, versions: Versions | None) -> Versions | None:
    """The versions of fedloom that worked on the run; None if it was only this one."""
    took_part = folder.head().versions
    if versions is None or len(took_part) < 2:
        return None
    return versions.replace(took_part=took_part)


def stages_of(folder: RunFolder, prepared: Prepared, sections: Sections) -> list[StageEnd]:
    """The stages before the last; all stages with their costs, if orders had parts of a network."""
    names = [stage.name for stage in prepared.stages]
    earlier_stages = stage_ends(names[:-1], folder.rows())
    if sections.left_out is None:
        return earlier_stages
    accounts = stage_accounts(
        names,
        folder.rows(),
        sections.left_out,
        prepared.config.budget,
        has_macs=are_by_formula(folder.rows()) or not prepared.config.is_federated,
    )
    return with_ends(accounts, earlier_stages)


def most_common_answer(folder: RunFolder) -> float | None:
    """The accuracy of always predicting each client's most common class; None in a federation."""
    try:
        return Classes.read(folder.path).usual
    except Unreadable:
        return None


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
