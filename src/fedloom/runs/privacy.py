"""The privacy section of a result: every field that left a client, and what it may reveal."""

from __future__ import annotations

from dataclasses import replace

from fedloom.federation.protocol.envelope import BASIC
from fedloom.federation.protocol.histograms import SENSITIVITY
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.clustered import UPDATES, Clustered
from fedloom.federation.server.exchange import asks_everybody
from fedloom.federation.server.settings import Settings
from fedloom.records.result_parts import (
    Departure,
    Privacy,
    ReportedHistograms,
    SentFields,
)
from fedloom.runs.clusters import topology_of
from fedloom.runs.loop_settings import settings_of
from fedloom.runs.preparing import Prepared
from fedloom.types import Fields

COLUMNS_NOTE = (
    "Before training each site reported statistics of its table, test rows included: for a numeric "
    "column how many numbers there are, their sum, the sum of their squares and how many are "
    "missing; for a text column its categories and how many are missing; for the labels the "
    "classes, or the same sums. Every site received the means and deviations, and the categories "
    "of all sites without saying which site has which. A column with one number at a site reveals "
    "that number."
)


def privacy(prepared: Prepared) -> Privacy:
    """Every field that left a client, and who could see it."""
    stages = prepared.stages
    settings = settings_of(prepared)
    departures = []
    if prepared.source.table is not None:
        departures.append(table_statistics())
    for kind, fields in BASIC.items():
        departures.append(departure("every", kind, requested_fields(fields, settings)))
    for stage in stages:
        for kind, fields in stage.method.fields.items():
            departures += departures_of(stage, kind, fields, prepared)
    observed = "of an embedded run only: parameters, MACs and architecture of each client's network"
    result = Privacy(left_the_clients=departures, observer=observed)
    notes: list[str] = []
    for stage in stages:
        notes.extend(stage.method.privacy_notes)
    if prepared.source.table is not None:
        notes.append(COLUMNS_NOTE)
    histograms = reported_histograms(prepared, settings)
    if histograms is not None:
        result = result.replace(histograms=histograms)
        notes.extend(histogram_notes(histograms, federated=prepared.config.is_federated))
    if notes:
        result = result.replace(notes=notes)
    return result


def table_statistics() -> Departure:
    """Statistics of a table's columns, which leave a site before training."""
    sent = SentFields(tensors=[], extra=[], values=["columns"])
    return Departure(stage="before", order="survey", fields=sent, seen_by="server")


def requested_fields(fields: Fields, settings: Settings) -> Fields:
    """The fields without those that sites may send but that this run does not ask for."""
    names = list(fields.meta)
    if settings.histograms is None and "histogram" in names:
        names.remove("histogram")
    if not settings.sends_confusion and "confusion" in names:
        names.remove("confusion")
    return replace(fields, meta=tuple(names))


def reported_histograms(prepared: Prepared, settings: Settings) -> ReportedHistograms | None:
    """How label counts left the clients; None if they did not."""
    rule = settings.histograms
    if rule is None:
        return None
    times_asked = 0
    for number, stage in enumerate(prepared.stages):
        if asks_everybody(stage.method, number, settings):
            times_asked += 1
    secret = "the seed of the simulation"
    if prepared.config.is_federated:
        secret = "a file of each site"
    return ReportedHistograms(
        mechanism=rule.mechanism,
        epsilon=rule.epsilon,
        sensitivity=SENSITIVITY,
        asked=times_asked,
        secret=secret,
    )


def histogram_notes(histograms: ReportedHistograms, *, federated: bool) -> list[str]:
    """What label counts reveal, and which other fields reveal something about labels."""
    counts = "how many of its training samples have each label"
    samples = "It also reported, exactly, how many samples it has in each part"
    if histograms.epsilon is None:
        matrices = "and with the final figures its confusion matrix, whose rows count test labels"
        return [f"Each client reported {counts}, exactly. {samples}, {matrices}."]
    noise = f"discrete Laplace noise of E = {histograms.epsilon:g}, P(k) ∝ e^(−E|k|)"
    rule = "one sample added or removed changes one count by 1; sums below 0 became 0"
    notes = [
        f"Each client reported {counts}, with {noise} ({rule}). A client gives the same answer "
        "whenever it is asked, so asking again reveals nothing more. The noise covers only these "
        "counts.",
        f"{samples}. No confusion matrix was sent: the sums of its rows would undo the noise.",
    ]
    if not federated:
        notes.append(
            "The noise of a simulation comes from its seed, so equal seeds give equal runs; anyone "
            "who knows the seed can subtract it. A real site's noise comes from a secret file "
            "of its own.",
        )
    return notes


def departures_of(
    stage: Stage,
    kind: str,
    fields: Fields,
    prepared: Prepared,
) -> list[Departure]:
    """A kind of reply, by who sees it.

    In clusters an aggregator sees its members' replies, and the server sees their mean.
    """
    seen = departure(stage.name, kind, fields)
    if fields.beforehand:
        return [seen]
    topology = topology_of(prepared.config, prepared.task)
    if not isinstance(topology, Clustered) or stage.is_flat or topology.relayed:
        return [seen]
    server = "server: the mean of a cluster, by samples"
    if topology.rule == UPDATES:
        server += "; each client's own in the rounds that decide the clusters"
    return [seen.replace(seen_by="aggregator of the cluster"), seen.replace(seen_by=server)]


def departure(stage: str, kind: str, fields: Fields) -> Departure:
    values = [*fields.meta, "weight"]
    sent = SentFields(tensors=list(fields.tensors), extra=list(fields.extra), values=values)
    if fields.optional:
        sent = SentFields(**sent.given_fields(), optional=list(fields.optional))
    return Departure(stage=stage, order=kind, fields=sent, seen_by="server")
