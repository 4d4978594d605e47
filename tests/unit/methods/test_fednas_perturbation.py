"""FedNAS by perturbation on the server's data: SPIDER's appendix D.1."""

from dataclasses import replace

import pytest

from fedloom.config.models import validated
from fedloom.errors import FedloomError
from fedloom.learning.training import training_mode
from fedloom.methods.fednas import stages
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.methods.fednas_perturbation import ServerSearch
from fedloom.searchers import perturbation
from fedloom.spaces import space_for
from fedloom.spaces.mixed import supernet_model
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Arch, Round, Setup, State

OPTIONS = {"search": "perturbation", "nodes": 2, "server_optimizer": "adam"}


def toy(rounds: int = 4, **options) -> Toy:
    return Toy.of("fednas", {**OPTIONS, **options}, rounds)


def started(**options) -> tuple[Toy, ServerSearch, State]:
    t = toy(**options)
    method = t.stages[0].method
    assert isinstance(method, ServerSearch)
    return t, method, method.init(Setup(t.task, 4, server_data=samples(9, "server")), None)


def round_at(progress: float, number: int = 2) -> Round:
    return Round(number, progress * 100, 100.0, range(4), 1.0, 7, samples(9, "server"))


def arch_of(state: State) -> Arch:
    return Arch.from_plain(state.meta["build"]["arch"])


def test_the_schedule_is_spiders():
    """Nothing before 3 % (so 4 % is the first multiple of 2 %), an edge every 2 %, then pruning."""
    _, method, state = started()
    alive = []
    for percent in (0, 3, 4, 5, 6, 8, 10, 12, 14, 90):
        state, orders = method.plan(state, round_at(percent / 100))
        alive.append(sum(len(live) > 1 for live in arch_of(state).choice))
        assert all(order.meta["arch"] == state.meta["build"]["arch"] for order in orders)
    assert alive == [10, 10, 8, 8, 6, 4, 2, 0, 0, 0]  # five edges, in two kinds of cells
    assert state.meta["pruned"] and state.meta["open"] == []
    for rivals in space_for(method.options).rivals():
        assert sum(bool(arch_of(state).choice[slot]) for slot in rivals.slots) == 2


def test_a_decision_is_the_perturbations_on_the_servers_data():
    """The same edge, scored by hand: its kept operation is the one whose removal hurts most."""
    t, method, state = started()
    after, _ = method.plan(state, round_at(0.04))
    chosen = next(n for n in range(5) if n not in after.meta["open"])
    net = supernet_model(t.task, method.options, weights=state.tensors)
    training_mode(net, "averaged")
    score = perturbation.by_validation(net, samples(9, "server"), method.options.batch)
    expected, _ = perturbation.decide(
        space_for(method.options).full(), method.edges[chosen], score, "impact"
    )
    assert arch_of(after) == expected


def test_what_died_is_gone_from_weights_optimiser_and_orders():
    trace = toy().run_apart()
    state = trace.outcome.state
    net = supernet_model(toy().task, FedNASOptions(**toy().task.options), arch=arch_of(state))
    names = set(net.state_dict())
    assert {name for name in state.tensors if not name.startswith("server/")} == names
    moments = {name.split("/", 2)[2] for name in state.tensors if name.startswith("server/")}
    assert moments and moments <= names
    sizes = []
    for exchange in trace.exchanges:
        if exchange.order.kind == "train":
            sizes.append(sum(tensor.numel() for tensor in exchange.order.tensors.values()))
    assert sizes[-1] < sizes[0]


@pytest.mark.slow
def test_rows_tell_the_phase():
    assert [row.phase for row in toy(rounds=40).run_apart().rows][:9] == [
        "warm-up", "warm-up", *["search"] * 4, *["final"] * 3,
    ]  # fmt: skip


def test_the_network_is_the_one_found(tmp_path):
    trace = toy().run(tmp_path)
    facts = [client.own.network.architecture for client in trace.outcome.clients]
    assert all(arch == trace.outcome.state.meta["build"]["arch"] for arch in facts)


def test_the_server_must_have_data():
    t, method, _ = started()
    with pytest.raises(FedloomError, match="central validation set"):
        method.init(Setup(t.task, 4), None)


def test_too_few_rounds_are_refused(tmp_path):
    with pytest.raises(FedloomError, match="must have time to decide"):
        toy(rounds=1).run(tmp_path)


def test_it_is_not_personal():
    with pytest.raises(FedloomError, match="spider is its personal counterpart"):
        validated(FedNASOptions, {"search": "perturbation", "personal": True}, prefix="options.")


def test_the_other_searches_are_as_they_were():
    task = toy().task
    names = [
        stage.name
        for stage in stages(replace(task, options={**task.options, "search": "gradient"}))
    ]
    assert names == ["search", "train"]
