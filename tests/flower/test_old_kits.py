"""A federation that an earlier version made: its server and its sites open it. See tests/fixtures."""

import datetime
import json
import shutil
from pathlib import Path

import pytest

OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0"

pytestmark = pytest.mark.flower


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """A copy, with the modes that git does not keep, at a time when its certificates are valid."""
    from fedloom.flower import kits

    class ThatTime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            valid = kits.x509.load_pem_x509_certificate((OLD / "federation" / "ca.crt").read_bytes())
            return valid.not_valid_before_utc + datetime.timedelta(days=1)

    monkeypatch.setattr(kits.datetime, "datetime", ThatTime)
    path = Path(shutil.copytree(OLD / "federation", tmp_path / "federation"))
    for key in path.rglob("*.key"):
        key.chmod(0o600)
    return path


def test_the_server_opens_it(federation, tmp_path):
    from fedloom.flower.kits import Federation
    from fedloom.flower.submission import current

    opened = Federation.open(federation)
    assert opened.sites == ("hospital-a", "hospital-b") and len(opened.nodes) == 2
    assert current(opened) is None  # the run that it names is not there any more
    run = shutil.copytree(OLD / "federation-runs" / "stopped", tmp_path / "stopped")
    (federation / "current.json").write_text(json.dumps({"run": str(run)}))
    assert current(opened) == {
        "run": str(run), "method": "ditto", "state": "unfinished", "round": 2, "rounds": 30, "claims": [],
    }  # fmt: skip


def test_a_site_opens_its_kit(federation):
    from fedloom.flower.kits import Kit

    for site in ("hospital-a", "hospital-b"):
        kit = Kit.open(federation / "kits" / site)
        assert (kit.site, kit.policy.methods, kit.policy.tensors) == (site, ["*"], ["*"])


DAMAGE = {
    "empty": b"", "no text": b"\xff", "deep": b"[" * 5000, "a number": b"3", "zeros": b"\x00",
    "of another kind": b'{"sites": 3, "site": 3}',
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named(federation, damage):
    from fedloom.errors import FedloomError
    from fedloom.flower.kits import Federation, Kit
    from fedloom.flower.submission import current

    (federation / "current.json").write_bytes(DAMAGE[damage])
    assert current(Federation.open(federation)) is None
    for name in ("kit.json", "policy.toml"):
        whole = (federation / "kits" / "hospital-a" / name).read_bytes()
        (federation / "kits" / "hospital-a" / name).write_bytes(DAMAGE[damage])
        with pytest.raises(FedloomError):
            Kit.open(federation / "kits" / "hospital-a")
        (federation / "kits" / "hospital-a" / name).write_bytes(whole)
    (federation / "federation.json").write_bytes(DAMAGE[damage])
    with pytest.raises(FedloomError, match=r"federation.json must be"):
        Federation.open(federation)
