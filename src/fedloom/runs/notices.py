"""Notices to users before a run or with a dry run: mostly about options that have no effect."""

from __future__ import annotations

import logging

from fedloom.data.source import Source
from fedloom.learning.judging import number_held_back
from fedloom.methods import recipe
from fedloom.runs.heads import has_room_for_head
from fedloom.runs.preparing import Prepared, pooled_share
from fedloom.spaces.reductions import reductions_in_words
from fedloom.stages.decisions import DecisionOptions
from fedloom.types import Task

log = logging.getLogger("fedloom")

NO_ROOM = "the network's last map is smaller than 2×2, so its classifier sees the mean (head=mean)"


def notices_of(prepared: Prepared) -> list[str]:
    return [
        *prepared.notices,
        *of_source(prepared.source),
        *of_head(prepared.task),
        *of_reductions(prepared.task),
        *of_tiers(prepared),
        *of_pooled(prepared),
        *of_validation(prepared),
    ]


def of_source(source: Source) -> list[str]:
    """What was changed or left out when the data was read; the run's log has every file."""
    notices = list(source.notices)
    if not source.skipped:
        return notices
    for file in source.skipped:
        log.warning("skipped %s: %s", file.file, file.reason)
    first = source.skipped[0]
    example = f"{first.file} ({first.reason})"
    if len(source.skipped) == 1:
        notices.append(f"a file that cannot be read was left out (--skip-bad): {example}")
        return notices
    text = f"{len(source.skipped)} files that cannot be read were left out (--skip-bad)"
    notices.append(f"{text}: {example}, …; the run's log names all")
    return notices


def of_head(task: Task) -> list[str]:
    """The last feature map has no room for the grid head that the user asked for.

    If the choice was left to us (head=auto), this is noted in the run's log, and the result names
    the head.
    """
    if has_room_for_head(task):
        return []
    if task.options["head"] == "auto":
        log.info(NO_ROOM)
        return []
    return [NO_ROOM]


def of_reductions(task: Task) -> list[str]:
    """Cells of the final network that halve the feature map, but did not during the search."""
    searched = recipe(task.method).searched(task)
    if searched is None or searched.final is None:
        return []
    sentence = reductions_in_words(searched.final.cells, searched.size.cells)
    if not sentence:
        return []
    return [sentence]


def of_tiers(prepared: Prepared) -> list[str]:
    """Tiers that the method does not use, or that have no client."""
    if prepared.tiers is None:
        if not prepared.config.tiers.is_given:  # --devices alone also sets the simulated clock
            return []
        flags = "--tiers, --cost, --shares, --tier-file and --unsupported"
        return [f"{prepared.config.method} has no device tiers: {flags} have no effect"]
    notices = []
    names_operations = any(tier.unsupported for tier in prepared.tiers.tiers)
    if names_operations and not has_operations(prepared.task):
        fixed = "trains a fixed network, which has no operations to choose from"
        notices.append(f"{prepared.config.method} {fixed}: --unsupported has no effect")
    for tier in prepared.tiers.tiers:
        if tier.number not in prepared.tiers.of_client:
            text = f"tier {tier.number} has no clients"
            notices.append(f"{text}: there are too few clients for its share")
    return notices


def has_operations(task: Task) -> bool:
    """Whether the method chooses operations, so that a tier's devices could lack some of them."""
    tiered = recipe(task.method).tiered
    return tiered is not None and tiered(task).choice == "path"


def of_pooled(prepared: Prepared) -> list[str]:
    """The server of a simulation may see samples that no real server could."""
    if pooled_share(prepared) is None:
        return []
    return ["the server sees samples of all clients (score=pooled): only a simulation can do that"]


def of_validation(prepared: Prepared) -> list[str]:
    """Clients with too few samples to hold any back, if the method decides by such samples."""
    task = prepared.task
    if not issubclass(recipe(task.method).options, DecisionOptions):
        return []
    share = task.options["held_back"]
    too_small = 0
    for samples in prepared.training_samples:
        if not number_held_back(samples, share):
            too_small += 1
    clients = len(prepared.split)
    if not too_small:
        return []
    if too_small == clients:
        text = f"no client has enough samples to hold {100 * share:g} % of them back"
        return [f"{text}: {task.method} cannot compare options, and takes the simplest"]
    text = f"{too_small} of {clients} clients have too few samples to hold {100 * share:g} % back"
    return [f"{text}: they train, the others decide"]
