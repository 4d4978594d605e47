"""What a broken connection swallowed between a site and Flower is delivered again.

A site asks the server for a message, and Flower takes it out of its queue when it answers. If the
connection breaks at that moment, the site never hears of the message, and the round waits for it
until its deadline. Here the guard keeps what Flower answered until the site confirms that it has
the message, and answers once more with it if the site asks again and there is nothing else.

A reply has the same weakness: if the answer to its announcement is lost, the site announces it
again, Flower finds it known and asks for none of its content, and waits for this for ever. Here the
guard repeats the first answer to the same announcement.

Only answers to calls that Flower has authenticated are kept or repeated.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fedloom.errors import FedloomError

PULL = "pull-messages"
PUSH = "push-messages"
CONFIRM = "confirm-message-received"
MOST_TIMES = 5  # that an answer is repeated
LONGEST = 600.0  # seconds for which it is
MOST_BYTES = 1 << 20  # of an answer that is kept; it has no tensors, which are pulled one by one
MOST_SITES = 10_000

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Announced:
    """The last reply that a site announced, and what Flower answered."""

    digest: bytes
    body: bytes


@dataclass
class Kept:
    """An answer that a site has not confirmed."""

    body: bytes
    since: float
    times: int = 0  # that it was repeated


class Redelivery:
    """Passes sites' calls on to Flower, and repeats answers that were lost."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.kept: dict[str, Kept] = {}  # by the site's public key
        self.announced: dict[str, Announced] = {}  # likewise

    async def __call__(self, scope: Scope, receive: Receive, send: Send, key: str) -> None:
        call = str(scope["path"]).rpartition("/")[2]
        if call not in (PULL, PUSH, CONFIRM):
            await self.app(scope, receive, send)
            return
        answer = Answer()
        request = Request(receive)
        await self.app(scope, request.read, answer.note)
        if answer.status == 200 and call == CONFIRM:
            self.kept.pop(key, None)
        if answer.status == 200 and call == PULL:
            answer.body = self.body_for(key, answer.body)
        if answer.status == 200 and call == PUSH:
            answer.body = self.body_for_announcement(key, request.digest.digest(), answer.body)
        await answer.send(send)

    def body_for_announcement(self, key: str, digest: bytes, body: bytes) -> bytes:
        """What to answer an announcement: the first answer, if Flower has nothing left to ask."""
        before = self.announced.get(key)
        if before is not None and before.digest == digest and not asks_for_content(body):
            return before.body
        if len(body) <= MOST_BYTES and len(self.announced) < MOST_SITES:
            self.announced[key] = Announced(digest, body)
        return body

    def body_for(self, key: str, body: bytes) -> bytes:
        """What to answer a site: what Flower has for it, or what it has not confirmed."""
        now = time.monotonic()
        if has_message(body):
            if len(body) <= MOST_BYTES and len(self.kept) < MOST_SITES:
                self.kept[key] = Kept(body, now)
            return body
        kept = self.kept.get(key)
        if kept is None:
            return body
        if kept.times >= MOST_TIMES or now - kept.since > LONGEST:
            del self.kept[key]
            return body
        kept.times += 1
        return kept.body


class Request:
    """A call's content, whose digest is taken while Flower reads it."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.digest = hashlib.sha256()

    async def read(self) -> Scope:
        event = await self.receive()
        if event["type"] == "http.request":
            self.digest.update(event.get("body", b""))
        return event


class Answer:
    """An answer of Flower's, before it is sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    async def note(self, event: Scope) -> None:
        if event["type"] == "http.response.start":
            self.status = int(event["status"])
            self.headers = list(event.get("headers", []))
        elif event["type"] == "http.response.body":
            self.body += bytes(event.get("body", b""))
        else:
            rule = "Flower must answer a site's call at once"
            raise FedloomError(rule, str(event["type"]), "use a tested version of flwr")

    async def send(self, send: Send) -> None:
        headers = [pair for pair in self.headers if pair[0].lower() != b"content-length"]
        headers.append((b"content-length", str(len(self.body)).encode()))
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def has_message(body: bytes) -> bool:
    from flwr.proto.fleet_pb2 import PullMessagesResponse

    response = PullMessagesResponse()
    response.ParseFromString(body)
    return len(response.messages_list) > 0


def asks_for_content(body: bytes) -> bool:
    from flwr.proto.fleet_pb2 import PushMessagesResponse

    response = PushMessagesResponse()
    response.ParseFromString(body)
    return len(response.objects_to_push) > 0
