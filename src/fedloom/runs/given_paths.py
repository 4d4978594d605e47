"""`--paths RUN` and `--paths FILE.json`: networks that are trained without being searched.

A run that names another has its data and split, its tiers, its options and its budget, as far as
nobody gives others: so the same architectures can be trained from scratch for what the whole search
cost. What is kept of it are the paths themselves, not where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from fedloom import reading
from fedloom.config.flags import NAMES
from fedloom.config.models import (
    BudgetConfig,
    DataConfig,
    Experiment,
    TierConfig,
    TiersConfig,
)
from fedloom.data.configured import found_anywhere
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.methods import recipe
from fedloom.records.folder import RunFolder
from fedloom.records.opening import finished_result, one_run
from fedloom.records.result import RunResult
from fedloom.registry import absolute
from fedloom.runs.configure import config_of, resolve_options
from fedloom.runs.tiers import deal_of, devices_in
from fedloom.spaces import full_name, open_space
from fedloom.spaces.options import AUTO
from fedloom.types import Arch, Task, TierDeal

OWN = ("paths", "start", "eligible", "tune_top", "cache")  # options that no other run hands on


def with_given_paths(config: Experiment) -> Experiment:
    """The same with the paths themselves, where its options name a run or a file that has them."""
    named = recipe(absolute(config.method)).options.run_named(config.options)
    if named is None:
        return config
    if named.endswith(".json"):
        return with_options(config, {"paths": read_paths(Path(named))})
    folder = one_run(named, "--paths must name one run")
    return as_in_run(config, folder)


def with_paths_for_sites(config: Experiment) -> Experiment:
    """The same for a federation, whose sites never had another run's data."""
    named = recipe(absolute(config.method)).options.run_named(config.options)
    if named is None:
        return config
    if named.endswith(".json"):
        return with_options(config, {"paths": read_paths(Path(named))})
    raise FedloomError(
        "--paths RUN must be given to a simulation, which can take over the run's split",
        f"this one runs on a federation, and --paths is {named}",
        "give the paths in a file: --paths FILE.json",
    )


def with_options(config: Experiment, options: Mapping[str, Any]) -> Experiment:
    return config.model_copy(update={"options": {**config.options, **options}})


def read_paths(file: Path) -> list[list[str]]:
    """A list with a path for each tier, which is a list of operations."""
    rule = f"{file} must be a JSON list with the operations of a path for each tier"
    try:
        raw = reading.parse_json(file.read_text())
    except (OSError, UnicodeDecodeError, reading.Unreadable) as error:
        raise FedloomError(rule, f"{error}", "mend it, or check --paths") from None
    advice = "mend it: docs/fedoras.md has an example"
    if not isinstance(raw, list) or not raw:
        raise FedloomError(rule, "it holds something else", advice)
    for path in raw:
        if not isinstance(path, list) or not all(isinstance(name, str) for name in path):
            raise FedloomError(rule, "one of its paths is no list of names", advice)
    return raw


# A finished run


def as_in_run(config: Experiment, folder: RunFolder) -> Experiment:
    """With the run's paths, and all that makes a new run comparable with it."""
    result = finished_result(folder)
    before = config_of(folder)
    if not result.tiers or before.method != absolute(config.method):
        raise FedloomError(
            f"--paths must name a run of {config.method}, which has a path for each tier",
            f"{folder.path} is one of {result.short_method}",
            "name another run",
        )
    before.check_data_at_hand("--paths RUN", "give the paths in a file: --paths FILE.json")
    check_same_space(config, result)
    config = with_options(config, options_of(config, before, result))
    changes: dict[str, Any] = {
        "data": data_of(config.data, before.data, folder),
        "tiers": tiers_of(config.tiers, before, result, folder),
        "devices": before.devices,
        "budget": budget_of(config, before, result),
    }
    if "devices" in config.model_fields_set:
        changes["devices"] = config.devices
    if "seed" not in config.model_fields_set:
        changes["seed"] = before.seed
    return config.model_copy(update=changes)


def check_same_space(config: Experiment, result: RunResult) -> None:
    asked = str(config.options.get("space", AUTO))
    if asked == AUTO:
        return
    searched = open_space(Arch.from_plain(result.tiers[0].architecture).space)
    if open_space(full_name(asked)) != searched:
        raise FedloomError(
            "the run of --paths must have searched the same space",
            f"it searched {searched.title}, and --space is {asked}",
            "leave --space out",
        )


def options_of(config: Experiment, before: Experiment, result: RunResult) -> dict[str, Any]:
    """Those of the old run, under those that were given."""
    handed_on = {}
    for name, value in before.options.items():
        if name not in OWN:
            handed_on[name] = value
    paths = [tier.path for tier in result.tiers]
    return {**handed_on, **config.options, "paths": paths}


def data_of(asked: DataConfig, before: DataConfig, folder: RunFolder) -> DataConfig:
    """The old run's, with its very split. What is given beside it must be the same."""
    for name in sorted(asked.model_fields_set):
        value = getattr(found_anywhere(asked), name)
        known = getattr(before, name)
        if value != known:
            flag = NAMES.get(f"data.{name}", f"data.{name}")
            raise FedloomError(
                "a run of --paths RUN must have the data and the split of that run",
                f"{flag} is {value}, and there it is {known}",
                f"leave {flag} out",
            )
    split = str((folder.path / "split.json").resolve())
    return before.model_copy(update={"split": split})


def tiers_of(
    asked: TiersConfig,
    before: Experiment,
    result: RunResult,
    folder: RunFolder,
) -> TiersConfig:
    """The old run's limits and deal, unless others are given."""
    if asked.is_given:
        return asked
    deal = deal_before(before, result, len(Split.load(folder.path / "split.json")))
    table = []
    for tier in deal.tiers:
        row = TierConfig(
            name=tier.name,
            share=tier.share,
            unsupported=list(tier.unsupported),
            **dict(tier.limit),
        )
        table.append(row)
    settled = {
        "table": table,
        "assigned": list(deal.of_client),
        "limits": None,
        "shares": None,
        "file": None,
        "unsupported": [],  # every tier of the table has its own
    }
    return before.tiers.model_copy(update=settled)


def deal_before(before: Experiment, result: RunResult, clients: int) -> TierDeal:
    assert result.input is not None  # whoever tells of tiers tells of its input
    task = Task(
        method=before.method,
        options=resolve_options(before.method, before.options),
        kind=result.input.kind,
        shape=tuple(result.input.shape),
        labels=tuple(result.input.labels),
        seed=before.seed,
        mean=tuple(result.input.mean),
        std=tuple(result.input.std),
    )
    tiered = recipe(before.method).tiered
    assert tiered is not None  # its result has tiers
    devices = devices_in(before.devices, clients, before.seed)
    return deal_of(before.tiers, tiered(task), clients, before.seed, devices)


def budget_of(config: Experiment, before: Experiment, result: RunResult) -> BudgetConfig:
    """As many rounds as the old run had, or as many MACs as it spent, all stages together.

    A round of one local epoch costs a fraction of one of many: at equal MACs there may be so many
    more of them.
    """
    asked = config.budget
    given = asked.model_fields_set
    changes: dict[str, Any] = {}
    if "participation" not in given:
        changes["participation"] = before.budget.participation
    rounds = before.budget.rounds
    if asked.equal == "macs" and asked.amount is None:
        if result.macs is None:
            raise FedloomError(
                "the run of --paths must tell its MACs for --equal macs",
                "it does not",
                "say --equal rounds",
            )
        changes["amount"] = float(result.macs + result.server_macs)
        longer = before.options["epochs"] / config.options.get("tune_epochs", 1)
        rounds = ceil(rounds * max(1.0, longer))
    if "rounds" not in given:
        changes["rounds"] = rounds
    return asked.model_copy(update=changes)
