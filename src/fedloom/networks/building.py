"""The model that a task and a network's name stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets import MAPS, kept
from fedloom.nets.heads import HeadChoice, check_taken, takes_head
from fedloom.nets.model import MOST_WEIGHTS, Model, check_kind, constants, laid_out, seeded
from fedloom.networks import NETWORKS, default_network
from fedloom.rng import key
from fedloom.types import Task, Tensors

NOT_BUILT = (
    TypeError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,
)  # what torch raises for odd sizes


def build_model(
    task: Task,
    network: str | None,
    width: float,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    weights: Tensors | None = None,
    head: HeadChoice = "auto",
) -> Model:
    """The network with these weights, or as the seed makes it.

    The seed makes the same for the server and every client. `network` None: the usual network of
    this kind of data.
    """
    name = network or default_network(task.kind)
    mean = mean or task.mean
    std = std or task.std
    key = None
    if may_be_filled_again(name):
        key = ("fixed", name, width, head, task.kind, task.shape, len(task.labels))

    def build() -> Model:
        model = new_model(task, name, width, mean, std, head)
        if NETWORKS.is_built_in(name):
            model.same_cost = key
        return model

    model = kept.network(key, build, weights, constants(mean, std, task.kind))
    assert isinstance(model, Model)
    return model


def may_be_filled_again(network: str) -> bool:
    """Ours keep nothing but their tensors; one from outside says so: `refillable = True`."""
    if NETWORKS.is_built_in(network):
        return True
    return bool(getattr(NETWORKS.get(network), "refillable", False))


def new_model(
    task: Task,
    network: str,
    width: float,
    mean: Sequence[float],
    std: Sequence[float],
    head: HeadChoice = "auto",
) -> Model:
    make = NETWORKS.get(network)
    advice = f"leave it out, which means {default_network(task.kind)}, "
    advice += f"or say in yours kinds = ({task.kind!r},)"
    check_kind(f"network {network}", task.kind, getattr(make, "kinds", MAPS), advice)
    with seeded(key(task.seed, "init")):
        try:
            net = called(make, network, task, width, head)
        except NOT_BUILT as error:
            raise not_built(network, width, task.shape, error) from error
    if not isinstance(net, nn.Module):
        rule = f"network {network} must make a torch module"
        raise FedloomError(rule, f"it made {type(net).__name__}", "return one")
    return Model(laid_out(net, task.kind), mean, std, task.kind)


def called(
    make: Callable[..., object], name: str, task: Task, width: float, head: HeadChoice
) -> object:
    """What a registered network makes for a task. Only one that ends in a map is told of a head."""
    check_taken(name, make, head)
    if takes_head(make):
        return make(task.shape, len(task.labels), width, head=head)
    return make(task.shape, len(task.labels), width)


def not_built(
    network: str, width: float, shape: Sequence[int], error: BaseException
) -> FedloomError:
    first_line = ""
    if str(error):
        first_line = str(error).splitlines()[0]
    return FedloomError(
        f"network {network} of width {width:g} must be possible for samples of shape {list(shape)}",
        f"it raised {type(error).__name__}: {first_line}",
        "choose another network or width",
    )


def check_weights(task: Task, network: str | None, width: float) -> None:
    """Refuses a network that no memory holds, before any of it is allocated."""
    name = network or default_network(task.kind)
    try:
        with seeded(0), torch.device("meta"):  # sizes alone
            net = NETWORKS.get(name)(task.shape, len(task.labels), width)
    except NOT_BUILT:  # said when it is built in earnest; one from outside may not know of devices
        return
    weights = 0
    if isinstance(net, nn.Module):
        weights = sum(parameter.numel() for parameter in net.parameters())
    if weights > MOST_WEIGHTS:
        rule = f"a network must have at most {MOST_WEIGHTS:,} weights"
        found = f"{name} of width {width:g} has {weights:,}"
        raise FedloomError(rule, found, "choose another network or width")
