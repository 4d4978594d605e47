"""What a person should hear before a run begins, or of a dry run: what an option will not do."""

from __future__ import annotations

import logging

from fedloom.data.source import Source
from fedloom.methods import recipe
from fedloom.runs.heads import has_room_for_head
from fedloom.runs.preparing import Prepared, pooled_share
from fedloom.spaces.reductions import reductions_in_words
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
    ]


def of_source(source: Source) -> list[str]:
    """How the data was read, where that is not as it came; the run's log has every file."""
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
    many = f"{len(source.skipped)} files that cannot be read were left out (--skip-bad)"
    notices.append(f"{many}: {example}, …; the run's log names all")
    return notices


def of_head(task: Task) -> list[str]:
    """A grid that was asked for, and that the last map has no room for.

    Whoever left the choice to us finds it in the run's log, and the head itself in the result.
    """
    if has_room_for_head(task):
        return []
    if task.options["head"] == "auto":
        log.info(NO_ROOM)
        return []
    return [NO_ROOM]


def of_reductions(task: Task) -> list[str]:
    """Cells of the final network that halve the map, and never did so while they were searched."""
    searched = recipe(task.method).searched(task)
    if searched is None or searched.final is None:
        return []
    words = reductions_in_words(searched.final.cells, searched.size.cells)
    if not words:
        return []
    return [words]


def of_tiers(prepared: Prepared) -> list[str]:
    """Tiers that are asked for and that nobody reads, or that got no client."""
    if prepared.tiers is None:
        if not prepared.config.tiers.is_given:  # devices have a clock, whatever the method is
            return []
        flags = "--tiers, --cost, --shares, --tier-file and --unsupported"
        return [f"{prepared.config.method} does not know tiers of devices: {flags} change nothing"]
    notices = []
    names_operations = any(tier.unsupported for tier in prepared.tiers.tiers)
    if names_operations and not has_operations(prepared.task):
        fixed = "trains a fixed network, which has no operations to choose from"
        notices.append(f"{prepared.config.method} {fixed}: --unsupported changes nothing")
    for tier in prepared.tiers.tiers:
        if tier.number not in prepared.tiers.of_client:
            empty = f"tier {tier.number} has no client of its own"
            notices.append(f"{empty}: there are too few for its share")
    return notices


def has_operations(task: Task) -> bool:
    """Whether devices of a tier could lack operations of what the method trains."""
    tiered = recipe(task.method).tiered
    return tiered is not None and tiered(task).choice == "path"


def of_pooled(prepared: Prepared) -> list[str]:
    """That the server sees what it never could."""
    if pooled_share(prepared) is None:
        return []
    return ["the server sees samples of all clients (score=pooled): only a simulation can do that"]
