"""The whole client side: the bytes of an order in, the bytes of a reply out.

Every engine calls `Site.handle`. A site holds the data and the private states of one or more
clients. It answers three kinds of orders (describe, evaluate, and the work that the method's own
client code does), reads and writes the versions of private state that the order names, and meters
what was computed. The measurements travel in an envelope beside the reply and never in it, because
a client's MACs would reveal its private architecture.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from fedloom.allocator import give_back
from fedloom.config.histograms import HistogramRule
from fedloom.cost.count import macs, parameters
from fedloom.cost.limits import DeviceLimit
from fedloom.cost.memory import peak, reset_peak
from fedloom.cost.meter import Meter
from fedloom.data.samples import ClientData, Samples, TooFewSamples
from fedloom.federation.client.store import ClientStore, LostState
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.evaluation import EvaluationReply, NetworkFacts
from fedloom.federation.protocol.histograms import histogram_of
from fedloom.federation.protocol.method import (
    ClientRun,
    Declined,
    Method,
    Predictor,
    Stage,
    fields_of,
)
from fedloom.federation.protocol.packing import Buffer
from fedloom.federation.protocol.returned import answer_from
from fedloom.federation.protocol.wire import read_order, reply_chunks
from fedloom.files import Chunk
from fedloom.metrics.classification import Floats, confusion
from fedloom.metrics.figures import Figures
from fedloom.metrics.measuring import measured
from fedloom.metrics.metric import ACCURACY, metric_of
from fedloom.nets.folding import weights_stay
from fedloom.nets.heads import head_of_network
from fedloom.nets.reuse import NetworkCache
from fedloom.types import ClientDescription, Json, Order, Reply, SampleCounts, State, Task

SCORED_POSITIONS = 1 << 18  # pixels in a batch of images that is scored: 256 images of 32×32
LEAST_SCORED = 32  # samples in a batch that is scored
MOST_SCORED = 1024
MOST_TASKS = 4  # tasks whose stages a site remembers
MOST_CONFUSION_CLASSES = 100  # classes; a larger confusion matrix is neither small nor readable


def unchanged(order: Order, reply: Reply) -> Reply:
    """The reply as the method made it."""
    return reply


@dataclass(frozen=True)
class Site:
    """The data and the private states of one or more clients, and how they answer orders."""

    data: Callable[[int], ClientData]
    store: ClientStore
    resolve: Callable[[Task], Sequence[Stage]]
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    device: str = "cpu"
    identity: Callable[[int], int] = int  # names a client's random streams
    # What a network may cost on the site's device. It is asked for every order.
    limit: Callable[[], DeviceLimit] = DeviceLimit
    # The secret of a client, for noise that the server cannot subtract; None: that of the store.
    # A real site has one for whatever number the server gives it.
    secret: Callable[[int], bytes] | None = None
    # Whether a confusion matrix may leave with the final metrics.
    sends_confusion: bool = True
    # Applied to every reply between the method's code and the encoding: what it returns is all that
    # leaves. It may raise an error, and then nothing leaves. Here a site would mask its reply for a
    # secure sum, or clip it and add noise.
    leaving: Callable[[Order, Reply], Reply] = unchanged
    networks: NetworkCache = field(
        default_factory=NetworkCache
    )  # reused from one order to the next
    resolved: list[TaskStages] = field(default_factory=list)  # of the latest tasks

    def handle(self, head: Buffer, body: Buffer) -> tuple[list[Chunk], Envelope]:
        """Answer one order.

        An error in the method's code, the data or the disk is not raised: it becomes a fault in the
        envelope.
        """
        started = time.perf_counter()
        peak_was_reset = reset_peak()
        with Meter() as meter:
            try:
                with self.networks.serving():
                    order = read_order(head, body)
                    reply, facts = self._answer(order)
                    chunks = reply_chunks(self.leaving(order, reply))
                    fault = None
            except LostState as error:
                fault = Fault("lost", str(error))
            except Declined as error:
                fault = Fault("refused", str(error))
            except StoreFailed as error:
                fault = Fault("store", str(error))
            except TooFewSamples as error:
                fault = Fault("few", str(error))
            except Exception as error:
                text = f"{type(error).__name__}: {error}".removesuffix(": ")
                fault = Fault("raised", text, traceback.format_exc())
        seconds = time.perf_counter() - started
        memory = None
        if peak_was_reset:
            memory = peak()
        give_back(memory)  # return freed memory to the system if it is much
        envelope = Envelope(
            seconds,
            meter.macs,
            fault=fault,
            memory=memory,
            search_macs=meter.search_macs,
        )
        if fault is not None:
            return [], envelope
        return chunks, replace(envelope, facts=facts)

    def _answer(self, order: Order) -> tuple[Reply, Json]:
        assert order.stamp is not None  # the loop stamps every order
        stamp = order.stamp
        stages = self._stages(stamp.task)
        method = next(stage.method for stage in stages if stage.name == stamp.stage)
        own = None
        if stamp.read is not None:
            own = self.store.read(order.client, stamp.read)
        data = self.data(order.client)
        run = ClientRun(
            stamp.task,
            stamp.stage,
            stamp.round,
            stamp.hop,
            self.identity(order.client),
            self.device,
            self.secret_source(self.identity(order.client)),
            limit=self.limit(),
        )
        self._seed(run)
        if order.kind == "describe":
            return self._describe(order, method, data, run), None
        if order.kind == "evaluate":
            return self._evaluate(order, method, data, own, run)
        return self._work(order, method, data, own, run)

    def secret_source(self, client: int) -> Callable[[], bytes]:
        if self.secret is None:
            return self.store.secret
        return partial(self.secret, client)

    def _seed(self, run: ClientRun) -> None:
        """Seed torch's global generator, from which dropout and the like draw.

        So the draws do not depend on the process in which the client works.
        """
        generator: Any = torch  # `torch.manual_seed` seeds every device, but it is slow
        if self.device == "cpu":
            generator = torch.default_generator
        generator.manual_seed(run.key("global"))

    def _stages(self, task: Task) -> Sequence[Stage]:
        """The stages of a task. Their options are checked once.

        Methods have no memory of their own, so all orders can share them.
        """
        for earlier in self.resolved:
            if earlier.task == task:
                return earlier.stages
        stages = self.resolve(task)
        self.resolved.append(TaskStages(task, stages))
        del self.resolved[:-MOST_TASKS]
        return stages

    def _work(
        self,
        order: Order,
        method: Method,
        data: ClientData,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, Json]:
        data.train.check_part("the training part")
        reply, state = answer_from(method, method.client(order, data.train, own, run))
        facts = None
        if state is not None:
            self._save(order, method, state)
            facts = method.observe(state, run.round)
        return replace(reply, count=None, wrote=state is not None), facts

    def _save(self, order: Order, method: Method, state: State) -> None:
        """Save a client's new state as the version that the order names."""
        if fields_of(method, order.kind).writes is False:
            declared = f"orders of kind {order.kind!r} are declared to keep no state"
            raise ValueError(f"{declared}, but the method returned one")
        stamp = order.stamp
        assert stamp is not None and stamp.write is not None
        try:
            self.store.write(order.client, stamp.write, state, stamp.keep)
        except OSError as error:
            raise StoreFailed(
                f"the state of client {order.client} could not be saved ({error})",
            ) from error

    def _describe(self, order: Order, method: Method, data: ClientData, run: ClientRun) -> Reply:
        samples = SampleCounts(len(data.train), len(data.validation), len(data.test))
        ask = order.meta.get("ask")
        extra = method.describe_client(ask, data.train, run)
        histogram = self._histogram(order.meta.get("histograms"), data.train, run)
        if extra or histogram is not None:  # more than numbers of samples
            data.train.check_part("the training part")
        description = ClientDescription(samples, extra, histogram)
        meta = {"shape": list(self.shape), "labels": list(self.labels), **description.to_json()}
        return Reply(order.client, meta=meta)

    def _histogram(self, requested: Json, data: Samples, run: ClientRun) -> tuple[int, ...] | None:
        """The counts of the client's training labels, or None if the run does not ask for them."""
        if requested is None:
            return None
        rule = HistogramRule.parse(requested)
        return tuple(histogram_of(data.y.numpy(), self.labels, rule, run.secret()))

    def _evaluate(
        self,
        order: Order,
        method: Method,
        data: ClientData,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, Json]:
        """The metrics of the client's own model and the shared one, on the part that is named."""
        name = "test"
        part = data.test
        if order.meta["part"] == "validation":
            name = "validation"
            part = data.validation
        part.check_part(f"the {name} part")
        predict = method.predictor(order, data.train, own, run)
        scores = scores_on(predict, part, run.task, self.device)
        personal = measured(scores, part.y.numpy(), run.task)
        shared = None
        if method.shares:
            shared = personal
            if own is not None:
                predict_shared = method.predictor(order, data.train, None, run)
                shared = figures_on(predict_shared, part, run.task, self.device)
        evaluation = EvaluationReply(personal, shared)
        if not order.meta["final"]:
            return Reply(order.client, meta=evaluation.to_meta()), None
        wants_confusion = order.meta.get("confusion", True)
        if wants_confusion and self.sends_confusion and has_confusion_matrix(run.task):
            counts = confusion(scores, part.y.numpy(), len(run.task.labels))
            evaluation = replace(evaluation, confusion=counts)
        network = predict
        if not isinstance(network, nn.Module):
            network = method.network(order, data.train, own, run)
        facts = facts_of(network, run.task)
        facts = replace(facts, routes=method.routes(network, part, run.task))
        return Reply(order.client, meta=evaluation.to_meta()), facts.to_json()


class TaskStages(NamedTuple):
    """The stages that a task was resolved to."""

    task: Task
    stages: Sequence[Stage]


class StoreFailed(Exception):
    """A client's state could not be saved on the site's disk."""


def figures_on(predict: Predictor, part: Samples, task: Task, device: str) -> Figures:
    """The metrics of a model on a part of the data."""
    return measured(scores_on(predict, part, task, device), part.y.numpy(), task)


@torch.no_grad()
def scores_on(predict: Predictor, part: Samples, task: Task, device: str) -> Floats:
    """The scores that a model gives the samples of a part, one row per sample."""
    with weights_stay():
        rows = [predict(x.to(device)).cpu() for x in part.x.split(scoring_batch(task.shape))]
    scores = torch.cat(rows) if rows else torch.empty(0, len(task.labels))
    array: Floats = scores.double().numpy()
    return array


def scoring_batch(shape: tuple[int, ...]) -> int:
    """How many samples are scored at a time.

    A batch's feature maps should stay in the cache, so it has more samples if they are small.
    """
    positions = prod(shape[1:]) or 1
    return min(MOST_SCORED, max(LEAST_SCORED, SCORED_POSITIONS // positions))


def has_confusion_matrix(task: Task) -> bool:
    """Whether a confusion matrix makes sense for a task.

    It must be judged by accuracy, and must not have too many classes.
    """
    return metric_of(task.kind) is ACCURACY and len(task.labels) <= MOST_CONFUSION_CLASSES


def facts_of(net: nn.Module, task: Task) -> NetworkFacts:
    """What the observer of a simulation may record about a network.

    In a deployment these facts stay at the site.
    """
    architecture = getattr(net, "architecture", type(net).__name__)
    size = parameters(net)
    return NetworkFacts(size, macs(net, task.shape), architecture, head_of_network(net))
