"""`fedloom run METHOD --federation DIR`: make the run's folder, hand it to Flower, and watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fedloom.config.models import ClockConfig, DataConfig, Experiment
from fedloom.data.configured import image_rules
from fedloom.data.partition import parse
from fedloom.deploy.control import Access
from fedloom.deploy.installed import check_installed
from fedloom.deploy.kits import Federation
from fedloom.deploy.processes import access_of, submit, warn, withdraw
from fedloom.deploy.server import CURRENT, EVENTS
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.engines import flower
from fedloom.federation.server.events import Listener, event_from_json
from fedloom.methods import ADAPT, recipe
from fedloom.reading import Unreadable, read_json
from fedloom.records.claims import claims_in
from fedloom.records.folder import RunFolder, making
from fedloom.records.warm_start import WarmStart
from fedloom.report.progress import Screen
from fedloom.report.sinks import mirrored, require
from fedloom.runs.clusters import check_clusters_used, check_for_federation, with_topology
from fedloom.runs.configure import resolve_options
from fedloom.runs.experiment import check_has_amount, short_name
from fedloom.runs.given_paths import with_paths_for_sites
from fedloom.runs.preparing import normalised_as, options_asked_for, sized_as
from fedloom.runs.results import Run
from fedloom.runs.tiers import LATENCY, with_files_read
from fedloom.runs.warm_start import read_start, save_start, stored_config
from fedloom.types import Json, active_of

DEADLINE = 600.0  # seconds for a site, unless the user says otherwise
LEAVING = 20.0  # seconds that a withdrawn run may take to end
SILENCE = 60.0  # seconds without a sign of the server's process before it is believed dead


def begin(
    config: Experiment,
    out: Path | None,
    shown: Screen,
    tell: Callable[[RunFolder], None],
) -> Run:
    """A new run on the sites of a federation. `tell` hears of its folder before it starts."""
    require(config.evaluate.sinks or ())
    if config.evaluate.profile is not None:
        raise FedloomError(
            "--profile must be given to a simulation",
            "this one runs on a federation, whose networks stay with their sites",
            "leave --profile out",
        )
    folder = create(config, out)
    tell(folder)
    return mirrored_run(folder, config, shown)


def go_on(folder: RunFolder, shown: Screen) -> Run:
    """A federation's run that was begun before."""
    return mirrored_run(folder, folder.config(), shown)


def mirrored_run(folder: RunFolder, config: Experiment, shown: Screen) -> Run:
    """Carried out, with its rounds shown here and mirrored to the sinks that were asked for."""
    with mirrored(folder.path, config, shown.listener(folder.path.name)) as listen:
        return carry_out(folder, listen)


def create(config: Experiment, out: Path | None) -> RunFolder:
    """A federation's run folder.

    There is no data here: the server settles the task when it has asked the sites.
    """
    flower.require()
    access = opened(Path(str(config.engine.federation)))
    config = with_paths_for_sites(config)
    check(config)
    start = None
    if config.init is not None:
        start = read_start(config.init, config.method)
        before = WarmStart.read(start.meta).input
        data = sized_as(config.data, before)
        data = data.model_copy(update=normalised_as(data, before, parse(data.partition)))
        config = config.model_copy(update={"data": data, "init": stored_config(config.init, start)})
    options = resolve_options(config.method, options_asked_for(config))
    recipe(config.method).options.model_validate(options).check_for_federation()
    engine = config.engine.model_copy(update=settings(config, access))
    tiers = with_files_read(config.tiers)
    changes = {"options": options, "engine": engine, "tiers": tiers}
    settled = config.model_copy(update=changes)
    settled = with_topology(settled, options, len(access.sites))
    check_for_federation(settled, active_sites(config, access))
    check_clusters_used(config, settled)
    folder = RunFolder.create("run", f"{short_name(config.method)}-federation", out)
    with making(folder.path):
        folder.path.chmod(folder_mode(access))  # it will hold what every site sent
        save_start(folder, start)
        folder.write_text("config.toml", settled.to_toml())
    return folder


def opened(path: Path) -> Federation | Access:
    """A federation's folder, or what the file of a token gives access to."""
    if path.is_file():
        return Access.by_token(path)
    return Federation.open(path)


def folder_mode(access: Federation | Access) -> int:
    """The mode of a run's folder.

    The server writes into it. If it runs as another user, the two share a group.
    """
    if isinstance(access, Access):
        return 0o2770
    return 0o700


def settings(config: Experiment, federation: Federation | Access) -> dict[str, Json]:
    """What of the engine's settings has another default across a network."""
    return {
        "federation": str(federation.path),
        "deadline": config.engine.deadline or DEADLINE,
        "min_replies": config.engine.min_replies or max(1, active_sites(config, federation) - 1),
    }


def active_sites(config: Experiment, federation: Federation | Access) -> int:
    """How many work in a round."""
    return active_of(len(federation.sites), config.budget.participation)


def check(config: Experiment) -> None:
    """What cannot be had across a network."""
    if config.clock != ClockConfig():
        raise FedloomError(
            "a federation must run by the clock of its sites",
            "got options of the simulated one",
            "leave --availability, --dropout, --faults, --overselect and --round-deadline out",
        )
    if config.method == ADAPT:
        rule = "a federation's method must be trained together"
        advice = "use `fedloom adapt` where the new client's data is"
        raise FedloomError(rule, "each new client adapts by itself", advice)
    check_installed(config)
    check_budget(config)
    if config.tiers.shares is not None:
        rule = "the tiers of a federation's sites must come from their devices, not from --shares"
        advice = "leave it out: a site's policy says its limit; or name tiers by --tier-file"
        raise FedloomError(rule, "got shares", advice)
    check_tiers(config)
    check_data(config.data)


def check_budget(config: Experiment) -> None:
    """A site tells no MACs and has no simulated clock; of some methods the server knows MACs."""
    check_has_amount(config.budget)
    units = {config.budget.equal, *(config.budget.limits or {})}
    if "seconds" in units:
        raise FedloomError(
            "a federation's budget must be in rounds, bytes, wan or macs",
            "it has no simulated clock to count seconds by",
            "use --equal bytes, or --budget wan=…",
        )
    if "macs" in units and not recipe(config.method).has_macs_formula:
        raise FedloomError(
            "a budget in MACs must be of a method whose work the server can compute",
            f"the server cannot tell what clients of {config.method} compute, and sites do not",
            "use --equal rounds or bytes, or --budget wan=…",
        )


def check_tiers(config: Experiment) -> None:
    """Tiers of sites are by what sites say of their devices, in what the server can count."""
    if config.devices.table is not None:
        rule = "the devices of a federation must be those of its sites"
        raise FedloomError(rule, f"got --devices {config.devices.table}", "leave it out")
    tiers = with_files_read(config.tiers)
    in_milliseconds = tiers.cost == LATENCY
    for tier in tiers.table or ():
        in_milliseconds = in_milliseconds or tier.latency_ms is not None
    if in_milliseconds:
        rule = "the limits of a federation's tiers must be in macs, macs_paper or params"
        raise FedloomError(rule, f"got {LATENCY}", "give limits in one of these")


def check_data(data: DataConfig) -> None:
    """What is said of the data must leave it to the sites, which hold it."""
    usual = DataConfig()
    if str(parse(data.partition)) not in ("sites", usual.partition):
        rule = "a federation's partition must be sites"
        advice = "leave --partition out: its sites hold the data"
        raise FedloomError(rule, f"got {data.partition}", advice)
    flags: dict[str, Json] = {
        "data-dir": data.dir,
        "clients": data.clients,
        "server-share": data.server_share or None,
        "split": data.split,
        "parts": data.parts,
    }
    if data.name != usual.name:
        flags = {"data": data.name, **flags}
    for flag, value in flags.items():
        if value is not None:
            rule = f"--{flag} must not be given to a federation"
            raise FedloomError(rule, f"got {value}", "its sites hold the data")
    if data.skip_bad:
        rule = "--skip-bad must be given to the sites whose files are bad"
        advice = "leave it out, and start these with `fedloom federation site … --skip-bad`"
        raise FedloomError(rule, "got it for the whole federation", advice)
    image_rules(data)  # whose error names a --fit without --resize


def carry_out(folder: RunFolder, listen: Listener) -> Run:
    """Submit it and follow it to the end."""
    flower.require()
    access = opened(Path(str(folder.config().engine.federation)))
    if isinstance(access, Federation):
        access = access_of(access)
    with folder.lock():
        pass  # nobody works in it
    events = folder.path / EVENTS
    seen = 0
    if events.exists():
        seen = len(events.read_text().splitlines())
    if access.insecure:
        warn()
    number = submit(folder, access)
    try:
        follow(folder, events, seen, number, listen)
    except KeyboardInterrupt:
        withdraw(access, number)
        until = time.monotonic() + LEAVING
        while locked(folder) and time.monotonic() < until:  # so that it can be resumed at once
            time.sleep(0.2)
        raise
    return Run.open(folder.path)


@dataclass(frozen=True)
class CurrentRun:
    """The run that was submitted last."""

    run: str  # its folder
    method: str
    state: str  # "running", or as its folder says
    round: int  # that it is in
    rounds: int  # of its budget
    claims: list[str]  # of sites that reported many more samples than before

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def current_folder(federation: Federation) -> RunFolder | None:
    """The folder of the run that was submitted last. None: there was none, or it was removed."""
    try:
        return RunFolder.open(Path(str(read_json(federation.path / CURRENT)["run"])))
    except (Unreadable, KeyError, TypeError, FedloomError):
        return None


def current(federation: Federation) -> CurrentRun | None:
    """None: there was none, or it was removed."""
    folder = current_folder(federation)
    if folder is None:
        return None
    summary = folder.summary()
    config = folder.config()
    state: str = summary.state
    number = summary.rounds
    if locked(folder):
        state = "running"
        number += 1  # the round that is under way
    return CurrentRun(
        run=summary.run,
        method=config.method,
        state=state,
        round=min(number, config.budget.rounds),
        rounds=config.budget.rounds,
        claims=claims_in(folder),
    )


def follow(folder: RunFolder, events: Path, seen: int, number: str, listen: Listener) -> None:
    """Pass on the events that the server's process writes, until it ends.

    Events that another process wrote in the same folder are left out: their `number` differs.
    """
    heard = time.monotonic()
    while True:
        lines = []
        if events.exists():
            lines = events.read_text().split("\n")[:-1]  # the last one may not be whole yet
        for line in lines[seen:]:
            message: Json = json.loads(line)
            if message["as"] != number:
                continue
            heard = time.monotonic()
            if message["event"] == "finished":
                return
            if message["event"] == "stopped":
                raise Stopped(message["text"], message["code"])
            event = event_from_json(message)
            if event is not None:
                listen(event)
        seen = max(seen, len(lines))
        if time.monotonic() - heard > SILENCE and not locked(folder):
            raise RunStopped(
                "the server's process must run",
                f"it gave no sign for {SILENCE:g} s",
                "see superlink.log in the federation's folder, then resume the run",
            )
        time.sleep(0.2)


def locked(folder: RunFolder) -> bool:
    try:
        folder.lock().close()
    except FedloomError:
        return True
    return False


class Stopped(FedloomError):
    """What the server's process said when it stopped."""

    def __init__(self, text: str, code: int) -> None:
        Exception.__init__(self, text)
        self.code = code
