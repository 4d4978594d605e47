"""The server's side of a deployment: Flower starts it for each run that is submitted.

`fedloom run --federation` submits a run. The server asks the sites for the facts about their data,
settles the task, and then runs the same loop as an embedded run, in the same run folder. It writes
its progress there line by line, for the process that submitted the run.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedloom.config.models import Experiment
from fedloom.deploy.installed import check_installed
from fedloom.deploy.kits import Federation
from fedloom.deploy.processes import FEDERATION, end_without_parent
from fedloom.deploy.settled import (
    checked,
    kept_facts,
    notices_of_labels,
    notices_of_skipped,
    notices_of_tests,
    notices_of_tiers,
    settle,
    terms_of,
)
from fedloom.deploy.terms import (
    DEVICE,
    SIZE,
    TABLE,
    USUAL_TABLE,
    Facts,
    ImageSize,
    TableQuestion,
)
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.engines.flower.engine import (
    AWAY,
    PATIENCE,
    POLL,
    FlowerEngine,
    is_away,
    replies_of,
)
from fedloom.federation.engines.flower.parcels import KIND, NONE_OF_OURS, from_outside, opened
from fedloom.federation.server.events import Event, Notice
from fedloom.federation.server.receiving import readable
from fedloom.files import write_whole
from fedloom.methods import recipe
from fedloom.records.folder import RunFolder, logging_to
from fedloom.runs import notices
from fedloom.runs.experiment import make_loop, note_versions
from fedloom.runs.preparing import Prepared
from fedloom.runs.results import write_result
from fedloom.threads import one_thread
from fedloom.types import Json

EVENTS = "events.jsonl"
CURRENT = "current.json"  # in the federation's folder: the run that was submitted last
log = logging.getLogger("fedloom")

Tell = Callable[[Json], None]  # writes an event for the process that submitted the run


def main(grid: Grid, context: Context) -> None:
    """Carry out the submitted run, and write its events to the run folder."""
    end_without_parent()
    folder = RunFolder.open(Path(str(context.run_config["run"])))
    check_no_links(folder.path)
    with open(folder.path / EVENTS, "a", encoding="utf-8") as file:

        def tell(message: Json) -> None:
            file.write(json.dumps({**message, "as": str(context.run_id)}) + "\n")
            file.flush()

        tell({"event": "submitted"})
        try:
            federation = Federation.open(served(context.run_config))
            check_installed(folder.config())
            note_current(federation, folder)
            carry_out(folder, grid, federation, tell)
            tell({"event": "finished"})
        except FedloomError as error:
            tell({"event": "stopped", "text": str(error), "code": error.code})
        except BaseException as error:
            text = f"the server's process failed ({type(error).__name__}: {error})"
            tell({"event": "stopped", "text": text, "code": 3})
            (folder.path / "run.log").open("a").write(traceback.format_exc())
            raise


def served(settings: Mapping[str, object]) -> Path:
    """The federation that this server serves, whatever the submitter calls it."""
    return Path(os.environ.get(FEDERATION) or str(settings["federation"]))


def check_no_links(folder: Path) -> None:
    """Raise an error for a link in a run's folder.

    The folder is its submitter's. Through a link, the server would write into its own files.
    """
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                rule = f"the folder {folder} must have no links, because the server writes into it"
                raise FedloomError(rule, f"{path} is one", "replace it by what it points at")


def note_current(federation: Federation, folder: RunFolder) -> None:
    """Note which run is the last one, for `fedloom federation status`."""
    submitted = json.dumps({"run": str(folder.path.resolve())})
    write_whole(federation.path / CURRENT, [submitted.encode()], durable=True)


def carry_out(folder: RunFolder, grid: Grid, federation: Federation, tell: Tell) -> None:
    """Run or resume a federation's run."""
    with folder.writing(), folder.lock(), logging_to(folder.path / "run.log"), one_thread():

        def pass_on(event: Event) -> None:
            tell(event.to_json())

        note_versions(folder, pass_on)
        nodes = nodes_of(grid, federation, tell, Survey.of(folder.config()))
        if len(nodes) < len(federation.sites):
            missing = ", ".join(sorted(set(federation.sites) - set(nodes)))
            rule = "every site must be known to the server"
            raise RunStopped(rule, f"{missing} is not", "start it, then resume the run")
        prepared = prepare(folder, federation, grid, nodes, tell)
        names = sorted(kept_facts(folder))
        check_still_members(names, nodes)
        clients = {number: nodes[name] for number, name in enumerate(names)}
        engine = FlowerEngine(grid, clients, terms=terms_of(prepared).to_json())
        outcome = make_loop(folder, prepared, engine, None, pass_on).run()
        write_result(folder, prepared, outcome)


def check_still_members(names: Sequence[str], nodes: Mapping[str, int]) -> None:
    """Raise an error if a site with which the run began has been revoked."""
    gone = [name for name in names if name not in nodes]
    if gone:
        rule = "every site with which a run began must still be in the federation"
        found = f"{', '.join(gone)} was revoked"
        raise FedloomError(rule, found, "admit it with a new key, or begin a new run")


def prepare(
    folder: RunFolder,
    federation: Federation,
    grid: Grid,
    nodes: Mapping[str, int],
    tell: Tell,
) -> Prepared:
    """The settled run. The sites are asked once, and not again when the run resumes."""
    if not (folder.path / "split.json").exists():
        settle(folder, ask_all(grid, nodes, tell, Survey.of(folder.config())))
    prepared = checked(folder, federation.path)
    notices_about_data = (
        *notices_of_labels(folder, prepared),
        *notices_of_skipped(folder),
        *notices_of_tests(folder),
    )
    for text in notices_about_data:
        log.warning(text)
        tell(Notice(text).to_json())
    note_tiers(folder, prepared, tell)
    return prepared


def note_tiers(folder: RunFolder, prepared: Prepared, tell: Tell) -> None:
    """Tell the operator about the sites' tiers."""
    if prepared.tiers is None:
        texts = tuple(notices.of_tiers(prepared))
    else:
        texts = notices_of_tiers(folder, prepared)
    for text in texts:
        tell(Notice(text).to_json())


# Which node a site is


def nodes_of(
    grid: Grid,
    federation: Federation,
    tell: Tell,
    survey: Survey,
) -> dict[str, int]:
    """Every site's node, by its registered key.

    Only with --insecure, where there are no keys, the server relies on the names that sites claim.
    """
    if not federation.insecure:
        return in_site_order(federation, federation.nodes)
    until = time.monotonic() + PATIENCE
    nodes = list(grid.get_node_ids())
    while len(nodes) < len(federation.sites) and time.monotonic() < until:
        tell({"event": "waiting", "sites": [f"{len(federation.sites) - len(nodes)} more"]})
        time.sleep(1.0)
        nodes = list(grid.get_node_ids())
    claims = {}
    for node, message in ask(grid, nodes, until, survey).items():
        name = name_in(message)
        if not name and message.has_content():
            tell(Notice(f"a site did not give its name: {why_not(message)}").to_json())
        claims[name] = node
    return in_site_order(federation, claims)


def in_site_order(federation: Federation, nodes: Mapping[str, int]) -> dict[str, int]:
    return {name: nodes[name] for name in federation.sites if name in nodes}


# The survey


@dataclass(frozen=True)
class Survey:
    """What sites are asked for besides the facts about their data, and how to read the data."""

    asks_device: bool = False
    size: ImageSize | None = None
    table: TableQuestion = USUAL_TABLE

    @classmethod
    def of(cls, config: Experiment) -> Survey:
        """The survey of a run."""
        asks_device = recipe(config.method).tiered is not None
        return cls(asks_device, ImageSize.of(config.data), TableQuestion.of(config.data))

    def to_record(self) -> ConfigRecord:
        """The survey as a record, without what the run leaves open about images or tables."""
        record = ConfigRecord({"ask": "facts", DEVICE: self.asks_device})
        if self.size is not None:
            record[SIZE] = self.size.model_dump_json()
        if self.table != USUAL_TABLE:
            record[TABLE] = self.table.to_json()
        return record


def ask_all(
    grid: Grid,
    nodes: Mapping[str, int],
    tell: Tell,
    survey: Survey,
) -> dict[str, Facts]:
    """The facts about every site's data, and about its device if the method uses device tiers."""
    until = time.monotonic() + PATIENCE
    wait_for_all(grid, nodes, tell, until)
    answers = ask(grid, list(nodes.values()), until, survey)
    silent = sorted(name for name, node in nodes.items() if node not in answers)
    if silent:
        rule = "every site must answer"
        raise RunStopped(rule, f"{', '.join(silent)} did not", "see its log, then resume the run")
    return {name: facts_in(answers[node], name) for name, node in nodes.items()}


def wait_for_all(grid: Grid, nodes: Mapping[str, int], tell: Tell, until: float) -> None:
    """Wait until every site is connected."""
    missing = not_connected(grid, nodes)
    while missing:
        tell({"event": "waiting", "sites": missing})
        if time.monotonic() > until:
            rule = "every site must be connected"
            problem = f"{', '.join(missing)} is not"
            raise RunStopped(rule, problem, "start it, then resume the run")
        time.sleep(1.0)
        missing = not_connected(grid, nodes)


def not_connected(grid: Grid, nodes: Mapping[str, int]) -> list[str]:
    connected = set(grid.get_node_ids())
    return sorted(name for name, node in nodes.items() if node not in connected)


def ask(
    grid: Grid,
    nodes: Sequence[int],
    until: float,
    survey: Survey,
) -> dict[int, Message]:
    """The nodes' answers to the survey. Nodes that were briefly disconnected are asked again."""
    waiting = push_survey(grid, nodes, survey)
    answers: dict[int, Message] = {}
    with replies_of(grid, thread_per_reply=True) as look:
        while waiting and time.monotonic() < until:
            for message in look(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id)
                answers[node] = message
            away = [node for node, message in answers.items() if is_away(message)]
            pause = POLL
            for node in away:
                del answers[node]
                pause = AWAY
            time.sleep(pause)
            waiting |= push_survey(grid, away, survey)
    return answers


def push_survey(grid: Grid, nodes: Sequence[int], survey: Survey) -> dict[str, int]:
    """Send the survey. Returns the node to which each message went, by the message's id."""
    if not nodes:
        return {}
    questions = []
    for node in nodes:
        content = RecordDict({"survey": survey.to_record()})
        questions.append(Message(content, node, KIND))
    return dict(zip(grid.push_messages(questions), nodes, strict=True))


def name_in(message: Message) -> str:
    """The site name that a node claims; empty if it claims none."""
    if not message.has_content():
        return ""
    records = message.content.config_records
    if "facts" not in records:
        return ""
    return str(records["facts"].get("site", ""))


def facts_in(message: Message, name: str) -> Facts:
    if message.has_error():
        report = readable(f"Flower reports: {message.error.reason}")
        raise RunStopped(f"site {name} must answer", report, "see its log")
    records = message.content.config_records
    rule = f"site {name} must describe its data"
    if "facts" not in records:
        raise RunStopped(rule, why_not(message), "fix it there, then resume the run")
    try:
        return Facts.read(str(records["facts"].get("json", "")))
    except ValueError as error:
        raise RunStopped(rule, readable(f"{error}"), "use the same version of fedloom") from None


def why_not(message: Message) -> str:
    """The reason that a site gives instead of facts."""
    try:
        fault = from_outside(opened(message)[1]).fault
    except NONE_OF_OURS:
        fault = None
    if fault is None:
        return readable("its message is not from fedloom")
    return readable(f"{fault.kind}: {fault.text}".rstrip("."))


app = ServerApp()
app.main()(main)
