"""What SPIDER's search costs, and what it saves.

    python bench/bench_perturbation.py

Scoring: a whole search on the DARTS s2 supernet (8 cells, 16 channels, 3×32×32, 16 validation
images, one thread): fourteen edges in both cells, then the pruning. The decisions are fixed in
advance (at random), so that every alternative measures the same variants: 4 per edge, 24 at the
end. The plain loop makes a whole forward pass of the same supernet for each variant, with
operations weighted by the constants 0 and 1; a second loop skips operations of weight 0 but shares
nothing. Scores are compared.

Training: time and memory of one step (batch 16) as operations are dropped, each in its own process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional

from fedloom.cost.count import parameters
from fedloom.data.samples import Samples
from fedloom.nets.model import Model
from fedloom.searchers.perturbation import (
    Score,
    by_chance,
    by_validation,
    decide,
    edges,
    parts,
    prune,
)
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.choice import Choice, Mixture
from fedloom.types import Arch
from measuring import heading, high_water, in_new_process, verdict

BATCH = 16
IMAGES = 16
REPEATS = 2
SPACE = DartsCells("s2", 4)
EDGES = 14
PRUNED = EDGES + 1  # the number of the network after the last step of a search

# How a search scores its variants.
CONSTANTS = "plain loop, every operation"
MASKED = "plain loop, live ones"
TOGETHER = "together"
WAYS = (CONSTANTS, MASKED, TOGETHER)


def main() -> None:
    heading("SPIDER's search by perturbation")
    torch.set_num_threads(1)
    compare_scoring()
    compare_training()


# Scoring


def compare_scoring() -> None:
    steps = search()
    data = validation()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    scores: dict[str, list[Score]] = {}
    for _ in range(REPEATS):
        for way in WAYS:
            scored = whole_search(way, steps, data)
            times[way].append(scored.seconds)
            scores[way] = scored.scores
    variants = sum(len(step.variants) for step in steps)
    print(f"a whole search: {variants} variants, {IMAGES} images, minimum of {REPEATS}")
    best = {way: min(seconds) for way, seconds in times.items()}
    for way in WAYS:
        print(f"  {way:28} {best[way]:7.2f} s")
    gap = 0.0
    wrong = 0
    for one, other in zip(scores[CONSTANTS], scores[TOGETHER], strict=True):
        gap = max(gap, abs(one.loss - other.loss))
        wrong += one.accuracy != other.accuracy
    print(
        f"  live ones and together: equal scores {scores[MASKED] == scores[TOGETHER]}; "
        f"constants: losses differ by"
    )
    print(f"  {gap:.1e} at most, accuracies in {wrong} of {variants} variants")
    speed = best[CONSTANTS] / best[TOGETHER]
    verdict("speed against the plain loop", f"{speed:.2f}×", "1.5×", speed >= 1.5)
    shared = best[MASKED] / best[TOGETHER]
    print(f"against the plain loop over live operations: {shared:.2f}×\n")


@dataclass(frozen=True)
class Step:
    """A decision of a search: the architecture as it stands, and the variants to score."""

    arch: Arch
    variants: list[Arch]


def search() -> list[Step]:
    """The steps of a search by chance: one for every edge, and the pruning."""
    chance = by_chance(torch.Generator().manual_seed(2))
    variants: list[Arch] = []

    def score(archs: Sequence[Arch]) -> list[Score]:
        variants[:] = archs
        return chance(archs)

    arch = SPACE.full()
    steps = []
    order = torch.randperm(EDGES, generator=torch.Generator().manual_seed(3))
    for number in order.tolist():
        before = arch
        edge = edges(SPACE, paired=True)[number]
        arch, _ = decide(before, edge, score, "impact")
        steps.append(Step(before, list(variants)))
    prune(SPACE, arch, score, "impact")
    steps.append(Step(arch, list(variants)))
    return steps


@dataclass(frozen=True)
class Scored:
    seconds: float
    scores: list[Score]


def whole_search(way: str, steps: Sequence[Step], data: Samples) -> Scored:
    model = supernet()
    scores: list[Score] = []
    started = time.perf_counter()
    for step in steps:
        if way == TOGETHER:
            scores += by_validation(model, data, BATCH)(step.variants)
        elif way == CONSTANTS:
            scores += plain(model, step.variants, data, constants)
        else:
            scores += plain(model, step.variants, data, itself)
    return Scored(time.perf_counter() - started, scores)


@torch.no_grad()
def plain(
    model: Model, archs: Sequence[Arch], data: Samples, choice: Callable[[Arch], Choice]
) -> list[Score]:
    scores = []
    for arch in archs:
        correct = 0
        loss = 0.0
        for part in parts(data, BATCH):
            answer = model(part.x, choice(arch))
            correct += int((answer.argmax(1) == part.y).sum())
            loss += float(functional.cross_entropy(answer, part.y, reduction="sum"))
        scores.append(Score(correct / len(data), loss / len(data)))
    return scores


def constants(arch: Arch) -> Mixture:
    """Every operation, weighted by 1 if it is live and by 0 otherwise."""
    rows = []
    for slot, live in zip(SPACE.slots, arch.choice, strict=True):
        row = torch.zeros(len(slot.options))
        row[list(live)] = 1.0
        rows.append(row)
    return Mixture(tuple(rows))


def itself(arch: Arch) -> Arch:
    return arch


def supernet(arch: Arch | None = None) -> Model:
    torch.manual_seed(0)
    net = SPACE.network((3, 32, 32), 10, SPACE.usual, arch=arch)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Model(net, [0.5] * 3, [0.25] * 3).train()


def validation() -> Samples:
    generator = torch.Generator().manual_seed(1)
    return Samples(torch.randn(IMAGES, 3, 32, 32, generator=generator), torch.arange(IMAGES) % 10)


# Training


def compare_training() -> None:
    print("one training step as operations are dropped (batch 16)")
    costs = {}
    for number in (0, 5, 10, EDGES, PRUNED):
        costs[number] = Cost(**in_new_process(__file__, number))
    labels = {0: "supernet", EDGES: "all 14 edges decided", PRUNED: "two inputs a node"}
    for number, cost in costs.items():
        label = labels.get(number, f"{number} edges decided")
        print(
            f"  {label:22} {cost.parameters:8} parameters {1e3 * cost.seconds:7.0f} ms "
            f"{cost.megabytes:6.0f} MB"
        )
    falls = costs[0].exceeds(costs[EDGES]) and costs[EDGES].exceeds(costs[PRUNED])
    result = "do not fall"
    if falls:
        result = "fall"
    verdict("time and memory of a step", result, "fall", falls)


@dataclass(frozen=True)
class Cost:
    """One training step."""

    seconds: float
    megabytes: float  # beyond what the process had before
    parameters: int

    def exceeds(self, other: Cost) -> bool:
        return self.seconds > other.seconds and self.megabytes > other.megabytes


def one_step(number: int) -> None:
    """Print the cost of a step after this many decisions; it runs in its own process."""
    torch.set_num_threads(1)
    model = supernet(arch_after(number))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(BATCH, 3, 32, 32)
    y = torch.arange(BATCH) % 10
    before = high_water()
    times = []
    for _ in range(4):
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        times.append(time.perf_counter() - started)
    megabytes = (high_water() - before) / 2**20
    print(json.dumps(asdict(Cost(min(times), megabytes, parameters(model)))))


def arch_after(number: int) -> Arch:
    steps = search()
    if number < PRUNED:
        return steps[number].arch
    chance = by_chance(torch.Generator().manual_seed(2))
    pruned, _ = prune(SPACE, steps[-1].arch, chance, "impact")
    return pruned


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_step(int(sys.argv[1]))
    else:
        main()
