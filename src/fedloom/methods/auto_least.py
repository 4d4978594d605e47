"""The smallest budget with which `auto` can make all its decisions and still train.

It pays for the most expensive race, in which the largest sizes always survive, and then for one
round of each later phase with the largest network: training, trial, cooling, fine-tuning. The cost
of a network is taken as proportional to its MACs, or to its parameters if the budget is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedloom.methods.auto_networks import cost_of, sizes_within
from fedloom.methods.auto_options import SLICES, AutoOptions
from fedloom.stages.decisions import changes_for
from fedloom.stages.phases import COOLING
from fedloom.types import Task

BYTES = ("bytes", "wan")
FORWARD = 1 / 3  # of the work of training on a sample: scoring needs no backward pass
ONE_WAY = 0.5  # of the bytes of a round: a network is sent, and only sums are returned


def least_work(
    task: Task,
    options: AutoOptions,
    unit: str,
    times_the_clients: float,
    races_for_rounds: bool = False,
) -> float:
    """The smallest budget, in units of the first round's cost, which trains the smallest size.

    `times_the_clients`: clients in a round of the trial and of fine-tuning, relative to others.
    `races_for_rounds`: the budget is in rounds, and the result is for a limit in another unit.
    """
    sizes = sizes_within(task, options)
    work = {}
    prices = {}
    for size in sizes:
        cost = cost_of(task, options, size)
        work[size] = 1.0 if races_for_rounds else float(cost.macs)
        prices[size] = float(cost.params if unit in BYTES else cost.macs)
    race = race_cost(sizes, work, prices, judging(options, unit))
    widest = prices[sizes[-1]]
    trying = invariance(task, options, unit)
    if len(sizes) == 1 and trying:  # one round of training comes before the test
        race += widest
    before = race + widest * (1 + trial(options, unit) * times_the_clients + trying)
    all_samples = 1 / (1 - options.held_back)  # cooling also trains on what was held back
    if unit in BYTES:
        all_samples = 1.0
    after = widest * all_samples  # cooling
    if options.tune != "never":
        after += widest * all_samples * times_the_clients
    return max(before + after, before / (1 - COOLING)) / prices[sizes[0]]


def race_cost(
    sizes: Sequence[str],
    work_of_a_round: Mapping[str, float],
    prices: Mapping[str, float],
    judging: float,
) -> float:
    """What both slices cost, if each ends as soon as no size is behind."""
    live = list(sizes)  # in ascending order
    work = dict.fromkeys(live, 0.0)
    cost = 0.0
    slices = 0
    while len(live) > 1:
        raced = max(work.values())
        while not are_equal(live, work, work_of_a_round, raced):
            size = min(live, key=lambda size: (work[size], float(size)))
            work[size] += work_of_a_round[size]
            cost += prices[size]
        cost += judging * sum(prices[size] for size in live)
        slices += 1
        survivors = (len(live) + 1) // 2
        if slices == SLICES:
            survivors = 1
        live = live[-survivors:]
    return cost


def are_equal(
    live: Sequence[str],
    work: Mapping[str, float],
    work_of_a_round: Mapping[str, float],
    raced: float,
) -> bool:
    """Whether all sizes were trained in this slice and one more round would put any one ahead."""
    most = max(work[size] for size in live)
    if min(work[size] for size in live) <= raced:
        return False
    return all(work[size] + work_of_a_round[size] > most for size in live)


def judging(options: AutoOptions, unit: str) -> float:
    """What it costs to score a network, in units of one round of its training."""
    if unit in BYTES:
        return ONE_WAY
    return FORWARD * options.held_back / (1 - options.held_back)


def invariance(task: Task, options: AutoOptions, unit: str) -> float:
    """What testing augmentations costs, in units of one round of training; 0 if none are tested."""
    changes = changes_for(task)
    if not options.decides_changes or not changes:
        return 0.0
    return cost_of_asking(len(changes), options, unit)


def cost_of_asking(changes: int, options: AutoOptions, unit: str) -> float:
    """What testing so many augmentations costs, in units of one round of the network's training."""
    if unit == "rounds":
        return 1.0
    if unit in BYTES:
        return ONE_WAY
    return judging(options, unit) * (1 + changes)


def trial(options: AutoOptions, unit: str) -> float:
    """What the trial costs, in units of one round: fine-tuning, then scoring two networks."""
    if options.tune != "decide":
        return 0.0
    if unit in BYTES:
        return 1 + ONE_WAY
    return options.trial_epochs / options.epochs + 2 * judging(options, unit)
