"""Contestants on the same split, ranked on validation data: the common winner, and each client's.

Test figures stand beside the ranking and decide nothing. Intervals are over clients: Student's t of
the mean, and of a difference the same after each client is paired with itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedloom.evaluate.method_row import mean_macs, mean_params
from fedloom.evaluate.paired import Paired, paired
from fedloom.evaluate.summary import spread
from fedloom.learning.judging import is_decisive
from fedloom.metrics.metric import Metric
from fedloom.records.auto import ClientWinner, Gap, LeaderboardRow, OnTest
from fedloom.records.result import RunResult

# By client, how good the answers to its validation samples are: right or not, or how near.
Right = Mapping[int, NDArray[Any]]


@dataclass(frozen=True)
class Contestant:
    name: str
    result: RunResult


def leaderboard(
    contestants: Sequence[Contestant],
    control: str,
    limits: Mapping[str, float],
) -> list[LeaderboardRow]:
    """From best to last by validation; the best that keeps the limits is chosen.

    Where none keeps them, none is.
    """
    metric = contestants[0].result.judged_by
    by_name = {contestant.name: contestant.result for contestant in contestants}
    rows = []
    for contestant in contestants:
        row = row_of(contestant)
        if contestant.name != control:
            row = row.replace(to_control=gap(by_name[control], contestant.result))
        if limits:
            row = row.replace(fits=keeps(contestant.result, limits))
        rows.append(row)
    ranked = sorted(rows, key=lambda row: rank(row, metric))
    for place, row in enumerate(ranked):
        if row.fits is not False:
            ranked[place] = row.replace(chosen=True)
            break
    return ranked


def rank(row: LeaderboardRow, metric: Metric) -> tuple[float, float]:
    """Small is good; who could not be judged is the last. Of equals the cheaper wins."""
    macs = math.inf if row.macs is None else float(row.macs)
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
    """On test data, of the clients that have a figure."""
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
        interval = within(ends(paired([0.0] * len(values), values)), metric)
    return OnTest(
        mean=over_clients.mean,
        std=over_clients.std,
        worst=over_clients.worst,
        pooled=pooled,
        interval=interval,
    )


def gap(control: RunResult, result: RunResult) -> Gap | None:
    """The mean over clients of what one has more than the control has for the same client."""
    before = figures_by_client(control)
    after = figures_by_client(result)
    both = sorted(before.keys() & after.keys())
    if not both:
        return None
    pair = paired([before[client] for client in both], [after[client] for client in both])
    return Gap(mean=pair.difference, interval=ends(pair))


def ends(pair: Paired) -> list[float] | None:
    if pair.low is None or pair.high is None:
        return None
    return [pair.low, pair.high]


def within(interval: list[float] | None, metric: Metric) -> list[float] | None:
    """An interval of a mean does not go beyond what a figure can be."""
    if interval is None:
        return None
    least, most = metric.bounds
    return [max(interval[0], least), min(interval[1], most)]


def keeps(result: RunResult, limits: Mapping[str, float]) -> bool:
    """Whether every client's network is within the limits; an unknown size is not."""
    for client in result.clients:
        sizes = {"params": client.params, "macs": client.macs}
        for name, most in limits.items():
            size = sizes[name]
            if size is None or size > most:
                return False
    return True


def winner_of_client(client: int, common: str, right: Mapping[str, Right]) -> ClientWinner:
    """The common winner, unless another is decisively better on this client's validation part.

    Of several, it is the one that is ahead by most samples.
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
