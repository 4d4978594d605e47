"""Every registered method keeps the contract."""

import pytest

from fedloom.methods import METHODS
from fedloom.testing import MethodContract, Toy

OPTIONS = {"local-adaptation": {"adapt_share": 0.5}}  # of 4 rounds, so that a client reads what it wrote


class TestRegistered(MethodContract):
    @pytest.fixture(params=METHODS.names())
    def toy(self, request: pytest.FixtureRequest) -> Toy:
        return Toy.of(request.param, OPTIONS.get(request.param), self.rounds)
