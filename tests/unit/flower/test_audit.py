"""A site's audit log: every line is chained to the one before, and damage is named by line."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.deploy import audit
from fedloom.deploy.at_the_site import audit as print_audit
from fedloom.deploy.audit import HEAD, AuditError, AuditLog, Head, Line
from fedloom.deploy.kit_file import KitFile
from fedloom.errors import FedloomError

EVENTS = ["order", "reply", "order", "refused"]


def written(folder):
    folder.mkdir(exist_ok=True)
    KitFile(site="a", server="localhost:9092").write(folder)
    log = AuditLog(folder)
    numbers = [log.append(event, {"order": number}) for number, event in enumerate(EVENTS)]
    assert numbers == [1, 2, 3, 4]
    return log


def lines_of(log):
    return log.path.read_bytes().splitlines(keepends=True)


def test_every_line_holds_the_digest_of_the_line_before(tmp_path):
    log = written(tmp_path / "kit")
    raw = log.path.read_bytes().splitlines()
    assert json.loads(raw[0])["previous"] == "0" * 64
    for before, line in itertools.pairwise(raw):
        assert json.loads(line)["previous"] == hashlib.sha256(before).hexdigest()
    head = json.loads((log.kit / HEAD).read_text())
    assert head == {"number": 4, "digest": hashlib.sha256(raw[-1]).hexdigest()}
    lines = [line for line, _ in log.verified()]
    assert [line.event for line in lines] == EVENTS
    assert [line.content for line in lines] == [{"order": number} for number in range(4)]
    assert log.path.stat().st_mode & 0o777 == 0o600


def changed(lines):
    return [lines[0], lines[1].replace(b'"order": 1', b'"order": 7'), *lines[2:]]


def last_changed(lines):
    return [*lines[:-1], lines[-1].replace(b'"order": 3', b'"order": 7')]


def inserted(lines):
    return [lines[0], lines[1], lines[1], *lines[2:]]


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (changed, 2),
        (last_changed, 4),
        (inserted, 3),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], *lines[2:]], 2),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2),
        (lambda lines: lines[:2], 3),
        (lambda lines: [*lines[:3], lines[3][:20]], 4),
        (lambda lines: [b"not JSON\n", *lines[1:]], 1),
        (lambda lines: [], 1),
    ],
)
def test_a_log_that_was_tampered_with_is_named_by_line(tmp_path, capsys, damage, line):
    from fedloom.cli import main

    pytest.importorskip("flwr")
    log = written(tmp_path / "kit")
    log.path.write_bytes(b"".join(damage(lines_of(log))))
    with pytest.raises(AuditError, match=rf"line {line} is not: "):
        list(log.verified())
    assert main(["federation", "audit", str(log.kit)]) == 2
    output = capsys.readouterr()
    assert f"line {line} is not" in output.err and "Traceback" not in output.err
    log.path.unlink()
    with pytest.raises(AuditError, match=r"there is no log, but audit\.head names line 4"):
        list(log.verified())


def test_a_log_without_its_head_is_not_whole(tmp_path):
    log = written(tmp_path / "kit")
    (log.kit / HEAD).unlink()
    with pytest.raises(AuditError, match=r"line 2 is not: audit\.head names line 0 as the last"):
        list(log.verified())
    with pytest.raises(AuditError, match=r"audit\.head names another last line"):
        log.append("order", {})


def test_a_full_disk_is_no_tampering(tmp_path, monkeypatch):
    """Lines still fitted, but not their heads: after two such orders the log seemed changed."""
    log = written(tmp_path / "kit")

    def full(path, *content, **options):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(audit, "write_whole", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                log.append("order", {})
    assert len(list(log.verified())) == 4
    assert log.append("order", {}) == 5
    assert len(list(log.verified())) == 5


def test_nothing_is_added_to_a_log_whose_end_was_changed(tmp_path):
    log = written(tmp_path / "kit")
    log.path.write_bytes(b"".join(last_changed(lines_of(log))))
    before = log.path.read_bytes()
    with pytest.raises(AuditError, match=r"line 4 is not: audit\.head names another last line"):
        log.append("order", {})
    log.path.write_bytes(b"")
    with pytest.raises(AuditError, match="the log is empty"):
        log.append("order", {})
    log.path.write_bytes(before.replace(b'"order": 7', b'"order": 3'))
    assert log.append("order", {}) == 5
    assert len(list(log.verified())) == 5


def test_a_site_that_was_killed_before_the_head_was_written_goes_on(tmp_path):
    log = written(tmp_path / "kit")
    head = (log.kit / HEAD).read_bytes()
    log.append("reply", {})
    (log.kit / HEAD).write_bytes(head)
    assert len(list(log.verified())) == 5
    assert log.append("order", {}) == 6
    assert len(list(log.verified())) == 6


def test_a_site_that_is_killed_again_before_the_head_was_written_goes_on(tmp_path, monkeypatch):
    log = written(tmp_path / "kit")
    write_head = AuditLog._write_head

    def killed_at(number):
        def write(log, head):
            if head.number == number:
                raise KeyboardInterrupt
            write_head(log, head)

        return write

    for number in (5, 6):
        monkeypatch.setattr(AuditLog, "_write_head", killed_at(number))
        with pytest.raises(KeyboardInterrupt):
            log.append("order", {})
    monkeypatch.undo()
    assert log.append("order", {}) == 7
    assert len(list(log.verified())) == 7


def test_a_disk_that_fails_after_the_head_was_replaced_does_not_break_the_log(
    tmp_path, monkeypatch
):
    log = written(tmp_path / "kit")
    write_head = AuditLog._write_head

    def failing(log, head):
        write_head(log, head)
        raise OSError(5, "the folder cannot be synced")

    monkeypatch.setattr(AuditLog, "_write_head", failing)
    with pytest.raises(OSError, match="synced"):
        log.append("order", {})
    monkeypatch.undo()
    assert log.append("order", {}) == 6
    assert len(list(log.verified())) == 6


def test_a_line_that_was_never_finished_is_cut_off(tmp_path):
    """Its answer never left, because the line is on the disk before."""
    log = written(tmp_path / "kit")
    with log.path.open("ab") as file:
        file.write(b'{"number": 5, "prev')
    assert [line.number for line, _ in log.verified()] == [1, 2, 3, 4]
    assert log.has_unfinished_line()
    printed = io.StringIO()
    assert print_audit(log.kit, None, as_json=False, stream=printed) == 0
    assert "notice: the site was stopped while it wrote a line" in printed.getvalue()
    assert log.append("order", {}) == 5
    assert not log.has_unfinished_line()
    assert [line.number for line, _ in log.verified()] == [1, 2, 3, 4, 5]


def test_the_last_of_long_lines_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "TAIL", 7)
    log = written(tmp_path / "kit")
    assert log.append("order", {"long": "x" * 1000}) == 5
    assert log.append("order", {}) == 6
    assert len(list(log.verified())) == 6


@settings(max_examples=200, deadline=None)
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_any_bit_that_changes_is_noticed(tmp_path_factory, place, bit):
    log = written(tmp_path_factory.mktemp("kit"))
    raw = bytearray(log.path.read_bytes())
    raw[place % len(raw)] ^= 1 << bit
    log.path.write_bytes(raw)
    with pytest.raises(AuditError):
        list(log.verified())


def read_anything(folder, log_content, head_content):
    log = AuditLog(folder)
    log.path.write_bytes(log_content)
    (folder / HEAD).write_bytes(head_content)
    for action in (lambda: list(log.verified()), lambda: log.append("order", {})):
        try:
            action()
        except AuditError:
            continue


LINE = Line(1, "0" * 64, "2026-01-01", "order", {"a": 1}).to_bytes() + b"\n"
BARE_HEAD = b'{"number": 1, "digest": ""}'
PIECES = st.lists(st.one_of(st.binary(max_size=30), st.just(LINE), st.just(b"\n")), max_size=5)


@settings(max_examples=300, deadline=None)
@given(
    pieces=PIECES, head=st.one_of(st.binary(max_size=60), st.just(b'{"number": 1, "digest": ""}'))
)
def test_any_bytes_as_a_log_are_one_sentence(tmp_path_factory, pieces, head):
    read_anything(tmp_path_factory.mktemp("kit"), b"".join(pieces), head)


@pytest.mark.slow
def test_a_million_damaged_lines():
    """Lines as a site writes them with bytes that are changed at random: ValueError or a line."""
    import random

    draw = random.Random(0)
    for _ in range(1_000_000):
        raw = bytearray(LINE[:-1])
        for _ in range(draw.randrange(1, 4)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        with contextlib.suppress(ValueError):
            assert isinstance(Line.read(bytes(raw)).number, int)


# What is printed


def printed(kit, head=None, *, as_json=False):
    stream = io.StringIO()
    assert print_audit(kit, head, as_json=as_json, stream=stream) == 0
    return stream.getvalue()


def test_the_log_is_printed_for_a_person_and_as_json(tmp_path):
    log = written(tmp_path / "kit")
    log.append("reply", {"order": 3, "fields": {"loss": 0.5}, "tensors": {"w": [2]}, "bytes": 99})
    text = printed(log.kit)
    assert 'reply     to 3: {"loss": 0.5}, 1 tensors, 99 bytes' in text
    head = re.search(r"5 lines, each as the site wrote it; head (5:[0-9a-f]{64})", text)[1]
    content = json.loads(printed(log.kit, as_json=True))
    assert content["head"] == head
    assert [row["number"] for row in content["lines"]] == [1, 2, 3, 4, 5]
    log.append("order", {})
    assert "6 lines" in printed(log.kit, head)


def test_a_new_log_does_not_contain_an_earlier_head(tmp_path):
    log = written(tmp_path / "kit")
    head = json.loads(printed(log.kit, as_json=True))["head"]
    log.path.unlink()
    (log.kit / HEAD).unlink()
    assert "0 lines" in printed(log.kit)
    with pytest.raises(AuditError, match="must contain the head that was printed before"):
        printed(log.kit, head)
    for number in range(6):
        log.append("order", {"another": number})
    with pytest.raises(AuditError, match="its line 4 is another one"):
        printed(log.kit, head)
    for text in ("4", "x:y", f"0:{'0' * 64}", head + " "):
        with pytest.raises(FedloomError, match="--head must be NUMBER:SHA256"):
            printed(log.kit, text)


def test_a_clock_that_went_back_is_told(tmp_path, monkeypatch):
    """A site's clock may be wrong by a year: the order of the lines does not depend on it."""
    log = written(tmp_path / "kit")

    class LastYear(audit.datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return super().now(zone).replace(year=2020)

    monkeypatch.setattr(audit.datetime, "datetime", LastYear)
    log.append("order", {})
    assert "notice: the clock of this machine went back: line 5 is of 2020-" in printed(log.kit)


def test_a_kit_of_another_user_is_refused(tmp_path):
    log = written(tmp_path / "kit")
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(log.kit, 12345, 12345)
    with pytest.raises(FedloomError, match="it belongs to user 12345, and you are root; run this"):
        printed(log.kit)


def test_the_head_has_no_other_fields(tmp_path):
    log = written(tmp_path / "kit")
    assert log.head() == Head(4, json.loads((log.kit / HEAD).read_text())["digest"])
    for content in (b"", b"{", b"[]", b'{"number": 4}', b'{"number": true, "digest": ""}'):
        (log.kit / HEAD).write_bytes(content)
        with pytest.raises(AuditError, match=r"audit\.head must be as the site wrote it"):
            log.head()
