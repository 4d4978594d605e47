"""The warm process of a site, without Flower: which messages have a process, and until when."""

import json
import time
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.flower
executor = pytest.importorskip("fedloom.deploy.executor", reason="needs fedloom[flower]")


@pytest.fixture
def children():
    children = executor.Children()
    yield children
    for child in list(children.running):
        children._end(child)


def ended(children):
    """Whether all children end within some seconds."""
    until = time.monotonic() + 20
    while children.running and time.monotonic() < until:
        children.reap()
        time.sleep(0.01)
    return not children.running


def forever():
    time.sleep(1000)
    return 0


def test_every_message_has_a_process_of_its_own(children, tmp_path):
    for name in ("a", "b"):
        children.start(lambda name=name: (tmp_path / name).write_text(name) - 1)
    assert ended(children)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_message_that_never_arrives_whole_keeps_nobody_waiting(children, tmp_path):
    children.start(forever)
    children.start(lambda: (tmp_path / "answered").write_text("") or 0)
    until = time.monotonic() + 20
    while not (tmp_path / "answered").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "answered").exists()


def test_the_oldest_is_given_up_for_one_too_many(children, monkeypatch, caplog):
    monkeypatch.setattr(executor, "MOST_CHILDREN", 2)
    for _ in range(2):
        children.start(forever)
    oldest, other = children.running
    children.start(forever)
    assert oldest not in children.running
    assert other in children.running and len(children.running) == 2
    assert "not answered and is given up" in caplog.text


def test_an_error_of_a_message_is_logged_and_ends_nothing_else(children, caplog):
    def fails():
        raise RuntimeError("this message is damaged")

    children.start(fails)
    assert ended(children)
    assert "ended with status" in caplog.text


class Stopped(Exception):
    """Flower's program ends."""


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """Answers a message of Flower's in this process, and returns the replies that leave."""
    from flwr.supernode.runtime import run_clientapp as runtime

    for name in executor.FLOWERS:  # so that they are put back
        monkeypatch.setattr(runtime, name, getattr(runtime, name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    replies = []

    def nothing(*given, **options):
        return SimpleNamespace(start=lambda: None, stop=lambda: None, is_running=False)

    def end(**options):
        raise Stopped

    def answer(task):
        monkeypatch.setattr(runtime.RuntimeHttpClient, "from_server_address", nothing)
        monkeypatch.setattr(runtime, "HeartbeatSender", nothing)
        monkeypatch.setattr(runtime, "make_task_heartbeat_fn_http", nothing)
        monkeypatch.setattr(runtime, "register_signal_handlers", nothing)
        monkeypatch.setattr(runtime, "pull_task_input", lambda client: task)
        monkeypatch.setattr(runtime, "push_message", lambda client, *reply: replies.append(reply))
        monkeypatch.setattr(runtime, "flwr_exit", end)
        with pytest.raises(Stopped):
            executor.answer_one("127.0.0.1:1", "token")
        return replies[-1][0]

    return answer


def task_of(message_type, version="0", program=b"no archive", fab_id="fedloom/fedloom-app"):
    """What Flower hands to the process of a message."""
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.app.metadata import Metadata
    from flwr.supercore.fab import Fab

    metadata = Metadata(
        run_id=7,
        message_id="1",
        src_node_id=1,
        dst_node_id=2,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=60.0,
        message_type=message_type,
    )
    content = RecordDict({"survey": ConfigRecord({"ask": "facts"})})
    message = Message(metadata=metadata, content=content)
    context = Context(
        run_id=7, node_id=2, node_config={"kit": "."}, state=RecordDict(), run_config={}
    )
    run = SimpleNamespace(fab_id=fab_id, fab_version=version, run_id=7)
    return message, context, run, Fab("0" * 64, program, {})


def test_no_program_of_a_server_is_unpacked_or_loaded(answered, tmp_path):
    """Flower would unpack it into, and load it from, a folder that its name and version name."""
    reply = answered(task_of("query", version="/../../../" + "x" * 300))
    assert not reply.has_error()  # our own program has answered
    assert "envelope" in reply.content.config_records
    assert not (tmp_path / "home" / "apps").exists()


def test_the_text_of_flowers_own_errors_stays_at_the_site(answered, tmp_path, monkeypatch):
    def fails(self, message, context):
        raise OSError(28, "No space left on device", "/data/patient-4711.npz")

    from flwr.clientapp import ClientApp

    monkeypatch.setattr(ClientApp, "__call__", fails)
    reply = answered(task_of("query"))
    assert reply.error.reason == "number 1 in the site's audit log says why"
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert line["event"] == "refused"
    assert "/data/patient-4711.npz" in line["reason"]


def test_a_message_of_another_kind_is_in_the_audit_log(answered, tmp_path):
    assert answered(task_of("train")).has_error()
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert (line["event"], line["order"]) == ("refused", None)
