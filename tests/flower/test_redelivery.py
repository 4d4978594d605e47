"""An order that a broken connection swallowed reaches its site after all."""

import asyncio

import pytest

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


class Server:
    """Flower's queue for one site, behind the guard's redelivery."""

    def __init__(self, *queue, status=200):
        from fedloom.deploy.redelivery import Redelivery

        self.queue = list(queue)
        self.status = status
        self.redelivery = Redelivery(self.app)

    async def app(self, scope, receive, send):
        body = b""
        await receive()
        if self.queue:
            body = self.queue.pop(0)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def call(self, name, key="site", content=b""):
        messages = []

        async def receive():
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(event):
            messages.append(event)

        scope = {"path": f"/v1/fleet/{name}"}
        asyncio.run(self.redelivery(scope, receive, send, key))
        body = messages[1]["body"]
        assert (b"content-length", str(len(body)).encode()) in messages[0]["headers"]
        return body


def order(number):
    from flwr.proto.fleet_pb2 import PullMessagesResponse
    from flwr.proto.message_pb2 import Message

    message = Message()
    message.metadata.message_id = str(number)
    return PullMessagesResponse(messages_list=[message]).SerializeToString()


def test_an_unconfirmed_order_is_given_again_and_a_confirmed_one_is_not():
    server = Server(order(1))
    assert server.call("pull-messages") == order(1)
    assert server.call("pull-messages") == order(1)  # the first answer was lost
    assert server.call("pull-messages", key="another") == b""
    server.call("confirm-message-received")
    assert server.call("pull-messages") == b""


def test_a_new_order_comes_first_and_nothing_is_given_forever():
    from fedloom.deploy.redelivery import MOST_TIMES

    server = Server(order(1), order(2))
    assert [server.call("pull-messages") for _ in range(2)] == [order(1), order(2)]
    assert [server.call("pull-messages") for _ in range(MOST_TIMES)] == [order(2)] * MOST_TIMES
    assert server.call("pull-messages") == b""


def test_nothing_is_given_to_a_caller_whom_flower_turns_away():
    server = Server(order(1))
    server.call("pull-messages")
    server.status = 401
    assert server.call("pull-messages") == b""
    server.call("confirm-message-received")
    server.status = 200
    assert server.call("pull-messages") == order(1)


def asking_for(*contents):
    from flwr.proto.fleet_pb2 import PushMessagesResponse

    return PushMessagesResponse(objects_to_push=contents, session_id="s").SerializeToString()


def test_a_reply_that_is_announced_again_is_still_asked_for_its_content():
    first = asking_for("a", "b")
    nothing = asking_for()
    server = Server(first, nothing, nothing, asking_for("c"), nothing)
    assert server.call("push-messages", content=b"reply") == first
    assert server.call("push-messages", content=b"reply") == first  # the first answer was lost
    assert server.call("push-messages", content=b"reply", key="another") == nothing
    assert server.call("push-messages", content=b"next") == asking_for("c")
    assert server.call("push-messages", content=b"third") == nothing


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol", True),
        ("EOF occurred in violation of protocol (_ssl.c:1006)", True),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", False),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", False),
    ],
)
def test_only_a_wrong_certificate_is_given_up_on(monkeypatch, text, broken):
    import httpx
    from flwr.supernode import fleet_http_connection

    from fedloom.deploy import guard

    name = "make_simple_http_retry_invoker"
    monkeypatch.setattr(fleet_http_connection, name, getattr(fleet_http_connection, name))
    guard.connect_again_after_broken_handshakes()
    invoker = fleet_http_connection.make_simple_http_retry_invoker()
    assert invoker.should_giveup(httpx.ConnectError(text)) is not broken
