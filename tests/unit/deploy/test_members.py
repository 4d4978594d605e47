"""Which keys of sites are turned away."""

import datetime
import json

import pytest

from fedloom.deploy.member_list import MemberList, Watched
from fedloom.deploy.members import KeyRecord, RevokedKey, fingerprint_of, refusal_of

NOW = datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("expires", "reason"),
    [
        (None, None),
        (NOW + HOUR, None),
        (NOW, "the key of a expired at 2027-03-01 12:00 UTC"),
        (NOW - HOUR, "the key of a expired at 2027-03-01 11:00 UTC"),
    ],
)
def test_a_key_expires(expires, reason):
    keys = {"a": KeyRecord(fingerprint_of(b"key"), expires)}
    assert refusal_of(b"key", keys, [], NOW) == reason
    assert refusal_of(b"another", keys, [], NOW) == "its key is not one of the federation's"


def test_a_revoked_key_stays_out_even_if_its_site_has_a_new_one():
    keys = {"a": KeyRecord(fingerprint_of(b"new"), None)}
    revoked = [RevokedKey("a", fingerprint_of(b"old"), NOW - HOUR)]
    assert refusal_of(b"new", keys, revoked, NOW) is None
    assert refusal_of(b"old", keys, revoked, NOW) == (
        "the key of a was revoked at 2027-03-01 11:00 UTC"
    )


def test_records_survive_their_file():
    record = KeyRecord(fingerprint_of(b"key"), NOW)
    assert KeyRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    revoked = RevokedKey("a", fingerprint_of(b"key"), NOW)
    assert RevokedKey.from_json(json.loads(json.dumps(revoked.to_json()))) == revoked


def test_the_guard_sees_a_revocation_at_the_next_call(tmp_path):
    file = tmp_path / "federation.json"
    members = MemberList(tmp_path)
    assert members.members.current() is None  # nothing is allowed by a file that is not there
    record = KeyRecord(fingerprint_of(b"key"), None)
    file.write_text(json.dumps({"sites": ["a"], "keys": {"a": record.to_json()}}))
    assert members.members.current().refusal_of(b"key") is None
    revoked = RevokedKey("a", fingerprint_of(b"key"), NOW)
    file.write_text(json.dumps({"sites": [], "revoked": [revoked.to_json()]}))
    assert "was revoked" in members.members.current().refusal_of(b"key")
    file.write_text("damaged")
    assert members.members.current() is None


def test_an_unchanged_file_is_read_once(tmp_path):
    reads = []
    file = tmp_path / "file"
    file.write_text("1")
    watched = Watched(file, lambda: reads.append(1) or len(reads))
    assert [watched.current(), watched.current()] == [1, 1]
