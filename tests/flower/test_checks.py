"""What is checked before any process starts, and what of a site's envelope is believed."""

import re
import socket

import numpy as np
import pytest

from fedloom.errors import FedloomError

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


def test_a_federation_that_is_none_is_named(monkeypatch, tmp_path):
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
    from fedloom.config import Experiment, validated
    from fedloom.flower import submission

    with pytest.raises(FedloomError, match=re.escape(message)):
        submission.check(validated(Experiment, changes))


def test_kits_are_checked_before_they_are_used(tmp_path):
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
    from fedloom.federation.site import Envelope
    from fedloom.flower.parcels import from_outside

    with pytest.raises(ValueError, match="its seconds are no number"):
        from_outside(Envelope(seconds))


def test_a_sites_envelope_can_neither_stop_the_run_nor_reach_a_report():
    from fedloom.federation.site import Envelope, Fault
    from fedloom.flower.parcels import from_outside

    found = from_outside(Envelope(1.5, 10**30, {"params": 1}, Fault("store", "x" * 10_000, "a traceback")))
    assert (found.seconds, found.macs, found.facts) == (1.5, None, None)
    assert (found.fault.kind, len(found.fault.text), found.fault.detail) == ("raised", 500, "")
    assert from_outside(Envelope(2, fault=Fault("lost", "gone"))).fault.kind == "lost"
    assert from_outside(Envelope(2)).fault is None


def made_by(tmp_path):
    from fedloom.flower.kits import Federation

    return Federation.create(tmp_path / "made", ["a"], "127.0.0.1", 9092)


def test_certificates_are_checked_before_they_are_used(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    from fedloom.flower.kits import Authority, Federation, Kit

    made = made_by(tmp_path)
    key = serialization.load_pem_private_key((made.path / "ca.key").read_bytes(), None)
    authority = Authority(key, x509.load_pem_x509_certificate((made.path / "ca.crt").read_bytes()))
    kit, whole = made.path / "kits" / "a", (made.path / "server.crt").read_bytes()
    authority.issue("127.0.0.1", ["127.0.0.1"], days=-1).save(made.path / "server")
    with pytest.raises(
        FedloomError, match=r"server.crt must be a certificate that is valid now, but it is valid from 20"
    ):
        Federation.open(made.path)
    (made.path / "server.crt").write_bytes(b"no certificate")
    with pytest.raises(FedloomError, match="valid now, but it is none"):
        Federation.open(made.path)
    (made.path / "server.crt").unlink()
    with pytest.raises(FedloomError, match="but it cannot be read"):
        Federation.open(made.path)
    (made.path / "server.crt").write_bytes(whole)
    Federation.open(made.path)
    (kit / "ca.crt").write_bytes(b"")
    with pytest.raises(FedloomError, match=r"ca.crt must be a certificate that is valid now, but it is none"):
        Kit.open(kit)


@pytest.mark.parametrize("content", ["missing", "empty", "damaged"])
def test_a_site_without_data_is_told_so_at_once(tmp_path, capsys, content):
    from fedloom.cli import main

    kit, data = made_by(tmp_path).path / "kits" / "a", tmp_path / "data.npz"
    if content == "empty":
        np.savez(data, x=np.zeros((0, 6, 6), np.uint8), y=np.zeros(0, np.int64))
    if content == "damaged":
        data.write_bytes(b"PK nothing")
    assert main(["federation", "site", str(kit), "--data", str(data)]) == 2
    said = capsys.readouterr().err
    assert "data.npz" in said and "Traceback" not in said


def test_a_server_that_speaks_no_tls_is_named(tmp_path):
    import threading
    from dataclasses import replace

    from fedloom.flower.kits import Kit
    from fedloom.flower.processes import check_server

    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer():
            with plain.accept()[0] as met:
                met.recv(10)
                met.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        found = replace(kit, server=f"127.0.0.1:{plain.getsockname()[1]}")
        with pytest.raises(FedloomError, match="must speak TLS, but it does not"):
            check_server(found, insecure=False)


def test_a_server_that_does_not_answer_yet_is_waited_for(tmp_path, capsys):
    from dataclasses import replace

    from deployment import free_port

    from fedloom.flower.kits import Kit
    from fedloom.flower.processes import check_server

    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    check_server(replace(kit, server=f"127.0.0.1:{free_port()}"), insecure=False)
    assert "does not answer yet; waiting" in capsys.readouterr().err


def test_a_federations_own_defaults(tmp_path):
    from fedloom.config import Experiment, validated
    from fedloom.flower.kits import Federation
    from fedloom.flower.submission import settings

    made = Federation.create(tmp_path / "three", ["a", "b", "c"], "127.0.0.1", 9092)
    found = settings(validated(Experiment, {}), made)
    assert (found["deadline"], found["min_replies"]) == (600.0, 2)
    asked = {"engine": {"deadline": 5.0, "min_replies": 3}}
    found = settings(validated(Experiment, asked), made)
    assert (found["deadline"], found["min_replies"]) == (5.0, 3)
    assert settings(validated(Experiment, {"budget": {"participation": 0.3}}), made)["min_replies"] == 1


@pytest.mark.parametrize(
    ("line", "found"), [('fields = ["shape"]', "'loss' is not among its fields"), ('tensors = ["net.*"]', "'a' is not")]
)
def test_a_policy_says_what_may_leave(tmp_path, line, found):
    import torch

    from fedloom.federation.wire import reply_chunks
    from fedloom.flower.kits import Kit
    from fedloom.flower.site import check_reply
    from fedloom.types import Reply

    kit = made_by(tmp_path).path / "kits" / "a"
    reply = b"".join(reply_chunks(Reply(0, {"a": torch.zeros(2)}, 1.0, {"loss": 0.5})))
    check_reply(Kit.open(kit).policy, reply)
    name = line.partition(" ")[0]
    policy = (kit / "policy.toml").read_text()
    (kit / "policy.toml").write_text(re.sub(rf"^{name} = .*$", line, policy, flags=re.M))
    with pytest.raises(FedloomError, match=f"policy must allow what leaves, but {found}"):
        check_reply(Kit.open(kit).policy, reply)
