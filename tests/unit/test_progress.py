import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from fedloom.federation.server.events import ClientEvaluated, Notice, Replied, RoundEnded
from fedloom.records.rows import Evaluation, MetricsRow, Refusal
from fedloom.records.totals import Totals
from fedloom.report import progress as module
from fedloom.report.progress import Clock, Live, Plain, Screen, describe, open_screen


class Terminal(io.StringIO):
    def isatty(self):
        return True


def event(number, share, *, accuracy=None, refused=(), stage="train"):
    evaluation = None if accuracy is None else Evaluation("test", 3, "accuracy", accuracy)
    totals = Totals(down=1000, up=500, lan_down=20, lan_up=3)
    row = MetricsRow(stage, number, 0.0, refused=refused, evaluation=evaluation, totals=totals)
    return RoundEnded(row, share)


def evaluated(evaluation):
    plain = event(1, 0.5)
    return replace(plain, row=replace(plain.row, evaluation=evaluation))


@pytest.fixture
def now(monkeypatch):
    """A clock that goes when it is told."""
    time = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: time[0])
    return time


def test_quiet_says_nothing(capsys):
    with open_screen(quiet=True) as shown:
        listen = shown.listener("x")
        listen(event(1, 0.5))
    assert capsys.readouterr() == ("", "")


def test_plain_lines_when_not_a_terminal(now):
    stream = io.StringIO()
    with open_screen(quiet=False, stream=stream) as shown:
        listen = shown.listener("1-fedavg")
        listen(Replied(0, 3, 1))
        now[0] += 10
        listen(event(1, 0.25, accuracy=0.5))
        listen(ClientEvaluated(0, 3, 1))
        now[0] += 10
        listen(event(2, 0.5, refused=(Refusal(1, "late"),)))
        listen(event(3, 1.0, accuracy=0.75, stage="adapt"))
    assert stream.getvalue().splitlines() == [
        "1-fedavg: train round 1, test accuracy 50.0 %, 1.52 kB, 30 s left",
        "1-fedavg: train round 2, test accuracy 50.0 %, 1.52 kB, 1 refused, 20 s left",
        "1-fedavg: adapt round 3, test accuracy 75.0 %, 1.52 kB, done",
    ]


def test_plain_lines_are_about_ten_in_a_long_run():
    stream = io.StringIO()
    listen = Plain("x", stream)
    for number in range(1, 1001):
        listen(event(number, number / 1000))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("done")


def test_a_resumed_run_counts_its_own_time(now):
    """It begins at round 9 of 10: what is left follows from the one round it made itself."""
    clock = Clock()
    now[0] += 7
    clock.note(event(9, 0.9))
    assert clock.seconds_left() == pytest.approx(7.0)


def test_nothing_done_leaves_nothing_to_tell(now):
    assert Clock().seconds_left() == 0.0


def test_another_metric_goes_by_its_own_name_and_form():
    clock = Clock()
    clock.note(evaluated(Evaluation("validation", 3, "perplexity", 12.345)))
    assert "validation perplexity 12.3, " in describe(event(1, 0.5), clock)


def test_accuracy_that_nobody_has_is_not_shown():
    clock = Clock()
    clock.note(evaluated(Evaluation("test", 0, "accuracy", None)))
    assert "accuracy" not in describe(event(1, 0.5), clock)


def test_live_shows_round_metric_bytes_and_time_left(now):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Progress(
        TextColumn("{task.description} {task.percentage:.0f} {task.fields[status]}"),
        console=console,
    ) as bar:
        listen = Live("1-fedavg", bar)
        assert bar.tasks[0].fields["status"] == "starting"
        now[0] += 10
        listen(event(1, 0.5, accuracy=0.25))
        assert bar.tasks[0].completed == 0.5
        assert (
            bar.tasks[0].fields["status"]
            == "train round 1, test accuracy 25.0 %, 1.52 kB, 10 s left"
        )
        listen(ClientEvaluated(0, 8, 1))
        assert bar.tasks[0].fields["status"] == "evaluating 8 clients"
        listen(Replied(0, 8, 2))
        listen(event(2, 1.0))
        assert bar.tasks[0].fields["status"].endswith("done")
    assert "1-fedavg 100 train round 2" in stream.getvalue()


def test_a_terminal_gets_the_live_line():
    stream = Terminal()
    with open_screen(quiet=False, stream=stream) as shown:
        listen = shown.listener("1-fedavg")
        listen(event(1, 0.5, accuracy=0.25))
    assert "train round 1, test accuracy 25.0 %" in stream.getvalue()


def test_progress_goes_to_standard_error(capsys):
    with open_screen(quiet=False) as shown:
        shown.listener("x")(event(1, 1.0))
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("x: train round 1")


def test_long_work_on_data_is_told_now_and_then(monkeypatch):
    from fedloom.data.progress import with_progress
    from fedloom.report import progress

    stream = io.StringIO()
    with open_screen(quiet=False, stream=stream):
        assert list(with_progress("decoding", range(5))) == [0, 1, 2, 3, 4]
    assert stream.getvalue() == ""  # it was quick
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    with open_screen(quiet=False, stream=stream):
        list(with_progress("decoding", range(2000)))
    assert "decoding: 2,000 of 2,000" in stream.getvalue()
    with open_screen(quiet=True, stream=stream):
        list(with_progress("unpacking", range(5)))
    list(with_progress("unpacking", range(5)))  # nobody listens
    assert "unpacking" not in stream.getvalue()


def test_a_notice_about_the_data_is_shown_for_the_first_run_alone(capsys):
    shown = Screen(None, None)
    for label in ("a", "b"):
        listen = shown.listener(label)
        listen(Notice("3 files were left out", once=True))
        listen(Notice("a checkpoint was damaged"))
    assert capsys.readouterr().err.splitlines() == [
        "a: 3 files were left out",
        "a: a checkpoint was damaged",
        "b: a checkpoint was damaged",
    ]
