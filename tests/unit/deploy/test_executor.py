"""The warm process of a site, without Flower: which messages have a process, and until when."""

import time

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
