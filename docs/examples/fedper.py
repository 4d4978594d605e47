"""FedPer: Arivazhagan et al., "Federated Learning with Personalization Layers", 2019.

All layers except the classifier are averaged; each client keeps its own classifier.
"""

from dataclasses import dataclass

from fedloom.federation.protocol.method import Method, Recipe, Stage
from fedloom.learning.training import TrainingOptions, model, train, weights_of
from fedloom.types import Fields, Order, Reply, State

HEAD = "net.classifier."


def base(weights):
    return {name: tensor for name, tensor in weights.items() if not name.startswith(HEAD)}


def head(weights):
    return {name: tensor for name, tensor in weights.items() if name.startswith(HEAD)}


@dataclass(frozen=True)
class FedPer(Method):
    options: TrainingOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",))}  # what may leave a client

    def init(self, setup, previous):
        return State(base(weights_of(model(setup.task, self.options))))

    def plan(self, state, r):
        meta = {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", state.tensors, meta) for client in r.cohort()]

    def client(self, order, data, own, run):
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run)
        weights = weights_of(net)
        return Reply(order.client, base(weights), len(data), {"loss": trained.loss}), State(
            head(weights)
        )

    def network(self, order, data, own, run):
        net = model(run.task, self.options)  # a client without a classifier starts from the seed's
        net.load_state_dict({**order.tensors, **(own.tensors if own else {})}, strict=False)
        return net


def stages(task):
    return (Stage("train", FedPer(TrainingOptions(**task.options))),)


fedper = Recipe(
    "FedPer (Arivazhagan et al. 2019): shared layers, a private classifier", TrainingOptions, stages
)
