"""`fedloom run METHOD --federation DIR`: make the run's folder, hand it to Flower's server, and watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from fedloom.config.models import DataConfig, Experiment
from fedloom.data.partition import parse
from fedloom.deploy.kits import Federation
from fedloom.deploy.processes import submit, warn, withdraw
from fedloom.deploy.server import EVENTS
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.engines import flower
from fedloom.federation.server.events import Listener, event_from_json
from fedloom.federation.server.topology import Flat, parse_topology
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json
from fedloom.records.claims import claims_in
from fedloom.records.folder import RunFolder, making
from fedloom.registry import is_file
from fedloom.report.progress import Screen
from fedloom.report.sinks import mirrored, require
from fedloom.runs.configure import resolve_options
from fedloom.runs.experiment import normalised_as, short_name, with_given_constants
from fedloom.runs.results import Run
from fedloom.runs.warm_start import ADAPT, begun, keep
from fedloom.runs.warm_start import settled as as_kept
from fedloom.types import Json

DEADLINE = 600.0  # seconds for a site, unless the user says otherwise
CURRENT = "current.json"  # in the federation's folder
LEAVING = 20.0  # seconds that a withdrawn run may take to end
SILENCE = 60.0  # seconds without a sign of the server's process before it is believed dead


def begin(config: Experiment, out: Path | None, shown: Screen, tell: Callable[[RunFolder], None]) -> Run:
    """A new run on the sites of a federation. `tell` hears of its folder before it starts."""
    require(config.evaluate.sinks or ())
    if config.evaluate.profile is not None:
        found = "this one runs on a federation, whose networks stay with their sites"
        raise FedloomError("--profile must be given to a simulation", found, "leave --profile out")
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
    """A federation's run folder. There is no data here: the server settles the task when it has asked the sites."""
    flower.require()
    federation = Federation.open(Path(str(config.engine.federation)))
    check(config)
    start = None if config.init is None else begun(config.init, config.method)
    if config.init is not None and start is not None:
        data = config.data.model_copy(update=normalised_as(config.data, start))
        config = config.model_copy(update={"data": data, "init": as_kept(config.init, start)})
    settled = config.model_copy(update={
        "options": resolve_options(config.method, with_given_constants(config)),
        "engine": config.engine.model_copy(update=settings(config, federation)),
    })  # fmt: skip
    folder = RunFolder.create("run", f"{short_name(config.method)}-federation", out)
    with making(folder.path):
        folder.path.chmod(0o700)  # it will hold what every site sent
        keep(folder, start)
        folder.write_text("config.toml", settled.to_toml())
    return folder


def settings(config: Experiment, federation: Federation) -> dict[str, Json]:
    """What of the engine's settings has another default across a network."""
    engine, cohort = config.engine, max(1, round(config.budget.participation * len(federation.sites)))
    return {
        "federation": str(federation.path),
        "deadline": engine.deadline or DEADLINE,
        "min_replies": engine.min_replies or max(1, cohort - 1),
    }


def check(config: Experiment) -> None:
    """What cannot be had across a network."""
    if not isinstance(parse_topology(config.engine.topology), Flat):
        must, todo = "a federation's topology must be flat", "leave --topology out, or run it embedded"
        raise FedloomError(must, f"got {config.engine.topology}", todo)
    if config.budget.equal == "macs":
        must = "a federation's budget must be in rounds or bytes"
        raise FedloomError(must, "sites do not tell their MACs", "use --equal rounds or bytes")
    if config.method == ADAPT:
        must = "a federation's method must be trained together"
        raise FedloomError(must, "adapt is each newcomer's own", "use `fedloom adapt` where the newcomer's data is")
    for what, name in {"method": config.method, **config.options}.items():
        if is_file(name):
            must = f"a federation's {what} must be installed at every site"
            raise FedloomError(must, f"{name} is a file", "make it an entry point")
    data, usual = config.data, DataConfig()
    given: dict[str, Json] = {
        "data": data.name if data.name != usual.name else None, "data-dir": data.dir, "clients": data.clients,
        "server-share": data.server_share or None, "split": data.split, "parts": data.parts,
    }  # fmt: skip
    partition = data.partition
    if str(parse(partition)) not in ("sites", usual.partition):
        must, todo = "a federation's partition must be sites", "leave --partition out: its sites hold the data"
        raise FedloomError(must, f"got {partition}", todo)
    for name, value in given.items():
        if value is not None:
            raise FedloomError(f"--{name} must not be given to a federation", f"got {value}", "its sites hold the data")


def carry_out(folder: RunFolder, listen: Listener) -> Run:
    """Submit it and follow it to the end."""
    flower.require()
    federation = Federation.open(Path(str(folder.config().engine.federation)))
    with folder.lock():
        pass  # nobody works in it
    events = folder.path / EVENTS
    seen = len(events.read_text().splitlines()) if events.exists() else 0
    write_whole(federation.path / CURRENT, [json.dumps({"run": str(folder.path.resolve())}).encode()], durable=True)
    if federation.insecure:
        warn()
    number = submit(folder, federation)
    try:
        follow(folder, events, seen, number, listen)
    except KeyboardInterrupt:
        withdraw(federation, number)
        until = time.monotonic() + LEAVING
        while locked(folder) and time.monotonic() < until:  # so that it can be resumed at once
            time.sleep(0.2)
        raise
    return Run.open(folder.path)


def current(federation: Federation) -> Json | None:
    """The run that was submitted last: whether it is running, and the round it is in."""
    try:
        folder = RunFolder.open(Path(str(read_json(federation.path / CURRENT)["run"])))
    except (Unreadable, KeyError, TypeError, FedloomError):
        return None  # there was none, or it was removed
    told, config = folder.summary(), folder.config()
    running, rounds = locked(folder), config.budget.rounds
    state = "running" if running else told["state"]
    number = min(told["rounds"] + running, rounds)
    return {
        "run": told["run"], "method": config.method, "state": state, "round": number, "rounds": rounds,
        "claims": claims_in(folder),
    }  # fmt: skip


def follow(folder: RunFolder, events: Path, seen: int, number: str, listen: Listener) -> None:
    """Pass on what the server's process tells, until it ends. Another's, for the same folder, is not ours to hear."""
    heard = time.monotonic()
    while True:
        lines = events.read_text().split("\n")[:-1] if events.exists() else []
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
                "the server's process must run", f"it gave no sign for {SILENCE:g} s",
                "see superlink.log in the federation's folder, then resume the run",
            )  # fmt: skip
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
