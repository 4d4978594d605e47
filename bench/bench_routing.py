"""Every sample on its own path, against one fixed path and against all operations with a mask.

    python bench/bench_routing.py [--size NAME] [--turns N] [--only PART]

The network is that of `stacks:3:1:2`, with paths drawn uniformly; the routed and the masked
alternative include the samplers. All alternatives run with one thread, in turns and in changing
order within one run; the figures are medians of CPU seconds. "Fixed" is the mean of 20 random
paths, each the same for the whole batch. A training step is forward and backward pass, clipping and
SGD. An evaluation is a forward pass without gradients, one of the four that score 256 samples with
the same weights: what is precomputed from the weights (nets/folding.py) is computed once for every
four.

"Sorted, split and joined" is what one would write first, without spaces/routing.py.

Then follow the peak memory of each alternative, in its own process; a step of FedPNAS against one
of FedDSNAS, by the methods' own training; and the exported networks in onnxruntime, where it is
installed (both of the middle size, unless a size is named).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from fedloom import allocator
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.optimizers import Sgd, clip_gradients, forget_gradients
from fedloom.learning.training import SgdOptions
from fedloom.methods.fedpnas_stage import is_personal
from fedloom.nets.folding import weights_stay
from fedloom.nets.model import Model
from fedloom.rng import rng, torch_rng
from fedloom.searchers.guides import ContextGuide, DrawFor, Drawing, Guide, Guided, PathGuide
from fedloom.searchers.routed_search import Inner, RoutedTraining, train_routed
from fedloom.spaces import open_space
from fedloom.spaces.choice import Place, Routes
from fedloom.spaces.edges import Edges, dispatched_source
from fedloom.spaces.mixed import Mixed, alpha_key, model_of_space
from fedloom.spaces.ops import scaled
from fedloom.spaces.space import Size
from fedloom.spaces.stacks.space import StackSpace
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task
from measuring import Timing, heading, in_new_process, self_timed, verdict

SPACE = open_space("stacks:3:1:2")
CLASSES = 10
PATHS = 20  # fixed ones, of which the mean is taken
TURNS = 7
STEPS_A_TURN = 8  # of FedPNAS and FedDSNAS; each step draws new paths
ONNX_PATHS = 5
EVALUATED = 4  # batches that are scored with the same weights
# Routed passes before the measurement: oneDNN generates code for every size of a group that it
# meets.
WARMING = 15
LEAST_CALLS = 3  # in a row, of a measurement
LEAST_SECONDS = 0.02  # of a measurement: faster steps are repeated


@dataclass(frozen=True)
class Targets:
    """The targets of a size; the small size has none and is only printed."""

    training: float  # at most, of a fixed path
    mask_by_training: float  # at least
    evaluation: float
    mask_by_evaluation: float


@dataclass(frozen=True)
class Setting:
    """A size of the network and of its batches."""

    name: str
    channels: int
    shape: tuple[int, int, int]
    batch: int
    targets: Targets | None

    @property
    def title(self) -> str:
        return f"{self.channels} channels, {self.shape[1]}×{self.shape[2]}, batch {self.batch}"


SETTINGS = {
    "middle": Setting("middle", 16, (1, 28, 28), 64, Targets(2.2, 3.2, 1.7, 4.2)),
    "large": Setting("large", 32, (3, 32, 32), 64, Targets(1.9, 4.5, 1.35, 5.5)),
    "small": Setting("small", 8, (1, 14, 14), 32, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=list(SETTINGS), help="instead of all three")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument(
        "--only", choices=["time", "memory", "methods", "onnx"], help="instead of everything"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    allocator.settle()
    heading("Every sample on its own path")
    settings = list(SETTINGS.values())
    if arguments.size is not None:
        settings = [SETTINGS[arguments.size]]
    for setting in settings:
        if arguments.only in (None, "time"):
            measure(setting, arguments.turns)
        if arguments.only in (None, "memory"):
            measure_memory(setting)
        print()
    for_rest = SETTINGS[arguments.size or "middle"]
    if arguments.only in (None, "methods"):
        measure_methods(for_rest, arguments.turns)
    if arguments.only in (None, "onnx"):
        measure_onnx(for_rest, arguments.turns)


# The three ways


class Drawn:
    """Uniform random paths, drawn again in every pass, by samplers that have learnt nothing yet."""

    def __init__(self, guide: ContextGuide) -> None:
        self.guide = guide
        self.generator = torch_rng(0, "paths")

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        return Drawing(self.guide, 1.0, "sample", self.generator).routes(place, inputs)


class Likely:
    """Evaluation on random paths: samplers are computed as usual, but their choice is replaced."""

    def __init__(self, guide: ContextGuide) -> None:
        self.guide = guide
        self.generator = torch_rng(0, "paths")

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        routes = self.guide.routes(place, inputs)
        options = routes.options[0]  # all slots of a cell have the same ones
        routes.ops = torch.randint(options, routes.ops.shape, generator=self.generator)
        return routes


class Masked:
    """All operations, multiplied by 1 where a sample takes them and by 0 elsewhere."""

    def __init__(self, drawn: Drawn | Likely) -> None:
        self.drawn = drawn

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        routes = self.drawn.routes(place, inputs)
        rows = []
        for slot in range(len(routes)):
            rows.append(torch.stack(list(routes[slot]), dim=-1))
        return rows


@contextmanager
def plainly() -> Iterator[None]:
    """Inside, edges are computed in the plainest way: sort, split, compute, join, sort back."""
    ours = Edges._flow_routed
    setattr(Edges, "_flow_routed", plain_flow)  # noqa: B010  # mypy refuses the assignment
    try:
        yield
    finally:
        setattr(Edges, "_flow_routed", ours)  # noqa: B010


def plain_flow(
    edges: Edges, states: list[torch.Tensor], nodes: int, routes: Routes
) -> list[torch.Tensor]:
    first = len(states)
    for node in range(first, first + nodes):
        terms = []
        for edge, (source, target) in enumerate(edges.pairs):
            if target == node:
                term = plain_edge(edges, edge, states[source], routes.ops[:, edge])
                terms.append(scaled(term, routes.factors_of(edge)))
        total = torch.stack(terms).sum(dim=0)
        if edges.nodes_are_means:
            total = total / len(terms)
        states.append(total)
    return states[first:]


def plain_edge(edges: Edges, edge: int, state: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    order = chosen.argsort()
    ops = edges._by_number(edge)
    counts = chosen.bincount(minlength=max(ops) + 1).tolist()
    results = []
    for number, samples in enumerate(state[order].split(counts)):
        if len(samples):
            op = ops[number]
            results.append(op(dispatched_source(samples, op.takes, edges.strides[edge])))
    return torch.cat(results)[order.argsort()]


class Network:
    """A network with its samplers, a batch, and a step of each alternative."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.model = model_of_space(
            task_of(setting), SPACE, Size(SPACE.usual.cells, setting.channels), affine=True
        )
        self.guide = uniform_guide(setting)
        self.batch = images(setting, setting.batch)
        self.parameters = {**dict(self.model.named_parameters()), **self.guide.named_tensors()}
        self.optimizer = Sgd(self.parameters, 0.05, momentum=0.9, weight_decay=3e-4)

    def train(self, choice: Any) -> None:
        forget_gradients(self.parameters)
        scores = self.model(self.batch.x, choice)
        nn.functional.cross_entropy(scores, self.batch.y).backward()
        clip_gradients(self.parameters.values(), 5.0)
        self.optimizer.step()

    @torch.no_grad()
    @weights_stay()
    def evaluate(self, choice: Any) -> None:
        for _ in range(EVALUATED):
            self.model(self.batch.x, choice)

    def path(self, arch: Arch) -> Model:
        """A separate network with only this path."""
        supernet = self.model.net
        assert isinstance(supernet, Supernet)
        channels = self.setting.shape[0]
        return Model(supernet.cut(arch), (0.5,) * channels, (0.3,) * channels)

    def ways(self, kind: str) -> dict[str, Callable[[], None]]:
        """The alternatives, each as a function; `kind` is train or evaluate."""
        self.model.train(kind == "train")
        compute = self.train
        drawn: Drawn | Likely = Drawn(self.guide)
        if kind == "evaluate":
            compute = self.evaluate
            drawn = Likely(self.guide)
        ways: dict[str, Callable[[], None]] = {
            "routed": partial(compute, drawn),
            "mask": partial(compute, Masked(drawn)),
            "plain": plainly()(partial(compute, drawn)),
        }
        for number, path in enumerate(fixed_paths()):
            ways[f"fixed {number}"] = partial(compute, path)
        return ways


def task_of(setting: Setting) -> Task:
    labels = tuple(str(digit) for digit in range(CLASSES))
    channels = setting.shape[0]
    return Task(
        "ca-fedpnas", {}, "image", setting.shape, labels, 0, (0.5,) * channels, (0.3,) * channels
    )


def uniform_guide(setting: Setting) -> ContextGuide:
    """Samplers for which all operations are equally likely."""
    guide = ContextGuide(SPACE, setting.channels, setting.shape, places(), 4.0)
    with torch.no_grad():
        for name, parameter in guide.named_tensors().items():
            if ".output." in name:
                parameter.zero_()
    return guide


def places() -> list[Place]:
    assert isinstance(SPACE, StackSpace)
    return [Place(number, slots) for number, slots in enumerate(SPACE.slots_by_cell())]


def fixed_paths() -> list[Arch]:
    draws = rng(0, "fixed paths")
    return [SPACE.sample(draws) for _ in range(PATHS)]


def images(setting: Setting, count: int) -> Samples:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, *setting.shape, generator=generator)
    return Samples(x, torch.arange(count) % CLASSES)


# Time


def measure(setting: Setting, turns: int) -> None:
    print(setting.title)
    network = Network(setting)
    for kind, name in (("train", "training step"), ("evaluate", "evaluation")):
        ways = network.ways(kind)
        for _ in range(WARMING):
            ways["routed"]()
        seconds = medians(ways, turns)
        if kind == "evaluate":
            seconds = {way: total / EVALUATED for way, total in seconds.items()}
        fixed = mean_of_fixed(seconds)
        routed = seconds["routed"]
        mask = seconds["mask"]
        joined = seconds["plain"]
        print(
            f"  {name}: routed {1e3 * routed:.1f} ms, fixed {1e3 * fixed:.1f} ms, "
            f"mask {1e3 * mask:.1f} ms, sorted, split and joined {1e3 * joined:.1f} ms"
        )
        print(f"  sorted, split and joined / fixed path: {joined / fixed:.2f}×")
        judge(setting, kind, name, routed / fixed, mask / routed)


def judge(setting: Setting, kind: str, name: str, by_fixed: float, mask_by: float) -> None:
    targets = setting.targets
    if targets is None:
        print(f"  {name} / fixed path: {by_fixed:.2f}×; mask / {name}: {mask_by:.2f}×")
        return
    most = targets.training
    least = targets.mask_by_training
    if kind == "evaluate":
        most = targets.evaluation
        least = targets.mask_by_evaluation
    verdict(f"  {name} / fixed path", f"{by_fixed:.2f}×", f"at most {most}×", by_fixed <= most)
    verdict(f"  mask / {name}", f"{mask_by:.2f}×", f"at least {least}×", mask_by >= least)


def medians(ways: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    self_timing = {name: partial(cpu_time, run) for name, run in ways.items()}
    timings = self_timed(self_timing, turns)
    return {name: timing.middle for name, timing in timings.items()}


def mean_of_fixed(seconds: Mapping[str, float]) -> float:
    """The mean over all fixed paths."""
    return mean(seconds[name] for name in seconds if name.startswith("fixed"))


def cpu_time(run: Callable[[], Any]) -> list[float]:
    """The times of several calls in a row, as batches follow one another, without the first.

    Calls that are too short for the clock are repeated more often.
    """
    run()
    calls = 0
    started = time.process_time()
    while True:
        run()
        calls += 1
        seconds = time.process_time() - started
        if calls >= LEAST_CALLS and seconds >= LEAST_SECONDS:
            return [seconds / calls]


# Memory


def measure_memory(setting: Setting) -> None:
    """The peak that two steps of each alternative add to their own process, in MB."""
    print(f"Peak memory, {setting.title}")
    for kind, name in (("train", "training step"), ("evaluate", "evaluation")):
        rises = []
        for way in ("routed", "mask", "fixed"):
            rise = in_new_process(__file__, "peak", setting.name, kind, way)
            rises.append(f"{way} {rise / 1e6:.0f} MB")
        print(f"  {name}: {', '.join(rises)}")


def peak(name: str, kind: str, way: str) -> None:
    """Print the peak of one alternative; for fixed paths, that of the most expensive one."""
    torch.set_num_threads(1)
    allocator.settle()
    network = Network(SETTINGS[name])
    before = most_resident()
    for other, run in network.ways(kind).items():
        if other.startswith(way):
            run()
            run()
    print(json.dumps(most_resident() - before))


def most_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# FedPNAS and FedDSNAS


class Client:
    """A client in the middle of its search: some steps of its training, each on other paths."""

    def __init__(self, setting: Setting, draw: DrawFor, *, anticipates: bool) -> None:
        self.task = task_of(setting)
        self.model = model_of_space(
            self.task, SPACE, Size(SPACE.usual.cells, setting.channels), affine=True
        )
        self.model.train()
        self.guide = guide_for(setting, draw)
        self.data = images(setting, STEPS_A_TURN * setting.batch)
        inner = None
        if anticipates:
            inner = Inner(0.01, "outer")
        steps = SgdOptions(batch=setting.batch, epochs=1)
        self.how = RoutedTraining(steps, 0.05, 0.003, 0.0, 1.0, draw, inner=inner)
        self.turn = 0

    def train(self) -> list[float]:
        self.turn += 1
        run = ClientRun(self.task, "search", self.turn, 0, 0, "cpu", lambda: b"")
        started = time.process_time()
        train_routed(self.model, self.guide, self.data, self.how, is_personal, run)
        return [(time.process_time() - started) / STEPS_A_TURN]


def guide_for(setting: Setting, draw: DrawFor) -> Guide:
    """Π where one path is drawn per minibatch, samplers where every sample has its own path."""
    guide: Guide
    if draw == "batch":
        rows = {}
        for number, slot in enumerate(SPACE.slots):
            rows[alpha_key(number, slot)] = torch.zeros(len(slot.options))
        guide = PathGuide(SPACE, rows)
    else:
        guide = uniform_guide(setting)
    for tensor in guide.named_tensors().values():
        tensor.requires_grad_(True)
    return guide


def measure_methods(setting: Setting, turns: int) -> None:
    print(f"A step that anticipates tuning (hessian=outer), against a plain one; {setting.title}")
    pairs: tuple[tuple[str, str, DrawFor], ...] = (
        ("fedpnas", "feddsnas", "batch"),
        ("ca-fedpnas", "ca-feddsnas", "sample"),
    )
    for anticipating, plain, draw in pairs:
        clients = {
            anticipating: Client(setting, draw, anticipates=True).train,
            plain: Client(setting, draw, anticipates=False).train,
        }
        timings = self_timed(clients, turns)
        ratio = mean_of(timings[anticipating]) / mean_of(timings[plain])
        verdict(f"  {anticipating} / {plain}", f"{ratio:.2f}×", "below 2×", ratio < 2)


def mean_of(timing: Timing) -> float:
    """The mean over turns, not the median: drawn paths differ in their cost."""
    return mean(timing.times)


# The exported network in onnxruntime


def measure_onnx(setting: Setting, turns: int) -> None:
    """Export the networks with the project's own export.

    All operations are a mixture here, whose weights are the same for all samples.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        print("ONNX: not measured, onnxruntime is not installed")
        return
    print(f"ONNX, {setting.title}")
    network = Network(setting)
    network.model.eval()
    alpha = {}
    for number, slot in enumerate(SPACE.slots):
        alpha[alpha_key(number, slot)] = torch.zeros(len(slot.options))
    networks: dict[str, nn.Module] = {"all operations": Mixed(network.model, alpha)}
    for number, path in enumerate(fixed_paths()[:ONNX_PATHS]):
        networks[f"fixed {number}"] = network.path(path)
    # This one is last, because the samplers become parts of it.
    networks["dispatch"] = Guided(network.model, deciding_guide(setting))
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        sessions = {}
        for name, net in networks.items():
            try:
                sessions[name] = session_of(net, Path(folder) / f"{name}.onnx", network.batch.x)
            except FedloomError as error:
                print(f"  not measured, {name}: {error}")
                return
        for count in (1, 32):
            inputs = {"samples": network.batch.x[:count].numpy()}
            runs = {}
            for name, session in sessions.items():
                runs[name] = partial(session.run, None, inputs)
            seconds = medians(runs, turns)
            fixed = mean_of_fixed(seconds)
            dispatch = seconds["dispatch"]
            everything = seconds["all operations"]
            print(
                f"  batch {count}: dispatch {1e3 * dispatch:.2f} ms, {dispatch / fixed:.2f}× a "
                f"fixed path;"
                f" all operations {everything / dispatch:.2f}× the dispatch"
            )


def session_of(net: nn.Module, file: Path, samples: torch.Tensor) -> Any:
    import onnxruntime

    from fedloom.export.onnx import write
    from fedloom.export.tracing import Whole

    write(file, Whole(net), samples)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def deciding_guide(setting: Setting) -> ContextGuide:
    """Samplers that spread samples over many paths: an export cannot be given its paths."""
    guide = uniform_guide(setting)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in guide.named_tensors().items():
            if name.endswith("output.weight"):
                parameter.copy_(4 * torch.randn(parameter.shape, generator=generator))
    return guide


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "peak":
        peak(*sys.argv[2:])
    else:
        main()
