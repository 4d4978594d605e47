"""The site's side of a deployment: Flower starts a new process for every message.

The site holds the data and the private state, and enforces its own policy. Only its reply and the
seconds it took leave the site: no MACs, no architecture, no traceback. Those stay in its own log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedloom.allocator import settle
from fedloom.config.models import DataConfig
from fedloom.data.labels import with_labels
from fedloom.data.samples import ClientData
from fedloom.data.source import Source
from fedloom.data.tables.samples import table_sums
from fedloom.deploy.kits import Kit
from fedloom.deploy.policy import Policy
from fedloom.deploy.processes import end_without_parent
from fedloom.deploy.site_data import site_data, site_source, site_table
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
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.flower.answers import bytes_in, replied
from fedloom.federation.protocol.admission import matches
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.wire import read_order, read_reply
from fedloom.files import Chunk
from fedloom.methods import ADAPT, stages
from fedloom.registry import is_file
from fedloom.types import Order, Stamp

log = logging.getLogger("fedloom")

MEGABYTE = 1 << 20
EXPERIMENT = re.compile("[0-9a-f]{16}")  # a hash; it names the folder of private states


def handle(message: Message, context: Context) -> Message:
    """Answer a survey or an order."""
    end_without_parent()
    torch.set_num_threads(1)
    settle()
    try:
        kit = Kit.open(Path(str(context.node_config["kit"])))
        if "survey" in message.content.config_records:
            return survey(message, context.node_config, kit)
        chunks, envelope = work(message, context.node_config, kit)
    except FedloomError as error:
        chunks = []
        envelope = Envelope(macs=None, fault=Fault("refused", str(error)))
    fault = envelope.fault
    if fault is not None:
        log.warning("%s: %s\n%s", fault.kind, fault.text, fault.detail)
        without_detail = Fault(fault.kind, fault.text)
        envelope = Envelope(envelope.seconds, macs=None, facts=None, fault=without_detail)
    return replied(message, chunks, envelope)


def survey(message: Message, config: Mapping[str, object], kit: Kit) -> Message:
    """The facts about the data, and about the device if the server asks and the policy allows it.

    The server uses the site's name only if nobody is authenticated (--insecure).
    """
    check_names(("shape", "labels", "samples"), kit.policy.fields, "fields")
    asked = message.content.config_records["survey"]
    size = size_in(asked, kit.policy)
    device = device_facts(kit.policy, bool(asked.get(DEVICE, False)))
    facts = facts_here(site_data(config), kit.policy, size, question_in(asked), device)
    record = ConfigRecord({"json": facts.to_json(), "site": kit.site})
    return Message(RecordDict({"facts": record}), reply_to=message)


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


def no_survey(error: ValueError) -> FedloomError:
    rule = "a survey must be a message from fedloom"
    return FedloomError(rule, f"{error}", "use the same version")


def facts_here(
    data: DataConfig,
    policy: Policy,
    size: ImageSize | None,
    question: TableQuestion,
    device: DeviceFacts | None,
) -> Facts:
    """The facts about this site's data. For a table, these are sums of its columns.

    The policy must allow the sums to leave.
    """
    table = site_table(data, size)
    if table is None:
        source = site_source(data, size)
        return Facts.of(source, has_named_labels(source), device)
    check_names((COLUMNS,), policy.fields, "fields")
    sums = table_sums(table, question.rules)
    return Facts.of_table(sums, len(table), device)


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
    try:
        head = records["order"]["head"]
        body = bytes_in(message.content, "body")
        if not isinstance(head, bytes):
            raise TypeError("its head is not of bytes")
        check_size(kit.policy, len(head) + len(body), "an order")
        order = read_order(head, body)
        terms = Terms.read(str(records["terms"]["json"]))
    except (KeyError, TypeError, ValueError) as error:
        rule = "an order must be a message from fedloom"
        raise FedloomError(rule, f"{error}", "use the same version") from None
    stamp = check(kit.policy, order)
    check_image_size(kit.policy, terms.size)
    site = site_for(stamp, terms, config, kit)
    chunks, envelope = site.handle(head, body)
    if envelope.fault is None:
        check_reply(kit.policy, b"".join(chunks))
    return chunks, Envelope(envelope.seconds, macs=None, facts=None, fault=envelope.fault)


def site_for(stamp: Stamp, terms: Terms, config: Mapping[str, object], kit: Kit) -> Site:
    """This site for one experiment."""
    samples = site_source(site_data(config), terms.size, terms.table, stamp.task.labels)
    source = with_labels(samples, stamp.task.labels)

    def divided(client: int) -> ClientData:
        return own_data(source, client, terms)

    states = private(kit.path / "state")
    return Site(
        data=divided,
        store=ClientStore(states / stamp.experiment),
        # All experiments share it. With new noise for each, a server could ask again and average.
        secret=ClientStore(states).secret,
        resolve=stages,
        shape=tuple(int(size) for size in source.x.shape[1:]),
        labels=source.labels,
        device=str(config.get("device", "cpu")),
        limit=kit.policy.device.limit,  # current, because the kit was opened for this order
        tells_confusion=matches("confusion", kit.policy.fields),
    )


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
        raise FedloomError(rule, "this one does not", "use the same version")
    method = stamp.task.method
    number = stamp.round
    if is_file(method) or any(map(is_file, stamp.task.options.values())):
        rule = "methods and networks must be installed here"
        raise FedloomError(rule, "the order names a file", "name an installed one")
    # This method would build any network that an order describes, beyond the policy's methods.
    if method == ADAPT:
        rule = "newcomers must adapt on their own machine"
        raise FedloomError(rule, "the order asks for it", "use `fedloom adapt`")
    if not matches(method, policy.methods):
        rule = "this site's policy must allow the method"
        raise FedloomError(rule, f"{method} is not among its methods", "ask the site")
    asked = order.meta.get("histograms")
    if order.kind == "describe" and asked is not None and not policy.allows_histograms(asked):
        rule = f"label counts must be asked for as this site's policy has it: {policy.histograms}"
        raise FedloomError(rule, f"the order asks for {asked}", "ask the site")
    if number > policy.rounds:
        rule = f"a run must have at most {policy.rounds} rounds here"
        raise FedloomError(rule, f"this is {number}", "ask the site")
    return stamp


def check_image_size(policy: Policy, size: ImageSize | None) -> None:
    """Raise an error if resized images would be too large for this site's disk by its policy."""
    if size is not None and size.resize > policy.resize:
        rule = f"a run must resize images to at most {policy.resize} pixels a side here"
        raise FedloomError(rule, f"it asks for {size.resize}", "ask the site")


def check_size(policy: Policy, size: int, message: str) -> None:
    if size > policy.megabytes * MEGABYTE:
        rule = f"{message} must have at most {policy.megabytes:g} MB here"
        raise FedloomError(rule, f"it has {size / MEGABYTE:.1f}", "ask the site")


def check_reply(policy: Policy, reply: bytes) -> None:
    """Raise an error unless this reply may leave the site."""
    check_size(policy, len(reply), "a reply")
    content = read_reply(reply)
    check_names(content.meta, policy.fields, "fields")
    check_names(content.tensors, policy.tensors, "tensors")


def check_names(names: Iterable[str], allowed: Sequence[str], section: str) -> None:
    """Raise an error if a name is not in this list of the policy."""
    for name in names:
        if not matches(name, allowed):
            rule = "this site's policy must allow what leaves"
            raise FedloomError(rule, f"{name!r} is not among its {section}", "ask the site")


app = ClientApp()
app.query()(handle)
