"""Are all operations on paths of a supernet as fast as they can be?

    python bench/bench_paths.py [draw] [score] [train] [merge]

FedorAS makes four promises; each is measured as a ratio within one run.

- Drawing (Eq. 3): a greedy path against the same loop without a limit, drawn until one fits, where
  one in a hundred uniform paths of cnn-l does.
- Scoring: 64 paths that share their first layers, against each by itself, with scores that are
  equal to the bit. Random paths share little; one-operation neighbours of a path share much. The
  bound is the ratio of MACs.
- Training: a client's step on one path of a supernet, against the same path as a plain module.
- Merging: replies with different parts of a supernet, against as many replies with as many numbers
  of one network.

Times are the process's CPU seconds with one thread, which a busy neighbour process disturbs less
than wall-clock time. `python bench/bench_paths.py draw score` measures only these two.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path as File
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.spool import Place, Spooled
from fedloom.files import write_whole
from fedloom.learning.averaging import server_step
from fedloom.learning.loss import training_loss
from fedloom.learning.training import sgd, training_mode, weights_of
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.nets.model import Model
from fedloom.rng import rng
from fedloom.searchers.path_scores import PathScore, run_path, score_of, score_paths
from fedloom.searchers.paths import Path, PathCosts, PathSampler, SubSpaceSampler
from fedloom.spaces.mixed import plain
from fedloom.spaces.paths import PathNetwork, training_scores
from fedloom.types import Order, Reply, State, Task
from measuring import Timing, heading, self_timed, verdict

IMAGES = (3, 32, 32)
PATHS = 64
CLIENTS = 10
LEAST = 2  # clients that an operation needs to be changed


def in_turns(alternatives: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Timing]:
    """CPU seconds of each, taken in turns."""
    self_timing = {name: partial(computed, run) for name, run in alternatives.items()}
    return self_timed(self_timing, repeats)


def computed(run: Callable[[], object]) -> list[float]:
    gc.collect()
    started = time.process_time()
    result = run()
    seconds = time.process_time() - started
    del result
    return [seconds]


def frame_of(space: str, shape: tuple[int, ...] = IMAGES) -> Frame:
    options = FedorASOptions(space=space)
    labels = tuple(str(number) for number in range(10))
    channels = shape[0]
    task = Task(
        "fedoras",
        options.model_dump(),
        "image",
        shape,
        labels,
        0,
        (0.5,) * channels,
        (0.5,) * channels,
    )
    return Frame.of_task(task, options)


def samples(count: int, shape: tuple[int, ...] = IMAGES) -> Samples:
    draws = torch.Generator().manual_seed(0)
    x = torch.rand(count, *shape, generator=draws)
    return Samples(x, torch.arange(count) % 10)


def uniform_paths(frame: Frame, count: int, purpose: str) -> list[Path]:
    draws = rng(0, purpose)
    paths = []
    for _ in range(count):
        path = [int(draws.integers(len(slot.options))) for slot in frame.space.slots]
        paths.append(tuple(path))
    return paths


# Drawing


def until_it_fits(sampler: PathSampler, limit: float, draws: np.random.Generator) -> Path:
    """The same loop without a limit, again and again."""
    while True:
        path = sampler.draw((inf,), draws)
        if sampler.costs.fits(path, (limit,)):
            return path


def drawing() -> None:
    frame = frame_of("cnn-l")
    costs = PathCosts.of_table(frame.table, ("macs",))
    sampler = PathSampler(costs)
    amounts = [costs.of(path)[0] for path in uniform_paths(frame, 20_000, "amounts")]
    limit = float(np.quantile(amounts, 0.01))
    greedy_draws = rng(0, "greedy")
    other_draws = rng(0, "until it fits")

    def greedily() -> None:
        for _ in range(200):
            sampler.draw((limit,), greedy_draws)

    def again_and_again() -> None:
        for _ in range(10):
            until_it_fits(sampler, limit, other_draws)

    timings = in_turns({"greedy": greedily, "until it fits": again_and_again}, 9)
    greedy = timings["greedy"].middle / 200
    other = timings["until it fits"].middle / 10
    print(
        f"Drawing a path of cnn-l within {limit / 1e6:.1f} M MACs, which 1 % of uniform paths are:"
    )
    print(f"  greedy {1e6 * greedy:.0f} µs, drawn until it fits {1e6 * other:.0f} µs (medians)")
    verdict("  drawing", f"{other / greedy:.0f}×", "at least 20×", other >= 20 * greedy)
    print()


# Scoring


def neighbours(frame: Frame, number: int) -> list[Path]:
    """Paths that differ from one path in one operation each."""
    draws = rng(number, "neighbours")
    (base,) = uniform_paths(frame, 1, f"base {number}")
    paths: set[Path] = set()
    while len(paths) < PATHS:
        layer = int(draws.integers(len(base)))
        op = int(draws.integers(len(frame.space.slots[layer].options)))
        paths.add((*base[:layer], op, *base[layer + 1 :]))
    return sorted(paths)


def alone(model: Model, paths: Sequence[Path], data: Samples) -> list[PathScore]:
    """Every path from the stem to the end."""
    net = model.net
    assert isinstance(net, PathNetwork)
    model.eval()
    scores = []
    with torch.no_grad():
        x = model.normalised(data.x)
        for path in paths:
            scores.append(score_of(net, run_path(net, path, x), data.y))
    return scores


def saving_in_macs(model: Model, paths: Sequence[Path], data: Samples) -> float:
    """The MACs of all paths computed separately, relative to those with shared beginnings."""
    with Meter() as separate:
        alone(model, paths, data)
    with Meter() as shared:
        score_paths(model, paths, data)
    return separate.macs / shared.macs


def scoring() -> None:
    frame = frame_of("cnn-l")
    model = frame.model()
    data = samples(4)
    print(f"Scoring {PATHS} paths of cnn-l on {len(data)} samples:")
    score_set("random paths", model, data, uniform_paths(frame, PATHS, "random paths"), 1.05)
    ratios = []
    for number in range(2):
        paths = neighbours(frame, number)
        ratios.append(score_set(f"neighbours of path {number + 1}", model, data, paths, None))
    mean = sum(ratios) / len(ratios)
    verdict("  neighbours, mean", f"{mean:.2f}×", "at least 2.5×", mean >= 2.5)
    print()


def score_set(
    name: str,
    model: Model,
    data: Samples,
    paths: Sequence[Path],
    target: float | None,
) -> float:
    scores: dict[str, list[PathScore]] = {}

    def each_alone() -> None:
        scores["alone"] = alone(model, paths, data)

    def together() -> None:
        scores["together"] = score_paths(model, paths, data)

    score_paths(model, paths[:1], data)  # libraries warm up
    times: dict[str, list[float]] = {"alone": [], "together": []}
    for _ in range(2):
        times["alone"] += computed(each_alone)
        times["together"] += computed(together)
    same = scores["alone"] == scores["together"]
    timings = {way: Timing(tuple(seconds)) for way, seconds in times.items()}
    ratio = timings["alone"].best / timings["together"].best
    bound = saving_in_macs(model, paths, data.first(2))
    bits = "OTHER SCORES"
    if same:
        bits = "the same scores"
    print(
        f"  {name:22} alone {timings['alone']}, together {timings['together']}, {bits}, bound "
        f"{bound:.2f}×"
    )
    if target is not None:
        verdict(f"  {name}", f"{ratio:.2f}×", f"at least {target}×", same and ratio >= target)
    if not same:
        return 0.0
    return ratio


# Training


@dataclass
class Step:
    """One step of a client on one batch."""

    net: nn.Module
    choice: tuple[object, ...]
    batch: Samples

    def __post_init__(self) -> None:
        self.optimizer = sgd(self.net, FedorASOptions(), 0.01)
        training_mode(self.net, "averaged")

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        loss = training_loss(training_scores(self.net, self.batch.x, *self.choice), self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.optimizer.step()


def training() -> None:
    print("A client's step on one path, in the supernet and as a plain module:")
    for space, shape, batch, paths in (("cnn-l", IMAGES, 8, 3), ("cnn-tiny", (3, 16, 16), 32, 4)):
        frame = frame_of(space, shape)
        data = samples(batch, shape)
        ratios = []
        for path in uniform_paths(frame, paths, "trained"):
            in_supernet = Step(frame.model(), (frame.arch(as_sub_space(path)),), data)
            as_module = Step(plain(frame.model(as_sub_space(path))), (), data)
            timings = in_turns({"supernet": in_supernet, "plain": as_module}, 15)
            ratios.append(timings["supernet"].best / timings["plain"].best)
            print(f"  {space:9} in the supernet {timings['supernet']}, plain {timings['plain']}")
        mean = sum(ratios) / len(ratios)
        verdict(f"  {space}, mean of {paths} paths", f"{mean:.2f}×", "at most 1.15×", mean <= 1.15)
    print()


# Merging

DIFFERENT_HALVES = "10 different halves of cnn-l"
WHOLE_SUPERNETS = "5 whole supernets"
ONE_HALF = "10 times one half"


def spooled(folder: File, replies: Sequence[Reply]) -> Spooled:
    places = []
    for reply in replies:
        path = folder / f"{reply.client}.reply"
        write_whole(path, reply_chunks(reply), durable=False)
        places.append(Place(reply.client, path))
    return Spooled(tuple(places))


@dataclass
class Merge:
    """One round's replies in files, and the server's step."""

    state: State
    replies: Spooled
    orders: list[Order]
    numbers: int

    @classmethod
    def of(cls, folder: File, tensors: dict[str, torch.Tensor], replies: Sequence[Reply]) -> Merge:
        folder.mkdir()
        numbers = 0
        orders = []
        for reply in replies:
            numbers += sum(tensor.numel() for tensor in reply.tensors.values())
            orders.append(Order(reply.client, "train", reply.tensors))
        parameters = [name for name in tensors if tensors[name].is_floating_point()]
        return cls(
            State(tensors, {"parameters": parameters}), spooled(folder, replies), orders, numbers
        )

    def __call__(self) -> object:
        return server_step(FedorASOptions(), self.state, self.orders, self.replies, LEAST)


def merging() -> None:
    frame = frame_of("cnn-l")
    weights = weights_of(frame.model())
    sampler = SubSpaceSampler(frame.params, frame.costs({"macs": inf}, ()))
    parts = []
    for client in range(CLIENTS):
        sub_space = sampler.draw(0.5 * frame.supernet_params, (inf,), rng(client, "sub-space"))
        tensors = frame.part(weights, sub_space)
        # What goes down: an operation's keys have one weight, as from a client.
        by_key = {}
        for name in tensors:
            owner = frame.owners[name]
            by_key[name] = 100.0 + client
            if owner is not None:
                by_key[name] = 1.0 + (7 * owner.slot + owner.op + client) % 50
        parts.append(Reply(client, tensors, by_key))
    supernets = [Reply(client, weights, 100.0 + client) for client in range(CLIENTS // 2)]
    halves = [Reply(client, parts[0].tensors, 100.0 + client) for client in range(CLIENTS)]
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = File(name)
        merges = {
            DIFFERENT_HALVES: Merge.of(folder / "parts", weights, parts),
            WHOLE_SUPERNETS: Merge.of(folder / "supernets", weights, supernets),
            ONE_HALF: Merge.of(folder / "halves", dict(parts[0].tensors), halves),
        }
        timings = in_turns(merges, 7)
    print("Merging replies from their files, CPU time:")
    for name, timing in timings.items():
        print(f"  {name:30} {timing}, {merges[name].numbers / 1e6:.0f} M numbers")
    seconds = {name: timings[name].best / merge.numbers for name, merge in merges.items()}
    ratio = seconds[DIFFERENT_HALVES] / seconds[WHOLE_SUPERNETS]
    verdict("  parts against whole supernets, a number", f"{ratio:.2f}×", "at most 2×", ratio <= 2)
    against_half = seconds[DIFFERENT_HALVES] / seconds[ONE_HALF]
    print(
        f"  against a network of half the size: {against_half:.2f}×, which also "
        f"makes half the means"
    )
    print()


PARTS = {"draw": drawing, "score": scoring, "train": training, "merge": merging}


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    heading("Paths of a supernet")
    for name in names or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
