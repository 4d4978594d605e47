"""What a client's own architecture is worth to it: SPIDER (Mushtaq et al. 2023), §5.2.2 and Eq. 6.

Client j's network is fine-tuned on client i's data, for every i and j, i = j included. p_ij is then
its figure on client i's test part after the last epoch. g_i is by how much client i's own network
is ahead of the other clients' networks, on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedloom.data.samples import ClientData
from fedloom.evaluate.summary import without_none
from fedloom.federation.client.site import figures_on
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import RECEIVED, SgdOptions, cosine, train
from fedloom.metrics.figures import Figures
from fedloom.nets.model import seeded
from fedloom.records.gain import Start
from fedloom.rng import key
from fedloom.types import Json, Task

Matrix = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class FineTuning:
    """How p_ij is measured. The learning rate falls along a cosine from `lr` to 0."""

    epochs: int = 30
    # "inherit": start from client j's weights. "fresh": start from newly drawn weights, which
    # compares the architectures alone.
    start: Start = "inherit"
    lr: float = 0.025


def fine_tuned(
    net: nn.Module,
    data: ClientData,
    task: Task,
    how: FineTuning,
    client: int,
    device: str,
) -> Figures:
    """Returns p_ij and the figures beside it. `net` is client j's, everything else is client i's.

    The random draws are the same for every j.
    """
    if how.start == "fresh":
        with seeded(key(task.seed, "gain")):
            draw_weights(net)
    options = sgd_of(task.options)
    momentum: dict[str, Any] = {}
    for epoch in range(how.epochs):
        run = ClientRun(task, "gain", epoch, 0, client, device, bytes)
        rate = cosine(how.lr, epoch, how.epochs)
        momentum = train(net, data.train, options, rate, run, momentum=momentum).momentum
    return figures_on(net.to(device).eval(), data.test, task, device)


def draw_weights(net: nn.Module) -> None:
    """Draws new weights for every module that has weights."""
    for module in net.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()


def sgd_of(options: Json) -> SgdOptions:
    """Returns the run's settings of local SGD, as far as its method has them, for one epoch."""
    settings = {}
    for name, value in options.items():
        if name in SgdOptions.model_fields:
            settings[name] = value
    if settings.get("bn") == RECEIVED:
        settings["bn"] = "averaged"  # here no server averages the statistics
    settings["epochs"] = 1
    return SgdOptions(**settings)


def gains(matrix: Matrix, *, lower_is_better: bool = False) -> list[float | None]:
    """Eq. 6: g_i is the mean of p_ii − p_ij over the others. It is None if a figure is missing."""
    sign = 1.0
    if lower_is_better:
        sign = -1.0
    gains_of_clients = []
    for i, row in enumerate(matrix):
        of_other_networks = [*row[:i], *row[i + 1 :]]
        gains_of_clients.append(gain(row[i], of_other_networks, sign))
    return gains_of_clients


def gain(
    own: float | None,
    of_other_networks: Sequence[float | None],
    sign: float,
) -> float | None:
    """Returns g_i of one client: p_ii is `own`, p_ij are the figures of the others' networks."""
    figures = without_none(of_other_networks)
    if own is None or not figures or len(figures) < len(of_other_networks):
        return None
    return sign * sum(own - figure for figure in figures) / len(figures)


def mean_gain(values: Sequence[float | None]) -> float | None:
    """Returns the mean over the clients whose gain is known, or None if no gain is."""
    known_gains = without_none(values)
    if not known_gains:
        return None
    return sum(known_gains) / len(known_gains)
