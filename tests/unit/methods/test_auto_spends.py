"""What `auto` spends of its budget, by the loop's rules and costs by formula, without training."""

from dataclasses import dataclass, field
from functools import cache

import pytest

from fedloom.methods import auto_networks
from fedloom.methods.auto import Auto
from fedloom.methods.auto_least import race_cost
from fedloom.methods.auto_options import AutoOptions
from fedloom.methods.auto_tune import Tune
from fedloom.types import Reply, Round, Setup, Task

TASK = Task("auto", {}, "image", (1, 8, 8), ("a", "b", "c"), 0, (0.5,), (0.3,))
CLIENTS = 2
SAMPLES = 40  # of a client
KEPT = 32  # of these it trains on, until decisions are made
HELD = 8
WIDTH = 0.25
BACKWARD = 3  # passes of a sample in training: one forward, two backward


@cache
def macs_of(size):
    return auto_networks.cost_of(TASK, AutoOptions(width=WIDTH), size).macs


@dataclass
class Spent:
    """A run as the loop would have it."""

    budget: float
    largest_wins: bool
    tunes: bool
    unit: str = "macs"
    spent: float = 0.0
    last: float = 0.0
    phases: list[str] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def run(self, options):
        method = Auto(options)
        state = method.init(Setup(TASK, CLIENTS), None)
        while self.spent + self.last / 2 <= self.budget and self.spent < self.budget:
            r = Round(
                len(self.phases), self.spent, self.budget, range(CLIENTS), 1.0, 0, unit=self.unit
            )
            planned = method.plan(state, r)
            if planned is None:
                break
            state, orders = planned
            self._pay(state.meta["phase"], self._cost(orders[0]) * len(orders))
            state = method.merge(state, orders, [self._reply(order) for order in orders], r)
        self._tune(options, state)
        return self

    def _tune(self, options, state):
        tune = Tune(options)
        began = self.spent
        state = tune.init(Setup(TASK, CLIENTS), state)
        remaining = max(0.0, self.budget - began)
        while True:
            r = Round(
                len(self.phases),
                self.spent - began,
                remaining,
                range(CLIENTS),
                1.0,
                0,
                unit=self.unit,
            )
            planned = tune.plan(state, r)
            if planned is None:
                return
            state, orders = planned
            cost = 1
            if self.unit != "rounds":
                cost = BACKWARD * SAMPLES * macs_of(state.meta["size"])
            self._pay("tune", cost * len(orders))
            replies = [Reply(order.client, weight=SAMPLES) for order in orders]
            state = tune.merge(state, orders, replies, r)

    def _pay(self, phase, cost):
        self.last = cost
        if self.unit == "rounds":
            self.last = 1.0
        self.spent += self.last
        self.phases.append(phase)
        self.costs.append(self.last)

    def _cost(self, order):
        """Of one client, in MACs."""
        sizes = order.meta.get("sizes") or [order.meta["size"]]
        networks = sum(macs_of(size) for size in sizes)
        if order.kind == "train" and order.meta["whole"]:
            return BACKWARD * networks * SAMPLES
        passes = {
            "train": BACKWARD * KEPT,
            "trial": BACKWARD * 3 * KEPT,
            "judge": HELD,
            "compare": 2 * HELD,
            "invariance": 4 * HELD,
        }
        return networks * passes[order.kind]

    def _reply(self, order):
        """The largest size always wins, or the smallest; figures never stop improving."""
        meta = {
            "judge": {
                "nll": self._nll(order),
                "correct": [0] * len(order.meta.get("sizes", [])),
                "samples": HELD,
            },
            "invariance": {"plain": 4, "changed": [4, 0, 0], "up": 4, "down": 0, "samples": HELD},
            "compare": {"up": 9 if self.tunes else 0, "down": 0, "samples": HELD},
            "trial": {"loss": 1.0},
            "train": {
                "loss": 1.0,
                "nll": 100.0 / (1 + len(self.phases)),
                "correct": 1,
                "samples": HELD,
            },
        }
        return Reply(order.client, order.tensors, KEPT, meta[order.kind])

    def _nll(self, order):
        sizes = [float(size) for size in order.meta.get("sizes", [])]
        if self.largest_wins:
            return [-size for size in sizes]
        return sizes


def least(options):
    """By the method's own word, of what the first round costs here."""
    first = BACKWARD * KEPT * CLIENTS * macs_of(f"{options.sizes[0]:g}")
    return Auto(options).least_work(TASK, "macs", 1.0) * first


ASKED = [{}, {"tune": "always", "sizes": [0.5, 1.0]}, {"tune": "never", "sizes": [1.0]}]


@pytest.mark.parametrize("largest_wins", [True, False])
@pytest.mark.parametrize("tunes", [True, False])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_run_ends_within_half_a_round_of_its_budget(asked, tunes, largest_wins):
    options = AutoOptions(width=WIDTH, **asked)
    for times in (1.0, 1.07, 1.4, 2.0):
        budget = times * least(options)
        run = Spent(budget, largest_wins, tunes).run(options)
        where = f"{times}: {run.spent / budget:.3f}, {run.phases}"
        assert run.spent <= budget + max(run.costs[-1], run.costs[-2]) / 2 * 1.0001, where
        assert run.spent >= budget - max(run.costs[-3:]), where  # nor does it leave much
        assert {"train", "cool"} <= set(run.phases), where
        fine_tunes = options.tune == "always" or (options.tune == "decide" and tunes)
        assert ("tune" in run.phases) is fine_tunes, where


@pytest.mark.parametrize("tunes", [True, False])
@pytest.mark.parametrize("rounds", [17, 18, 25])
def test_rounds_are_kept_to_the_round(rounds, tunes):
    run = Spent(float(rounds), True, tunes, unit="rounds").run(AutoOptions(width=WIDTH))
    assert run.spent == rounds
    assert ("tune" in run.phases) is tunes


def test_the_least_of_four_sizes_in_numbers():
    """Sizes of 1, 2, 4 and 8 MACs, one sample a round, no costs of judging.

    First slice: all must have worked 8 MACs: 8 + 8 + 8 + 8. Second slice: 4 and 8 do 8 more each.
    """
    macs = {"0.1": 1.0, "0.2": 2.0, "0.4": 4.0, "0.8": 8.0}
    assert race_cost(list(macs), macs, macs, 0.0) == 48.0
    assert race_cost(list(macs), macs, macs, 0.5) == 48.0 + 0.5 * 15 + 0.5 * 12
    bytes_a_round = dict.fromkeys(macs, 1.0)
    assert race_cost(list(macs), macs, bytes_a_round, 0.0) == 8 + 4 + 2 + 1 + 2 + 1
    assert race_cost(["0.8"], macs, macs, 0.5) == 0.0


def test_the_least_of_one_size_in_numbers():
    """Before cooling: training 1 + 1, trial 3 + 2·(1/3)(1/4), invariance 4·(1/3)(1/4)."""
    one = AutoOptions(sizes=[1.0])
    trial = 3 + 2 / 12
    others = 1 + 1 + 4 / 12
    assert Auto(one).least_work(TASK, "macs", 1.0) == pytest.approx(others + trial + 2 * 1.25)
    # The trial and fine-tuning ask everybody: four times as many clients as other rounds.
    expected = others + 4 * trial + 1.25 + 4 * 1.25
    assert Auto(one).least_work(TASK, "macs", 4.0) == pytest.approx(expected)
    plain = AutoOptions(sizes=[1.0], tune="never", changes="none")
    assert Auto(plain).least_work(TASK, "macs", 4.0) == pytest.approx(1 + 1.25)
    assert Auto(plain).least_work(TASK, "bytes", 4.0) == pytest.approx(2.0)
    assert Auto(AutoOptions(sizes=[1.0], tune="never")).least_work(
        TASK, "bytes", 1.0
    ) == pytest.approx(3.5)


def test_the_least_of_a_limit_beside_rounds_in_numbers():
    """Sizes race for rounds: each is trained once, then the better two once more."""
    sizes = {"0.1": 1.0, "0.2": 2.0, "0.4": 4.0, "0.8": 8.0}
    rounds = dict.fromkeys(sizes, 1.0)
    assert race_cost(list(sizes), rounds, sizes, 0.0) == 15 + 12
    options = AutoOptions(sizes=[0.25, 0.5, 1.0], tune="never", changes="none")
    costs = [auto_networks.cost_of(TASK, options, size).macs for size in ("0.25", "0.5", "1")]
    sums = sum(costs) + costs[1] + costs[2]
    judging = (sum(costs) + costs[1] + costs[2]) / 12
    before = sums + judging + costs[2]
    least = max(before + 1.25 * costs[2], before / 0.75) / costs[0]
    assert Auto(options).least_work(TASK, "macs", 1.0, budget_in_rounds=True) == pytest.approx(
        least
    )
    assert Auto(options).least_work(TASK, "macs", 1.0) > least
