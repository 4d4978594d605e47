"""Without Flower, or with another version of it: one sentence. These need no Flower."""

import re
from importlib.metadata import PackageNotFoundError

import pytest
import tiny

from fedloom import flower
from fedloom.errors import FedloomError


def missing(name):
    raise PackageNotFoundError(name)


def test_without_flower_it_says_how_to_get_it(monkeypatch, images, tmp_path):
    monkeypatch.setattr(flower, "version", missing)
    with pytest.raises(FedloomError, match=r"there is no package flwr; `pip install 'fedloom\[flower\]'`") as caught:
        tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, engine={"kind": "flower-sim"}))
    assert caught.value.code == 2 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("found", ["1.40.9", "1.43.0", "2.0.0"])
def test_other_versions_are_refused(monkeypatch, found):
    monkeypatch.setattr(flower, "version", lambda name: found)
    with pytest.raises(FedloomError, match=f"at least 1.41 and below 1.43, but this is {found}"):
        flower.require()


@pytest.mark.parametrize("found", ["1.41.0", "1.42.7"])
def test_tested_versions_are_taken_and_call_nobody(monkeypatch, found):
    for name in flower.QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(flower, "version", lambda name: found)
    flower.require()
    assert flower.os.environ["FLWR_TELEMETRY_ENABLED"] == "0" == flower.os.environ["RAY_USAGE_STATS_ENABLED"]


def test_a_federation_that_is_none_is_named(monkeypatch, tmp_path):
    pytest.importorskip("flwr")
    from fedloom.config import Experiment, validated
    from fedloom.flower import submission

    config = validated(Experiment, {"engine": {"federation": str(tmp_path)}})
    with pytest.raises(FedloomError, match=r"federation.json must be that of the folder of a federation"):
        submission.create(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": {"topology": "clustered:2x2"}}, "a federation's topology must be flat, but got clustered:2x2"),
        ({"budget": {"equal": "macs"}}, "sites do not tell their MACs"),
        ({"data": {"clients": 3}}, "--clients must not be given to a federation"),
        ({"method": "file.py:name"}, "must be installed at every site"),
    ],
)
def test_what_a_federation_cannot_do_is_refused(changes, message):
    pytest.importorskip("flwr")
    from fedloom.config import Experiment, validated
    from fedloom.flower import submission

    with pytest.raises(FedloomError, match=re.escape(message)):
        submission.check(validated(Experiment, changes))


def test_kits_are_checked_before_they_are_used(tmp_path):
    pytest.importorskip("cryptography")
    from fedloom.flower.kits import Federation, Kit

    for sites, message in (([], "every site must be named once"), (["a", "a"], "named once"), (["A b"], "lower-case")):
        with pytest.raises(FedloomError, match=message):
            Federation.create(tmp_path / "none", sites, "127.0.0.1", 9092)
    made = Federation.create(tmp_path / "made", ["b", "a"], "127.0.0.1", 9092)
    assert Federation.open(made.path).sites == ("a", "b")
    with pytest.raises(FedloomError, match="a federation must get a new folder"):
        Federation.create(made.path, ["a"], "127.0.0.1", 9092)
    kit = made.path / "kits" / "a"
    assert Kit.open(kit).policy.methods == ["*"]
    (kit / "node.key").chmod(0o644)
    with pytest.raises(FedloomError, match="must be readable by its owner alone, but its mode is 644"):
        Kit.open(kit)
    (kit / "node.key").chmod(0o600)
    (kit / "policy.toml").write_text("methods = 3")
    with pytest.raises(FedloomError, match="methods"):
        Kit.open(kit)
    (kit / "policy.toml").write_text("methods = [")
    with pytest.raises(FedloomError, match="must be a site's policy in TOML"):
        Kit.open(kit)
    with pytest.raises(FedloomError, match="must be that of a site's start kit"):
        Kit.open(tmp_path)


def test_a_port_in_use_is_named(tmp_path):
    pytest.importorskip("flwr")
    import socket

    from fedloom.flower.kits import Federation
    from fedloom.flower.processes import check_free

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        made = Federation.create(tmp_path / "made", ["a"], "127.0.0.1", taken.getsockname()[1])
        with pytest.raises(FedloomError, match=f"port {made.port} must be free, but another program uses it"):
            check_free(made)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e12, "1", None, True, [1]])
def test_a_sites_envelope_with_absurd_seconds_is_none(seconds):
    pytest.importorskip("flwr")
    from fedloom.federation.site import Envelope
    from fedloom.flower.parcels import from_outside

    with pytest.raises(ValueError, match="its seconds are no number"):
        from_outside(Envelope(seconds))


def test_a_sites_envelope_can_neither_stop_the_run_nor_reach_a_report():
    pytest.importorskip("flwr")
    from fedloom.federation.site import Envelope, Fault
    from fedloom.flower.parcels import from_outside

    found = from_outside(Envelope(1.5, 10**30, {"params": 1}, Fault("store", "x" * 10_000, "a traceback")))
    assert (found.seconds, found.macs, found.facts) == (1.5, None, None)
    assert (found.fault.kind, len(found.fault.text), found.fault.detail) == ("raised", 500, "")
    assert from_outside(Envelope(2, fault=Fault("lost", "gone"))).fault.kind == "lost"
    assert from_outside(Envelope(2)).fault is None
