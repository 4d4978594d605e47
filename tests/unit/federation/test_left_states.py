"""The state that a stage leaves is kept, and unchanged tensors are not written again."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import safetensors.torch
import torch
from torch import nn

from fedloom.data.samples import ClientData, Samples
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.events import Notice, RoundEnded
from fedloom.federation.server.loop import Loop
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat
from fedloom.types import Fields, Order, Reply, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("supernet", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))
SAMPLES = Samples(torch.arange(4.0).view(-1, *SHAPE), torch.tensor([0, 1, 0, 1]))
MEGABYTE = 1 << 20
GENERATIONS = 4


class Kill(Exception):
    pass


@dataclass(frozen=True)
class Training(Method):
    """Clients move two megabytes.

    `right` says how many of four samples are answered correctly after each round.
    """

    right: tuple[int, ...] = ()

    fields = {"train": Fields(tensors=("w",))}

    def init(self, setup, previous):
        tensors = {"w": torch.zeros(MEGABYTE // 2)}
        if previous is not None:
            tensors = previous.tensors
        return State(tensors, {"rounds": 0})

    def plan(self, state, r):
        meta = {"step": r.key("step") % 97}
        return state, [Order(client, "train", state.tensors, meta) for client in r.clients]

    def client(self, order, data, own, run):
        return Reply(
            order.client, {"w": order.tensors["w"] + order.meta["step"] + order.client}, len(data)
        ), None

    def merge(self, state, orders, replies, r):
        merged = super().merge(state, orders, replies, r)
        return State(merged.tensors, {"rounds": state.meta["rounds"] + 1})

    def serve(self, state, client):
        right = 0
        if self.right:
            right = self.right[state.meta["rounds"] - 1]
        return Order(client, "evaluate", meta={"right": right})

    def predictor(self, order, data, own, run):
        def answer(x):
            label = x.flatten().long() % 2
            chosen = torch.where(torch.arange(len(label)) < order.meta["right"], label, 1 - label)
            return nn.functional.one_hot(chosen, len(LABELS)).float()

        return answer

    def network(self, order, data, own, run):
        return nn.Sequential(nn.Flatten(), nn.Linear(1, len(LABELS)))


class Searching(Training):
    """Scores the supernet on the server, and asks nobody."""

    def plan(self, state, r):
        if state.meta["rounds"] == GENERATIONS:
            return None
        return state, []


def stages(right=(), select="last"):
    return (
        Stage("supernet", Training(right), 0.5, select=select, leaves="supernet"),
        Stage("search", Searching(), None),
        Stage("tune", Training()),
    )


def loop_in(folder, run_stages, listen=lambda event: None, *, holds_back=False, rounds=4):
    data = ClientData(SAMPLES, SAMPLES, SAMPLES)
    site = Site(
        lambda client: data, ClientStore(folder / "clients"), lambda task: run_stages, SHAPE, LABELS
    )
    settings = Settings(experiment="supernet", task=TASK, population=2, rounds=rounds)
    spool = Spool(folder / "spool")
    archive = Archive(folder)
    return Loop(
        settings,
        run_stages,
        InlineEngine(site),
        spool,
        Flat(),
        archive,
        holds_back=holds_back,
        listen=listen,
    )


def stop_after(number, folder):
    def listen(event):
        if isinstance(event, RoundEnded) and event.row.round == number:
            raise Kill

    with pytest.raises(Kill):
        loop_in(folder, stages(), listen).run()


def written_in(folder):
    """The bytes of every checkpoint, as each round left it."""
    sizes = {}

    def listen(event):
        if isinstance(event, RoundEnded):
            path = Archive(folder).path(event.row.round)
            sizes[event.row.round] = (event.row.stage, path.stat().st_size)

    outcome = loop_in(folder, stages(), listen).run()
    return outcome, sizes


def test_a_generation_writes_less_than_a_megabyte(tmp_path):
    _, sizes = written_in(tmp_path)
    searched = [size for stage, size in sizes.values() if stage == "search"]
    others = [size for stage, size in sizes.values() if stage != "search"]
    assert len(searched) == GENERATIONS and max(searched) < 4096
    assert len(others) == 4 and min(others) > 2 * MEGABYTE


def test_what_a_stage_leaves_opens_with_safetensors(tmp_path):
    stop_after(2, tmp_path)
    weights = Archive(tmp_path).load(2).state.tensors["w"]
    assert not (tmp_path / "supernet.state").exists()
    loop_in(tmp_path, stages()).run()
    tensors = safetensors.torch.load((tmp_path / "supernet.state").read_bytes())
    assert torch.equal(tensors["w"], weights)
    state = Archive(tmp_path).stage_state("supernet")
    assert torch.equal(state.tensors["w"], weights) and state.meta == {"rounds": 2}
    assert [path.name for path in tmp_path.glob("*.state")] == ["supernet.state"]


def test_the_best_round_is_what_a_stage_leaves(tmp_path):
    """The first of two rounds answers all samples correctly, the second none.

    The search goes on with the tensors of the first.
    """
    first_round = {}

    def listen(event):
        if isinstance(event, RoundEnded) and event.row.round == 1:
            first_round["w"] = Archive(tmp_path).load(1).state.tensors["w"]

    outcome = loop_in(tmp_path, stages((4, 0), "best"), listen, holds_back=True).run()
    state = Archive(tmp_path).stage_state("supernet")
    assert state.meta == {"rounds": 1} and torch.equal(state.tensors["w"], first_round["w"])
    assert outcome.rounds == 4 + GENERATIONS


# Killed, damaged, taken back


def timeless(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["ledger"] = [line[:5] for line in row["ledger"]]
        row["totals"] = {**row["totals"], "seconds": 0, "measured_clock": 0, "wall": 0}
    return rows


def left_behind(folder):
    files = {path.name: path.read_bytes() for path in folder.glob("*.state")}
    checkpoints = {
        number: Archive(folder).load(number).state.tensors["w"]
        for number in Archive(folder).rounds()
    }
    return (
        files,
        {number: tensor.numpy().tobytes() for number, tensor in checkpoints.items()},
        timeless(folder),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    loop_in(folder, stages()).run()
    return left_behind(folder)


def test_killed_after_every_round_it_leaves_the_same_bits(tmp_path, undisturbed):
    killed = set()

    def listen(event):
        if isinstance(event, RoundEnded) and event.row.round not in killed:
            killed.add(event.row.round)
            raise Kill

    outcome = None
    while outcome is None:
        try:
            outcome = loop_in(tmp_path, stages(), listen).run()
        except Kill:
            continue
    assert len(killed) == 4 + GENERATIONS
    assert left_behind(tmp_path) == undisturbed


@pytest.mark.parametrize("number", [1, 2, 4, 5])
@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_damaged_in_mid_search_the_run_goes_back_and_ends_with_the_same_figures(
    number, damage, tmp_path, undisturbed
):
    stop_after(5, tmp_path)
    archive = Archive(tmp_path)
    assert archive.rounds() == [1, 2, 4, 5]
    path = archive.path(number)
    if damage == "gone":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-3] ^= 4
        path.write_bytes(content)
    messages = []
    loop_in(tmp_path, stages(), lambda event: messages.append(event)).run()
    notices = [event.text for event in messages if isinstance(event, Notice)]
    first = next(event.row.round for event in messages if isinstance(event, RoundEnded))
    went_on_from = {1: 5, 2: 1, 4: 5, 5: 4}[number]
    assert first == went_on_from + 1
    is_told = number == 2 or (
        number == 5 and damage == "flipped"
    )  # nobody misses a newest one that is gone
    assert [f"back to round {went_on_from}" in text for text in notices] == [True] * is_told
    files, checkpoints, rows = left_behind(tmp_path)
    assert files == undisturbed[0] and rows == undisturbed[2]
    newest = max(checkpoints)
    assert checkpoints[newest] == undisturbed[1][newest]


def test_a_damaged_state_of_a_finished_stage_is_told_and_not_used(tmp_path):
    stop_after(4, tmp_path)
    path = tmp_path / "supernet.state"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    messages = []
    loop_in(tmp_path, stages(), lambda event: messages.append(event)).run()
    (notice,) = [event.text for event in messages if isinstance(event, Notice)]
    assert notice.startswith("the state that stage supernet left cannot be used")
    problem = r"supernet\.state must be the state that a finished stage left"
    with pytest.raises(FedloomError, match=problem):
        Archive(tmp_path).stage_state("supernet")
    path.unlink()
    with pytest.raises(FedloomError, match="no such file"):
        Archive(tmp_path).stage_state("supernet")


def test_what_a_stage_left_goes_when_the_run_is_taken_back_into_it(tmp_path, undisturbed):
    stop_after(5, tmp_path)
    Archive(tmp_path).take_back(1)
    (tmp_path / ".supernet.state.99.tmp").write_bytes(b"half")
    seen = []

    def listen(event):
        if isinstance(event, RoundEnded):
            seen.append((event.row.round, (tmp_path / "supernet.state").exists()))
            assert not (tmp_path / ".supernet.state.99.tmp").exists()

    loop_in(tmp_path, stages(), listen).run()
    assert seen[:3] == [(2, False), (3, True), (4, True)]
    assert left_behind(tmp_path)[0] == undisturbed[0]


@pytest.mark.parametrize("name", ["init", "", "a/b", "../x", "supernet"])
def test_what_a_stage_leaves_has_a_name_of_its_own(name, tmp_path):
    supernet, search, tune = stages()
    with pytest.raises(FedloomError, match="must have a unique name"):
        loop_in(tmp_path, (supernet, search._replace(leaves=name), tune))
