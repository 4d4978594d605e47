"""The site's side of a deployment: Flower starts it anew for every message.

It holds the data and the private state, keeps to its own policy, and lets out a reply, the seconds it took, and
nothing else: no MACs, no architecture, no traceback. Those stay in its own log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedloom.data.sources import Source, open_source
from fedloom.errors import FedloomError
from fedloom.federation.files import Chunk
from fedloom.federation.site import Envelope, Fault, Site
from fedloom.federation.store import ClientStore
from fedloom.federation.wire import WireError, read_order, read_reply
from fedloom.flower.kits import Kit, Policy
from fedloom.flower.parcels import bytes_in, replied
from fedloom.flower.terms import Facts, Terms, own_data
from fedloom.methods import stages
from fedloom.types import Order

log = logging.getLogger("fedloom")

MEGABYTE = 1 << 20


def handle(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    try:
        kit = Kit.open(Path(str(context.node_config["kit"])))
        if "survey" in message.content.config_records:
            return survey(message, context.node_config, kit.site)
        chunks, envelope = work(message, context.node_config, kit)
    except FedloomError as error:
        chunks, envelope = [], Envelope(macs=None, fault=Fault("refused", str(error)))
    if envelope.fault is not None:
        log.warning("%s: %s\n%s", envelope.fault.kind, envelope.fault.text, envelope.fault.detail)
        envelope = Envelope(envelope.seconds, None, None, Fault(envelope.fault.kind, envelope.fault.text))
    return replied(message, chunks, envelope)


def survey(message: Message, config: Mapping[str, object], site: str) -> Message:
    """The facts of the data. Its name is believed only where nobody is authenticated (--insecure)."""
    source, named = data_of(config, None)
    told = ConfigRecord({"json": Facts.of(source, named).model_dump_json(), "site": site})
    return Message(RecordDict({"facts": told}), reply_to=message)


def data_of(config: Mapping[str, object], classes: int | None) -> tuple[Source, bool]:
    """The site's samples, and whether its labels have names of their own."""
    directory = Path(str(config["data-dir"])) if config.get("data-dir") else None
    source = open_source(str(config["data"]), directory, classes=classes)
    return source, source.labels != tuple(str(number) for number in range(len(source.labels)))


def work(message: Message, config: Mapping[str, object], kit: Kit) -> tuple[list[Chunk], Envelope]:
    content = message.content
    head, body = content.config_records["order"]["head"], bytes_in(content, "body")
    try:
        order = read_order(head, body)
        terms = Terms.model_validate_json(str(content.config_records["terms"]["json"]))
    except (WireError, ValueError) as error:
        raise FedloomError("an order must be a message of fedloom's", f"{error}", "use the same version") from None
    check(kit.policy, order, len(body))
    assert order.stamp is not None
    source, named = data_of(config, None)
    if not named:
        source, _ = data_of(config, max(len(source.labels), len(order.stamp.task.labels)))
    site = Site(
        lambda client: own_data(source, client, terms), ClientStore(kit.path / "state" / order.stamp.experiment),
        stages, tuple(int(size) for size in source.x.shape[1:]), source.labels, str(config.get("device", "cpu")),
    )  # fmt: skip
    chunks, envelope = site.handle(head, body)
    if envelope.fault is None:
        check_reply(kit.policy, b"".join(chunks))
    return chunks, Envelope(envelope.seconds, None, None, envelope.fault)


def check(policy: Policy, order: Order, size: int) -> None:
    """Whether this site takes such orders."""
    assert order.stamp is not None
    method, number = order.stamp.task.method, order.stamp.round
    if not any(fnmatchcase(method, allowed) for allowed in policy.methods) or ".py:" in method:
        raise FedloomError("this site's policy must allow the method", f"{method} is not among its methods", "ask it")
    if number > policy.rounds:
        raise FedloomError(f"a run must have at most {policy.rounds} rounds here", f"this is {number}", "ask the site")
    check_size(policy, size, "an order")


def check_size(policy: Policy, size: int, what: str) -> None:
    if size > policy.megabytes * MEGABYTE:
        found = f"it has {size / MEGABYTE:.1f}"
        raise FedloomError(f"{what} must have at most {policy.megabytes:g} MB here", found, "ask the site")


def check_reply(policy: Policy, reply: bytes) -> None:
    """Whether this may leave."""
    check_size(policy, len(reply), "a reply")
    content = read_reply(reply)
    for what, names, allowed in (("fields", content.meta, policy.fields), ("tensors", content.tensors, policy.tensors)):
        for name in names:
            if not any(fnmatchcase(name, pattern) for pattern in allowed):
                found = f"{name!r} is not among its {what}"
                raise FedloomError("this site's policy must allow what leaves", found, "ask it")


app = ClientApp()
app.query()(handle)
