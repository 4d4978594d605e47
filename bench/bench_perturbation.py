"""What SPIDER's search costs, and what it saves.

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
from measuring import heading, in_new_process, lines, verdict

BATCH = 16
IMAGES = 16
REPEATS = 2
SPACE = DartsCells("s2", 4)


def supernet(arch: Arch | None = None) -> Model:
    torch.manual_seed(0)
    net = SPACE.network((3, 32, 32), 10, SPACE.usual, arch=arch)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Model(net, [0.5] * 3, [0.25] * 3).train()


def validation() -> Samples:
    generator = torch.Generator().manual_seed(1)
    return Samples(torch.randn(IMAGES, 3, 32, 32, generator=generator), torch.arange(IMAGES) % 10)


def search() -> list[tuple[Arch, list[Arch]]]:
    """Steps of a search: the architecture as it stands, and its variants."""
    chance = by_chance(torch.Generator().manual_seed(2))
    arch = SPACE.full()
    steps = []
    asked = list[Arch]()

    def noting(archs: Sequence[Arch]) -> list[Score]:
        asked[:] = archs
        return chance(archs)

    for number in torch.randperm(14, generator=torch.Generator().manual_seed(3)).tolist():
        before, (arch, _) = arch, decide(arch, edges(SPACE, paired=True)[number], noting, "impact")
        steps.append((before, list(asked)))
    prune(SPACE, arch, noting, "impact")
    return [*steps, (arch, list(asked))]


def constants(arch: Arch) -> Mixture:
    rows = [torch.zeros(len(slot.options)) for slot in SPACE.slots]
    for row, live in zip(rows, arch.choice, strict=True):
        row[list(live)] = 1.0
    return Mixture(tuple(rows))


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


def whole_search(
    way: str, steps: Sequence[tuple[Arch, list[Arch]]], data: Samples
) -> tuple[float, list[Score]]:
    model = supernet()
    scores = list[Score]()
    started = time.perf_counter()
    for _, archs in steps:
        if way == "together":
            scores += by_validation(model, data, BATCH)(archs)
        else:
            scores += plain(
                model, archs, data, constants if way == "constants" else lambda arch: arch
            )
    return time.perf_counter() - started, scores


def one_step(number: int) -> None:
    """In its own process: a training step of the network after this many decisions."""
    torch.set_num_threads(1)
    arch = search()[number][0] if number < 15 else pruned()
    model = supernet(arch)
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
    print(json.dumps([min(times), (high_water() - before) / 1024, parameters(model)]))


def pruned() -> Arch:
    return prune(SPACE, search()[-1][0], by_chance(torch.Generator().manual_seed(2)), "impact")[0]


def high_water() -> int:
    """KiB."""
    return next(
        int(line.split()[1]) for line in lines("/proc/self/status") if line.startswith("VmHWM")
    )


def main() -> None:
    heading("SPIDER's search by perturbation")
    torch.set_num_threads(1)
    steps = search()
    data = validation()
    names = {
        "constants": "plain loop, every operation",
        "masked": "plain loop, live ones",
        "together": "together",
    }
    times = dict[str, list[float]]()
    scores = dict[str, list[Score]]()
    for _ in range(REPEATS):
        for way in names:
            seconds, scores[way] = whole_search(way, steps, data)
            times.setdefault(way, []).append(seconds)
    variants = sum(len(archs) for _, archs in steps)
    print(f"a whole search: {variants} variants, {IMAGES} images, minimum of {REPEATS}")
    for way, name in names.items():
        print(f"  {name:28} {min(times[way]):7.2f} s")
    gap = max(
        abs(a.loss - b.loss) for a, b in zip(scores["constants"], scores["together"], strict=True)
    )
    wrong = sum(
        a.accuracy != b.accuracy
        for a, b in zip(scores["constants"], scores["together"], strict=True)
    )
    print(
        f"  live ones and together: equal scores {scores['masked'] == scores['together']}; "
        f"constants: losses differ by"
    )
    print(f"  {gap:.1e} at most, accuracies in {wrong} of {variants} variants")
    best = {way: min(seconds) for way, seconds in times.items()}
    speed = best["constants"] / best["together"]
    shared = best["masked"] / best["together"]
    verdict("speed against the plain loop", f"{speed:.2f}×", "1.5×", speed >= 1.5)
    print(f"against the plain loop over live operations: {shared:.2f}×\n")
    print("one training step as operations are dropped (batch 16)")
    rows = {number: in_new_process(__file__, number) for number in (0, 5, 10, 14, 15)}
    labels = {0: "supernet", 14: "all 14 edges decided", 15: "two inputs a node"}
    for number, (seconds, megabytes, size) in rows.items():
        label = labels.get(number, f"{number} edges decided")
        print(f"  {label:22} {size:8} parameters {1e3 * seconds:7.0f} ms {megabytes:6.0f} MB")
    falls = all(
        a[0] > b[0] and a[1] > b[1]
        for a, b in zip([rows[0], rows[14]], [rows[14], rows[15]], strict=True)
    )
    verdict("time and memory of a step", "fall" if falls else "do not fall", "fall", falls)


if __name__ == "__main__":
    one_step(int(sys.argv[1])) if len(sys.argv) > 1 else main()
