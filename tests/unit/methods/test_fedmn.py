"""FedMN: routes, the averaging of modules, the router that stays at home."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.methods.fedmn import ROUTER, FedMN, FedMNOptions, drawn
from fedloom.testing import Toy
from fedloom.types import Order, Reply, Round, Setup, State, Task

PAIR = f"{Path(__file__).parent}/linear.py:Pair"
EXACT = {
    "network": PAIR,
    "batch": 8,
    "lr": 0.5,
    "schedule": "constant",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "clip": 1e9,
}
X = torch.tensor([[1.0, 0.5], [-1.0, 2.0]]).view(2, 1, 1, 2)
Y = torch.tensor([0, 1])


def started(**options) -> tuple[Task, FedMN, State]:
    task = Task("fedmn", options, "image", (1, 1, 2), ("no", "yes"), 7, (0.0,), (1.0,))
    method = FedMN(FedMNOptions(**options))
    state = method.init(Setup(task, 2), None)
    generator = torch.Generator().manual_seed(
        1
    )  # every module another one: Pair itself has no random weights
    tensors = {name: torch.randn(t.shape, generator=generator) for name, t in state.tensors.items()}
    return task, method, State(tensors, state.meta)


def run_of(task: Task, client: int = 0) -> ClientRun:
    return ClientRun(task, "train", 1, 0, client, "cpu", lambda: b"")


def trained(method, task, state, router=None, heat=None, client=0):
    own = None if router is None else State({ROUTER: torch.tensor(router, dtype=torch.float32)})
    order = Order(client, "train", state.tensors, {"lr": 0.5, "heat": heat})
    return method.client(order, Samples(X, Y), own, run_of(task, client))


def test_a_step_on_a_fixed_route_is_sgd_on_its_modules_alone():
    """Body 1 and head 0: their product is trained, everything else stays, and weighs nothing."""
    task, method, state = started(**EXACT)
    reply, own = trained(method, task, state, router=[[0, 3], [2, 1]])
    used = ["copies.1.net.body.weight", "copies.0.net.classifier.weight"]
    unused = []
    body, head = (state.tensors[name].clone().requires_grad_() for name in used)
    functional.cross_entropy(X.flatten(1) @ body.T @ head.T, Y).backward()
    for name, parameter in zip(used, (body, head), strict=True):
        torch.testing.assert_close(reply.tensors[name], (parameter - 0.5 * parameter.grad).detach())
        assert reply.weight[name] == 2
    unused = [name for name in state.tensors if name not in used]
    assert unused and all(reply.weight[name] == 0 for name in unused)
    assert all(torch.equal(reply.tensors[name], state.tensors[name]) for name in unused)
    assert own.tensors[ROUTER].tolist() == [[0, 3], [2, 1]]  # a fixed route is no longer searched


def test_modules_are_averaged_over_those_who_used_them():
    """Clients 0 and 1 (2 samples each) share body 1. Only client 0 uses head 0, only 1 head 1."""
    task, method, state = started(**EXACT)
    replies = [
        trained(method, task, state, router=router, client=client)[0]
        for client, router in enumerate(([[0, 1], [1, 0]], [[0, 1], [0, 1]]))
    ]
    merged = method.merge(state, [], replies, Round(1, 0, 1, range(2), 1.0, 7)).tensors
    body = "copies.1.net.body.weight"
    torch.testing.assert_close(
        merged[body], (replies[0].tensors[body] + replies[1].tensors[body]) / 2
    )
    for client in (0, 1):
        head = f"copies.{client}.net.classifier.weight"
        assert torch.equal(merged[head], replies[client].tensors[head])
    assert torch.equal(
        merged["copies.0.net.body.weight"], state.tensors["copies.0.net.body.weight"]
    )


def test_the_router_learns_by_the_straight_through_gradient():
    """∂L/∂logits = Σ_i (∂L/∂y_i · y_i) · ∂soft_chosen/∂logits, at the noise that the seed draws."""
    task, method, state = started(**EXACT, router_lr=0.1)
    start = torch.tensor([[0.2, -0.1], [0.0, 0.4]])
    _, own = trained(method, task, state, router=start.tolist(), heat=0.7)
    router = start.clone().requires_grad_()
    noise = torch.rand((2, 2), generator=run_of(task).rng("routes"))
    soft = torch.softmax((router - (-noise.log()).log()) / 0.7, 1)
    first, second = soft.argmax(1).tolist()
    body = state.tensors[f"copies.{first}.net.body.weight"]
    head = state.tensors[f"copies.{second}.net.classifier.weight"]
    scale = [
        1 + soft[slot, pick] - soft[slot, pick].detach()
        for slot, pick in enumerate((first, second))
    ]
    functional.cross_entropy(scale[1] * (scale[0] * (X.flatten(1) @ body.T) @ head.T), Y).backward()
    assert router.grad.abs().sum() > 0
    torch.testing.assert_close(own.tensors[ROUTER], (start - 0.1 * router.grad).detach())


def test_draws_follow_the_router():
    """At any temperature the chance of a module is softmax(logits): the Gumbel trick."""
    generator = torch.Generator().manual_seed(0)
    router = torch.tensor([[0.0, 1.0, 2.0]])
    for heat in (0.1, 5.0):
        picks = (
            np.bincount(
                [drawn(router, heat, generator).copies[0] for _ in range(3000)], minlength=3
            )
            / 3000
        )
        np.testing.assert_allclose(picks, torch.softmax(router[0], 0).numpy(), atol=0.03)


def test_routes_are_searched_first_and_fixed_then():
    trace = Toy.of("fedmn", {"explore_share": 0.5}).run_apart()
    heats = {
        e.order.stamp.round: e.order.meta["heat"]
        for e in trace.exchanges
        if e.order.kind == "train"
    }
    assert heats[1] == 1.0 and heats[2] == pytest.approx(0.1**0.5)
    assert heats[3] is heats[4] is None


def test_the_router_never_leaves():
    for exchange in Toy.of("fedmn").run_apart().exchanges:
        if exchange.order.kind == "train":
            assert ROUTER not in exchange.reply.tensors and set(exchange.reply.meta) == {"loss"}


def test_one_copy_is_fedavg(tmp_path):
    mine = Toy.of("fedmn", {"copies": 1}).run(tmp_path / "mn").outcome.state.tensors
    avg = Toy.of("fedavg").run(tmp_path / "avg").outcome.state.tensors
    for name, tensor in avg.items():
        torch.testing.assert_close(mine[f"copies.0.{name}"], tensor, msg=name)


def test_a_clients_network_is_its_route_as_a_plain_network():
    task, method, state = started(**EXACT)
    own = State({ROUTER: torch.tensor([[0.0, 3.0], [2.0, 1.0]])})
    net = method.network(Order(0, "evaluate", state.tensors), Samples(X, Y), own, run_of(task))
    body = state.tensors["copies.1.net.body.weight"]
    head = state.tensors["copies.0.net.classifier.weight"]
    torch.testing.assert_close(net(X), X.flatten(1) @ body.T @ head.T)


def test_weights_are_samples_of_an_average_epoch():
    """Three epochs of two samples: whatever is drawn, a block's modules weigh 2 together."""
    task, method, state = started(**{**EXACT, "epochs": 3, "batch": 2})
    reply: Reply = trained(method, task, state, heat=1.0)[0]
    for name in ("net.body.weight", "net.classifier.weight"):
        assert sum(reply.weight[f"copies.{copy}.{name}"] for copy in (0, 1)) == pytest.approx(2)
