"""Server and sites can open a federation that an earlier version made. See tests/fixtures."""

import datetime
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import tiny
from deployment import Deployment, allow_small_parts, free_port

from fedloom.data.split import Split
from fedloom.version import __version__

OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0"

pytestmark = pytest.mark.flower


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """A copy, with the modes that git does not keep, at a time when its certificates are valid."""
    from fedloom.deploy import kits

    class ThatTime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            valid = kits.x509.load_pem_x509_certificate(
                (OLD / "federation" / "ca.crt").read_bytes()
            )
            return valid.not_valid_before_utc + datetime.timedelta(days=1)

    monkeypatch.setattr(kits.datetime, "datetime", ThatTime)
    path = Path(shutil.copytree(OLD / "federation", tmp_path / "federation"))
    for key in path.rglob("*.key"):
        key.chmod(0o600)
    return path


def test_the_server_opens_it(federation, tmp_path):
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.submission import current

    opened = Federation.open(federation)
    assert opened.sites == ("hospital-a", "hospital-b") and len(opened.nodes) == 2
    assert current(opened) is None  # the run that it names is not there any more
    run = shutil.copytree(OLD / "federation-runs" / "stopped", tmp_path / "stopped")
    (federation / "current.json").write_text(json.dumps({"run": str(run)}))
    assert current(opened).to_json() == {
        "run": str(run), "method": "ditto", "state": "unfinished", "round": 2, "rounds": 30,
        "claims": [],
    }  # fmt: skip


def test_a_site_opens_its_kit(federation):
    from fedloom.deploy.kits import Kit

    for site in ("hospital-a", "hospital-b"):
        kit = Kit.open(federation / "kits" / site)
        assert (kit.site, kit.policy.methods, kit.policy.tensors) == (site, ["*"], ["*"])


DAMAGE = {
    "empty": b"", "no text": b"\xff", "deep": b"[" * 5000, "a number": b"3", "zeros": b"\x00",
    "of another kind": b'{"sites": 3, "site": 3}',
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named(federation, damage):
    from fedloom.deploy.kits import Federation, Kit
    from fedloom.deploy.submission import current
    from fedloom.errors import FedloomError

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


def moved(tmp_path):
    """The old deployment and its stopped run, as if it had always been here, with 4 of 30 rounds.

    Its address and folder differ, so the run's config.toml does too, and with it the id under which
    the sites keep their states. A new SuperLink gives its nodes new numbers.
    """
    here = Deployment(tmp_path)
    shutil.copytree(OLD / "federation", here.path)
    shutil.copytree(OLD / "federation-data", tmp_path / "sites")
    run = Path(shutil.copytree(OLD / "federation-runs" / "stopped", tmp_path / "stopped"))

    split = Split.load(run / "split.json").hash.encode()
    before = (run / "config.toml").read_bytes()
    after = before.replace(b'"/tmp/federation"', json.dumps(str(here.path)).encode())
    after = after.replace(b"rounds = 30", b"rounds = 4")
    (run / "config.toml").write_bytes(after)
    for checkpoint in (run / "checkpoints").iterdir():
        whole = checkpoint.read_bytes()
        assert b'\\"budget\\": 30.0' in whole
        checkpoint.write_bytes(whole.replace(b'\\"budget\\": 30.0', b'\\"budget\\": 4.00'))
    old_id, new_id = (hashlib.sha256(text + split).hexdigest()[:16] for text in (before, after))

    port = free_port()
    settings = json.loads((here.path / "federation.json").read_text())
    (here.path / "federation.json").write_text(json.dumps(settings | {"port": port, "nodes": {}}))
    for kit in (here.path / "kits").iterdir():
        (kit / "state" / old_id).rename(kit / "state" / new_id)
        settings = json.loads((kit / "kit.json").read_text())
        (kit / "kit.json").write_text(json.dumps(settings | {"server": f"127.0.0.1:{port}"}))
        allow_small_parts(kit)
    for key in here.path.rglob("*.key"):
        key.chmod(0o600)
    return here


def test_its_stopped_run_is_resumed_through_flower(tmp_path):
    from fedloom.deploy import kits

    certificate = kits.x509.load_pem_x509_certificate((OLD / "federation" / "ca.crt").read_bytes())
    if certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        pytest.skip(
            "the certificates of that time have expired: "
            "keep a deployment of a later version beside it"
        )
    here = moved(tmp_path)
    try:
        here.serve()
        for name in here.names:
            here.attend(name)
        done = here.fedloom("resume", "stopped", "--json")
        assert done.returncode == 0, done.stderr + here.log("server").read_text()
    finally:
        here.stop()
    result = json.loads((tmp_path / "stopped" / "result.json").read_text())
    assert result["versions"]["took_part"] == ["0.1.0", __version__]
    assert [row["round"] for row in tiny.rows(tmp_path / "stopped")] == [1, 2, 3, 4]
    assert not any(
        row["refused"] for row in tiny.rows(tmp_path / "stopped")
    )  # ditto needs the states of that time
    assert here.fedloom("report", "stopped").returncode == 0
    for name in here.names:
        own = ["--kit", str(here.path / "kits" / name), "--kit-data", f"sites/{name}.npz"]
        exported = here.fedloom("export", "stopped", *own, "--out", f"model-{name}")
        assert exported.returncode == 0, exported.stderr
        predicted = here.fedloom(
            "predict", "stopped", *own, "--data", f"sites/{name}.npz", "--json"
        )
        assert predicted.returncode == 0, predicted.stderr
