"""A federation's run, opened again from its folder: for the server that goes on with it, and for whoever takes a model
out of it afterwards. At a site, with that site's own data and private state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.data.split import Split
from fedloom.deploy.terms import Facts, Terms, own_data, settled, split_of, task_of
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.methods import stages
from fedloom.reading import Unreadable, read_json
from fedloom.records.claims import note_claims
from fedloom.records.folder import CONFIG, RunFolder
from fedloom.records.sites import NAME as SITES
from fedloom.records.sites import Sites
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.experiment import Prepared, check, experiment_id
from fedloom.runs.finished import open_finished
from fedloom.runs.results import is_foreign
from fedloom.runs.same_space import check_space_again, last_checkpoint
from fedloom.runs.warm_start import kept


def settle(folder: RunFolder, facts: Mapping[str, Facts]) -> None:
    """Keep what the sites told when the run began; it stands for the whole run. The split comes last: it says so."""
    config = folder.config()
    split = split_of(facts, config.seed, config.data.test, config.data.min_samples)
    folder.write_json(SITES, {name: told.model_dump(mode="json") for name, told in facts.items()})
    split.save(folder.path / "split.json")


def checked(folder: RunFolder, federation: Path) -> Prepared:
    """A settled run that can go on. When it begins, the sites' counts are compared and kept, after all checks: a run
    that is refused must not use up the question whether a site's data grew.
    """
    prepared = prepared_from(folder)
    check(prepared)
    check_space_again(prepared.task, last_checkpoint(Archive(folder.path)))
    if folder.head().experiment is None:
        note_claims(federation, folder, {name: told.samples for name, told in kept_facts(folder).items()})
    note_identity(folder, prepared)
    return prepared


def check_settled_space(folder: RunFolder, at: Checkpoint) -> None:
    """Whether a federation's run can go on from a checkpoint with the space that is now installed."""
    is_settled = (folder.path / "split.json").exists()
    if is_settled and is_foreign(folder.config()):
        check_space_again(prepared_from(folder).task, at)


def prepared_from(folder: RunFolder) -> Prepared:
    """What the run is about, as its sites told when it began. There are no samples."""
    config = config_of(folder)
    facts = kept_facts(folder)
    common = settled(facts, config.data.mean, config.data.std)
    task = task_of(config.method, resolve_options(config.method, config.options), common, config.seed)
    empty = Source(
        "federation", np.zeros((0, *common.shape), np.uint8), np.zeros(0, np.int64), common.labels, common.mean,
        common.std, common.kind, group_names=tuple(sorted(facts)),
    )  # fmt: skip
    prepared = Prepared(config, empty, Split.load(folder.path / "split.json"), task, stages(task), kept(folder))
    return replace(prepared, written=folder.config_bytes())


def kept_facts(folder: RunFolder) -> dict[str, Facts]:
    """What the sites told, as it was kept."""
    try:
        sites = Sites.read(folder.path)
        return {name: Facts.read(json.dumps(told)) for name, told in sites.facts.items()}
    except (Unreadable, ValueError) as error:
        must = f"{folder.path / SITES} must be what the sites told of their data"
        raise FedloomError(must, f"{error}", "restore it, or start a new run") from None


def note_identity(folder: RunFolder, prepared: Prepared) -> None:
    """The sites keep their states under the run's id, which comes from config.toml: an edited one is named, before
    every site is asked for a state that it never had.
    """
    known, identity = folder.head().experiment, experiment_id(prepared)
    if known is None:
        folder.write_head(experiment=identity)
    elif known != identity:
        must = f"{folder.path / CONFIG} must be as the run was started with: its sites keep their states under its hash"
        raise FedloomError(must, "it was edited since", "undo the edit, or start a new run")


def terms_of(prepared: Prepared) -> Terms:
    return Terms(seed=prepared.task.seed, test=prepared.config.data.test, hold=prepared.hold)


def open_at_site(path: Path | str, kit: Path, data: str, directory: Path | None) -> Finished:
    """A finished run of a federation, at one of its sites: with that site's own data and private state."""
    finished = open_finished(path)
    folder = RunFolder(finished.run.path)
    if not folder.config().is_federated:
        must, todo = "--kit must be for a run of a federation", "leave --kit out: all of it is here"
        raise FedloomError(must, f"{path} is a simulation", todo)
    site, client = site_of(kit, data, directory, prepared_from(folder))
    return replace(finished, site=site, here=client)


def site_of(kit: Path, data: str, directory: Path | None, prepared: Prepared) -> tuple[Site, int]:
    """The site whose start kit this is, with its own samples and states, and its number in the run."""
    names = prepared.source.group_names
    try:
        name = read_json(kit / "kit.json")["site"]
    except (Unreadable, KeyError, TypeError):
        must, todo = f"--kit {kit} must be a site's start kit", "name the folder that the site is started with"
        raise FedloomError(must, "it has no valid kit.json", todo) from None
    if name not in names:
        known = ", ".join(names)
        raise FedloomError("the kit's site must be one of the run's", f"{name} is not", f"they are {known}")
    client, task = names.index(name), prepared.task
    source = open_source(data, directory, classes=len(task.labels))
    if (source.kind, source.x.shape[1:], source.labels) != (task.kind, task.shape, task.labels):
        must = "--data must be the samples that the site took part with"
        raise FedloomError(must, "shape or labels differ from the run's", "give the same --data as to the site")
    store = ClientStore(kit / "state" / experiment_id(prepared))
    terms = terms_of(prepared)
    return Site(lambda number: own_data(source, number, terms), store, stages, task.shape, task.labels), client
