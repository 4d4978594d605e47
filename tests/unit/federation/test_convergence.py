"""FINCH, Theorem 4, on random strongly convex quadratics through the real topology."""

import numpy as np
import pytest
import torch
from clustered import situation_of

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.spool import Place, Spooled
from fedloom.federation.server.topology import HopResult
from fedloom.federation.server.work_times import HopWork
from fedloom.types import Order, Reply


class Quadratics:
    """F_i(w) = ½ (w − c_i)ᵀ A_i (w − c_i), weighted by n_i; clients step down their own."""

    def __init__(self, draws):
        clients = int(draws.integers(2, 9))
        self.dimension = int(draws.integers(1, 5))
        self.samples = draws.integers(1, 20, size=clients)
        self.bends = []
        for _ in range(clients):
            turned, _ = np.linalg.qr(draws.normal(size=(self.dimension, self.dimension)))
            self.bends.append(turned @ np.diag(draws.uniform(0.2, 3.0, self.dimension)) @ turned.T)
        self.middles = draws.normal(scale=3.0, size=(clients, self.dimension))
        self.clients = range(clients)
        self.groups = draws.integers(int(draws.integers(1, clients + 1)), size=clients).tolist()
        bend, _ = self.of(self.clients)
        self.eigenvalues = np.linalg.eigvalsh(bend)
        self.eta = float(draws.uniform(0.2, 1.0)) / self.eigenvalues[-1]
        self.gaps = []  # ‖∇F − ∇F_j‖² on the way

    def of(self, clients):
        """A and A·c of the mean over these clients."""
        shares = self.samples[list(clients)] / self.samples[list(clients)].sum()
        bend = sum(
            share * self.bends[client] for share, client in zip(shares, clients, strict=True)
        )
        pull = sum(
            share * self.bends[client] @ self.middles[client]
            for share, client in zip(shares, clients, strict=True)
        )
        return bend, pull

    def gradient(self, clients, w):
        bend, pull = self.of(clients)
        return bend @ w - pull

    def value(self, w):
        total = 0.0
        for client in self.clients:
            off = w - self.middles[client]
            total += self.samples[client] * 0.5 * off @ self.bends[client] @ off
        return total / self.samples.sum()

    @property
    def best(self):
        return self.value(np.linalg.solve(*self.of(self.clients)))

    def exchange(self, orders, hop, timing):
        """One plain step of everybody (λ₁ = 1)."""
        works = tuple(HopWork(client, 0, 0, 0) for client in self.clients)
        times = timing(works, ())
        places = []
        for order in sorted(orders, key=lambda order: order.client):
            w = order.tensors["w"].numpy()
            together = [other.client for other in orders if other.group == order.group]
            gap = self.gradient(self.clients, w) - self.gradient(together, w)
            self.gaps.append(gap @ gap)
            stepped = torch.tensor(w - self.eta * self.gradient([order.client], w))
            places.append(
                Place(
                    order.client,
                    Reply(order.client, {"w": stepped}, float(self.samples[order.client])),
                )
            )
        return HopResult(Spooled(tuple(places)), works, times)


@pytest.mark.parametrize("case", range(200))
def test_theorem_4(case):
    draws = np.random.default_rng(case)
    problem = Quadratics(draws)
    hops = int(draws.integers(1, 5))
    rounds = int(draws.integers(1, 8))
    w = {"w": torch.tensor(draws.normal(scale=5.0, size=problem.dimension))}
    before = problem.value(w["w"].numpy())
    for number in range(1, rounds + 1):
        orders = [
            Order(client, "train", w, group=group)
            for client, group in zip(problem.clients, problem.groups, strict=True)
        ]
        gathered = Clustered(1, hops).gather(orders, problem.exchange, situation_of(number))
        w = aggregate(w, gathered.replies)
    smallest = problem.eigenvalues[0]
    tau = (1 - smallest * problem.eta) ** (rounds * hops)
    bound = tau * (before - problem.best) + (1 - tau) * max(problem.gaps) / (2 * smallest)
    assert problem.value(w["w"].numpy()) - problem.best <= bound + 1e-9


def test_more_hops_lead_to_the_clusters_own_best():
    """What the bound's second term is about: with gradients that differ, λ₂ → ∞ misses F*."""
    problem = Quadratics(np.random.default_rng(3))
    problem.groups = list(problem.clients)  # everybody alone
    w = {"w": torch.zeros(problem.dimension, dtype=torch.float64)}
    orders = [Order(client, "train", w, group=client) for client in problem.clients]
    gathered = Clustered(1, 400).gather(orders, problem.exchange, situation_of())
    shares = problem.samples / problem.samples.sum()
    expected = shares @ problem.middles
    np.testing.assert_allclose(aggregate(w, gathered.replies)["w"].numpy(), expected, atol=1e-6)
