"""Methods that each break one promise."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import ConfigDict
from torch import nn

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.methods.local import Local, LocalOptions
from fedloom.nets import reuse
from fedloom.types import Fields, State


def recipe_of(method, options=FedAvgOptions) -> Recipe:
    return Recipe(
        "faulty", options, lambda task: (Stage("train", method(options(**task.options))),)
    )


def shifted(reply, by: float):
    tensors = {
        name: tensor + by if tensor.is_floating_point() else tensor
        for name, tensor in reply.tensors.items()
    }
    return replace(reply, tensors=tensors)


class Noisy(FedAvg):
    """Adds noise from a generator that has no name."""

    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        return shifted(reply, np.random.normal()), own


class Racing(FedAvg):
    """Its clients know which of three was asked first, from a memory beside their states."""

    asked = 0

    def client(self, order, data, own, run):
        Racing.asked += 1
        reply, own = super().client(order, data, own, run)
        return shifted(reply, Racing.asked % 3 / 1024), own


class Remembering(FedAvg):
    """Its server remembers, beside its state, how many rounds there were."""

    def merge(self, state, orders, replies, r):
        object.__setattr__(self, "rounds", getattr(self, "rounds", 0) + 1)
        state = super().merge(state, orders, replies, r)
        return State(
            {
                **state.tensors,
                "net.classifier.bias": state.tensors["net.classifier.bias"] + self.rounds,
            },
            state.meta,
        )


class Whispering(FedAvg):
    """Its server leaves something for the clients in a place that only one process shares."""

    told = {}

    def plan(self, state, r):
        self.told["round"] = r.number
        return super().plan(state, r)

    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        return shifted(reply, self.told["round"] / 1024), own


class Shouting(FedAvg):
    """Its server leaves something for the clients in a new global."""

    def plan(self, state, r):
        global shouted
        shouted = r.number
        return super().plan(state, r)


class Undeclared(FedAvg):
    """All its replies are refused."""

    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        return replace(reply, meta={**reply.meta, "secret": 1}), own


class Drawing(FedAvg):
    """Plans with the global generators."""

    def plan(self, state, r):
        random.random(), np.random.random(), torch.rand(1)
        return super().plan(state, r)


class Summing(FedAvg):
    """Divides by the number of samples everybody has, whoever replied."""

    def merge(self, state, orders, replies, r):
        mean = aggregate(state.tensors, replies, orders)
        share = sum(reply.weight for reply in replies) / 26
        tensors = {
            name: mean[name] * share if mean[name].is_floating_point() else mean[name]
            for name in mean
        }
        return State(tensors, state.meta)


class Equal(FedAvg):
    """Counts everybody the same, even who has no samples."""

    def merge(self, state, orders, replies, r):
        return super().merge(state, orders, [replace(reply, weight=1.0) for reply in replies], r)


class Talkative(FedAvg):
    """One of its clients replies with a field that it did not declare."""

    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        if order.client != 1:
            return reply, own
        return replace(reply, meta={**reply.meta, "labels": data.y.tolist()}), own


@dataclass(frozen=True)
class Leaking(Local):
    """Says of its sealed state how large it is."""

    fields = {"train": Fields(meta=("size",))}

    def client(self, order, data, own, run):
        reply, new = super().client(order, data, own, run)
        size = sum(tensor.double().square().sum().item() for tensor in new.tensors.values())
        return replace(reply, meta={"size": round(size, 3)}), new


class Loose(FedAvgOptions):
    model_config = ConfigDict(frozen=False)


class Tuning(FedAvg):
    """Takes an option that does not survive JSON as it was."""

    def __init__(self, options):
        super().__init__(options)
        object.__setattr__(self, "made", object())


class Hoard(nn.Module):
    """A network that keeps, beside its tensors, how often it was trained."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(36, 3)
        self.batches = []

    def forward(self, x):
        if self.training:
            self.batches.append(len(x))
        return self.classifier(x.flatten(1)) * (1 + len(self.batches))


class Hoarding(FedAvg):
    """Says of its network that it may serve again, although it remembers whom it served."""

    def build(self, task, about, weights=None):
        return reuse.network("hoard", Hoard, weights, {})


class Scribbling(FedAvg):
    """Normalises its samples in place."""

    def client(self, order, data, own, run):
        data.x.mul_(1.5)
        return super().client(order, data, own, run)


noisy, racing, remembering, drawing = map(recipe_of, (Noisy, Racing, Remembering, Drawing))
summing, equal, talkative, tuning = map(recipe_of, (Summing, Equal, Talkative, Tuning))
whispering, shouting, undeclared = map(recipe_of, (Whispering, Shouting, Undeclared))
leaking = recipe_of(Leaking, LocalOptions)
loose = recipe_of(FedAvg, Loose)
hoarding, scribbling = map(recipe_of, (Hoarding, Scribbling))
