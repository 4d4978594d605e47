"""kNN-Per: Marfoq, Neglia, Vidal, Kameni, "Personalized Federated Learning through Local
Memorization", ICML 2022.

FedAvg trains a shared network h_S. Each client remembers this network's features of its own
samples, the input φ(x) of the last layer. It predicts λ_k·h_kNN(x) + (1 − λ_k)·h_S(x), where the k
nearest remembered samples vote for their class with weights exp(−d/σ). λ_k is the value that is
best on the client's validation part: the last 1 − `train_share` of its samples, on which the
network has not been trained. Then these samples are remembered too.

λ_k is chosen in a last round, which is beyond the budget, but its costs are counted. Memory,
neighbours and λ_k never leave the client. The network that is counted and exported is the shared
one: the remembered samples are needed in addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Predictor, Recipe, Stage
from fedloom.learning.averaging import received_statistics
from fedloom.learning.personal import Once
from fedloom.learning.training import model, train, weights_of
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.head import head_of
from fedloom.nets.model import Model
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Task

SHARES = tuple(step / 10 for step in range(11))  # the values of λ that are tried
AT_ONCE = 256  # samples that go through the network together
LEAST = 1e-12  # the smallest probability that a logarithm is taken of


class KnnPerOptions(FedAvgOptions):
    neighbours: int = Field(10, ge=1, description="k: how many remembered samples vote")
    scale: float = Field(1.0, gt=0, description="σ of the weights exp(−d/σ)")
    train_share: float = Field(
        0.8,
        ge=0.05,
        le=0.95,
        description="share of a client's data for w; the rest is for λ",
    )

    @property
    def least_samples(self) -> int:
        """A client needs two samples to train on and one to choose λ by."""
        samples = 3
        while True:
            for_training = round(self.train_share * samples)
            if for_training >= 2 and samples > for_training:
                return samples
            samples += 1


@dataclass(frozen=True)
class Shared(FedAvg):
    """The first stage: FedAvg on the data without the part that λ is chosen by."""

    options: KnnPerOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def init(self, setup: Setup, previous: State | None) -> State:
        head_of(model(setup.task, self.options))  # raises if the network has no last layer
        return super().init(setup, previous)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        net = self.network(order, data, own, run)
        part = data.split(self.options.train_share)[0]
        with received_statistics(net, part, self.options, run):
            trained = train(net, part, self.options, order.meta["lr"], run)
        return Reply(order.client, weights_of(net), len(part), {"loss": trained.loss}), None


@dataclass(frozen=True)
class Memorise(Once):
    """The second stage: every client chooses its λ_k."""

    options: KnnPerOptions

    def rate(self, r: Round) -> float:
        return 0.0  # nothing is trained

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        outputs = NetworkOutputs.of(self._ready(order, data, run), data.x)
        labels = data.y.numpy()
        cut = len(data.split(self.options.train_share)[0])
        near = votes(
            outputs.features[:cut],
            labels[:cut],
            outputs.features[cut:],
            len(run.task.labels),
            self.options,
        )
        return State({}, {"lam": best_share(near, outputs.probabilities[cut:], labels[cut:])})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return model(run.task, self.options, order.tensors)

    def _ready(self, order: Order, data: Samples, run: ClientRun) -> Model:
        return self.network(order, data, None, run).to(run.device).eval()

    def predictor(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> Predictor:
        """Returns log-probabilities of the mixture. Without λ, a client uses the shared network."""
        net = self._ready(order, data, run)
        if own is None:
            return net
        lam = own.meta["lam"]
        memory = NetworkOutputs.of(net, data.x).features
        labels = data.y.numpy()

        def predict(x: torch.Tensor) -> torch.Tensor:
            outputs = NetworkOutputs.of(net, x)
            near = votes(memory, labels, outputs.features, len(run.task.labels), self.options)
            return torch.tensor(log_of(mixture(lam, near, outputs.probabilities)))

        return predict


@dataclass(frozen=True)
class NetworkOutputs:
    """The shared network's features and predictions of samples."""

    features: np.ndarray  # φ(x), [n, d]
    probabilities: np.ndarray  # h_S(x), [n, classes]

    @classmethod
    @torch.no_grad()
    def of(cls, net: Model, x: torch.Tensor) -> NetworkOutputs:
        features: list[torch.Tensor] = []
        probabilities: list[torch.Tensor] = []

        def keep_input(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            features.append(inputs[0].flatten(1).cpu())

        hook = net.get_submodule(head_of(net)).register_forward_pre_hook(keep_input)
        try:
            device = next(net.parameters()).device
            for part in x.split(AT_ONCE):
                probabilities.append(net(part.to(device)).double().softmax(1).cpu())
        finally:
            hook.remove()
        return cls(torch.cat(features).double().numpy(), torch.cat(probabilities).numpy())


def votes(
    memory: np.ndarray,
    labels: np.ndarray,
    features: np.ndarray,
    classes: int,
    options: KnnPerOptions,
) -> np.ndarray:
    """Returns h_kNN: the share of each class among the k nearest, weighted by exp(−d/σ)."""
    from sklearn.neighbors import NearestNeighbors  # late: it takes a second to import
    from threadpoolctl import threadpool_limits

    count = min(options.neighbours, len(memory))
    with threadpool_limits(1):  # the last bits of a distance depend on the number of threads
        nearest = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(memory)
        distances, chosen = nearest.kneighbors(features)
    beyond_nearest = distances - distances[:, :1]  # a common factor, so that no weight vanishes
    weights = np.exp(-beyond_nearest / options.scale)
    columns = []
    for label in range(classes):
        columns.append((weights * (labels[chosen] == label)).sum(1))
    return np.asarray(np.stack(columns, 1) / weights.sum(1, keepdims=True))


def mixture(lam: float, near: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Returns λ·h_kNN(x) + (1 − λ)·h_S(x)."""
    return lam * near + (1 - lam) * shared


def log_of(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.maximum(probabilities, LEAST)))


def best_share(
    near: np.ndarray,
    probabilities: np.ndarray,
    labels: np.ndarray,
    shares: Sequence[float] = SHARES,
) -> float:
    """Returns the λ with the highest accuracy; of equals the likelier, then the smaller."""

    def worth(lam: float) -> tuple[float, float]:
        mixed = mixture(lam, near, probabilities)
        accuracy = (mixed.argmax(1) == labels).mean()
        likelihood = log_of(mixed[np.arange(len(labels)), labels]).mean()
        return float(accuracy), float(likelihood)

    return max(shares, key=worth)


def stages(task: Task) -> tuple[Stage, ...]:
    options = KnnPerOptions(**task.options)
    train_shared = Stage("train", Shared(options))
    return train_shared, Stage("memorise", Memorise(options), share=None)


knn_per = Recipe(
    "kNN-Per (Marfoq et al. 2022): FedAvg, mixed with each client's nearest neighbours",
    KnnPerOptions,
    stages,
)
