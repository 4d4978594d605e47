"""The stand-in: the one client of a rehearsed run, which works for all clients.

If an order, together with the client's own state, looks like none before, the stand-in carries it
out on a few of its samples. Later orders that look the same cost the same, scaled to the number of
their clients' samples.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedloom.cost.count import macs, parameters
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.samples import ClientData
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.protocol.method import ClientRun, Stage
from fedloom.federation.protocol.wire import Body, order_head, read_reply
from fedloom.federation.server.exchange import describe_order
from fedloom.federation.server.parcels import encoded_size
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import DESCRIBE, EVALUATE
from fedloom.federation.server.work_times import HopWork
from fedloom.files import Chunk
from fedloom.methods import stages
from fedloom.runs.loop_settings import registered
from fedloom.runs.preparing import Prepared
from fedloom.runs.rehearsal_costs import Cost
from fedloom.types import ClientDescription, Json, Order, Reply, Stamp, State, Tensors

PROBE = 128  # samples for a stage's first order and for evaluations, which are timed
LATER_PROBE = 32  # samples for other orders, of which only the MACs are counted
MOST_PROBES = 60  # orders of a stage that are carried out, even if every order looks new
PARTS_A_ROUND = 2  # orders of a kind carried out per round, if each has another part of the network
LOOK = "\x1f"  # separates the parts of an order's look


@dataclass(frozen=True)
class Hop:
    """One exchange of orders and replies: the orders of a stage, planned from this state."""

    stage: Stage
    state: State
    round: int
    number: int  # counted from 0; below 0: an evaluation or a description

    @property
    def is_evaluation(self) -> bool:
        return self.number == EVALUATE


@dataclass
class StageProbes:
    """The orders of one stage that the stand-in has carried out, except evaluations."""

    count: int = 0
    timed: Answer | None = None  # to its first order, which is timed


@dataclass(frozen=True)
class AnsweredOrder:
    """An order to a client, the stand-in's answer, and what the order costs with this client."""

    order: Order
    answer: Answer
    work: HopWork
    cost: Cost

    @property
    def reply(self) -> Reply:
        return replace(self.answer.reply, client=self.order.client)


@dataclass(frozen=True)
class Described:
    """A client's description, and what it cost to ask for it."""

    description: ClientDescription
    cost: Cost


class StandIn:
    """The client whose number of training samples is nearest to the average."""

    def __init__(self, prepared: Prepared, settings: Settings, folder: Path) -> None:
        self.prepared = prepared
        self.settings = settings
        self.data = MappedClients.build(folder / "data", prepared.source, prepared.split)
        self.store = ClientStore(folder / "clients")
        self.counts = counts_of(prepared)
        average = self.mean_samples
        self.client = min(
            range(len(self.counts)),
            key=lambda client: abs(self.counts[client].train - average),
        )
        self.sites = {}  # by the number of samples that their clients have
        for size in (PROBE, LATER_PROBE):
            self.sites[size] = self._site(few(self.data, prepared.hold, size))
        self.versions: dict[int, str] = {}  # by client, of those that have a private state
        self.looks: dict[str, str] = {}  # of these states, by version
        self.answers: dict[str, Answer] = {}  # by the order's look
        self.answers_to_parts: dict[str, PartAnswers] = {}  # by stage and kind of the order
        self.written = 0  # number of states that the stand-in has written
        self.largest = 0  # MACs per sample of the largest network so far
        self.largest_order = 0  # in bytes
        self.seconds_a_mac = 0.0  # in the last work that was timed

    @property
    def mean_samples(self) -> float:
        """How many samples a client trains on, as a mean over all clients."""
        return statistics.fmean(counts.train for counts in self.counts)

    def forget_states(self) -> None:
        """Let every client begin without a private state."""
        self.versions = {}
        self.looks = {}

    def answer_all(
        self,
        hop: Hop,
        orders: Sequence[Order],
        probes: StageProbes | None = None,
    ) -> list[AnsweredOrder]:
        """Answer orders of one hop to any clients. Evaluations have no `probes`."""
        sizes: dict[str, int] = {}
        tables: dict[int, str] = {}
        answered = []
        for order in orders:
            look = self.look(hop.stage, order, tables)
            answer = self._answer(hop, order, look, probes)
            if look not in sizes:
                sizes[look] = encoded_size(self._stamped(hop, order))
            answered.append(self._priced(hop.stage, order, answer, sizes[look]))
        return answered

    def keep_states(self, answered: Sequence[AnsweredOrder]) -> None:
        """Note the private states that clients have after these answers."""
        for answered_order in answered:
            version = answered_order.answer.version
            if version is not None:
                self.versions[answered_order.order.client] = version

    def describe(self, stage: Stage, client: int, number: int) -> Described:
        """Let a client describe all of its samples in round `number`."""
        whole = self._site(lambda client: self.data.client(client, self.prepared.hold))
        question = describe_order(client, stage.method, self.settings)
        order = replace(question, stamp=self._stamp(stage, None, number, DESCRIBE))
        chunks, _ = carry_out(whole, order)
        down = encoded_size(order)
        up = size_of_chunks(chunks)
        cost = Cost(down=down, up=up, most_bytes=down + up, describing=down + up)
        reply = read_reply(b"".join(chunks))
        return Described(ClientDescription.from_json(reply.meta), cost)

    def network(self, hop: Hop) -> Network:
        """The stand-in's network, with the private state that it has now."""
        return self._network(hop, self.versions.get(self.client))

    # Costs of an order

    def _priced(self, stage: Stage, order: Order, answer: Answer, down: int) -> AnsweredOrder:
        samples = seen_in(stage, order, self.counts[order.client].of(order))
        total_macs = answer.macs_a_sample * samples
        most_down = down
        most_up = answer.up
        if answer.at_most > 1:  # the network that is sent, and sent back, may be the largest
            if order.tensors:
                most_down = max(down, self.largest_order)
            if answer.reply.tensors:
                most_up = max(answer.up, self.largest_order)
        self.largest_order = max(self.largest_order, down)
        cost = Cost(
            seconds=answer.seconds_a_sample * samples,
            macs=total_macs,
            down=down,
            up=answer.up,
            most_macs=total_macs * answer.at_most,
            most_bytes=most_down + most_up,
        )
        whole_macs = round(total_macs)
        search_macs = round(whole_macs * answer.search_share)
        work = HopWork(order.client, down, answer.up, whole_macs - search_macs, search_macs)
        return AnsweredOrder(order, answer, work, cost)

    # Answers

    def _answer(
        self,
        hop: Hop,
        order: Order,
        look: str,
        probes: StageProbes | None,
    ) -> Answer:
        if look in self.answers:
            return self.answers[look]
        similar = similar_to(look)
        too_many = probes is not None and probes.count >= MOST_PROBES
        if too_many and similar in self.answers:
            return self.answers[similar]
        part_answers = self._answers_to_parts(hop, order, look)
        if part_answers is not None and part_answers.are_enough(hop.round):
            return part_answers.in_turns(hop.round)
        answer = self._probe(hop, order, probes)
        self.answers[look] = answer
        self.answers[similar] = answer
        if part_answers is not None:
            part_answers.add(answer, hop.round)
        return answer

    def _answers_to_parts(self, hop: Hop, order: Order, look: str) -> PartAnswers | None:
        """Answers to orders of this kind, each of which may bring another part of the network.

        The reply to one part can stand for the reply to another if it need not contain all that the
        order brought, and in an evaluation, of which nothing is merged. None: it cannot; for
        example, a reply with one width of a network cannot stand for one with another width.
        """
        kinds = hop.stage.method.fields
        sends_parts = any(fields.optional for fields in kinds.values())
        if not sends_parts:
            return None
        if not hop.is_evaluation and (not kinds[order.kind].optional or order.region):
            return None
        return self.answers_to_parts.setdefault(look.partition(LOOK)[0], PartAnswers())

    def _probe(self, hop: Hop, order: Order, probes: StageProbes | None) -> Answer:
        """Let the stand-in carry out the order, timed if it is a stage's first or an evaluation."""
        is_first = probes is not None and probes.timed is None
        is_timed = is_first or probes is None
        size = LATER_PROBE
        if is_timed:
            size = PROBE
        version = self.versions.get(order.client)
        new_version = self._new_version(hop)
        own_order = self._own_order(hop, order, version, new_version)
        site = self.sites[size]
        if is_timed:
            carry_out(site, own_order)  # to warm up
        chunks, envelope = carry_out(site, own_order)
        if is_first:
            self._measure_network(hop, None)  # the shared network, which is the largest
        reply = read_reply(bytearray(b"".join(chunks)))
        samples = max(1, min(size, self.counts[self.client].of(order)))
        samples = seen_in(hop.stage, order, samples)
        if reply.wrote and new_version is not None:
            version = new_version
            self.looks[version] = look_of_state(self.store.read(self.client, version))
        macs_a_sample = (envelope.macs or 0) / samples
        seconds = envelope.seconds / samples
        if probes is not None:
            probes.count += 1
            timed = probes.timed
            if timed is not None and timed.macs_a_sample:  # too few samples to be timed well
                seconds = timed.seconds_a_sample * macs_a_sample / timed.macs_a_sample
        answer = Answer(
            reply=reply,
            up=size_of_chunks(chunks),
            seconds_a_sample=seconds,
            macs_a_sample=macs_a_sample,
            search_share=envelope.search_macs / max(1, envelope.macs or 0),
            version=version,
            at_most=self._measure_network(hop, version),
        )
        if is_first and probes is not None:
            probes.timed = answer
            if macs_a_sample:
                self.seconds_a_mac = seconds / macs_a_sample
        return answer

    def _new_version(self, hop: Hop) -> str | None:
        """The version of the state that the order may write; None: an evaluation writes none."""
        if hop.is_evaluation:
            return None
        self.written += 1
        return f"{self.written}.0"

    def _own_order(self, hop: Hop, order: Order, read: str | None, write: str | None) -> Order:
        """The order, addressed to the stand-in itself, which reads and writes these versions."""
        stamp = replace(
            self._stamp(hop.stage, read, hop.round, hop.number),
            write=write,
            # answers are used again, so all states that they read must stay
            keep=tuple(sorted({*self.versions.values(), *self.looks})),
        )
        return replace(order, client=self.client, stamp=stamp)

    def _measure_network(self, hop: Hop, version: str | None) -> float:
        """By what factor a client's network may be larger, if a search decides otherwise.

        No network that a search finds is larger than the supernet that it is found in.
        """
        size = self._network(hop, version).macs
        self.largest = max(self.largest, size)
        if not size:
            return 1.0
        return self.largest / size

    def _network(self, hop: Hop, version: str | None) -> Network:
        own = None
        if version is not None:
            own = self.store.read(self.client, version)
        task = self.prepared.task
        method = hop.stage.method
        secret = partial(simulated_secret, task.seed, self.client)
        run = ClientRun(task, hop.stage.name, hop.round, 0, self.client, "cpu", secret)
        data = few(self.data, self.prepared.hold, LATER_PROBE)(self.client)
        network = method.network(method.serve(hop.state, self.client), data.train, own, run)
        return Network(macs(network, task.shape), parameters(network))

    # Orders as the loop would send them

    def look(self, stage: Stage, order: Order, tables: dict[int, str]) -> str:
        """A text that is equal for orders that mean the same work: it has all but float values.

        `tables` caches the look of tensors that many orders of a round share.
        """
        table = tables.get(id(order.tensors))
        if table is None:
            table = f"{hash(shapes(order.tensors)):x}"  # hashed, as many tensors make a long text
            tables[id(order.tensors)] = table
        own = self.looks.get(self.versions.get(order.client, ""), "")
        meta = json.dumps(without_floats(order.meta), sort_keys=True)
        return LOOK.join([f"{stage.name} {order.kind}", table, own, meta])

    def _stamped(self, hop: Hop, order: Order) -> Order:
        """The order with a stamp like the loop's, so that its size is right to a few digits."""
        read = None
        if order.client in self.versions:
            read = f"{max(1, hop.round - 1)}.0"
        stamp = self._stamp(hop.stage, read, hop.round, hop.number)
        if read is not None:
            stamp = replace(stamp, keep=(read, f"{max(1, hop.round - 2)}.0"))
        if hop.number >= 0:
            stamp = replace(stamp, write=f"{hop.round}.{hop.number}")
        return replace(order, stamp=stamp)

    def _stamp(self, stage: Stage, read: str | None, number: int, hop: int) -> Stamp:
        settings = self.settings
        return Stamp(settings.experiment, settings.task, stage.name, max(1, number), hop, read)

    def _site(self, data: Callable[[int], ClientData]) -> Site:
        task = self.prepared.task
        device = self.prepared.config.engine.device
        secret = partial(simulated_secret, task.seed)
        return Site(data, self.store, stages, task.shape, task.labels, device, secret=secret)


@dataclass(frozen=True)
class Answer:
    """The stand-in's reply to an order, and what its work cost."""

    reply: Reply
    up: int  # bytes of the reply
    seconds_a_sample: float
    macs_a_sample: float
    search_share: float  # share of the MACs that are spent on searching
    version: str | None  # of the stand-in's own state afterwards
    at_most: float  # factor by which MACs may be higher if a search finds a larger network


@dataclass
class PartAnswers:
    """Answers to orders of one kind, each of which brought another part of the network.

    Each round draws its own paths, so the round's first answers stand for its other orders. When
    there are many answers, all of them stand for later rounds. They are used in turns, so that
    their mean counts.
    """

    by_round: dict[int, list[Answer]] = field(default_factory=dict)
    times_used: int = 0  # how many times an answer was used again

    def add(self, answer: Answer, number: int) -> None:
        self.by_round.setdefault(number, []).append(answer)

    def everything(self) -> list[Answer]:
        everything = []
        for answers in self.by_round.values():
            everything.extend(answers)
        return everything

    def are_enough(self, number: int) -> bool:
        answers = self.by_round.get(number, [])
        return len(answers) >= PARTS_A_ROUND or len(self.everything()) >= MOST_PROBES

    def in_turns(self, number: int) -> Answer:
        answers = self.by_round.get(number) or self.everything()
        self.times_used += 1
        return answers[self.times_used % len(answers)]


@dataclass(frozen=True)
class Network:
    macs: int  # per sample
    params: int


@dataclass(frozen=True)
class Counts:
    """A client's samples, part by part."""

    train: int
    validation: int
    test: int

    def of(self, order: Order) -> int:
        """The number of samples that an order works on."""
        if order.kind != "evaluate":
            return self.train
        if order.meta["part"] == "validation":
            return self.validation
        return self.test


def counts_of(prepared: Prepared) -> list[Counts]:
    counts = []
    tests = prepared.split.tests.tolist()
    for samples, test in zip(registered(prepared), tests, strict=True):
        validation = samples.total - samples.train - test
        counts.append(Counts(samples.train, validation, test))
    return counts


def few(clients_data: MappedClients, hold: float, size: int) -> Callable[[int], ClientData]:
    """A client's data with at most `size` samples in each part."""

    def data(client: int) -> ClientData:
        whole = clients_data.client(client, hold)
        return ClientData(
            whole.train.first(size),
            whole.validation.first(size),
            whole.test.first(size),
        )

    return data


def seen_in(stage: Stage, order: Order, samples: int) -> int:
    """How many samples a client that has `samples` goes through; an evaluation takes all."""
    if order.kind == "evaluate":
        return samples
    return stage.method.samples_seen(order, samples)


def carry_out(site: Site, order: Order) -> tuple[list[Chunk], Envelope]:
    """Let a client carry out an order, and refuse to go on if it fails."""
    body = Body(order.tensors)
    chunks, envelope = site.handle(order_head(order, body), b"".join(body.chunks))
    if envelope.fault is not None:
        advice = "correct it; --debug shows more"
        raise FedloomError("a client's code must run", envelope.fault.text, advice)
    return chunks, envelope


def size_of_chunks(chunks: Sequence[Chunk]) -> int:
    return sum(memoryview(chunk).nbytes for chunk in chunks)


# Looks


def similar_to(look: str) -> str:
    """The same look without the order's plain values."""
    return look.rpartition(LOOK)[0]


def look_of_state(state: State) -> str:
    return f"{hash(shapes(state.tensors)):x} {','.join(sorted(state.meta))}"


def shapes(tensors: Tensors) -> str:
    parts = [f"{name}{list(tensor.shape)}" for name, tensor in sorted(tensors.items())]
    return ",".join(parts)


def without_floats(value: Json) -> Json:
    if isinstance(value, float):
        return None
    if isinstance(value, Mapping):
        return {str(name): without_floats(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_floats(part) for part in value]
    return value
