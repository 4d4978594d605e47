"""FedAvg of one fixed network in plain torch, and runs of searches to compare with it."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional

from fedloom.learning.training import cosine
from fedloom.spaces.mixed import model_of_space, plain
from fedloom.stages.group_options import GroupOptions
from fedloom.testing import Toy, Trace
from fedloom.testing.watch import ServerLog
from fedloom.types import Arch, Order, State, Tensors

# There are full batches, so that random draws do not matter, and more than one step, so that
# momentum and BN do. The BN statistics are those of training, as a plain loop leaves them.
EXACT = {
    "nodes": 1,
    "stack": 1,
    "batch": 10_000,
    "clip": 1e9,
    "pretrain": 0,
    "lambda1": 3,
    "lambda2": 1,
    "bn": "averaged",
}
SEARCH_ROUNDS = 2  # of the 4 of a toy: half of the budget


def whole_cohort(method: str, **options) -> Toy:
    return replace(Toy.of(method, {**EXACT, **options}), participation=1.0)


@dataclass(frozen=True)
class SearchRound:
    orders: tuple[Order, ...]
    after: State  # the merge


def searched(toy: Toy, folder: Path) -> tuple[Trace, list[SearchRound]]:
    """A whole run, and the rounds of its search."""
    log = ServerLog()
    trace = toy.run(folder, server=log.watch)
    rounds = []
    for merge in log.merges[:SEARCH_ROUNDS]:
        after = merge.method.merge(merge.state, merge.orders, merge.replies, merge.round)
        rounds.append(SearchRound(merge.orders, after))
    return trace, rounds


def fedavg_round(
    toy: Toy, options: GroupOptions, arch: Arch, weights: Tensors, number: int
) -> dict[str, torch.Tensor]:
    """The mean by samples of the clients' networks after round `number` of the search."""
    totals: dict[str, torch.Tensor] = {}
    samples = 0
    lr = cosine(options.lr, (number - 1) / SEARCH_ROUNDS)
    for client in toy.data:
        model = model_of_space(
            toy.task, options.group_space, options.searched_size, arch=arch, weights=weights
        )
        net = plain(model).train()
        part, _ = client.train.split(options.train_share)
        optimizer = torch.optim.SGD(
            net.parameters(), lr, momentum=options.momentum, weight_decay=options.weight_decay
        )  # fmt: skip
        for _ in range(options.lambda1 * options.lambda2):
            optimizer.zero_grad()
            functional.cross_entropy(net(part.x), part.y).backward()
            optimizer.step()
        for name, tensor in net.state_dict().items():
            totals[name] = totals.get(name, 0) + len(part) * tensor.double()
        samples += len(part)
    return {name: total / samples for name, total in totals.items()}


def check_close(tensors: Tensors, wanted: Tensors) -> None:
    """To 1e-5: several steps in float32, and the sums of convolutions differ between CPUs."""
    for name, tensor in wanted.items():
        gap = (tensors[name].double() - tensor).abs().max()
        assert gap <= 1e-5, f"{name}: {gap}"


def check_same_bits_but(tensors: Tensors, before: Tensors, changed) -> None:
    unchanged = [name for name in before if name not in changed]
    assert unchanged
    for name in unchanged:
        assert torch.equal(tensors[name], before[name]), name
