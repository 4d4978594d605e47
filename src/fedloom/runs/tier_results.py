"""What a method reports about its tiers, joined with the figures of the final evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedloom.evaluate.summary import spread, summarise
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.metrics.metric import Metric
from fedloom.metrics.ranks import kendall_tau
from fedloom.records.result import ClientResult, RunResult, Spread, TierResult
from fedloom.records.sections import Sections, other_model, supernet_model, tuned_model
from fedloom.types import Json


def with_sections(
    result: RunResult,
    sections: Sections,
    evaluations: Sequence[ClientEvaluation],
) -> RunResult:
    """The result with the sections that its method adds; empty sections are left out."""
    changes: dict[str, Json] = {}
    if sections.tier_of:
        changes["clients"] = with_tiers(result.clients, sections.tier_of)
    if sections.tiers:
        tiers = [with_figures(tier, sections, result, evaluations) for tier in sections.tiers]
        changes["tiers"] = tiers
        changes["fairness"] = spread_across(tiers, result.judged_by)
    if sections.ops:
        changes["ops"] = list(sections.ops)
    if sections.search is not None:
        changes["search"] = sections.search
    if sections.final is not None:
        changes["final"] = sections.final
    if sections.supernet is not None:
        changes["supernet"] = sections.supernet
    if sections.decisions:
        changes["decisions"] = list(sections.decisions)
    return result.replace(**changes)


def with_tiers(clients: Iterable[ClientResult], tier_of: Sequence[int]) -> list[ClientResult]:
    return [client.replace(tier=tier_of[client.client]) for client in clients]


def with_figures(
    tier: TierResult,
    sections: Sections,
    result: RunResult,
    evaluations: Sequence[ClientEvaluation],
) -> TierResult:
    """Add the figures of the tier's network, over its own clients and over all clients."""
    clients_of_tier = []
    for evaluation in evaluations:
        if sections.tier_of[evaluation.client] == tier.tier:
            clients_of_tier.append(evaluation)
    metric = result.judged_by
    names = result.columns_of_classes
    tier = with_pooled(tier, evaluations, metric, names)
    tier = tier.replace(own=spread_over(clients_of_tier, metric))
    for name in names:
        tier = tier.replace(**{name: mean_over(clients_of_tier, name)})
    return tier


def spread_over(evaluations: Iterable[ClientEvaluation], metric: Metric) -> Spread:
    """The spread of the figures of these clients' own models."""
    figures = []
    for evaluation in evaluations:
        if evaluation.own.figures is not None:
            figures.append(evaluation.own.figures)
    over_clients = summarise(figures, metric)
    return Spread(
        mean=over_clients.mean,
        std=over_clients.std,
        worst=over_clients.worst,
        pooled=over_clients.pooled,
    )


def mean_over(evaluations: Iterable[ClientEvaluation], name: str) -> float | None:
    """The mean of one figure, balanced accuracy or AUC, of these clients' own models."""
    figures = []
    for evaluation in evaluations:
        if evaluation.own.figures is not None:
            figures.append(evaluation.own.figures.of(name))
    return spread(figures).mean


def with_pooled(
    tier: TierResult,
    evaluations: Sequence[ClientEvaluation],
    metric: Metric,
    names: Sequence[str],
) -> TierResult:
    """Add the figures of the tier's network over all clients.

    They are those of the tuned network, and if there is a supernet, those with its weights. `names`
    are the figures in which every class counts the same.
    """
    tuned = pooled_figure(evaluations, tuned_model(tier.tier), metric, names)
    tier = tier.replace(pooled_over_all=tuned.value, **named_after("global", tuned.beside))
    reason = tuned.reason
    if tier.top:
        tier = with_top(tier, evaluations, metric, names)
    if has_model(evaluations, supernet_model(tier.tier)):
        before_tuning = pooled_figure(evaluations, supernet_model(tier.tier), metric, names)
        beside = named_after("supernet", before_tuning.beside)
        tier = tier.replace(supernet=before_tuning.value, **beside)
        reason = reason or before_tuning.reason
    elif tier.is_searched:
        tier = tier.replace(supernet=None)
        reason = reason or "no supernet was trained"
    if reason is None:
        return tier
    return tier.replace(reason=reason)


def named_after(model: str, beside: Mapping[str, float | None]) -> dict[str, float | None]:
    """Prefix figures by their model's name, as in `global_balanced_accuracy`."""
    return {f"{model}_{name}": figure for name, figure in beside.items()}


def with_top(
    tier: TierResult,
    evaluations: Sequence[ClientEvaluation],
    metric: Metric,
    names: Sequence[str],
) -> TierResult:
    """Add the final figures of the tier's best paths, and how well scores predicted their order."""
    sign = -1.0  # a high figure is good, but a low loss is
    if metric.lower_is_better:
        sign = 1.0
    top = []
    losses = []
    figures = []
    for place, path in enumerate(tier.top, start=1):
        model = tuned_model(tier.tier)
        if place > 1:
            model = other_model(tier.tier, place)
        over_all = pooled_figure(evaluations, model, metric, names)
        figure = over_all.value
        beside = named_after("global", over_all.beside)
        top.append(path.replace(pooled_over_all=figure, **beside))
        if figure is None:
            continue
        losses.append(path.validation.loss)
        figures.append(sign * figure)
    if min(path.tuned_rounds for path in tier.top) == 0:
        return tier.replace(top=top)  # paths that were not trained say nothing about predictions
    return tier.replace(top=top, top_tau=kendall_tau(losses, figures))


def has_model(evaluations: Iterable[ClientEvaluation], model: str) -> bool:
    """Whether the method has such a model, which all clients were asked to evaluate."""
    return any(model in evaluation.named for evaluation in evaluations)


@dataclass(frozen=True)
class PooledFigure:
    """One model's figure, pooled over the clients that reported it."""

    value: float | None
    reason: str | None = None  # why no client reported one
    # other figures by name, as means over these clients
    beside: Mapping[str, float | None] = field(default_factory=dict)


def pooled_figure(
    evaluations: Iterable[ClientEvaluation],
    model: str,
    metric: Metric,
    names: Sequence[str],
) -> PooledFigure:
    figures = []
    reasons = []
    for evaluation in evaluations:
        answer = evaluation.named.get(model)
        if answer is None:  # a network that began with fresh weights was in no supernet
            continue
        if answer.figures is not None:
            figures.append(answer.figures)
        elif answer.reason is not None:
            reasons.append(answer.reason)
    if figures or not reasons:
        beside = {}
        for name in names:
            values = [client_figures.of(name) for client_figures in figures]
            beside[name] = spread(values).mean
        return PooledFigure(metric.pooled(figures), beside=beside)
    return PooledFigure(None, reasons[0])


def spread_across(tiers: Iterable[TierResult], metric: Metric) -> Spread:
    """The spread of the tiers' means; a tier without a figure is left out."""
    means = []
    for tier in tiers:
        if tier.own is not None:
            means.append(tier.own.mean)
    across = spread(means, metric.lower_is_better)
    return Spread(mean=across.mean, std=across.std, worst=across.worst)
