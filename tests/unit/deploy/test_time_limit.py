"""Work that takes too long is interrupted; what comes after it never is."""

import os
import signal
import sys
import time

import pytest

from fedloom.deploy import limits


@pytest.fixture(autouse=True)
def alarm_is_free():
    """Nobody else's alarm is armed before a test, and none after it."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    armed = signal.setitimer(signal.ITIMER_REAL, 0.0)
    left_over = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)
    assert armed == (0.0, 0.0) and left_over is before


def ring():
    os.kill(os.getpid(), signal.SIGALRM)


def test_long_work_is_interrupted():
    sentence = r"at most 0.05 s here, but this one takes longer"
    limit = limits.TimeLimit(0.05, limits.too_slow)
    with pytest.raises(limits.BeyondLimit, match=sentence), limit:
        time.sleep(5)


@pytest.mark.parametrize("name", ["setitimer", "signal"])
def test_an_alarm_while_it_is_disarmed_raises_nothing(monkeypatch, name):
    """The work has ended: it is not refused, and the timer does not ring again later."""
    call = getattr(signal, name)
    limit = limits.TimeLimit(60.0, limits.too_slow)
    limit.__enter__()

    def rings_first(*arguments):
        ring()
        return call(*arguments)

    monkeypatch.setattr(limits.signal, name, rings_first)
    limit.__exit__(None, None, None)


def test_an_alarm_as_the_disarming_begins_raises_nothing():
    """Python handles a signal before a function's first statement, which no order can prevent."""
    limit = limits.TimeLimit(60.0, limits.too_slow)
    limit.__enter__()
    frames = []

    def trace(frame, event, argument):
        if frame.f_code is limits.TimeLimit.__exit__.__code__ and not frames:
            frames.append(frame)
            limit.interrupt(signal.SIGALRM, frame)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        limit.__exit__(None, None, None)
    finally:
        sys.settrace(before)
    assert frames


def test_the_limit_of_another_order_is_not_disarmed_by_an_earlier_one():
    for _ in range(200):
        try:
            with limits.TimeLimit(0.0005, limits.too_slow):
                time.sleep(0.0005)
        except limits.BeyondLimit:
            pass
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
