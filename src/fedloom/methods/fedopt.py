"""FedAdam, FedYogi, FedAdagrad: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan,
"Adaptive Federated Optimization", ICLR 2021, Algorithm 2.

They are FedAvg with a server that takes an adaptive step along the clients' mean change. The paper
tunes the server's step size η; our default is a starting point, not the paper's
(docs/decisions/0008-baselines.md).
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.learning.server_optimizers import Rule
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Task


class FedAdamOptions(FedAvgOptions):
    server_optimizer: Rule = Field(
        "adam",
        description="how the server uses the mean of the replies",
    )
    server_lr: float = Field(0.01, gt=0, description="step of the server optimiser")


class FedYogiOptions(FedAdamOptions):
    server_optimizer: Rule = Field(
        "yogi",
        description="how the server uses the mean of the replies",
    )


class FedAdagradOptions(FedAdamOptions):
    server_optimizer: Rule = Field(
        "adagrad",
        description="how the server uses the mean of the replies",
    )
    beta1: float = Field(0.0, ge=0, lt=1, description="its first-moment decay")


def stages_of(options: type[FedAvgOptions]) -> Callable[[Task], tuple[Stage, ...]]:
    return lambda task: (Stage("train", FedAvg(options(**task.options))),)


fedadam = Recipe(
    "FedAdam (Reddi et al. 2021): FedAvg with Adam on the server",
    FedAdamOptions,
    stages_of(FedAdamOptions),
    supports_regression=True,
    has_macs_formula=True,
)
fedyogi = Recipe(
    "FedYogi (Reddi et al. 2021): FedAvg with Yogi on the server",
    FedYogiOptions,
    stages_of(FedYogiOptions),
    supports_regression=True,
    has_macs_formula=True,
)
fedadagrad = Recipe(
    "FedAdagrad (Reddi et al. 2021): FedAvg with Adagrad on the server",
    FedAdagradOptions,
    stages_of(FedAdagradOptions),
    supports_regression=True,
    has_macs_formula=True,
)
