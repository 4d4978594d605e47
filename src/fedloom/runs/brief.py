"""The one line of `fedloom run --json`: the part of result.json that programs need most often."""

from __future__ import annotations

from pathlib import Path

from fedloom.metrics.metric import PERPLEXITY
from fedloom.records.result import ClientResult, RunResult, Spread
from fedloom.types import Json


def brief_result(path: Path, record: RunResult) -> Json:
    """The result of the run in the folder `path`."""
    metric = record.judged_by
    spread = record.spread
    brief: dict[str, Json] = {
        "run": str(path),
        "method": record.method,
        "seed": record.seed,
        "metric": metric.name,
        "lower_is_better": metric.lower_is_better,
        metric.name: {
            "mean": spread.mean,
            "std": spread.std,
            "worst": spread.worst,
            "pooled": spread.pooled,
        },
        **secondary_figures(record),
        "global": record.shared_pooled,
        **judgement_of(record),
        "clients": [brief_client(record, client) for client in record.clients],
        **tiers_in(record),
        **stages_in(record),
        **decisions_in(record),
        "bytes": {
            "down": record.traffic.down,
            "up": record.traffic.up,
            "lan_down": record.traffic.lan_down,
            "lan_up": record.traffic.lan_up,
        },
        "seconds": record.seconds,
    }
    if record.simulated is not None:
        brief["simulated"] = record.simulated.to_json()
    if record.init is not None:
        brief["init"] = record.init.to_json()
    return brief


def secondary_figures(record: RunResult) -> dict[str, Json]:
    """Balanced accuracy, AUC if there are two classes, or MAE; text has none of them."""
    if record.judged_by is PERPLEXITY:
        return {}
    figures: dict[str, Json] = {}
    for name in record.judged_by.columns:
        spread = Spread(mean=None)
        if name in record.columns:
            spread = record.spread_of(name)
        figures[name] = {"mean": spread.mean, "std": spread.std, "worst": spread.worst}
        if name == "mae":
            figures[name]["pooled"] = spread.pooled
    if "balanced_accuracy" in figures:
        figures["balanced_accuracy"]["pooled"] = record.pooled_balanced_accuracy
    return figures


def tiers_in(record: RunResult) -> dict[str, Json]:
    """Results by tier of devices, if any, without their long fronts (see result.json)."""
    tiers = []
    for tier in record.tiers:
        brief = tier.to_json()
        brief.pop("front", None)  # a fixed network has none
        tiers.append(brief)
    if not tiers:
        return {}
    return {"tiers": tiers}


def stages_in(record: RunResult) -> dict[str, Json]:
    """Results of earlier stages, such as a supernet before it is cut."""
    if not record.stages:
        return {}
    return {"stages": [stage.to_json() for stage in record.stages]}


def decisions_in(record: RunResult) -> dict[str, Json]:
    """Decisions of a method that chooses by validation data."""
    if not record.decisions:
        return {}
    return {"decisions": [decision.to_json() for decision in record.decisions]}


def judgement_of(record: RunResult) -> dict[str, Json]:
    """What helps to judge the figures: gains by personal models, baselines and cautions."""
    gain = record.known_gain
    judgement: dict[str, Json] = {"personal_gain": None}
    if gain is not None:
        judgement["personal_gain"] = {"mean": gain.difference, **gain.to_json()}
    if record.judged_by.counts_answers:
        judgement["shared_balanced_accuracy"] = record.shared_balanced_accuracy
        if record.has_two_classes:
            judgement["shared_auc"] = record.shared_auc
        judgement["most_common_class"] = record.most_common_class
    judgement["cautions"] = record.known_cautions.to_json()
    return judgement


def brief_client(record: RunResult, client: ClientResult) -> Json:
    brief: dict[str, Json] = {
        "client": client.client,
        "samples": client.samples,
        "test_samples": client.test_samples,
        record.judged_by.name: client.figure,
        **secondary_figures_of(record, client),
        "params": client.params,
        "macs": client.macs,
        "architecture": client.architecture,
    }
    if record.latency is not None:
        brief["latency_ms"] = client.latency_ms
    if client.tier is not None:
        brief["tier"] = client.tier
    return brief


def secondary_figures_of(record: RunResult, client: ClientResult) -> dict[str, Json]:
    if record.judged_by is PERPLEXITY:
        return {}
    figures: dict[str, Json] = {}
    for name in record.judged_by.columns:
        figures[name] = None
        if name in record.columns:
            figures[name] = client.beside.get(name)
    if not record.judged_by.counts_answers:
        return figures
    return {**figures, "answers": client.answers}
