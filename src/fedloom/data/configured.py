"""The data and the split that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedloom.config.models import DataConfig
from fedloom.data.checks import LEAST_CLASSES
from fedloom.data.fetching.catalogue import WITHOUT_FILES
from fedloom.data.fetching.places import fetched
from fedloom.data.image_rules import ImageRules
from fedloom.data.partition import brings_clients, parse
from fedloom.data.resizing import resized_source
from fedloom.data.source import Source
from fedloom.data.sources import SOURCES, locate, open_source, reference, sized
from fedloom.data.split import Split, make_split
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.rules import TableRules
from fedloom.errors import FedloomError

DEFAULT_CLIENTS = 8
# The default partition, by what a group is. Speakers, writers and roles are not here: papers mix
# the samples of the data sets that have them.
USUAL_PARTITIONS = {"site": "sites", "client": "natural"}


def configured_source(
    data: DataConfig,
    agreed: Encoding | None = None,
    classes: Sequence[str] = (),
    *,
    least: int = LEAST_CLASSES,
) -> Source:
    """Opens the data that a configuration names.

    `agreed` and `classes` are the encoding and the classes of a table that a federation agreed on
    before; None: the table decides. There must be at least `least` classes.
    """
    source = open_source(
        reference(data.name),
        optional_path(data.dir),
        classes=data.classes,
        mean=data.mean,
        std=data.std,
        images=image_rules(data),
        least=least,
        tables=replace(table_rules(data), agreed=agreed, classes=tuple(classes)),
    )
    if data.resize is None:
        return source
    return resized_source(source, data.resize, data.fit)


def image_rules(data: DataConfig) -> ImageRules:
    if data.resize is None and data.fit != "stretch":
        rule = f"--fit {data.fit} must be with --resize"
        raise FedloomError(rule, "there is none", "add --resize N, or leave --fit out")
    return ImageRules(data.resize, data.fit, data.skip_bad)


def table_rules(data: DataConfig) -> TableRules:
    return TableRules(data.label, data.task, tuple(data.ignore), tuple(data.categorical))


def optional_path(path: str | None) -> Path | None:
    if path is None:
        return None
    return Path(path)


def configured_split(data: DataConfig, seed: int, source: Source) -> Split:
    """Loads the split file that the configuration names, or makes a new split."""
    if data.split is not None:
        return split_in_file(data, source)
    data = with_usual_partition(data, source)
    clients = data.clients
    if clients is None and not brings_clients(data.partition):
        clients = DEFAULT_CLIENTS
    return make_split(
        source,
        clients,
        data.partition,
        seed,
        test=data.test,
        min_samples=data.min_samples,
        server_share=data.server_share,
        parts=data.parts,
    )


def with_usual_partition(data: DataConfig, source: Source) -> DataConfig:
    """Fills in the partition if none is asked for.

    Data that comes by site or by client keeps its sites or clients. Regression gets `iid`, since
    the usual partition deals samples out by class.
    """
    if "partition" in data.model_fields_set or data.split is not None:
        return data
    usual = USUAL_PARTITIONS.get(source.grouping)
    if source.groups is not None and usual is not None:
        return data.model_copy(update={"partition": usual})
    if source.kind == "regression":
        return data.model_copy(update={"partition": "iid"})
    return data


def asked_partition(data: DataConfig) -> str:
    """Returns the partition of the split file that is named, or of the split to be made."""
    if data.split is None:
        return data.partition
    return Split.load(Path(data.split)).partition


def split_in_file(data: DataConfig, source: Source) -> Split:
    """Loads the split file. Refuses one of other data, and options that contradict it."""
    split = Split.load(Path(str(data.split)))
    split.check(source)
    options = data.model_fields_set
    if "clients" in options and data.clients not in (None, len(split)):
        raise disagreement(data, "clients", data.clients, len(split))
    partition = str(parse(data.partition))
    if "partition" in options and partition != split.partition:
        raise disagreement(data, "partition", partition, split.partition)
    return split


def disagreement(data: DataConfig, option: str, asked: object, in_file: object) -> FedloomError:
    rule = f"--{option} must agree with the split {data.split}"
    problem = f"got {asked} and the file has {in_file}"
    return FedloomError(rule, problem, f"leave --{option} out")


def with_absolute_paths(data: DataConfig) -> DataConfig:
    """Returns the same data with full paths, so that a run can be resumed from any folder."""
    directory = full_directory(data)
    update: dict[str, str | None] = {
        "name": full_name(data.name, directory),
        "dir": None,
        "split": None,
    }
    if directory is not None:
        update["dir"] = str(directory)
    if data.split is not None:
        update["split"] = str(Path(data.split).resolve())
    return data.model_copy(update=update)


def full_directory(data: DataConfig) -> Path | None:
    """Returns the full path of --data-dir, or of the folder that is searched without it."""
    if data.dir is not None:
        return Path(data.dir).resolve()
    plain, _ = sized(data.name)
    if plain in WITHOUT_FILES or plain not in SOURCES.names():
        return None
    return fetched(plain) or Path.cwd()


def full_name(name: str, directory: Path | None) -> str:
    """Returns a path, or a list of paths, with full paths; a registered name stays as it is."""
    plain, sizes = sized(name)
    if plain not in SOURCES.names():
        path = locate(plain, directory)
        if path is not None:
            return f"{path.resolve()}{sizes}"
    listed = [locate(part.strip(), directory) for part in name.split(",")]
    if len(listed) > 1:
        return ",".join(str(path.resolve()) for path in listed if path is not None)
    return reference(name)
