"""`--paths RUN` and `--paths FILE.json`: given networks are trained without being searched.

A run that names another one takes over its data and split, its tiers, its options and its budget,
unless the user gives others. So the same architectures can be trained from scratch at the cost of
the whole search. The new run stores the paths themselves, not where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from fedloom import reading
from fedloom.config.flags import NAMES
from fedloom.config.models import BudgetConfig, DataConfig, Experiment
from fedloom.data.configured import with_absolute_paths
from fedloom.errors import FedloomError
from fedloom.methods import recipe
from fedloom.records.folder import RunFolder
from fedloom.records.opening import finished_result, one_run
from fedloom.records.result import RunResult
from fedloom.registry import absolute
from fedloom.runs.configure import config_of
from fedloom.spaces import full_name, open_space
from fedloom.spaces.options import AUTO
from fedloom.types import Arch

# Options that a run with given paths does not take over from the old one: they are about the search
# or about the paths themselves.
NOT_TAKEN_OVER = ("paths", "start", "eligible", "tune_top", "cache")


def with_given_paths(config: Experiment) -> Experiment:
    """A simulation's configuration with the paths themselves, if --paths names a run or a file."""
    source = recipe(absolute(config.method)).options.run_named(config.options)
    if source is None:
        return config
    if source.endswith(".json"):
        return with_options(config, {"paths": read_paths(Path(source))})
    folder = one_run(source, "--paths must name one run")
    return as_in_run(config, folder)


def with_paths_for_sites(config: Experiment) -> Experiment:
    """A federation's configuration with the paths themselves, if --paths names a file.

    A run is refused, because the sites do not have its data.
    """
    source = recipe(absolute(config.method)).options.run_named(config.options)
    if source is None:
        return config
    if source.endswith(".json"):
        return with_options(config, {"paths": read_paths(Path(source))})
    raise FedloomError(
        "--paths RUN must be given to a simulation, which can take over the run's split",
        f"this one runs in a federation, and --paths is {source}",
        "give the paths in a file: --paths FILE.json",
    )


def with_options(config: Experiment, options: Mapping[str, Any]) -> Experiment:
    return config.model_copy(update={"options": {**config.options, **options}})


def read_paths(file: Path) -> list[list[str]]:
    """Read a list with a path for each tier; a path is a list of operations."""
    rule = f"{file} must be a JSON list with the operations of a path for each tier"
    try:
        raw = reading.parse_json(file.read_text())
    except (OSError, UnicodeDecodeError, reading.Unreadable) as error:
        raise FedloomError(rule, f"{error}", "correct it, or check --paths") from None
    advice = "correct it: docs/fedoras.md has an example"
    if not isinstance(raw, list) or not raw:
        raise FedloomError(rule, "it holds something else", advice)
    for path in raw:
        if not isinstance(path, list) or not all(isinstance(name, str) for name in path):
            raise FedloomError(rule, "one of its paths is not a list of names", advice)
    return raw


# A finished run


def as_in_run(config: Experiment, folder: RunFolder) -> Experiment:
    """The configuration with the run's paths, and everything that makes runs comparable."""
    result = finished_result(folder)
    before = config_of(folder)
    if not result.tiers or before.method != absolute(config.method):
        raise FedloomError(
            f"--paths must name a run of {config.method}, which has a path for each tier",
            f"{folder.path} is a run of {result.short_method}",
            "name another run",
        )
    before.check_data_at_hand("--paths RUN", "give the paths in a file: --paths FILE.json")
    check_same_space(config, result)
    config = with_options(config, options_of(config, before, result))
    changes: dict[str, Any] = {
        "data": data_of(config.data, before.data, folder),
        "budget": budget_of(config, before, result),
        "seed": seed_of(config, before),
    }
    if not config.tiers.is_given:
        changes["tiers"] = before.tiers
    if "devices" not in config.model_fields_set:
        changes["devices"] = before.devices
    return config.model_copy(update=changes)


def seed_of(config: Experiment, before: Experiment) -> int:
    """The old run's seed, because the seed deals clients to tiers."""
    if "seed" in config.model_fields_set and config.seed != before.seed:
        raise FedloomError(
            "a run with --paths RUN must have that run's seed, which assigns clients to tiers",
            f"--seed is {config.seed}, and that run has {before.seed}",
            "leave --seed out",
        )
    return before.seed


def check_same_space(config: Experiment, result: RunResult) -> None:
    name = str(config.options.get("space", AUTO))
    if name == AUTO:
        return
    searched = open_space(Arch.from_plain(result.tiers[0].architecture).space)
    if open_space(full_name(name)) != searched:
        raise FedloomError(
            "the --paths run must have searched the same space",
            f"it searched {searched.title}, and --space is {name}",
            "leave --space out",
        )


def options_of(config: Experiment, before: Experiment, result: RunResult) -> dict[str, Any]:
    """The options of the old run, overridden by those of the user."""
    options_before = {}
    for name, value in before.options.items():
        if name not in NOT_TAKEN_OVER:
            options_before[name] = value
    paths = [tier.path for tier in result.tiers]
    return {**options_before, **config.options, "paths": paths}


def data_of(given: DataConfig, before: DataConfig, folder: RunFolder) -> DataConfig:
    """The old run's data and its exact split. Data options that the user gives must be the same."""
    for name in sorted(given.model_fields_set):
        value = getattr(with_absolute_paths(given), name)
        value_before = getattr(before, name)
        if value != value_before:
            flag = NAMES.get(f"data.{name}", f"data.{name}")
            raise FedloomError(
                "a run with --paths RUN must have the data and the split of that run",
                f"{flag} is {value}, and that run has {value_before}",
                f"leave {flag} out",
            )
    split = str((folder.path / "split.json").resolve())
    return before.model_copy(update={"split": split})


def budget_of(config: Experiment, before: Experiment, result: RunResult) -> BudgetConfig:
    """As many rounds as the old run had, or as many MACs as it spent in all stages.

    A round with one local epoch costs a fraction of a round with many, so at equal MACs there may
    be that many times as many rounds.
    """
    budget = config.budget
    given = budget.model_fields_set
    changes: dict[str, Any] = {}
    if "participation" not in given:
        changes["participation"] = before.budget.participation
    rounds = before.budget.rounds
    if budget.equal == "macs" and budget.amount is None:
        if result.macs is None:
            raise FedloomError(
                "the --paths run must report its MACs for --equal macs",
                "it does not",
                "use --equal rounds",
            )
        changes["amount"] = float(result.macs + result.server_macs)
        epochs_ratio = before.options["epochs"] / config.options.get("tune_epochs", 1)
        rounds = ceil(rounds * max(1.0, epochs_ratio))
    if "rounds" not in given:
        changes["rounds"] = rounds
    return budget.model_copy(update=changes)
