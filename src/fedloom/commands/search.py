"""`fedloom search`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import (
    Commands,
    add_command,
    number,
    optional_number,
    optional_path,
    output_flags,
)
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.searchers.budget_search import Pick


def add(commands: Commands) -> None:
    summary = "find a network within a new limit in a finished run's supernet, without training"
    search = add_command(commands, "search", search_command, summary)
    search.add_argument("path", metavar="RUN")
    help_limit = (
        "what the network may cost at most: macs=100M,params=1M,latency_ms=2, or some of it"
    )
    search.add_argument("--limit", metavar="WHAT=N,…", help=help_limit)
    help_profile = "the device profile, for a limit on latency_ms"
    search.add_argument("--profile", metavar="NAME|FILE", help=help_profile)
    help_unsupported = "operations that the network must not use"
    search.add_argument("--unsupported", metavar="OP,…", help=help_unsupported)
    help_models = (
        "paths within the limit to score, those with a score included (default: as many as for a "
        "tier)"
    )
    search.add_argument("--models", metavar="N", help=help_models)
    search.add_argument(
        "--pick",
        default="best",
        metavar="best|knee|N",
        help="choose the lowest loss, the knee of the front, or the front's Nth cheapest path",
    )
    help_data = "score all paths on these samples instead of the run's own"
    search.add_argument("--data", metavar="NAME|PATH", help=help_data)
    help_dir = "folder in which relative data paths are looked for"
    search.add_argument("--data-dir", metavar="DIR", help=help_dir)
    help_tune = "train the network for this many rounds, by the clients whose devices can run it"
    search.add_argument("--tune", metavar="ROUNDS", help=help_tune)
    output_flags(search)


def search_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.cost.limits import Limit
        from fedloom.report.progress import open_screen
        from fedloom.runs.search import SearchRequest, check_is_no_method, search

        check_is_no_method(options.path)  # first, because a method's name is the likelier mistake
        limit = Limit()  # without limits, which a search refuses
        if options.limit is not None:
            limit = Limit.parse(options.limit)
        unsupported: tuple[str, ...] = ()
        if options.unsupported:
            unsupported = tuple(name.strip() for name in options.unsupported.split(","))
        request = SearchRequest(
            limit=limit,
            profile=options.profile,
            unsupported=unsupported,
            models=optional_number("models", options.models, int, 1),
            pick=pick_in(options.pick),
            tune=optional_number("tune", options.tune, int, 1) or 0,
            data=options.data,
            data_dir=optional_path(options.data_dir),
        )
        with open_screen(quiet=options.quiet or options.json) as screen:
            return search(options.path, request, screen.listener(f"search {options.path}"))

    return finish(options, work)


def pick_in(text: str) -> Pick:
    """Parse --pick: best, knee, or a place on the front."""
    if text == "best":
        return "best"
    if text == "knee":
        return "knee"
    if text.isdecimal():
        place_on_front: int = number("pick", text, int, 1)
        return place_on_front
    rule = "--pick must be best, knee, or a place on the front, from 1 on"
    raise FedloomError(rule, f"got {text!r}", "try --pick knee")
