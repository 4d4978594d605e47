"""A network with its input normalisation inside: raw values go in wherever the model goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets import MAPS, NETWORKS, default_network, kept
from fedloom.nets.heads import Head, HeadChoice, check_taken, head_of_network, takes_head
from fedloom.rng import key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedloom.types import Json, Task, Tensors

Net = TypeVar("Net", bound=nn.Module)

NOT_BUILT = (
    TypeError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,
)  # what torch raises for odd sizes
MOST_WEIGHTS = 1 << 32  # of a network: 16 GB


class Model(nn.Module):
    """(x − mean) / std, then the network.

    The constants are not weights: they are never sent or averaged. Without constants, as for text,
    the input goes through as it is.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        for name, values in constants(mean, std).items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, x: torch.Tensor, *choice: Any) -> torch.Tensor:
        scores: torch.Tensor = self.net(self.normalised(x), *choice)
        return scores

    def normalised(self, x: torch.Tensor) -> torch.Tensor:
        if not self.mean.numel():
            return x
        return (x.to(self.mean.dtype) - self.mean) / self.std

    @property
    def architecture(self) -> Json:
        return getattr(self.net, "architecture", type(self.net).__name__)

    @property
    def head(self) -> Head | None:
        """None: the network has no choice of one."""
        return head_of_network(self.net)


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
        return new_model(task, name, width, mean, std, head)

    model = kept.network(key, build, weights, constants(mean, std))
    assert isinstance(model, Model)
    return model


def may_be_filled_again(network: str) -> bool:
    """Ours keep nothing but their tensors; one from outside says so: `refillable = True`."""
    if network in NETWORKS.builtin or network.partition(":")[0] in NETWORKS.families:
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
    return Model(laid_out(net, task.kind), mean, std)


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


def laid_out(net: Net, kind: str) -> Net:
    """The memory format that every network here computes in, decided in this one place.

    Convolutions over maps are up to 1.6 times as fast with the channels last, grey images of 8×8
    pixels included (bench/bench_layout.py measures it). Text has no maps.
    """
    if kind in MAPS:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs do not know it
    return net


def constants(mean: Sequence[float], std: Sequence[float]) -> dict[str, torch.Tensor]:
    """Of a model's input, a number a channel, as its buffers hold them."""
    return {
        "mean": torch.tensor(mean).view(1, -1, 1, 1),
        "std": torch.tensor(std).view(1, -1, 1, 1),
    }


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


def check_kind(what: str, kind: str, kinds: Sequence[str], advice: str) -> None:
    """Refuses what is made for another kind of data."""
    if kind not in kinds:
        raise FedloomError(
            f"{what} must be for {kind} data", f"it is for {' and '.join(kinds)}", advice
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's own initialisers draw from the global generator: give them a named draw."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            seed
        )  # the CPU's alone; torch.manual_seed would reach every device's
        yield
