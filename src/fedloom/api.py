"""The Python API, which the command line calls too.

Both have the same flags, write the same folders and give the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from fedloom.config.assigning import assign, plain
from fedloom.config.flags import PATHS
from fedloom.config.models import Experiment, validated
from fedloom.config.variants import labelled
from fedloom.cost.limits import Limit
from fedloom.data.readers.torch_dataset import save_dataset
from fedloom.errors import unknown
from fedloom.launch import begin, go_on, take_back
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan, read_plan
from fedloom.report.progress import open_screen
from fedloom.runs.auto import Auto, continue_auto
from fedloom.runs.auto_budget import parse_budget
from fedloom.runs.auto_plan import AutoRequest, create_auto, main_contestant
from fedloom.runs.comparison import Comparison, continue_comparison, create_comparison
from fedloom.runs.configure import configure, split_flags
from fedloom.runs.results import Run


def search(
    method: str = "fedavg",
    *,
    out: str | Path | None = None,
    quiet: bool = True,
    **flags: Any,
) -> Run:
    """Run one method.

    Keywords are the command line's flags (`data`, `clients`, `rounds`, …) and the method's options.
    `data` may also be a torch `Dataset` of pairs (image, class number).

    >>> run = fedloom.search("fedavg", data="digits", clients=8, partition="dirichlet:0.2")
    """
    path = None
    if out is not None:
        path = Path(out)
    with open_screen(quiet=quiet) as screen:
        config = configure(method, split_flags(method, on_disk(flags)))
        return begin(config, path, screen, lambda folder: None)


def compare(
    methods: Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    match_params: bool = False,
    match_macs: bool = False,
    target: float | None = None,
    out: str | Path | None = None,
    quiet: bool = True,
    **flags: Any,
) -> Comparison:
    """Run several methods on the same split for every seed, and pair their differences by seed."""
    with open_screen(quiet=quiet) as screen:
        tree = options_of("compare", flags)
        if seeds is None:
            seeds = (validated(Experiment, tree).seed,)
        values = {name: list(choices) for name, choices in (grid or {}).items()}
        variants = labelled(methods)
        plan = Plan(
            variants.methods,
            tuple(seeds),
            values,
            tree,
            match_params,
            names=variants.names,
            target=target,
            match_macs=match_macs,
        )
        return continue_comparison(create_comparison(plan, out), screen)


def auto(
    *,
    budget: str | None = None,
    limit: str | None = None,
    others: Sequence[str] = (),
    family: str | None = None,
    sizes: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    prior: bool = True,
    main: str | None = None,
    out: str | Path | None = None,
    quiet: bool = True,
    **flags: Any,
) -> Auto:
    """The model to use for each client, within a budget; `fedloom auto` in Python.

    `others` are variants that also take part, named as for `--with`. `main` is the contestant that
    gets the options `limit`, `family`, `sizes`, `widths` and `prior`: `auto`, or `auto-tiers` if
    `widths` is given.

    >>> found = fedloom.auto(data="digits", budget="2m")
    >>> print(found.verdict)
    >>> found.winner.export("onnx", client=3)
    """
    main_options: dict[str, str] = {}
    if family is not None:
        main_options["network"] = family
    if sizes is not None:
        main_options["sizes"] = "/".join(f"{size:g}" for size in sizes)
    if widths is not None:
        main_options["widths"] = "/".join(f"{width:g}" for width in widths)
    if not prior:
        main_options["prior"] = "off"
    limits = Limit()
    if limit is not None:
        limits = Limit.parse(limit)
    parsed_budget = None
    if budget is not None:
        parsed_budget = parse_budget([str(budget)])
    with open_screen(quiet=quiet) as screen:
        request = AutoRequest(
            tree=options_of("auto", flags),
            budget=parsed_budget,
            limit=limits,
            others=labelled(others),
            options=main_options,
            main=main or main_contestant(main_options),
        )
        return continue_auto(create_auto(request, out), screen)


def resume(
    path: str | Path,
    *,
    from_round: int | None = None,
    quiet: bool = True,
) -> Run | Comparison:
    """Finish an interrupted run or comparison, exactly as if it had not been interrupted.

    `from_round` discards everything after this round: a run that diverged can continue from an
    earlier checkpoint, if it kept one.
    """
    folder = RunFolder.open(Path(path))
    if from_round is not None:
        take_back(folder, from_round)
    with open_screen(quiet=quiet) as screen:
        if folder.kind == "compare" and read_plan(folder).contest is not None:
            return continue_auto(folder, screen)
        if folder.kind == "compare":
            return continue_comparison(folder, screen)
        return go_on(folder, screen)


def options_of(function: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The options that keywords of this function set, in nested dictionaries."""
    tree: dict[str, Any] = {}
    for name, value in on_disk(flags).items():
        if name not in PATHS:
            raise unknown(f"a keyword of {function}", name, PATHS)
        assign(tree, PATHS[name], plain(value))
    return tree


def on_disk(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same keywords, with a torch data set replaced by the path of a file that holds it.

    Workers, and a later resume, read the data set from that file.
    """
    if isinstance(flags.get("data"), Dataset):
        return {**flags, "data": str(save_dataset(flags["data"]))}
    return flags
