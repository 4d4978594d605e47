"""What a client's own architecture is worth to it: SPIDER (Mushtaq et al. 2023), §5.2.2 and Eq. 6.

p_ij is the figure of client j's network after fine-tuning on client i's data, on client i's test part, p_ii included;
it is the last epoch's. g_i is by how much client i's own network is ahead of the others', on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from fedloom.data.samples import ClientData
from fedloom.federation.client.site import score
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import SgdOptions, cosine, train
from fedloom.metrics.metric import metric_of
from fedloom.nets.model import seeded
from fedloom.rng import key
from fedloom.types import Json, Task

Start = Literal["inherit", "fresh"]
Figures = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class FineTuning:
    """How p_ij is measured; the learning rate falls as a cosine from `lr` to 0."""

    epochs: int = 30
    start: Start = "inherit"  # from client j's weights, or from weights drawn anew, which compares architectures alone
    lr: float = 0.025

    def to_json(self) -> dict[str, Json]:
        return {"epochs": self.epochs, "start": self.start, "lr": self.lr}


def fine_tuned(net: nn.Module, data: ClientData, task: Task, how: FineTuning, client: int, device: str) -> float | None:
    """p_ij: `net` is client j's, everything else client i's. For every j the draws are the same."""
    if how.start == "fresh":
        with seeded(key(task.seed, "gain")):
            for part in net.modules():
                again: Any = getattr(part, "reset_parameters", None)
                if again is not None:
                    again()
    options = sgd_of(task.options)
    momentum: dict[str, Any] = {}
    for epoch in range(how.epochs):
        run = ClientRun(task, "gain", epoch, 0, client, device, bytes)
        rate = cosine(how.lr, epoch, how.epochs)
        momentum = train(net, data.train, options, rate, run, momentum=momentum).momentum
    figure: float | None = score(net.to(device).eval(), data.test, task, device)[metric_of(task.kind).name]
    return figure


def sgd_of(options: Json) -> SgdOptions:
    """The run's own settings of local SGD, as far as its method has them; one epoch at a time."""
    return SgdOptions(
        **{name: value for name, value in options.items() if name in SgdOptions.model_fields} | {"epochs": 1}
    )


def gains(matrix: Figures, *, lower_is_better: bool = False) -> list[float | None]:
    """Eq. 6: g_i, the mean of p_ii − p_ij over the others; None where a figure is missing."""
    sign, found = -1.0 if lower_is_better else 1.0, list[float | None]()
    for i, row in enumerate(matrix):
        own, others = row[i], [value for j, value in enumerate(row) if j != i]
        known = [value for value in others if value is not None]
        if own is None or not known or len(known) < len(others):
            found.append(None)
        else:
            found.append(sign * sum(own - value for value in known) / len(known))
    return found


def mean_gain(found: Sequence[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None
