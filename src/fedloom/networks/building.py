"""Builds the model for a task and the name of a network."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets import MAPS, reuse
from fedloom.nets.heads import HeadChoice, check_taken, takes_head
from fedloom.nets.model import MOST_WEIGHTS, Model, check_kind, constants, laid_out, seeded
from fedloom.networks import NETWORKS, default_network, network_for
from fedloom.registry import SPACE
from fedloom.rng import key
from fedloom.types import Task, Tensors

# The exceptions that torch raises for unsuitable sizes.
NOT_BUILT = (
    TypeError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,
)


def build_model(
    task: Task,
    network: str | None,
    width: float,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    weights: Tensors | None = None,
    head: HeadChoice = "auto",
) -> Model:
    """Returns the network with these weights, or else with weights initialised from the seed.

    The seed gives the server and every client the same weights. If `network` is None, it is the
    default network for the kind of data.
    """
    name = network or default_network(task.kind)
    mean = mean or task.mean
    std = std or task.std
    key: tuple[Hashable, ...] | None = None
    if is_refillable(name):
        key = ("fixed", name, width, head, task.kind, task.shape, len(task.labels))
        if name.startswith(SPACE):
            key = (*key, task.seed)  # another seed draws another network

    def build() -> Model:
        model = new_model(task, name, width, mean, std, head)
        if NETWORKS.is_built_in(name):
            model.same_cost = key
        return model

    model = reuse.network(key, build, weights, constants(mean, std, task.kind))
    assert isinstance(model, Model)
    return model


def is_refillable(network: str) -> bool:
    """Whether a network holds no state besides its tensors, so that it can be reused.

    Built-in networks can. Another network declares it with `refillable = True`.
    """
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
    build = network_of_kind(network, task)
    with seeded(key(task.seed, "init")):
        try:
            net = build_network(build, network, task, width, head)
        except NOT_BUILT as error:
            raise not_built(network, width, task.shape, error) from error
    if not isinstance(net, nn.Module):
        rule = f"network {network} must return a torch module"
        raise FedloomError(rule, f"it returned {type(net).__name__}", "return one")
    return Model(laid_out(net, task.kind), mean, std, task.kind)


def network_of_kind(network: str, task: Task) -> Callable[..., object]:
    """Returns the registered network of this name, if it is for the task's kind of data."""
    build: Callable[..., object] = network_for(network, task.seed)
    advice = f"leave it out, which means {default_network(task.kind)}, "
    advice += f"or set kinds = ({task.kind!r},) in your network"
    check_kind(f"network {network}", task.kind, getattr(build, "kinds", MAPS), advice)
    return build


def build_network(
    build: Callable[..., object], name: str, task: Task, width: float, head: HeadChoice
) -> object:
    """Builds a registered network for a task. Only a network that ends in a map gets a head."""
    check_taken(name, build, head)
    if takes_head(build):
        return build(task.shape, len(task.labels), width, head=head)
    return build(task.shape, len(task.labels), width)


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
    """Refuses a network that is too large for memory, before any of it is allocated."""
    name = network or default_network(task.kind)
    build = network_of_kind(name, task)
    try:
        with seeded(0), torch.device("meta"):  # only the sizes are needed
            net = build(task.shape, len(task.labels), width)
    except NOT_BUILT:  # reported when it is really built; it may fail only on the meta device
        return
    weights = 0
    if isinstance(net, nn.Module):
        weights = sum(parameter.numel() for parameter in net.parameters())
    if weights > MOST_WEIGHTS:
        rule = f"a network must have at most {MOST_WEIGHTS:,} weights"
        problem = f"{name} of width {width:g} has {weights:,}"
        raise FedloomError(rule, problem, "choose another network or width")
