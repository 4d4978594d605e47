"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020, Algorithm 2.

It is FedAvg with clients that minimise F_k(w) + μ/2·‖w − wᵗ‖², which pulls w towards the received
weights wᵗ.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage
from fedloom.learning.averaging import received_statistics
from fedloom.learning.proximal import pull_towards
from fedloom.learning.training import train, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Fields, Order, Reply, State, Task


class FedProxOptions(FedAvgOptions):
    mu: float = Field(0.01, ge=0, description="strength of the pull; 0 is FedAvg")


@dataclass(frozen=True)
class FedProx(FedAvg):
    options: FedProxOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        pull = pull_towards(order.tensors, self.options.mu)
        with received_statistics(net, data, self.options, run):
            trained = train(net, data, self.options, order.meta["lr"], run, after_backward=pull)
        return Reply(order.client, weights_of(net), len(data), {"loss": trained.loss}), None


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", FedProx(FedProxOptions(**task.options))),)


fedprox = Recipe(
    "FedProx (Li et al. 2020): FedAvg with a pull towards the received weights",
    FedProxOptions,
    stages,
    supports_regression=True,
    has_macs_formula=True,
)
