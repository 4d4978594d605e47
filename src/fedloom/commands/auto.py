"""`fedloom auto`: the best model for each client, within a budget."""

from __future__ import annotations

import argparse
from typing import Any

from fedloom.commands.contest import carry_out_auto
from fedloom.commands.finishing import finish
from fedloom.commands.parsing import (
    Commands,
    add_command,
    common_flags,
    configuration,
    dry_run_flag,
    refuse_unknown_flags,
    small_flag,
)
from fedloom.commands.report import check_watch, watch_flags
from fedloom.commands.run import options_in, small_variants
from fedloom.loading import load_torch

OWN_FLAGS = [
    "with",
    "limit",
    "family",
    "sizes",
    "widths",
    "prior",
    "watch",
    "port",
    "small",
    "dry-run",
]
# Flags of the main contestant's own options.
OPTIONS = {"family": "network", "sizes": "sizes", "widths": "widths", "prior": "prior"}

# Help of flags that mean something else here than for `fedloom run`; those refused are not shown.
OTHER_HELP = {
    "budget": "what each contestant may spend: macs=2T, bytes=50M, wan=50M, seconds=60 (simulated) "
    "or rounds=30; or the time for all of them together: minutes=10 (2m for short); by default the "
    "MACs that --rounds rounds of the control cost",
    "rounds": "without --budget: every contestant may spend the MACs of this many rounds of the "
    "control (default 20)",
    "equal": argparse.SUPPRESS,
    "federation": argparse.SUPPRESS,
}


def add(commands: Commands) -> None:
    about = "find the model to use, within a budget: sizes, prior, augmentation, fine-tuning"
    auto = add_command(commands, "auto", auto_command, about)
    help_with = "another contestant, as `compare` names methods: spider:lr=.1,cells=3@small"
    auto.add_argument(
        "--with", dest="others", action="append", default=[], metavar="VARIANT", help=help_with
    )
    help_limit = "the most that the network may cost: macs=1M,params=50k,latency_ms=5"
    auto.add_argument("--limit", metavar="LIMIT=N,…", help=help_limit)
    help_family = "the network whose sizes are tried: a name, cells:FILE or space:NAME "
    help_family += "(default: the small CNN; for text the LSTM, for tables the MLP)"
    auto.add_argument("--family", metavar="NAME", help=help_family)
    help_sizes = "sizes to try, as shares of that network's channels (default 1,.7,.5,.35)"
    auto.add_argument("--sizes", metavar="A,B,…", help=help_sizes)
    help_widths = "instead of trying sizes, train these widths in one network, one per device tier"
    auto.add_argument("--widths", metavar="A,B,…", help=help_widths)
    help_prior = "whether a client's own label counts shift its answers (default on)"
    auto.add_argument("--prior", metavar="on|off", help=help_prior)
    dry_run_flag(auto)
    small_flag(auto)
    common_flags(auto, OTHER_HELP)
    watch_flags(auto)


def auto_command(options: argparse.Namespace) -> int:
    check_watch(options)
    refuse_unknown_flags(options, "auto", OWN_FLAGS)
    return finish(options, lambda: start_auto(options))


def start_auto(options: argparse.Namespace) -> Any:
    load_torch()
    from fedloom.config.variants import labelled
    from fedloom.cost.limits import Limit
    from fedloom.runs.auto_budget import parse_budget
    from fedloom.runs.auto_plan import AutoRequest, main_contestant, plan_of

    budget = parse_budget(options.budget or [])
    options.budget = None  # of `run` and `compare` it is a limit; here it is what to spend
    limit = Limit()
    if options.limit is not None:
        limit = Limit.parse(options.limit)
    own = {}
    for flag, option in OPTIONS.items():
        if getattr(options, flag) is not None:
            own[option] = getattr(options, flag)
    tree = configuration(options)
    others = small_variants(options, labelled(options.others), options_in(tree))
    request = AutoRequest(tree, budget, limit, others, own, main_contestant(own))
    if options.dry_run:
        from fedloom.runs.estimate import estimate_plan

        return estimate_plan(plan_of(request))
    return carry_out_auto(options, request)
