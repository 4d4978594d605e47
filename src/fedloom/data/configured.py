"""The data and the split that a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from fedloom.config import DataConfig
from fedloom.data.partition import brings_clients, parse
from fedloom.data.sources import Source, open_source
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError
from fedloom.registry import absolute

DEFAULT_CLIENTS = 8


def configured_source(data: DataConfig) -> Source:
    directory = None if data.dir is None else Path(data.dir)
    return open_source(absolute(data.name), directory, classes=data.classes, mean=data.mean, std=data.std)


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
