"""The site's side of a deployment: Flower starts a new process for every message.

The site holds the data and the private state, and enforces its own policy. Only its reply and the
seconds it took leave the site: no MACs, no architecture, no text of an error. Those stay in its own
log. What it was asked and what left stand in its audit log, before anything leaves.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedloom.allocator import settle
from fedloom.config.models import DataConfig
from fedloom.data.labels import with_labels
from fedloom.data.samples import ClientData, Owner
from fedloom.data.source import Source
from fedloom.data.tables.samples import table_sums
from fedloom.data.tables.sums import MOST_GUESSED, LabelSums, TableSums
from fedloom.data.tables.table import Table
from fedloom.deploy.approval import check_approved
from fedloom.deploy.audit import AuditError, AuditLog
from fedloom.deploy.audit_lines import answered_survey, asked_order, asked_survey, replied_with
from fedloom.deploy.divisions import Cut, Division, PartOwner, check_number_of_samples
from fedloom.deploy.experiments import (
    Kind,
    Record,
    check_limits,
    locked_experiments,
)
from fedloom.deploy.failures import (
    DataFailed,
    Failure,
    Refusal,
    failure_of,
    failure_of_fault,
)
from fedloom.deploy.kits import Kit
from fedloom.deploy.limits import Work, check_price, memory_limit, price_key, reading_within
from fedloom.deploy.policy import Policy
from fedloom.deploy.processes import end_without_parent
from fedloom.deploy.site_data import site_data, site_source, site_table
from fedloom.deploy.surveys import Surveys
from fedloom.deploy.terms import (
    COLUMNS,
    DEVICE,
    SIZE,
    TABLE,
    USUAL_TABLE,
    DeviceFacts,
    Facts,
    ImageSize,
    TableQuestion,
    Terms,
    own_data,
)
from fedloom.errors import FedloomError, shortened
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.flower.answers import bytes_in, replied
from fedloom.federation.protocol.admission import matches
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.wire import read_order
from fedloom.files import Chunk
from fedloom.methods import ADAPT, stages
from fedloom.registry import is_file
from fedloom.types import Order, Reply, Stamp

log = logging.getLogger("fedloom")

MEGABYTE = 1 << 20
MOST_REASON = 2000  # characters of a reason in the audit log
NO_LOG = "this site's audit log must be whole, and it must be possible to write it"
EXPERIMENT = re.compile("[0-9a-f]{16}")  # a hash; it names the folder of private states


class NoAnswer(Exception):
    """An order has no answer, because of this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.explanation)
        self.failure = failure


def handle(message: Message, context: Context) -> Message:
    """Answer a survey or an order.

    What came is written to the audit log first, and what leaves before it leaves. Without an audit
    log nothing leaves.
    """
    end_without_parent()
    torch.set_num_threads(1)
    settle()
    path = Path(str(context.node_config["kit"]))
    audit = AuditLog(path)
    asked: int | None = None
    try:
        asked = audit.append(*asked_by(message))
        return answer(message, context.node_config, path, audit, asked)
    except Exception as error:
        failure = failure_of(error)
        if isinstance(error, NoAnswer):
            failure = error.failure
        if asked is None or isinstance(error, AuditError):
            failure = Failure("refused", NO_LOG, failure.explanation, failure.detail)
    number = noted(audit, asked, failure)
    log.warning("number %s: %s: %s\n%s", number, failure.code, failure.explanation, failure.detail)
    return replied(message, [], Envelope(macs=None, fault=failure.fault(number)))


def asked_by(message: Message) -> tuple[str, dict[str, object]]:
    """What was asked, for the audit log, whatever the message holds."""
    if is_survey(message):
        return "survey", asked_survey(message)
    return "order", asked_order(message)


def is_survey(message: Message) -> bool:
    return message.has_content() and "survey" in message.content.config_records


def noted(audit: AuditLog, asked: int | None, failure: Failure) -> int | None:
    """Write to the audit log that an order has no answer, and why. Returns the line's number."""
    if asked is None:
        return None  # not even the order could be written
    explanation = shortened(failure.explanation, MOST_REASON)
    reason = {"order": asked, "code": failure.code, "reason": explanation}
    if failure.sentence not in ("", failure.explanation):
        reason["told"] = failure.sentence  # to the server
    try:
        return audit.append("refused", reason)
    except (AuditError, OSError) as error:
        log.error("%s", error)
        return None


def answer(
    message: Message,
    config: Mapping[str, object],
    path: Path,
    audit: AuditLog,
    asked: int,
) -> Message:
    kit = opened(path)
    if is_survey(message):
        facts = survey(message, config, kit).to_json()
        audit.append("facts", {"order": asked, **answered_survey(facts)})
        record = ConfigRecord({"json": facts, "site": kit.site})
        return Message(RecordDict({"facts": record}), reply_to=message)
    chunks, envelope = work(message, config, kit)
    left = {**replied_with(b"".join(chunks)), "seconds": envelope.seconds}
    audit.append("reply", {"order": asked, **left})
    return replied(message, chunks, envelope)


def opened(path: Path) -> Kit:
    """The kit. What is wrong with it, such as a policy that does not parse, stays at the site."""
    try:
        return Kit.open(path)
    except Exception as error:
        sentence = "this site's kit must be whole, but it cannot be opened; ask the site"
        raise NoAnswer(Failure("refused", sentence, f"{error}")) from error


def survey(message: Message, config: Mapping[str, object], kit: Kit) -> Facts:
    """The facts about the data, and about the device if the server asks and the policy allows it.

    The site remembers a question before it answers. The server uses the site's name only if nobody
    is authenticated (--insecure).
    """
    check_names(("shape", "labels", "samples"), kit.policy.fields, "fields")
    asked = message.content.config_records["survey"]
    size = size_in(asked, kit.policy)
    device = device_facts(kit.policy, bool(asked.get(DEVICE, False)))
    question = question_in(asked)
    states = private(kit.path / "state")
    with locked_experiments(states):
        Surveys(states).count([asked.get(SIZE), question.to_json()], kit.policy)
    count_size(states, size, kit.policy)
    with reading_within(kit.policy.seconds):
        return facts_here(site_data(config), kit.policy, size, question, device, states)


def count_size(states: Path, size: ImageSize | None, policy: Policy) -> None:
    """Raise an error if the policy allows no further size of images: each fills some disk."""
    if size is not None:
        with locked_experiments(states):
            Surveys(states).resize(size, policy)


def size_in(asked: Mapping[str, object], policy: Policy) -> ImageSize | None:
    """The size to which the run resizes images, or None if it leaves them as they are."""
    if SIZE not in asked:
        return None
    try:
        size = ImageSize.read(str(asked[SIZE]))
    except ValueError as error:
        raise no_survey(error) from None
    check_image_size(policy, size)
    return size


def question_in(asked: Mapping[str, object]) -> TableQuestion:
    """The roles of a table's columns, in case that this site has a table."""
    if TABLE not in asked:
        return USUAL_TABLE
    try:
        return TableQuestion.read(str(asked[TABLE]))
    except ValueError as error:
        raise no_survey(error) from None


def no_survey(error: ValueError) -> Refusal:
    rule = "a survey must be a message from fedloom"
    return Refusal(rule, f"{error}", "use the same version")


def facts_here(
    data: DataConfig,
    policy: Policy,
    size: ImageSize | None,
    question: TableQuestion,
    device: DeviceFacts | None,
    states: Path,
) -> Facts:
    """The facts about this site's data. For a table, these are sums of its columns.

    The policy must allow the sums to leave.
    """
    table = own_table(data, size)
    if table is None:
        source = own_source(data, size)
        with locked_experiments(states) as experiments:
            check_number_of_samples(len(source.y), experiments.divisions(), policy)
        return Facts.of(source, has_named_labels(source), device, policy.test)
    check_names((COLUMNS,), policy.fields, "fields")
    if len(table) < policy.min_part:
        rule = f"a table must have at least {policy.min_part} rows for sums of its columns"
        raise Refusal(rule, f"this site's has {len(table)}", "ask the site")
    try:
        sums = table_sums(table, question.rules)
    except Exception as error:
        raise DataFailed(f"{type(error).__name__}: {error}") from error
    check_classes(sums.of_label, len(table), policy)
    check_values(sums, len(table), policy)
    with locked_experiments(states):
        Surveys(states).tell(table, policy)
    return Facts.of_table(sums, len(table), device, policy.test)


def check_classes(label: LabelSums, rows: int, policy: Policy) -> None:
    """Raise an error if a table's label has more classes than the policy allows.

    The server names the column of labels, and the values of this column leave as names of classes.
    Without a limit it could ask for the values of any column, such as patients' numbers.
    """
    if label.classes is None:
        return
    classes = len(label.classes)
    advice = "name another --label, or --task regression"
    if classes > policy.classes:
        rule = f"a table's label must have at most {policy.classes} classes here"
        raise Refusal(rule, "this column has more", advice)
    if classes > MOST_GUESSED and classes > rows / 2:
        rule = "a table's label must not differ in nearly every row"
        raise Refusal(rule, "this column does, as patients' numbers would", advice)


def check_values(sums: TableSums, rows: int, policy: Policy) -> None:
    """Raise an error for a column with few values: sums of one value are this value.

    The column's name stays here until its sums may leave.
    """
    for name, column in sums.columns.items():
        values = rows - column.missing
        if 0 < values < policy.min_part:
            rule = f"a column must have at least {policy.min_part} values here, or none"
            refusal = Refusal(rule, "one has fewer", "ask the site which, and --ignore it")
            explanation = f"the column {name} has {values} values: {refusal}"
            raise NoAnswer(Failure("refused", str(refusal), explanation))


def own_table(data: DataConfig, size: ImageSize | None) -> Table | None:
    try:
        return site_table(data, size)
    except Exception as error:  # its text may name files and values
        raise DataFailed(f"{type(error).__name__}: {error}") from error


def own_source(
    data: DataConfig,
    size: ImageSize | None,
    terms: Terms | None = None,
    classes: Sequence[str] = (),
) -> Source:
    agreed = None
    if terms is not None:
        agreed = terms.table
    try:
        return site_source(data, size, agreed, classes)
    except Exception as error:
        raise DataFailed(f"{type(error).__name__}: {error}") from error


def device_facts(policy: Policy, asked: bool) -> DeviceFacts | None:
    """The limits of this site's device, if the server asks and the policy lets them leave."""
    if not asked or not matches(DEVICE, policy.fields):
        return None
    return DeviceFacts.of(policy.device.limit())


def has_named_labels(source: Source) -> bool:
    """Whether the labels have names; if they are bare numbers, another site may have more."""
    return source.labels != tuple(map(str, range(len(source.labels))))


def work(message: Message, config: Mapping[str, object], kit: Kit) -> tuple[list[Chunk], Envelope]:
    """Carry out an order, if the policy allows it and its reply."""
    records = message.content.config_records
    policy = kit.policy
    try:
        head = records["order"]["head"]
        body = bytes_in(message.content, "body")
        if not isinstance(head, bytes):
            raise TypeError("its head is not of bytes")
        text = str(records["terms"]["json"])
        size = len(head) + len(body) + len(text)
        check_size(policy, size, "an order")
        order = read_order(head, body)
        terms = Terms.read(text)
    except (KeyError, TypeError, ValueError) as error:
        rule = "an order must be a message from fedloom"
        raise Refusal(rule, f"{error}", "use the same version") from None
    stamp = check(policy, order)
    check_image_size(policy, terms.size)
    check_seeds(stamp, terms)
    states = private(kit.path / "state")
    with locked_experiments(states) as experiments:
        if policy.approve == "ask":
            check_approved(experiments, stamp, terms)
        before = experiments.get(stamp.experiment)
    count_size(states, terms.size, policy)
    with reading_within(policy.seconds), encoding_within(terms, policy):
        source = source_for(stamp, terms, config)
    check_table(source, policy)
    priced = price_key(stamp.task, policy, len(source.y))
    if before is None or before.priced != priced:
        check_price(stamp.task, policy, len(source.y))
    asked = Asked(digest_of(head, body), size)
    record = counted(kit, order, asked, terms, source)
    cuts = Cuts(states, record.division(len(source.y)), policy)
    data = parts_of(source, order.client, terms, record.test, cuts.owner)
    border = Border(policy)
    site = site_for(stamp, source, data, config, kit, border)
    bounds = Work(policy)
    with bounds.bounded():
        chunks, envelope = site.handle(head, body)
    refusal = border.refusal or bounds.refusal or cuts.error
    if refusal is not None:
        raise refusal
    if envelope.fault is not None:
        raise NoAnswer(failure_of_fault(envelope.fault))
    replied_size = sum(len(chunk) for chunk in chunks)
    check_size(policy, replied_size, "a reply")
    with locked_experiments(states) as experiments:
        now = experiments.get(stamp.experiment) or record
        record = now.model_copy(update={"bytes": now.bytes + replied_size, "priced": priced})
        check_limits(record, policy)
        experiments.put(stamp.experiment, record)
    return chunks, Envelope(envelope.seconds, macs=None, facts=None)


class Asked(NamedTuple):
    """What is counted of an order's bytes."""

    digest: str
    size: int


def digest_of(head: bytes, body: bytes) -> str:
    digest = hashlib.sha256(head)
    digest.update(body)
    return digest.hexdigest()


@contextmanager
def encoding_within(terms: Terms, policy: Policy) -> Iterator[None]:
    """Bound the memory for encoding a table: the server chooses how many inputs a row has."""
    if terms.table is None:
        yield
        return
    with memory_limit(policy.memory):
        yield


def check_table(source: Source, policy: Policy) -> None:
    """Raise an error if the labels of a table may not leave, as in a survey.

    A server can name any column as the label, and a description names the classes.
    """
    if source.table is None:
        return
    check_names((COLUMNS,), policy.fields, "fields")
    for sums in source.table.sums.values():
        check_classes(sums.of_label, len(source.y), policy)


def check_seeds(stamp: Stamp, terms: Terms) -> None:
    """Raise an error unless an order divides samples by the seed of its task."""
    if terms.seed != stamp.task.seed:
        rule = "samples must be divided by the seed of the run"
        raise Refusal(rule, f"{terms.seed} is not {stamp.task.seed}", "use the same version")


def source_for(stamp: Stamp, terms: Terms, config: Mapping[str, object]) -> Source:
    """The site's samples, with the classes of the run."""
    labels = stamp.task.labels
    samples = own_source(site_data(config), terms.size, terms, labels)
    try:
        return with_labels(samples, labels)
    except Exception as error:
        raise DataFailed(f"{type(error).__name__}: {error}") from error


def parts_of(
    source: Source,
    client: int,
    terms: Terms,
    test: float,
    owner: Callable[[int], Owner],
) -> ClientData:
    try:
        return own_data(source, client, terms, test, owner)
    except Exception as error:
        raise DataFailed(f"{type(error).__name__}: {error}") from error


class Cuts:
    """Where a method asks this site whether it may divide a part of the training samples."""

    def __init__(self, states: Path, division: Division, policy: Policy) -> None:
        self.states = states
        self.division = division
        self.policy = policy
        self.error: FedloomError | None = None

    def owner(self, begin: int) -> Owner:
        """The owner of the part that begins at this place in the order of the samples."""
        return PartOwner(begin, self.policy.min_part, self.allow)

    def allow(self, begin: int, at: int, end: int) -> None:
        """Remember a cut. Raises an error if the policy does not allow it."""
        seed, client, samples = self.division.ordering
        cut = Cut(seed=seed, client=client, samples=samples, begin=begin, at=at, end=end)
        try:
            with locked_experiments(self.states) as experiments:
                experiments.cut(cut, self.policy)
        except FedloomError as error:
            self.error = error
            raise


def counted(
    kit: Kit,
    order: Order,
    asked: Asked,
    terms: Terms,
    source: Source,
) -> Record:
    """What the site remembers about the experiment, with this order counted and saved.

    The order counts before the work: what fails or is killed has counted too.
    """
    assert order.stamp is not None
    experiment = order.stamp.experiment
    policy = kit.policy
    with locked_experiments(kit.path / "state") as experiments:
        record = experiments.get(experiment)
        if record is None:
            record = new_record(order, terms, policy)
            check_limits(record.with_order(kind_of(order), *asked), policy)
            experiments.check_new(policy)
        check_same_division(record, order, terms)
        # Of every order, because there may be other samples now.
        division = record.division(len(source.y))
        experiments.divide(division, policy, tells_sums=source.table is not None)
        record = record.with_task(order.stamp.task).with_encoding(terms.table)
        record = record.with_order(kind_of(order), *asked)
        check_limits(record, policy)
        check_approved_trainings(record, policy, terms)
        experiments.put(experiment, record)
    return record


def check_approved_trainings(record: Record, policy: Policy, terms: Terms) -> None:
    """Raise an error for more trainings than the site's operator has approved."""
    most = terms.trainings
    if policy.approve == "ask" and most is not None and len(record.trainings) > most:
        rule = f"this experiment is approved for at most {most} trainings here"
        raise Refusal(rule, f"this would be number {len(record.trainings)}", "start a new run")


def new_record(order: Order, terms: Terms, policy: Policy) -> Record:
    """The record of a new experiment: how the site divides its samples in it."""
    test = terms.test
    if policy.test is not None:
        test = policy.test
    resize = None
    fit = None
    if terms.size is not None:
        resize = terms.size.resize
        fit = terms.size.fit
    return Record(
        client=order.client,
        seed=terms.seed,
        test=test,
        hold=terms.hold,
        resize=resize,
        fit=fit,
        asked_test=terms.test,
    )


def check_same_division(record: Record, order: Order, terms: Terms) -> None:
    """Raise an error if an order divides the samples in another way than the first order did."""
    size = None
    if terms.size is not None:
        size = (terms.size.resize, terms.size.fit)
    settled_size = None
    if record.resize is not None:
        settled_size = (record.resize, record.fit)
    asked = (order.client, terms.seed, terms.test, terms.hold, size)
    settled = (record.client, record.seed, record.asked_test, record.hold, settled_size)
    if asked != settled:
        rule = "an experiment must divide this site's samples as its first order did"
        raise Refusal(rule, "this order does it in another way", "start a new run")


def kind_of(order: Order) -> Kind:
    """How an order is counted. Questions that are asked beforehand are evaluations."""
    assert order.stamp is not None
    if order.kind == "describe":
        return "description"
    if order.kind == "evaluate":
        return "evaluation"
    for stage in stages(order.stamp.task):
        if stage.name == order.stamp.stage:
            fields = stage.method.fields.get(order.kind)
            if fields is not None and fields.beforehand:
                return "evaluation"
    return "training"


def site_for(
    stamp: Stamp,
    source: Source,
    data: ClientData,
    config: Mapping[str, object],
    kit: Kit,
    border: Border,
) -> Site:
    """This site for one order."""

    states = private(kit.path / "state")

    def divided(client: int) -> ClientData:
        return data

    def secret(client: int) -> bytes:
        """All experiments share it. With new noise for each, a server could ask and average."""
        return ClientStore(states).secret()

    return Site(
        data=divided,
        store=ClientStore(states / stamp.experiment),
        secret=secret,
        resolve=stages,
        shape=tuple(int(size) for size in source.x.shape[1:]),
        labels=source.labels,
        device=str(config.get("device", "cpu")),
        limit=kit.policy.device.limit,  # current, because the kit was opened for this order
        sends_confusion=matches("confusion", kit.policy.fields),
        leaving=border.leaving,
    )


class Border:
    """What every reply passes before it is encoded, and where the policy refuses it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.refusal: Refusal | None = None

    def leaving(self, order: Order, reply: Reply) -> Reply:
        try:
            check_reply(self.policy, reply)
        except Refusal as refusal:
            self.refusal = refusal
            raise
        return reply


def private(folder: Path) -> Path:
    """A folder that only its owner can read, even if the kit was unpacked with other modes."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return folder


def check(policy: Policy, order: Order) -> Stamp:
    """Raise an error unless this site accepts such orders.

    The server may be malicious, so nothing in an order may name a path.
    """
    stamp = order.stamp
    if stamp is None or not EXPERIMENT.fullmatch(stamp.experiment):
        rule = "an order must name its experiment"
        raise Refusal(rule, "this one does not", "use the same version")
    method = stamp.task.method
    number = stamp.round
    if is_file(method) or any(map(is_file, stamp.task.options.values())):
        rule = "methods and networks must be installed here"
        raise Refusal(rule, "the order names a file", "name an installed one")
    # This method would build any network that an order describes, beyond the policy's methods.
    if method == ADAPT:
        rule = "new clients must adapt on their own machine"
        raise Refusal(rule, "the order asks for it", "use `fedloom adapt`")
    if not matches(method, policy.methods):
        rule = "this site's policy must allow the method"
        raise Refusal(rule, f"{method} is not among its methods", "ask the site")
    labels = stamp.task.labels
    if len(set(labels)) < len(labels):
        rule = "the classes of a run must have different names"
        raise Refusal(rule, "one stands there twice", "name each once")
    asked = order.meta.get("histograms")
    if order.kind == "describe" and asked is not None and not policy.allows_histograms(asked):
        rule = f"label counts must be asked for as this site's policy has it: {policy.histograms}"
        raise Refusal(rule, f"the order asks for {asked}", "ask the site")
    if number > policy.rounds:
        rule = f"a run must have at most {policy.rounds} rounds here"
        raise Refusal(rule, f"this is {number}", "ask the site")
    return stamp


def check_image_size(policy: Policy, size: ImageSize | None) -> None:
    """Raise an error if resized images would be too large for this site's disk by its policy."""
    if size is not None and size.resize > policy.resize:
        rule = f"a run must resize images to at most {policy.resize} pixels a side here"
        raise Refusal(rule, f"it asks for {size.resize}", "ask the site")


def check_size(policy: Policy, size: int, message: str) -> None:
    if size > policy.megabytes * MEGABYTE:
        rule = f"{message} must have at most {policy.megabytes:g} MB here"
        raise Refusal(rule, f"it has {size / MEGABYTE:.1f}", "ask the site")


def check_reply(policy: Policy, reply: Reply) -> None:
    """Raise an error unless this reply may leave the site.

    Where a reply weighs each tensor by the samples that went through it, the largest weight counts.
    """
    check_names(reply.meta, policy.fields, "fields")
    check_names(reply.tensors, policy.tensors, "tensors")
    weight = reply.weight
    if isinstance(weight, Mapping):
        weight = max(weight.values(), default=0.0)
    if 0 < weight < policy.min_part:
        rule = f"a reply must be made from at least {policy.min_part} samples here"
        raise Refusal(rule, f"this one is from {weight:g}", "ask the site")


def check_names(names: Iterable[str], allowed: Sequence[str], section: str) -> None:
    """Raise an error if a name is not in this list of the policy."""
    for name in names:
        if not matches(name, allowed):
            rule = "this site's policy must allow what leaves"
            raise Refusal(rule, f"{name!r} is not among its {section}", "ask the site")


app = ClientApp()
app.query()(handle)
