"""The data and the split that a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from fedloom.config.models import DataConfig
from fedloom.data.fetching.places import fetched
from fedloom.data.partition import brings_clients, parse
from fedloom.data.source import Source
from fedloom.data.sources import SOURCES, locate, open_source, reference, sized
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError

DEFAULT_CLIENTS = 8


def configured_source(data: DataConfig) -> Source:
    directory = None if data.dir is None else Path(data.dir)
    return open_source(reference(data.name), directory, classes=data.classes, mean=data.mean, std=data.std)


def configured_split(data: DataConfig, seed: int, source: Source) -> Split:
    """The split file that is named, or a new split."""
    if data.split is not None:
        return given_split(data, source)
    clients = data.clients
    if clients is None and not brings_clients(data.partition):
        clients = DEFAULT_CLIENTS
    return make_split(
        source, clients, data.partition, seed, test=data.test, min_samples=data.min_samples,
        server_share=data.server_share, parts=data.parts,
    )  # fmt: skip


def given_split(data: DataConfig, source: Source) -> Split:
    """The split file, if it is of this data; to ask for something else beside it is a mistake."""
    split = Split.load(Path(str(data.split)))
    split.check(source)
    asked = {"clients": (data.clients, len(split)), "partition": (str(parse(data.partition)), split.partition)}
    for name, (want, has) in asked.items():
        if name in data.model_fields_set and want not in (None, has):
            must = f"--{name} must agree with the split {data.split}"
            raise FedloomError(must, f"got {want} and the file has {has}", f"leave --{name} out")
    return split


def found_anywhere(data: DataConfig) -> DataConfig:
    """The same data, whatever folder one resumes from."""
    plain, sizes = sized(data.name)
    directory, split = (None if path is None else Path(path).resolve() for path in (data.dir, data.split))
    named = plain in SOURCES.names()
    if named and directory is None and plain != "digits":  # which need no files
        directory = fetched(plain) or Path.cwd()
    path = None if named else locate(plain, directory)
    parts = [locate(part.strip(), directory) for part in data.name.split(",")]
    if path is None and len(parts) > 1:
        name = ",".join(str(part.resolve()) for part in parts if part is not None)
    else:
        name = reference(data.name) if path is None else f"{path.resolve()}{sizes}"
    places = {"dir": directory and str(directory), "split": split and str(split)}
    return data.model_copy(update={"name": name, **places})
