"""Ranks contestants on the same split by validation data, for all clients and for each client.

Test figures stand beside the ranking and decide nothing. Intervals are over clients: Student's t
interval of the mean; for a difference, of the mean of the differences client by client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from fedloom.evaluate.method_row import mean_macs, mean_params
from fedloom.evaluate.paired import Paired, paired
from fedloom.evaluate.summary import spread
from fedloom.learning.judging import is_decisive
from fedloom.metrics.metric import Metric
from fedloom.records.auto import ClientWinner, Gap, LeaderboardRow, OnTest
from fedloom.records.result import ClientResult, RunResult

# By client, how good each answer to its validation samples is: right or wrong, or how near.
AnswerQuality = Mapping[int, NDArray[Any]]


@dataclass(frozen=True)
class Contestant:
    name: str
    result: RunResult


@dataclass(frozen=True)
class Limits:
    """The most that a client's network may cost, by unit."""

    common: Mapping[str, float] = field(default_factory=dict)  # for every client
    by_client: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # of its device tier

    @property
    def are_given(self) -> bool:
        return bool(self.common or self.by_client)


def leaderboard(
    contestants: Sequence[Contestant],
    control: str,
    limits: Limits,
) -> list[LeaderboardRow]:
    """Returns the rows from best to last by validation; the best within the limits is chosen.

    If no contestant is within the limits, none is chosen.
    """
    metric = contestants[0].result.judged_by
    by_name = {contestant.name: contestant.result for contestant in contestants}
    rows = []
    for contestant in contestants:
        row = row_of(contestant)
        if contestant.name != control:
            row = row.replace(to_control=gap(by_name[control], contestant.result))
        if limits.are_given:
            row = row.replace(fits=fits_limits(contestant.result, limits))
        rows.append(row)
    ranked = sorted(rows, key=lambda row: rank(row, metric))
    for place, row in enumerate(ranked):
        if row.fits is not False:
            ranked[place] = row.replace(chosen=True)
            break
    return ranked


def rank(row: LeaderboardRow, metric: Metric) -> tuple[float, float]:
    """Returns a key for sorting from best to last.

    A row without a validation figure is last. Of equals the cheaper is first.
    """
    macs = math.inf
    if row.macs is not None:
        macs = float(row.macs)
    if row.validation is None:
        return math.inf, macs
    if metric.lower_is_better:
        return row.validation, macs
    return -row.validation, macs


def row_of(contestant: Contestant) -> LeaderboardRow:
    result = contestant.result
    training_macs = None
    if result.macs is not None:
        training_macs = result.macs + result.server_macs
    return LeaderboardRow(
        name=contestant.name,
        validation=result.validation,
        test=on_test(figures_by_client(result), result.judged_by, result.spread.pooled),
        to_control=None,
        params=mean_params([result]),
        macs=mean_macs([result]),
        training_macs=training_macs,
        bytes=result.traffic.of_training,
        chosen=False,
    )


def figures_by_client(result: RunResult) -> dict[int, float]:
    """Returns the test figures of the clients that have one."""
    figures = {}
    for client in result.clients:
        if client.figure is not None:
            figures[client.client] = client.figure
    return figures


def on_test(by_client: Mapping[int, float], metric: Metric, pooled: float | None) -> OnTest:
    values = list(by_client.values())
    over_clients = spread(values, metric.lower_is_better)
    interval = None
    if values:
        against_zero = paired([0.0] * len(values), values)
        interval = clipped(interval_of(against_zero), *metric.bounds)
    return OnTest(
        mean=over_clients.mean,
        std=over_clients.std,
        worst=over_clients.worst,
        pooled=pooled,
        interval=interval,
    )


def gap(control: RunResult, result: RunResult) -> Gap | None:
    """Returns by how much a contestant is above the control, as a mean over clients."""
    of_control = figures_by_client(control)
    of_contestant = figures_by_client(result)
    figures_of_control = []
    figures_of_contestant = []
    for client in sorted(of_control.keys() & of_contestant.keys()):
        figures_of_control.append(of_control[client])
        figures_of_contestant.append(of_contestant[client])
    if not figures_of_control:
        return None
    pair = paired(figures_of_control, figures_of_contestant)
    least, most = result.judged_by.bounds
    interval = clipped(interval_of(pair), least - most, most - least)
    return Gap(mean=pair.difference, interval=interval)


def interval_of(pair: Paired) -> list[float] | None:
    if pair.low is None or pair.high is None:
        return None
    return [pair.low, pair.high]


def clipped(interval: list[float] | None, least: float, most: float) -> list[float] | None:
    """An interval of a mean does not go beyond what its figure can be."""
    if interval is None:
        return None
    return [max(interval[0], least), min(interval[1], most)]


def fits_limits(result: RunResult, limits: Limits) -> bool:
    """Whether every client's network is within its limits."""
    return all(client_fits_limits(client, result, limits) for client in result.clients)


def client_fits_limits(client: ClientResult, result: RunResult, limits: Limits) -> bool:
    """Whether this client's network is within its limits; a network of unknown size is not.

    A method that knows device tiers keeps the limits of tiers by itself.
    """
    most_allowed = dict(limits.common)
    if not result.tiers:
        most_allowed |= limits.by_client.get(client.client, {})
    costs = {"params": client.params, "macs": client.macs}
    for name, most in most_allowed.items():
        cost = costs.get(name)
        if cost is None or cost > most:
            return False
    return True


def winner_of_client(client: int, common: str, right: Mapping[str, AnswerQuality]) -> ClientWinner:
    """Returns the common winner, unless another is decisively better for this client.

    Contestants are compared on the client's validation part. If several are decisively better, the
    one that is ahead by the most samples wins.
    """
    by_common = right[common][client]
    winner = ClientWinner(client=client, chosen=common, samples=len(by_common))
    for name, answers in right.items():
        if name == common or client not in answers:
            continue
        only_other = int((answers[client] > by_common).sum())
        only_common = int((by_common > answers[client]).sum())
        ahead = only_other - only_common
        if ahead > winner.only_chosen - winner.only_common and is_decisive(only_other, only_common):
            winner = winner.replace(chosen=name, only_chosen=only_other, only_common=only_common)
    return winner
