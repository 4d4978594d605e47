"""Opens a federation's run from its folder.

The server does this to go on with the run. Others do it afterwards to export a model from it. At a
site the model is exported with the site's own data and private state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedloom.config.models import DataConfig, Experiment
from fedloom.cost.limits import DeviceLimit
from fedloom.data.labels import label_notices, with_labels
from fedloom.data.samples import ClientData
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.data.tables.samples import TableForm
from fedloom.data.tables.sums import TableSums
from fedloom.deploy.devices import SiteTiers, tiers_of_sites
from fedloom.deploy.kit_file import KitFile
from fedloom.deploy.site_data import site_source
from fedloom.deploy.terms import (
    Facts,
    ImageSize,
    Terms,
    agreed_table,
    facts_agreed,
    own_data,
    settled,
    split_of,
    task_of,
)
from fedloom.errors import FedloomError
from fedloom.export.finished import Finished
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.methods import recipe, stages
from fedloom.reading import Unreadable
from fedloom.records.claims import note_claims
from fedloom.records.folder import CONFIG, RunFolder
from fedloom.records.sites import NAME as SITES
from fedloom.records.sites import Sites, own_test_shares
from fedloom.runs.clusters import FLAT
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.experiment import check
from fedloom.runs.finished import open_finished
from fedloom.runs.loop_settings import experiment_id
from fedloom.runs.preparing import Prepared, check_labels_for_method, check_space_for_table
from fedloom.runs.results import searches_foreign_space
from fedloom.runs.same_space import check_space_again, last_checkpoint
from fedloom.runs.warm_start import load_start
from fedloom.types import Task


def settle(folder: RunFolder, facts: Mapping[str, Facts]) -> None:
    """Save the facts that the sites reported when the run began. They hold for the whole run.

    The split is written last: if it exists, everything has been saved.
    """
    config = folder.config()
    split = split_of(facts, config.seed, config.data.test, config.data.min_samples)
    rows = {}
    for name, site in facts.items():
        rows[name] = site.to_row()
    folder.write_json(SITES, rows)
    folder.write_head(joins_labels=True)
    split.save(folder.path / "split.json")


def checked(folder: RunFolder, federation: Path) -> Prepared:
    """A settled run, after checking that it can go on.

    When the run begins, the sites' sample counts are compared with the last run's and saved. This
    comes after all checks: a run that is refused must not replace the counts with which the next
    one is compared.
    """
    prepared = prepared_from(folder)
    check(prepared)
    check_space_again(prepared.task, last_checkpoint(Archive(folder.path)))
    if folder.head().experiment is None:
        counts = {name: site.samples for name, site in kept_facts(folder).items()}
        note_claims(federation, folder, counts)
    note_identity(folder, prepared)
    return prepared


def check_settled_space(folder: RunFolder, at: Checkpoint) -> None:
    """Raise an error if a federation's run cannot go on with the currently installed space."""
    is_settled = (folder.path / "split.json").exists()
    if is_settled and searches_foreign_space(folder.config()):
        check_space_again(prepared_from(folder).task, at)


def prepared_from(folder: RunFolder) -> Prepared:
    """The run as its sites described it when it began. It contains no samples."""
    config = config_of(folder)
    facts = kept_facts(folder)
    table = None
    target = None
    agreed = agreed_table(facts, config.data.task)
    if agreed is None:
        joins_labels = folder.head().joins_labels
        common = settled(facts, config.data.mean, config.data.std, joins_labels=joins_labels)
    else:
        common = facts_agreed(agreed, facts)
        table = TableForm(agreed.encoding, table_sums_in(facts))
        target = agreed.encoding.target
    options = resolve_options(config.method, config.options)
    task = task_of(config.method, options, common, config.seed, target)
    check_space_for_table(task)
    tiers = None
    of_sites = site_tiers(config, task, facts)
    if of_sites is not None:
        tiers = of_sites.deal
    without_samples = Source(
        name="federation",
        x=np.zeros((0, *common.shape), np.uint8),
        y=np.zeros(0, np.int64),
        labels=common.labels,
        mean=common.mean,
        std=common.std,
        kind=common.kind,
        group_names=tuple(sorted(facts)),
        table=table,
    )
    check_labels_for_method(task.method, config, without_samples)
    return Prepared(
        config=config,
        source=without_samples,
        split=Split.load(folder.path / "split.json"),
        task=task,
        stages=stages(task),
        start=load_start(folder),
        tiers=tiers,
        written=folder.config_bytes(),
    )


def table_sums_in(facts: Mapping[str, Facts]) -> dict[str, TableSums]:
    """The column sums of the sites that have tables."""
    return {name: site.table for name, site in facts.items() if site.table is not None}


def site_tiers(config: Experiment, task: Task, facts: Mapping[str, Facts]) -> SiteTiers | None:
    """The device tiers of the sites, or None if the method does not use tiers."""
    tiered = recipe(task.method).tiered
    if tiered is None:
        return None
    devices = {}
    for name, site in facts.items():
        devices[name] = DeviceLimit()
        if site.device is not None:
            devices[name] = site.device.limit
    return tiers_of_sites(config.tiers, tiered(task), devices, config.seed)


def notices_of_labels(folder: RunFolder, prepared: Prepared) -> tuple[str, ...]:
    """Notices for the operator of a federation about its sites' classes and columns."""
    labels = prepared.task.labels
    facts = kept_facts(folder)
    agreed = agreed_table(facts, prepared.config.data.task)
    if agreed is not None:
        return agreed.notices
    by_site = {}
    for name, site in facts.items():
        # Sites with other labels are refused, and that names them.
        if site.kind != "text" and set(site.labels) <= set(labels):
            by_site[name] = site.labels
    return label_notices(by_site, labels)


def notices_of_skipped(folder: RunFolder) -> tuple[str, ...]:
    """Notices for the operator of a federation about files that sites cannot read."""
    notices = []
    for name, site in kept_facts(folder).items():
        if site.skipped:
            files = f"files that {name} could not read and left out (it uses --skip-bad)"
            notices.append(f"{files}: {site.skipped}; its own log names them")
    return tuple(notices)


def notices_of_tests(folder: RunFolder) -> tuple[str, ...]:
    """Notices for the operator of a federation about sites that choose their own test part."""
    share = folder.config().data.test
    notices = []
    for name, test in own_test_shares(folder.path, share).items():
        text = f"{name} tests on {test:g} of its samples, as its policy has it, not on {share:g}"
        notices.append(f"{text}: an embedded run with its data would have other figures")
    return tuple(notices)


def notices_of_tiers(folder: RunFolder, prepared: Prepared) -> tuple[str, ...]:
    """Notices for the operator of a federation about its sites' tiers."""
    of_sites = site_tiers(prepared.config, prepared.task, kept_facts(folder))
    if of_sites is None:
        return ()
    return of_sites.notices


def kept_facts(folder: RunFolder) -> dict[str, Facts]:
    """The facts that the sites reported, from the run's folder."""
    try:
        sites = Sites.read(folder.path)
        return {name: Facts.read(json.dumps(row)) for name, row in sites.facts.items()}
    except (Unreadable, ValueError) as error:
        rule = f"{folder.path / SITES} must contain the facts about the sites' data"
        raise FedloomError(rule, f"{error}", "restore it, or start a new run") from None


def note_identity(folder: RunFolder, prepared: Prepared) -> None:
    """Save the run's id when it begins, and raise an error if it has changed.

    The id is a hash of config.toml, and the sites keep their states under it. If the file was
    edited, the error comes before every site is asked for a state that it never had.
    """
    noted = folder.head().experiment
    identity = experiment_id(prepared)
    if noted is None:
        folder.write_head(experiment=identity)
    elif noted != identity:
        rule = f"{folder.path / CONFIG} must be as it was when the run started"
        reason = "its sites keep their states under its hash"
        advice = "undo the edit, or start a new run"
        raise FedloomError(f"{rule}: {reason}", "it was edited since", advice)


def terms_of(prepared: Prepared) -> Terms:
    """How the sites of a run read and divide their samples."""
    data = prepared.config.data
    encoding = None
    if prepared.source.table is not None:
        encoding = prepared.source.table.encoding
    return Terms(
        seed=prepared.task.seed,
        test=data.test,
        hold=prepared.hold,
        size=ImageSize.of(data),
        table=encoding,
        trainings=trainings_of(prepared),
    )


def trainings_of(prepared: Prepared) -> int | None:
    """How often a run asks a site to train, at most; None: its budget does not say.

    A stage may have one round more than its share of the budget.
    """
    config = prepared.config
    hierarchy = recipe(config.method).hierarchy
    if config.engine.topology not in (None, FLAT):
        return None  # a round of clusters has several trainings
    if hierarchy is not None and hierarchy(prepared.task.options) is not None:
        return None
    if config.budget.equal != "rounds":
        return None
    return int(config.budget.rounds) + len(prepared.stages)


def open_at_site(path: Path | str, kit: Path, data: DataConfig) -> Finished:
    """A finished run at one of its sites, with the site's own data and private state."""
    finished = open_finished(path)
    folder = RunFolder(finished.run.path)
    if not folder.config().is_federated:
        rule = "--kit must be for a run of a federation"
        advice = "leave --kit out: a simulation needs none"
        raise FedloomError(rule, f"{path} is a simulation", advice)
    prepared = prepared_from(folder)
    client = client_of(kit, prepared)
    test = kept_facts(folder)[prepared.source.group_names[client]].test
    return replace(finished, site=site_of(kit, data, prepared, test), here=client)


def client_of(kit: Path, prepared: Prepared) -> int:
    """The client number of the site whose start kit this is."""
    names = prepared.source.group_names
    name = KitFile.read(kit).site
    if name not in names:
        rule = "the kit's site must be one of the run's"
        raise FedloomError(rule, f"{name} is not", f"they are {', '.join(names)}")
    return names.index(name)


def site_of(kit: Path, data: DataConfig, prepared: Prepared, test: float | None) -> Site:
    """The site whose start kit this is, with its own samples and private states.

    `test` is the share of its samples that it tested on, if its policy chose one.
    """
    task = prepared.task
    terms = terms_of(prepared)
    samples = site_source(data, terms.size, terms.table, task.labels)
    source = with_labels(samples, task.labels)
    if (source.kind, source.x.shape[1:], source.labels) != (task.kind, task.shape, task.labels):
        raise FedloomError(
            "--kit-data must be the samples that the site took part with",
            "shape or labels differ from the run's",
            "give the data, --kit-resize and --kit-fit that the site was started with",
        )
    store = ClientStore(kit / "state" / experiment_id(prepared))

    def divided(client: int) -> ClientData:
        return own_data(source, client, terms, test)

    def secret(client: int) -> bytes:
        return ClientStore(kit / "state").secret()

    return Site(divided, store, stages, task.shape, task.labels, secret=secret)
