"""`--init RUN`: a run that starts from the weights of a finished run.

The finished run's shared weights are read once, when the new run is created, and kept in it as
init.state, so that resuming needs nothing of the old run. The configuration has the old run's path
and a hash of what was taken; any other content is refused. The clients' private states are not
taken over, except by `adapt`, which may begin with one client's own model.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.config.models import Experiment, InitConfig
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.client.store import ClientStore, LostState
from fedloom.federation.protocol.method import shared
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.wire import read_state, state_chunks
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.files import write_whole
from fedloom.learning.private_state import with_prefix
from fedloom.methods import ADAPT, stages
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, finished_result, one_run
from fedloom.records.result import RunResult
from fedloom.records.result_parts import Input
from fedloom.records.warm_start import FromClient, WarmStart, own_prefix
from fedloom.runs.configure import config_of
from fedloom.runs.named_models import (
    at_the_end,
    order_for_search,
    order_for_tier,
    task_without_data,
)
from fedloom.types import Json, Order, Setup, State

log = logging.getLogger("fedloom")

FILE = "init.state"


def read_start(init: InitConfig, method: str) -> State:
    """Read the final shared state of a finished run, with what is needed to build its network."""
    folder = one_run(init.run)
    result = finished_result(folder)
    config = config_of(folder)
    final = Archive(folder.path).final()
    private = None
    check_clients(init, result)
    if init.client is not None:
        private = own_state(folder, config, final.versions, init.client, method)
    tensors = dict(shared(final.state))
    named = named_model(init, method, FinishedRun(folder.path, result), final)
    if named is not None:
        tensors = dict(named.order.tensors)
    prefix = private_prefix(tensors)
    private_meta = None
    if private is not None:
        private_meta = dict(private.meta)
        for name, tensor in private.tensors.items():
            tensors[f"{prefix}{name}"] = tensor
    from_clients = []
    for client in init.clients or ():
        state = own_state(folder, config, final.versions, client, method)
        meta = None
        if state is not None:
            meta = dict(state.meta)
            tensors |= with_prefix(own_prefix(prefix, client), state.tensors)
        from_clients.append(FromClient(client=client, own=meta))
    start = WarmStart(
        method=config.method,
        options=config.options,
        seed=config.seed,
        stage=final.stage,
        meta=dict(final.state.meta),
        own=private_meta,
        input=input_of(folder, result),
        prefix=prefix,
    )
    if named is not None:
        start = start.with_order(named.order.meta, named.stage)
    if from_clients:
        start = start.replace(clients=from_clients)
    return checked(State(tensors, start.to_json()), init)


def check_clients(init: InitConfig, result: RunResult) -> None:
    """Refuse clients that the finished run does not have."""
    clients = list(init.clients or ())
    if init.client is not None:
        clients.append(init.client)
    for client in clients:
        if client not in range(result.registered):
            rule = "--from must be one of the run's clients"
            raise FedloomError(rule, f"got {client}", f"there are {result.registered}")


class FromStage(NamedTuple):
    """The order that a network is built from, and the index of the stage whose method builds it."""

    order: Order
    stage: int


def named_model(
    init: InitConfig,
    method: str,
    run: FinishedRun,
    final: Checkpoint,
) -> FromStage | None:
    """A tier's network, or the one that a search found; None if neither is asked for."""
    if init.tier is None and init.search is None:
        return None
    beginnings = [init.client, init.clients, init.tier, init.search]
    if sum(value is not None for value in beginnings) > 1:
        rule = "one of --from, --tier and --search must say what to begin with"
        raise FedloomError(rule, "got more than one", "leave the others out")
    if method != ADAPT:
        raise FedloomError(
            "a tier's or a search's network must be used by adapt",
            f"init.tier or init.search is given for {method}",
            "leave it out, or use `fedloom adapt`",
        )
    task = task_without_data(run, config_of(RunFolder(run.path)))
    all_stages = stages(task)
    setup = Setup(task, run.record.registered, final.described)
    last = at_the_end(final, setup, all_stages)
    if init.search is not None:
        return FromStage(order_for_search(run.path, init.search), last.stage)
    assert init.tier is not None
    order = order_for_tier(all_stages[last.stage].method, last.state, init.tier, run.path)
    return FromStage(order, last.stage)


def private_prefix(names: Collection[str]) -> str:
    """A prefix for names of private tensors that no shared tensor's name begins with.

    The old run may itself have begun with a client's model, and then has such names already.
    """
    prefix = "own/"
    while any(name.startswith(prefix) for name in names):
        prefix = f"own-{prefix}"
    return prefix


def input_of(folder: RunFolder, result: RunResult) -> Input:
    """The inputs and outputs of the run's network."""
    if result.input is None:
        rule = f"{folder.path}/result.json must say what goes into the network"
        raise FedloomError(rule, "a version before 0.1.0 wrote it", "run it again")
    return result.input


def own_state(
    folder: RunFolder,
    config: Experiment,
    versions: Json,
    client: int,
    method: str,
) -> State | None:
    """A client's private state in a simulated run; None if the client has none."""
    if method != ADAPT:
        raise FedloomError(
            "a client's own state must stay its own",
            f"init.client is {client} for {method}",
            "leave it out, or use `fedloom adapt --from`",
        )
    if config.is_federated:
        raise FedloomError(
            f"the model of client {client} must be at hand",
            "in a federation it never left its site",
            "adapt the shared model: --from shared",
        )
    if client not in versions:
        return None
    try:
        return ClientStore(folder.path / "clients").read(client, versions[client])
    except LostState as error:
        raise FedloomError(
            "a client's state must still be there",
            str(error),
            "run it again",
        ) from None


def digest(start: State) -> str:
    sha = hashlib.sha256()
    for chunk in state_chunks(start):
        sha.update(chunk)
    return sha.hexdigest()


def checked(start: State, init: InitConfig) -> State:
    """Return `start` if its hash is the one in the configuration, and refuse it otherwise."""
    actual_hash = digest(start)
    if init.hash is not None and actual_hash != init.hash:
        raise FedloomError(
            f"what --init {init.run} gives must be unchanged since the run was created",
            f"its hash is {actual_hash[:12]}, not {init.hash[:12]}",
            "start a new run",
        )
    return start


def stored_config(init: InitConfig, start: State) -> InitConfig:
    """What config.toml says about --init: an absolute path, and the hash of `start`."""
    path = Path(init.run).resolve()
    return init.model_copy(update={"run": str(path), "hash": digest(start)})


def seen_before(init: InitConfig, split: Split) -> int | None:
    """How many test samples were training samples of the old run, or of one it began with.

    This happens if the same data is split in another way. None: all those runs had other data.
    """
    if not split.digest:
        return None
    training: list[np.ndarray] = []
    for before in splits_before(init):
        if before.digest == split.digest:
            training += training_parts(before)
    if not training:
        return None
    test = np.concatenate([split.client(client)[1] for client in range(len(split))])
    return int(np.isin(test, np.concatenate(training)).sum())


def splits_before(init: InitConfig) -> Iterator[Split]:
    """Splits of the old run, of the one that it began with, and so on while they still exist."""
    earlier: InitConfig | None = init
    while earlier is not None:
        try:
            folder = RunFolder.open(Path(earlier.run))
            yield Split.load(folder.path / "split.json")
            earlier = folder.config().init
        except FedloomError:
            return


def training_parts(split: Split) -> list[np.ndarray]:
    """The samples that a run may train on: the server's, and those of each client."""
    clients = [split.client(client)[0] for client in range(len(split))]
    return [split.server, *clients]


def save_start(folder: RunFolder, start: State | None) -> None:
    """Store what a new run begins with in its folder."""
    if start is not None:
        write_whole(folder.path / FILE, state_chunks(start), durable=True)


def load_start(folder: RunFolder) -> State | None:
    """What a run that was created before begins with.

    If its file is damaged, it is read from the old run again.
    """
    config = folder.config()
    init = config.init
    if init is None:
        return None
    try:
        return checked(read_state((folder.path / FILE).read_bytes()), init)
    except (OSError, WireError, FedloomError) as damage:
        start = read_again(folder, init, config.method, damage)
    log.warning(
        "%s was damaged: what the run began with is taken from %s again",
        folder.path / FILE,
        init.run,
    )
    save_start(folder, start)
    return start


def read_again(folder: RunFolder, init: InitConfig, method: str, damage: Exception) -> State:
    """Read it from the run that --init named; the configuration's hash tells if it is the same."""
    try:
        return read_start(init, method)
    except (FedloomError, OSError, WireError):
        problem = f"it cannot be used ({type(damage).__name__})"
        raise FedloomError(
            f"{folder.path / FILE} must be what the run began with",
            f"{problem}, and {init.run} no longer gives it",
            "restore one of them, or start a new run",
        ) from None
