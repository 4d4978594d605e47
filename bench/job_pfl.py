"""The simple job on pfl-research: its FederatedAveraging on its simulated backend, in one process.

    job_pfl.py IMAGES LAYOUT    LAYOUT: default, or channels_last, which a user must know about

pfl averages only parameters with gradients. BN statistics would pass from client to client and
never be averaged; here they are among the variables of its model, so that the work is the same.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional

import job


class Network(nn.Module):
    """The job's network with the two methods that pfl asks a network for."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.net = job.network()
        if layout == "channels_last":
            job.channels_last(self.net)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.train()
        return functional.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        self.eval()
        loss = functional.cross_entropy(self.net(x), y, reduction="sum")
        return {"loss": Weighted(loss.item(), len(y))}

    def statistics(self) -> dict[str, torch.Tensor]:
        """The statistics of BN, which are averaged in addition to the parameters."""
        statistics = {}
        for name, tensor in self.state_dict(keep_vars=True).items():
            if name.endswith(("running_mean", "running_var")):
                statistics[name] = tensor
        return statistics


class AveragingModel(PyTorchModel):  # type: ignore[misc]  # pfl has no types here
    """A model whose BN statistics are sent and averaged like its parameters."""

    def __init__(self, network: Network) -> None:
        averaged = [*network.parameters(), *network.statistics().values()]
        super().__init__(
            network,
            local_optimizer_create=partial(
                torch.optim.SGD, momentum=job.MOMENTUM, weight_decay=job.WEIGHT_DECAY
            ),
            central_optimizer=torch.optim.SGD(averaged, lr=1.0),  # takes the mean as it is
        )
        self._variable_map |= network.statistics()


class Conducted(TrainingProcessCallback):  # type: ignore[misc]  # pfl has no types here
    """Waits for the next rounds when pfl reports the end of one."""

    def __init__(self, conductor: job.Conductor) -> None:
        self.conductor = conductor

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        self.conductor.after_round()
        return False, Metrics()


def main(images: job.Images, layout: str) -> None:
    torch.set_num_threads(1)

    def data_of(client: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset(images.of_client(client), user_id=str(client))

    clients = list(range(job.CLIENTS))
    data = FederatedDataset(data_of, get_user_sampler("minimize_reuse", clients))
    conductor = job.Conductor()
    conductor.before_first_round()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**6,
            train_cohort_size=job.COHORT,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=AveragingModel(Network(layout)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=job.BATCH,
            local_num_epochs=1,
            local_learning_rate=job.LR,
            local_max_grad_norm=job.CLIP,
        ),
        callbacks=[Conducted(conductor)],
    )


if __name__ == "__main__":
    with suppress(job.Finished):
        main(job.Images(Path(sys.argv[1])), sys.argv[2])
