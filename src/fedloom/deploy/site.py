"""The site's side of a deployment: Flower starts it anew for every message.

It holds the data and the private state, keeps to its own policy, and lets out a reply, the seconds it took, and
nothing else: no MACs, no architecture, no traceback. Those stay in its own log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedloom.allocator import settle
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.deploy.kits import Kit, Policy
from fedloom.deploy.processes import end_without_parent
from fedloom.deploy.terms import Facts, Terms, own_data
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.flower.parcels import bytes_in, replied
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.wire import read_order, read_reply
from fedloom.files import Chunk
from fedloom.methods import stages
from fedloom.registry import is_file
from fedloom.runs.warm_start import ADAPT
from fedloom.types import Order, Stamp

log = logging.getLogger("fedloom")

MEGABYTE = 1 << 20
EXPERIMENT = re.compile("[0-9a-f]{16}")  # a hash; it names the folder of private states


def handle(message: Message, context: Context) -> Message:
    end_without_parent()
    torch.set_num_threads(1)
    settle()
    try:
        kit = Kit.open(Path(str(context.node_config["kit"])))
        if "survey" in message.content.config_records:
            return survey(message, context.node_config, kit)
        chunks, envelope = work(message, context.node_config, kit)
    except FedloomError as error:
        chunks, envelope = [], Envelope(macs=None, fault=Fault("refused", str(error)))
    if envelope.fault is not None:
        log.warning("%s: %s\n%s", envelope.fault.kind, envelope.fault.text, envelope.fault.detail)
        envelope = Envelope(envelope.seconds, None, None, Fault(envelope.fault.kind, envelope.fault.text))
    return replied(message, chunks, envelope)


def survey(message: Message, config: Mapping[str, object], kit: Kit) -> Message:
    """The facts of the data. Its name is believed only where nobody is authenticated (--insecure)."""
    check_names(("shape", "labels", "samples"), kit.policy.fields, "fields")
    source, named = data_of(config, None)
    told = ConfigRecord({"json": Facts.of(source, named).model_dump_json(), "site": kit.site})
    return Message(RecordDict({"facts": told}), reply_to=message)


def data_of(config: Mapping[str, object], classes: int | None) -> tuple[Source, bool]:
    """The site's samples, and whether its labels have names of their own."""
    directory = Path(str(config["data-dir"])) if config.get("data-dir") else None
    source = open_source(str(config["data"]), directory, classes=classes)
    return source, source.labels != tuple(str(number) for number in range(len(source.labels)))


def work(message: Message, config: Mapping[str, object], kit: Kit) -> tuple[list[Chunk], Envelope]:
    records = message.content.config_records
    try:
        head, body = records["order"]["head"], bytes_in(message.content, "body")
        if not isinstance(head, bytes):
            raise TypeError("its head is not of bytes")
        check_size(kit.policy, len(head) + len(body), "an order")
        order = read_order(head, body)
        terms = Terms.read(str(records["terms"]["json"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FedloomError("an order must be a message of fedloom's", f"{error}", "use the same version") from None
    stamp = check(kit.policy, order)
    source, named = data_of(config, None)
    if not named:
        source, _ = data_of(config, max(len(source.labels), len(stamp.task.labels)))
    site = Site(
        lambda client: own_data(source, client, terms), ClientStore(private(kit.path / "state") / stamp.experiment),
        stages, tuple(int(size) for size in source.x.shape[1:]), source.labels, str(config.get("device", "cpu")),
        tells_confusion=allows(kit.policy.fields, "confusion"),
    )  # fmt: skip
    chunks, envelope = site.handle(head, body)
    if envelope.fault is None:
        check_reply(kit.policy, b"".join(chunks))
    return chunks, Envelope(envelope.seconds, None, None, envelope.fault)


def private(folder: Path) -> Path:
    """For its owner alone, also where the kit was unpacked with other modes."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return folder


def check(policy: Policy, order: Order) -> Stamp:
    """Whether this site takes such orders. The server may be anybody's: nothing in one names a path."""
    stamp = order.stamp
    if stamp is None or not EXPERIMENT.fullmatch(stamp.experiment):
        raise FedloomError("an order must name its experiment", "this one does not", "use the same version")
    method, number = stamp.task.method, stamp.round
    if is_file(method) or any(map(is_file, stamp.task.options.values())):
        raise FedloomError(
            "methods and networks must be installed here", "the order names a file", "name an installed one"
        )
    if method == ADAPT:  # it would build whatever network an order describes, beyond the policy's methods
        raise FedloomError("newcomers must adapt on their own machine", "the order asks for it", "use `fedloom adapt`")
    if not any(fnmatchcase(method, allowed) for allowed in policy.methods):
        raise FedloomError("this site's policy must allow the method", f"{method} is not among its methods", "ask it")
    if number > policy.rounds:
        raise FedloomError(f"a run must have at most {policy.rounds} rounds here", f"this is {number}", "ask the site")
    return stamp


def check_size(policy: Policy, size: int, what: str) -> None:
    if size > policy.megabytes * MEGABYTE:
        found = f"it has {size / MEGABYTE:.1f}"
        raise FedloomError(f"{what} must have at most {policy.megabytes:g} MB here", found, "ask the site")


def check_reply(policy: Policy, reply: bytes) -> None:
    """Whether this may leave."""
    check_size(policy, len(reply), "a reply")
    content = read_reply(reply)
    check_names(content.meta, policy.fields, "fields")
    check_names(content.tensors, policy.tensors, "tensors")


def check_names(names: Iterable[str], allowed: Sequence[str], what: str) -> None:
    for name in names:
        if not allows(allowed, name):
            found = f"{name!r} is not among its {what}"
            raise FedloomError("this site's policy must allow what leaves", found, "ask it")


def allows(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


app = ClientApp()
app.query()(handle)
