"""`fedloom export`: one model of a finished run in a folder that needs no fedloom.

    model.py                 plain torch: the network, and how to load it
    weights.safetensors      its weights
    architecture.json        what it is, its input, its labels
    README.md                its model card
    model.onnx, model.pte    with --format onnx or executorch

A network whose samples take their own paths may leave as it is, pruned, or as one path alone: see
export/paths.py.

What was written is loaded again and compared with the run's own network, to the bit, before anybody
is told of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError, unknown
from fedloom.export.card import path_lines
from fedloom.export.description import MARK, NAME, ModelDescription, ModelInput
from fedloom.export.finished import Finished, Served
from fedloom.export.input_values import input_values
from fedloom.export.paths import NO_PATHS, PathFacts, Wish, leaving, own_samples
from fedloom.export.template import Answer, model_file
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import Program, program
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import state_chunks
from fedloom.files import Chunk, write_whole
from fedloom.nets.heads import head_of_network
from fedloom.nets.model import seeded, shaped
from fedloom.reading import Unreadable
from fedloom.records.folder import making
from fedloom.spaces.space import Size
from fedloom.threads import one_thread
from fedloom.types import Json, State
from fedloom.version import __version__

Format = Literal["torch", "onnx", "executorch"]
FORMATS: tuple[Format, ...] = get_args(Format)
FILES = {"onnx": "model.onnx", "executorch": "model.pte"}  # of the formats beside plain torch
COMPARED = 64  # samples that the written network and the run's own must agree on


@dataclass(frozen=True)
class Exported:
    """What was written, and what was checked."""

    path: Path
    format: Format
    client: int | None  # None: the shared model
    files: tuple[str, ...]
    about: ModelDescription
    samples: int  # compared
    difference: float | None  # largest, of another format's scores; None: plain torch, equal bits
    notes: tuple[str, ...] = field(default=())
    whose: str = "the shared model"  # or whose it is, in a sentence
    paths: PathFacts | None = None  # None: all samples take one path

    def to_json(self) -> Json:
        paths = NO_PATHS
        if self.paths is not None:
            paths = self.paths.to_json()
        return {
            "export": str(self.path),
            "format": self.format,
            "client": self.client,
            "model": self.whose,
            "files": list(self.files),
            "architecture": self.about.architecture,
            "params": self.about.params,
            "macs": self.about.macs,
            "input": self.about.input.to_json(),
            "compared": self.samples,
            "difference": self.difference,
            **paths,
            "notes": list(self.notes),
        }

    @property
    def _compared_with(self) -> str:
        if self.paths is None:
            return "the run's own network"
        if self.paths.path == "likely":
            return "that path of the run's own network"
        if self.paths.left_out is not None:
            return "the run's own network, pruned,"
        return "the run's own network"

    def table(self) -> None:
        """Say it in words."""
        size = f"{self.about.params:,} parameters"
        print(f"{self.path}: {self.whose}, {size}: {', '.join(self.files)}")
        print(f"input: {self.about.input.in_words}")
        print(f"model.py equals {self._compared_with} on {self.samples} samples, bit for bit")
        if self.difference is not None:
            largest = f"the largest difference of a score on these samples is {self.difference:.3g}"
            print(f"{self.format}: {largest}")
        if self.paths is not None:
            for line in path_lines(self.paths):
                print(line)
        for note in self.notes:
            print(f"note: {note}")


def export(
    finished: Finished,
    *,
    client: int | None = None,
    format: str = "torch",
    out: Path | str | None = None,
    path: str | None = None,
    prune: bool = False,
) -> Exported:
    """Write one model; `client` None: the shared one.

    `path` and `prune` are for a model whose samples take their own paths; None: "each".
    """
    if format not in FORMATS:
        raise unknown("--format", format, FORMATS)
    model = finished.served(client)
    wish = Wish(path, prune, format)
    with one_thread():
        network = model.network().cpu().eval()
        own = own_samples(network, wish, finished, client)
        place = place_for(finished, client, out)
        samples = compared(finished, client)
        leaves = leaving(network, wish, own, finished.task, samples)
        whole = Whole(leaves.network, finished.task.target)
        written = program(traced(whole))
        about = description(finished, client, model, whole, leaves.facts)
        with making(place):
            files = write(place, written, about, finished, model, leaves.facts)
        check(place, whole, samples)
        difference = None
        if format != "torch":
            difference = other_format(format, place, whole, samples)
            files = (*files, FILES[format])
    return Exported(
        path=place,
        format=format,
        client=client,
        files=files,
        about=about,
        samples=len(samples),
        difference=difference,
        notes=notes(model, client),
        whose=finished.whose(client),
        paths=leaves.facts,
    )


def other_format(format: str, place: Path, whole: Whole, samples: torch.Tensor) -> float:
    """Writes it, and gives the largest difference of its scores from the network's own."""
    if format == "onnx":
        from fedloom.export import onnx

        return onnx.write(place / "model.onnx", whole, samples)
    from fedloom.export import executorch

    return executorch.write(place / "model.pte", whole, samples)


def place_for(finished: Finished, client: int | None, out: Path | str | None) -> Path:
    """A new or empty folder, or an export of before."""
    name = "shared"
    if client is not None:
        name = f"client-{client}"
    elif finished.named is not None:
        name = finished.named.name
    place = finished.run.path / "exports" / name
    if out is not None:
        place = Path(out)
    with making(place):
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()) and not is_export(place):
            rule = "--out must be a new or empty folder, or an earlier export"
            raise FedloomError(rule, f"{place} has other content", "name another folder")
    return place


def is_export(place: Path) -> bool:
    try:
        return ModelDescription.read(place).is_ours
    except Unreadable:
        return False


def write(
    place: Path,
    written: Program,
    about: ModelDescription,
    finished: Finished,
    model: Served,
    paths: PathFacts | None,
) -> tuple[str, ...]:
    """The files of plain torch, and their names."""
    from fedloom.export.card import card

    weights = {name: tensor.detach().contiguous() for name, tensor in written.weights.items()}
    network = model_file(
        written.classes,
        version=__version__,
        shape=finished.task.shape,
        last=about.channels_last,
        resize=about.input.resize,
        fit=about.input.fit,
        answers=answer_of(finished),
    )
    readme = card(finished, about, notes(model, about.client), paths)
    architecture = json.dumps(about.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    contents: dict[str, list[Chunk]] = {
        "weights.safetensors": list(state_chunks(State(weights))),
        "model.py": [network.encode()],
        "README.md": [readme.encode()],
        NAME: [architecture.encode()],
    }
    forget_other_formats(place, contents["weights.safetensors"])
    for name, chunks in contents.items():
        write_whole(place / name, chunks, durable=True)
    return tuple(contents)


def answer_of(finished: Finished) -> Answer:
    if finished.task.is_regression:
        return "number of a row"
    if finished.encoding is not None:
        return "class of a row"
    return "class"


def forget_other_formats(place: Path, weights: Sequence[Chunk]) -> None:
    """Removes what an earlier export left in other formats, if it was of another network."""
    earlier = place / "weights.safetensors"
    if not earlier.exists() or earlier.read_bytes() == b"".join(weights):
        return
    for name in FILES.values():
        (place / name).unlink(missing_ok=True)


def description(
    finished: Finished,
    client: int | None,
    model: Served,
    whole: Whole,
    paths: PathFacts | None,
) -> ModelDescription:
    """With it, `--network architecture.json` builds a searched network again."""
    task = finished.task
    architecture = getattr(whole.net, "architecture", type(whole.net).__name__)
    genotype: dict[str, Json] = {}
    if isinstance(architecture, dict) and not whole.dispatches:
        genotype = rebuilt(architecture, whole.net)
    mean: list[float] = []
    std: list[float] = []
    if whole.normalises:
        mean = whole.mean.flatten().tolist()
        std = whole.std.flatten().tolist()
    values = input_values(finished)
    samples = ModelInput(
        kind=task.kind,
        shape=list(task.shape),
        dtype=values.dtype,
        mean=mean,
        std=std,
    )
    if values.has_range:
        samples = samples.replace(low=values.low, high=values.high)
    if finished.encoding is not None:
        samples = samples.replace(table=finished.encoding.to_json())
    resize = finished.resize
    if resize is not None:
        samples = samples.replace(resize=resize, fit=finished.fit)
    about = ModelDescription(
        genotype=genotype,
        format=MARK,
        fedloom=__version__,
        architecture=architecture,
        input=samples,
        labels=list(task.labels),
        params=parameters(whole),
        macs=macs(whole, task.shape),
        channels_last=any(is_last(tensor) for tensor in whole.parameters()),
        client=client,
        method=task.method,
        stage=model.run.stage,
        round=finished.at.round,
    )
    if paths is not None:
        about = about.replace(
            path=paths.path,
            share=paths.share,
            accuracy=paths.accuracy,
            left_out=paths.left_out,
        )
    if paths is not None and paths.macs is not None:
        about = about.replace(macs=paths.macs)
    head = head_of_network(whole.net)
    if head is None:
        return about
    return about.replace(head=head)


def rebuilt(arch: dict[str, Json], net: nn.Module) -> dict[str, Json]:
    """What a genotype's file needs beside the genotype for the same network.

    A supernet and its cuts say it.
    """
    size = getattr(net, "size", None)
    if not isinstance(size, Size):
        return arch
    return {**arch, **size._asdict(), "affine": bool(getattr(net, "affine", False))}


def is_last(tensor: torch.Tensor) -> bool:
    """Whether its channels are last in memory.

    Strides say it also where one channel alone would be contiguous in either format.
    """
    if tensor.dim() != 4:
        return False
    usual = torch.empty(tensor.shape, memory_format=torch.contiguous_format).stride()
    last = torch.empty(tensor.shape, memory_format=torch.channels_last).stride()
    return tensor.stride() == last != usual


def compared(finished: Finished, client: int | None) -> torch.Tensor:
    """Real samples, where there are any here: a client's own, or the data set's first ones."""
    if finished.site is not None:
        data = finished.site.data(client or finished.here or 0)
        samples = torch.cat([data.test.x, data.train.x])[:COMPARED]
        if len(samples) == 1:  # exporters need two
            samples = torch.cat([samples, samples])
        return samples
    task = finished.task
    draw = torch.Generator().manual_seed(task.seed)
    if task.kind == "text":
        return torch.randint(0, len(task.labels), (COMPARED, *task.shape), generator=draw)
    mean = shaped(torch.tensor(task.mean), task.kind)
    std = shaped(torch.tensor(task.std), task.kind)
    return mean + std * torch.randn(COMPARED, *task.shape, generator=draw)


class Afresh(SourceFileLoader):
    """Reads the source, whatever compiled form of it may lie beside, and leaves none."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


@torch.no_grad()
def check(place: Path, whole: Whole, samples: torch.Tensor) -> None:
    """Load what was written as a stranger would, and compare."""
    loader = Afresh("fedloom_exported_model", str(place / "model.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    network = module.load()
    for part in (samples, samples[:1]):
        with seeded(0):  # an operation of noise draws
            expected = whole(part)
        with seeded(0):
            written = network(part)
        if torch.equal(expected, written):
            continue
        largest = (expected - written).abs().max()
        raise FedloomError(
            "a written network must answer as the run's own does",
            f"its scores differ by up to {largest:.3g}",
            f"report this, with {place}/model.py",
            code=1,
        )


def notes(model: Served, client: int | None) -> tuple[str, ...]:
    """What a reader must know before relying on it."""
    if client is None:
        return ()
    texts = []
    if type(model.method).predictor is not Method.predictor:
        texts.append(
            f"{model.run.task.method} answers with more than this network "
            "(it remembers the client's samples): the export is the network alone, and less "
            "accurate; `fedloom predict` answers as the method does"
        )
    if model.own is None:
        text = "this client keeps no network of its own: this is the one that the server gives it"
        if model.method.assumptions(model.run.task):
            text += ", fitted to this client's samples as the card says under Limits"
        texts.append(text)
    return tuple(texts)
