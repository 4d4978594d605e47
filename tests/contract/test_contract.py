"""Every registered method keeps the contract."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.methods import METHODS
from fedloom.testing import MethodContract, Toy

OPTIONS = {  # of 4 rounds, so that a client reads what it wrote
    "local-adaptation": {"adapt_share": 0.5},
    "decnas": {"nodes": 1, "group": 1, "stack": 1, "lambda1": 1},
    "fednas": {"nodes": 1, "search_share": 0.5},
    "fednas:personal": {"nodes": 1, "personal": True, "search_share": 0.4, "tune_share": 0.5},
    "fednas:adapt": {
        "nodes": 1,
        "personal": True,
        "finish": "adapt",
        "search_share": 0.3,
        "adapt_share": 0.7,
    },
    "fednas:perturbation": {"search": "perturbation", "nodes": 1},
    "fedpnas": {"tune_share": 0.5, "draw": "sample"},
    "ca-fedpnas": {"tune_share": 0.5},
    "finch": {"nodes": 1, "group": 1, "stack": 1, "lambda1": 1},
    "onenas": {"nodes": 1, "group": 1, "stack": 1, "lambda1": 1, "candidates": 2},
    "perfedavg:hf": {"variant": "hf"},
    "spider": {"nodes": 1, "t_s": 1, "tau": 1},  # a round of warm-up, two of search, a final one
    "spider:milenas": {"nodes": 1, "searcher": "milenas"},
}


# Other options of methods that are tested without them too.
VARIANTS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in (
        "fednas:personal",
        "fednas:adapt",
        "fednas:perturbation",
        "perfedavg:hf",
        "spider:milenas",
    )
]
# adapt begins with a finished run, and a toy has none: see tests/integration/test_starting.py.
# decnas, fedoras and the methods with widths are below, because some tests cannot hold for them.
# auto and auto-tiers are there too, because they need more rounds.
WIDTHS = {
    "fjord": {"widths": [0.5, 1.0]},
    "heterofl": {"widths": [0.5, 1.0]},
    "auto-tiers": {"widths": [0.5, 1.0]},
    "zerofl": {"widths": [0.5, 1.0], "sparsity": 0.5},
}
NAMES = [
    name for name in METHODS.names() if name not in ("adapt", "auto", "decnas", "fedoras", *WIDTHS)
]


class TestRegistered(MethodContract):
    @pytest.fixture(params=[*NAMES, *VARIANTS])
    def toy(self, request: pytest.FixtureRequest) -> Toy:
        return Toy.of(request.param.partition(":")[0], OPTIONS.get(request.param), self.rounds)


class TestAuto(MethodContract):
    """Two sizes race, and fine-tuning is tried; the toy's trial does not speak for it."""

    exempt = {
        "sealed_state_leaves_no_trace": (
            "no client fine-tunes, and a trial's comparison is meant to be told"
        )
    }
    rounds = 12

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of("auto", {"sizes": [0.5, 1.0]}, self.rounds)


@pytest.mark.slow
class TestAutoTunes(MethodContract):
    rounds = 12

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of(
            "auto", {"sizes": [0.5, 1.0], "tune": "always", "tune_share": 0.3}, self.rounds
        )


class TestDecNAS(MethodContract):
    exempt = {"identical_clients_are_one": "each client trains another candidate"}

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of("decnas", OPTIONS["decnas"], self.rounds)


class TestFedorAS(MethodContract):
    exempt = {
        "identical_clients_are_one": "each client has a part, a tier and paths of its own",
        "merge_weights_sum_to_one": "what a single client brings is never merged: |C| > 1 in Eq. 5",
    }

    @pytest.fixture(params=["federated", pytest.param("central", marks=pytest.mark.slow)])
    def toy(self, request: pytest.FixtureRequest) -> Toy:
        space = str(Path(__file__).with_name("short_chain.toml"))
        options = {"space": space, "epochs": 1, "models": 4, "pool": 2, "score": request.param}
        return Toy.of("fedoras", options, self.rounds)


class TestWidths(MethodContract):
    """Two tiers, with widths of one network that lie in one another."""

    exempt = {"identical_clients_are_one": "clients of different tiers train different widths"}

    @pytest.fixture(params=["fjord", "heterofl"])
    def toy(self, request: pytest.FixtureRequest) -> Toy:
        return Toy.of(request.param, WIDTHS[request.param], self.rounds)


class TestRandomWidths(MethodContract):
    """All phases of auto-tiers: a tenth of the rounds, the changes, training, judging, cooling."""

    exempt = {"identical_clients_are_one": "each client draws a width of its own"}
    rounds = 8

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of("auto-tiers", WIDTHS["auto-tiers"], self.rounds)


class TestSparse(MethodContract):
    exempt = {
        "identical_clients_are_one": "clients of different tiers train different widths",
        "merge_weights_sum_to_one": "the kept part of a weight has no name that its order had",
    }

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of("zerofl", WIDTHS["zerofl"], self.rounds)


class TestByTheClock(MethodContract):
    """Phones that come and go, of which some leave during their work."""

    exempt = {
        "declared_fields_cover_the_replies": "an honest client that leaves is refused too",
        "ledger_is_the_payload": "of a client that leaves, what it had done by then is booked",
        "a_refused_reply_is_no_reply": (
            "one whose reply is refused takes longer than one that does nothing"
        ),
        "an_absurd_update_is_no_reply": "who leaves is refused too, for another reason",
        "identical_clients_are_one": "one client and three leave in other rounds",
        "two_levels_are_one": (
            "a client may leave in time for one topology, and too early for the other"
        ),
    }

    @pytest.fixture(params=["fedavg", "hfl", pytest.param("spider", marks=pytest.mark.slow)])
    def toy(self, request: pytest.FixtureRequest) -> Toy:
        return replace(
            Toy.of(request.param, OPTIONS.get(request.param), self.rounds), by_clock=True
        )
