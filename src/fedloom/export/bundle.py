"""`fedloom export`: writes one model of a finished run into a folder that needs no fedloom.

    model.py                 the network in plain torch, and a function that loads it
    weights.safetensors      its weights
    architecture.json        a description of the network, its input and its labels
    README.md                its model card
    model.onnx, model.pte    with --format onnx or executorch

A network whose samples take their own paths can be exported as it is, pruned, or as a single path:
see export/paths.py.

Before the export is reported, the written network is loaded again and compared with the run's own
network, bit for bit.
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
from fedloom.export.paths import NO_PATHS, PathFacts, PathRequest, network_to_write, own_samples
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
FILES = {"onnx": "model.onnx", "executorch": "model.pte"}  # formats other than plain torch
COMPARED = 64  # samples on which the written network and the run's own must agree


@dataclass(frozen=True)
class Exported:
    """What was written, and what was checked."""

    path: Path
    format: Format
    client: int | None  # None: the shared model
    files: tuple[str, ...]
    about: ModelDescription
    samples: int  # on which the networks were compared
    # The largest difference of a score in another format; None: plain torch, with equal bits.
    difference: float | None
    notes: tuple[str, ...] = field(default=())
    whose: str = "the shared model"  # or another model, as it is called in a sentence
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
        """Print what was written and checked."""
        size = f"{self.about.params:,} parameters"
        print(f"{self.path}: {self.whose}, {size}: {', '.join(self.files)}")
        print(f"input: {self.about.input.in_words}")
        print(f"model.py equals {self._compared_with} on {self.samples} samples, bit for bit")
        if self.difference is not None:
            largest = f"{self.difference:.3g}"
            print(f"{self.format}: scores on these samples differ by at most {largest}")
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
    """Write the model of a client, or the shared model if `client` is None.

    `path` and `prune` are for models whose samples take their own paths; `path` None means "each".
    """
    if format not in FORMATS:
        raise unknown("--format", format, FORMATS)
    model = finished.served(client)
    request = PathRequest(path, prune, format)
    with one_thread():
        network = model.network().cpu().eval()
        own = own_samples(network, request, finished, client)
        place = export_folder(finished, client, out)
        samples = samples_to_compare(finished, client)
        chosen = network_to_write(network, request, own, finished.task, samples)
        whole = Whole(chosen.network, finished.task.target)
        written = program(traced(whole))
        about = description(finished, client, model, whole, chosen.facts)
        with making(place):
            files = write(place, written, about, finished, model, chosen.facts)
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
        paths=chosen.facts,
    )


def other_format(format: str, place: Path, whole: Whole, samples: torch.Tensor) -> float:
    """Write the network, and return the largest difference of its scores from the original's."""
    if format == "onnx":
        from fedloom.export import onnx

        return onnx.write(place / "model.onnx", whole, samples)
    from fedloom.export import executorch

    return executorch.write(place / "model.pte", whole, samples)


def export_folder(finished: Finished, client: int | None, out: Path | str | None) -> Path:
    """The folder to write into, which must be new, empty, or an earlier export."""
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
    """Write the files of the plain torch format, and return their names."""
    from fedloom.export.card import card

    weights = {name: tensor.detach().contiguous() for name, tensor in written.weights.items()}
    network = model_file(
        written.classes,
        version=__version__,
        shape=finished.task.shape,
        channels_last=about.channels_last,
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
    """Remove files that an earlier export of another network left in other formats."""
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
    """The content of architecture.json, from which `--network` builds a searched network again."""
    task = finished.task
    architecture = getattr(whole.net, "architecture", type(whole.net).__name__)
    genotype: dict[str, Json] = {}
    if isinstance(architecture, dict) and not whole.dispatches:
        genotype = genotype_with_size(architecture, whole.net)
    about = ModelDescription(
        genotype=genotype,
        format=MARK,
        fedloom=__version__,
        architecture=architecture,
        input=input_description(finished, whole),
        labels=list(task.labels),
        params=parameters(whole),
        macs=macs(whole, task.shape),
        channels_last=any(has_channels_last(tensor) for tensor in whole.parameters()),
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


def input_description(finished: Finished, whole: Whole) -> ModelInput:
    """What samples must look like, and how the model normalises them."""
    mean: list[float] = []
    std: list[float] = []
    if whole.normalises:
        mean = whole.mean.flatten().tolist()
        std = whole.std.flatten().tolist()
    values = input_values(finished)
    samples = ModelInput(
        kind=finished.task.kind,
        shape=list(finished.task.shape),
        dtype=values.dtype,
        mean=mean,
        std=std,
    )
    if values.has_range:
        samples = samples.replace(low=values.low, high=values.high)
    if finished.encoding is not None:
        samples = samples.replace(table=finished.encoding.to_json())
    if finished.resize is not None:
        samples = samples.replace(resize=finished.resize, fit=finished.fit)
    return samples


def genotype_with_size(arch: dict[str, Json], net: nn.Module) -> dict[str, Json]:
    """The genotype, with the sizes that building the same network again needs.

    Supernets, and networks cut out of them, have these sizes.
    """
    size = getattr(net, "size", None)
    if not isinstance(size, Size):
        return arch
    return {**arch, **size._asdict(), "affine": bool(getattr(net, "affine", False))}


def has_channels_last(tensor: torch.Tensor) -> bool:
    """Whether its channels are last in memory.

    Strides also tell it for a single channel, which is contiguous in either format.
    """
    if tensor.dim() != 4:
        return False
    usual = torch.empty(tensor.shape, memory_format=torch.contiguous_format).stride()
    last = torch.empty(tensor.shape, memory_format=torch.channels_last).stride()
    return tensor.stride() == last != usual


def samples_to_compare(finished: Finished, client: int | None) -> torch.Tensor:
    """The samples to compare networks on.

    They are real ones where any are at hand, a client's own or those of the first client, and
    random ones otherwise.
    """
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


class SourceLoader(SourceFileLoader):
    """Loads a module from its source: it neither uses nor leaves a compiled file."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


@torch.no_grad()
def check(place: Path, whole: Whole, samples: torch.Tensor) -> None:
    """Load the written network as a user would, and compare it with the run's own network."""
    loader = SourceLoader("fedloom_exported_model", str(place / "model.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    network = module.load()
    for part in (samples, samples[:1]):
        with seeded(0):  # noise operations draw random numbers
            expected = whole(part)
        with seeded(0):
            written = network(part)
        if torch.equal(expected, written):
            continue
        largest = (expected - written).abs().max()
        raise FedloomError(
            "a written network must give the same scores as the run's own",
            f"they differ by up to {largest:.3g}",
            f"report this, with {place}/model.py",
            code=1,
        )


def notes(model: Served, client: int | None) -> tuple[str, ...]:
    """What a user must know before relying on the exported model."""
    if client is None:
        return ()
    texts = []
    if type(model.method).predictor is not Method.predictor:
        texts.append(
            f"{model.run.task.method} predicts with more than this network "
            "(it remembers the client's samples): the export is the network alone, and less "
            "accurate; `fedloom predict` predicts as the method does"
        )
    if model.own is None:
        text = "this client has no personal network: this is the one that the server sends it"
        if model.method.assumptions(model.run.task):
            text += ", fitted to this client's samples as the card says under Limits"
        texts.append(text)
    return tuple(texts)
