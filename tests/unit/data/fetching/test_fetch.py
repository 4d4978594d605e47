"""One file over HTTP, from a server that does all that servers do."""

import errno
import hashlib
import os
import socket
import urllib.error
from dataclasses import replace

import pytest

from fedloom.data.fetching import fetch as module
from fedloom.data.fetching.catalogue import Checksum, Remote
from fedloom.data.fetching.fetch import Patience, Unfetched, fetch
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.errors import FedloomError

BODY = bytes(range(256)) * 1000
HURRIED = Patience(stall=0.3, attempts=2, pause=0.001)


class Heard(DownloadScreen):
    def __init__(self):
        self.said = []
        self.steps = []

    def say(self, text):
        self.said.append(text)

    def step(self, label, done, total):
        self.steps.append((label, done, total))


@pytest.fixture
def remote(loopback):
    loopback.files["/file"] = BODY
    checksum = Checksum("sha256", hashlib.sha256(BODY).hexdigest(), "its keeper")
    return Remote("file", (f"{loopback.root}file",), len(BODY), (checksum,))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "file"


def left(target):
    return sorted(path.name for path in target.parent.iterdir())


def ranges(loopback):
    return [headers.get("Range") for headers in loopback.requests]


def interrupted(loopback, remote, target, count):
    """A part of `count` bytes, as a stopped download leaves it."""
    loopback.tricks += [{"truncate": count}, {"status": 404}]
    with pytest.raises(Unfetched, match=f"404 Not Found; try again later; {count} bytes are kept"):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert left(target) == ["file.part", "file.part.json"]
    loopback.requests.clear()


def test_a_whole_file_is_fetched_once_and_nothing_else_is_left(loopback, remote, target):
    heard = Heard()
    fetch(remote, target, heard, HURRIED)
    assert target.read_bytes() == BODY
    assert left(target) == ["file"]
    assert ranges(loopback) == [None]
    assert heard.steps[-1] == ("file", len(BODY), len(BODY))


def test_a_truncated_answer_is_continued_where_it_ended(loopback, remote, target):
    loopback.tricks += [{"truncate": 1000}, {"truncate": 5}]
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY
    assert ranges(loopback) == [None, "bytes=1000-", "bytes=1005-"]


def test_the_next_call_goes_on_and_says_so(loopback, remote, target):
    interrupted(loopback, remote, target, 4000)
    heard = Heard()
    fetch(remote, target, heard, HURRIED)
    assert target.read_bytes() == BODY
    assert ranges(loopback) == ["bytes=4000-"]
    assert heard.said == ["file: continuing after 4000 bytes"]


def test_a_part_that_is_complete_is_not_asked_for_again(loopback, remote, target):
    interrupted(loopback, remote, target, len(BODY) - 1)
    with open(target.parent / "file.part", "ab") as file:
        file.write(BODY[-1:])
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert loopback.requests == [] and target.read_bytes() == BODY


def test_a_server_that_stalls_is_left_and_asked_again(loopback, remote, target):
    loopback.tricks.append({"stall": 3000})
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY
    assert ranges(loopback) == [None, "bytes=3000-"]


def test_a_server_that_always_stalls_ends_in_one_sentence(loopback, remote, target):
    loopback.tricks += [{"stall": 0}] * 2
    with pytest.raises(
        Unfetched, match=r"but the server sent nothing for 0\.3 seconds, again and again; try again"
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)


def test_a_server_that_ignores_ranges_restarts(loopback, remote, target):
    interrupted(loopback, remote, target, 2000)
    loopback.tricks.append({"ignore range": True})
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == ["bytes=2000-"]


def test_a_server_that_ignores_ranges_and_truncates_is_given_up(loopback, remote, target):
    loopback.tricks += [{"ignore range": True, "truncate": 500}] * 9
    with pytest.raises(Unfetched, match=f"ended after 500 of {len(BODY)} bytes"):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert len(loopback.requests) == 3


@pytest.mark.parametrize("validators", [True, False])
def test_a_file_that_changed_between_attempts_is_not_glued(loopback, remote, target, validators):
    """With a validator the server starts over.

    Without one, the checksum detects the change, and the download starts over.
    """
    loopback.validators = validators
    loopback.files["/file"] = bytes(len(BODY))
    interrupted(loopback, remote, target, 2000)
    loopback.files["/file"] = BODY
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY
    assert ranges(loopback) == (["bytes=2000-"] if validators else ["bytes=2000-", None])


def test_a_file_that_changes_within_one_call_is_not_glued(loopback, remote, target):
    loopback.validators = False
    loopback.tricks.append({"corrupt": True, "truncate": 2000})
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [None, "bytes=2000-", None]


def test_a_file_of_another_length_is_not_glued_even_without_validators(loopback, remote, target):
    loopback.validators = False
    changing = replace(remote, exact=False)
    loopback.files["/file"] = BODY + b"more"
    interrupted(loopback, changing, target, 2000)
    loopback.files["/file"] = BODY
    fetch(changing, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == ["bytes=2000-", None]


def test_a_file_that_became_shorter_than_its_part_starts_over(loopback, remote, target):
    loopback.files["/file"] = BODY * 2
    interrupted(loopback, replace(remote, exact=False), target, len(BODY) + 9)
    loopback.files["/file"] = BODY
    loopback.validators = False
    note = target.parent / "file.part.json"
    note.write_text(note.read_text().replace('"validator"', '"forgotten"'))
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [f"bytes={len(BODY) + 9}-", None]


def test_a_weak_validator_is_no_ground_to_go_on(loopback, remote, target):
    loopback.tricks.append({"truncate": 100, "etag": 'W/"same"'})
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [None, None]


def test_a_part_of_another_url_is_not_continued(loopback, remote, target):
    interrupted(loopback, remote, target, 100)
    loopback.files["/other"] = BODY
    fetch(replace(remote, urls=(f"{loopback.root}other",)), target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [None]


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": 3}'])
def test_a_spoilt_note_only_costs_the_part(loopback, remote, target, note):
    interrupted(loopback, remote, target, 100)
    (target.parent / "file.part.json").write_text(note)
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [None]


def test_a_corrupted_file_is_refused_with_the_checksum_and_its_source(loopback, remote, target):
    loopback.tricks.append({"corrupt": True})
    with pytest.raises(
        Unfetched,
        match=r"must have the sha256 \w{64} \(its keeper\), but the downloaded file has \w{64}",
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert left(target) == []


def test_a_corrupted_part_is_thrown_away_and_fetched_whole(loopback, remote, target):
    loopback.tricks += [{"corrupt": True, "truncate": 3000}, {"status": 404}]
    with pytest.raises(Unfetched):
        fetch(remote, target, DownloadScreen(), HURRIED)
    heard = Heard()
    fetch(remote, target, heard, HURRIED)
    assert target.read_bytes() == BODY
    assert heard.said[-1] == "file: its pieces do not fit; starting over"


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_refusal_is_final(loopback, remote, target, status):
    loopback.tricks.append({"status": status})
    with pytest.raises(Unfetched, match=f"must be fetched, but the server answers {status} "):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(loopback, remote, target, status):
    loopback.tricks.append({"status": status})
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and len(loopback.requests) == 2


def test_a_failure_that_does_not_pass_ends(loopback, remote, target):
    loopback.tricks += [{"status": 500}] * 9
    with pytest.raises(
        Unfetched, match="the server answers 500 Internal Server Error; try again later"
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("length", [7, len(BODY) + 7])
def test_a_wrong_content_length_is_refused_before_anything_comes(loopback, remote, target, length):
    loopback.tricks.append({"length": length})
    with pytest.raises(
        Unfetched, match=f"must be {len(BODY)} bytes, but the server offers {length}"
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert left(target) == []


def test_an_error_page_does_not_cost_the_part(loopback, remote, target):
    interrupted(loopback, remote, target, 4000)
    loopback.tricks.append({"ignore range": True, "length": 20, "truncate": 20})
    with pytest.raises(Unfetched, match="the server offers 20"):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert (target.parent / "file.part").stat().st_size == 4000


def test_without_a_content_length_the_known_size_tells_a_cut_from_an_end(loopback, remote, target):
    loopback.tricks += [{"no length": True, "truncate": 2000}, {"no length": True}]
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback) == [None, "bytes=2000-"]


@pytest.mark.parametrize("exact", [True, False])
def test_more_than_the_file_can_have_is_not_written(loopback, remote, target, exact):
    loopback.files["/file"] = BODY * 3
    loopback.tricks.append({"no length": True})
    with pytest.raises(
        Unfetched,
        match=f"must be {'' if exact else 'about '}{len(BODY)} bytes, but the server sent more",
    ):
        fetch(replace(remote, exact=exact), target, DownloadScreen(), HURRIED)
    assert (target.parent / "file.part").stat().st_size == 0


def test_the_next_url_is_tried_and_the_first_failure_is_told(loopback, remote, target):
    both = replace(remote, urls=(f"{loopback.root}gone", *remote.urls))
    loopback.files["/gone"] = b""
    loopback.tricks.append({"status": 404})
    heard = Heard()
    fetch(both, target, heard, HURRIED)
    assert target.read_bytes() == BODY
    assert "gone must be fetched, but the server answers 404 Not Found" in heard.said[0]
    target.unlink()
    loopback.tricks += [{"status": 404}, {"status": 403}]
    with pytest.raises(Unfetched, match="404"):
        fetch(both, target, heard, HURRIED)


def test_an_unknown_host_is_told_at_once(remote, target, monkeypatch):
    attempts = []

    def unresolved(*_, **__):
        attempts.append(1)
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr(module.urllib.request, "urlopen", unresolved)
    with pytest.raises(
        Unfetched, match=r"its host is not found, so there may be no network here \(Name or"
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert len(attempts) == 1


def test_a_server_that_is_not_there_is_told(remote, target):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
    with pytest.raises(Unfetched, match="Connection refused"):
        fetch(replace(remote, urls=(url,)), target, DownloadScreen(), HURRIED)


def test_a_full_disk_is_told_and_not_tried_again(loopback, remote, target, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "replace", full)
    with pytest.raises(
        FedloomError, match=r"file must be writable, but no space left on device; make room"
    ):
        fetch(remote, target, DownloadScreen(), HURRIED)
    assert len(loopback.requests) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_fills_up_while_bytes_come_is_told(loopback, remote, target):
    (target.parent / "file.part").symlink_to("/dev/full")
    with pytest.raises(FedloomError, match=r"file\.part must be writable, but "):
        fetch(remote, target, DownloadScreen(), HURRIED)


def test_ctrl_c_keeps_the_part(loopback, remote, target):
    class Impatient(DownloadScreen):
        def step(self, label, done, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(remote, target, Impatient(), HURRIED)
    size = (target.parent / "file.part").stat().st_size
    assert size > 0
    fetch(remote, target, DownloadScreen(), HURRIED)
    assert target.read_bytes() == BODY and ranges(loopback)[-1] == f"bytes={size}-"
