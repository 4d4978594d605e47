"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", 2020 (option II).

The server and every client keep a control variate: a tensor for each parameter that estimates the
mean gradient of all clients, and of this client. Their difference corrects every local step.
"""

from dataclasses import dataclass

import torch
from pydantic import Field

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method, Recipe, Stage
from fedloom.learning.training import TrainingOptions, model, train, weights_of
from fedloom.types import Fields, Order, Reply, State

CONTROL = "control/"


class ScaffoldOptions(TrainingOptions):
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of the clients' SGD")
    server_lr: float = Field(1.0, gt=0, le=10, description="how far the server moves to the mean")


@dataclass(frozen=True)
class Scaffold(Method):
    options: ScaffoldOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}

    def init(self, setup, previous):
        net = model(setup.task, self.options)
        tensors = weights_of(net)
        for name, parameter in net.named_parameters():
            tensors[CONTROL + name] = torch.zeros_like(parameter.detach())
        return State(tensors)

    def plan(self, state, r):
        meta = {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "train", state.tensors, meta) for client in r.cohort()]

    def client(self, order, data, own, run):
        net = self.network(order, data, own, run)
        server_control = controls_in(order.tensors)
        own_control = own.tensors if own else zeros_like(server_control)
        steps = 0

        def correct(net):
            nonlocal steps
            steps += 1
            for name, parameter in net.named_parameters():
                correction = server_control[name] - own_control[name]
                parameter.grad += correction.to(parameter.grad.device)

        lr = order.meta["lr"]
        trained = train(net, data, self.options, lr, run, after_backward=correct)
        weights = weights_of(net)
        new_control = {}
        sent_control = {}
        for name, old in own_control.items():
            moved = (order.tensors[name] - weights[name]) / (steps * lr)
            new_control[name] = old - server_control[name] + moved
            # The server's value as this client would change it, so that a mean makes sense.
            sent_control[CONTROL + name] = server_control[name] + new_control[name] - old
        tensors = {**weights, **sent_control}
        reply = Reply(order.client, tensors, len(data), {"loss": trained.loss})
        return reply, State(new_control)

    def merge(self, state, orders, replies, r):
        mean = aggregate(state.tensors, replies, orders)
        counted = [reply for reply in replies if reply.weight > 0]
        share = len(counted) / len(r.clients)
        tensors = dict(mean)  # integers are counters of batch normalisation
        for name, old in state.tensors.items():
            if name.startswith(CONTROL):
                tensors[name] = old + share * (mean[name] - old)
            elif old.is_floating_point():
                tensors[name] = old + self.options.server_lr * (mean[name] - old)
        return State(tensors, state.meta)

    def network(self, order, data, own, run):
        return model(run.task, self.options, order.tensors)


def controls_in(tensors):
    """The control variate among these tensors, by the names of the network's parameters."""
    controls = {}
    for name, tensor in tensors.items():
        if name.startswith(CONTROL):
            controls[name.removeprefix(CONTROL)] = tensor
    return controls


def zeros_like(tensors):
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def stages(task):
    return (Stage("train", Scaffold(ScaffoldOptions(**task.options))),)


summary = "SCAFFOLD (Karimireddy et al. 2020): control variates against client drift"
scaffold = Recipe(summary, ScaffoldOptions, stages)
