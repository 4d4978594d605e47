"""Who is not a site of the federation, and is turned away; the log says why."""

import shutil
import signal

import pytest
from deployment import Deployment, wait_for

pytestmark = pytest.mark.flower


@pytest.fixture
def copied_kit(federation, tmp_path):
    """Another copy of hospital-a's kit, to be tampered with."""
    kit = tmp_path / "kit"
    shutil.copytree(
        federation.path / "kits" / "hospital-a",
        kit,
        ignore=shutil.ignore_patterns("flower", "state"),
    )
    return kit


@pytest.fixture
def foreign(tmp_path):
    from fedloom.deploy.kits import Federation

    return Federation.create(tmp_path / "foreign", ["hospital-a"], "127.0.0.1", 1)


def heard(federation, name, texts):
    try:
        return wait_for(lambda: all(federation.said(name, text) for text in texts), 60)
    finally:
        federation.kill(name)


def flower_says(federation, name, kit, *texts, insecure=False):
    """Whether Flower's own process of a site, without our checks before it, says these."""
    federation.bypass(name, kit, "sites/hospital-a.npz", insecure=insecure)
    return heard(federation, name, texts)


def refused(federation, kit, *words):
    """What our command says when it does not even try."""
    done = federation.fedloom(
        "federation", "site", str(kit), "--data", "sites/hospital-a.npz", *words
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_key_that_nobody_registered_is_turned_away(federation, copied_kit, foreign):
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    shutil.copy(foreign.path / "kits" / "hospital-a" / "node.key", copied_kit / "node.key")
    sentence = "the server must admit hospital-a, but its key is not one of the federation's; ask"
    assert sentence in refused(federation, copied_kit)
    private, public = keys_of(foreign, "hospital-a")
    _, client = connection(federation, private, public)  # without our checks before it
    activate = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=30)
    with client:
        assert refusal(client.ActivateNode, activate) == 401
    assert federation.said("server", "its key is not one of the federation's")


def test_a_site_does_not_talk_to_a_server_of_another_authority(federation, copied_kit, foreign):
    shutil.copy(foreign.path / "ca.crt", copied_kit / "ca.crt")
    said = refused(federation, copied_kit)
    assert "must show a valid certificate of this federation's authority, but it does not (" in said
    assert flower_says(federation, "deceived", copied_kit, "certificate verify failed")


def test_a_plaintext_client_gets_nothing(federation, copied_kit):
    known = federation.log("server").read_text().count("Activated node_id")
    problem = (
        "with --insecure, the server must be started with --insecure too, but this one speaks TLS"
    )
    assert problem in refused(federation, copied_kit, "--insecure")
    assert flower_says(
        federation,
        "plaintext",
        copied_kit,
        "NOBODY IS AUTHENTICATED",
        "Connection attempt failed",
        insecure=True,
    )
    assert federation.log("server").read_text().count("Activated node_id") == known


def test_a_server_whose_certificate_expired_is_not_trusted(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    from fedloom.deploy import processes
    from fedloom.deploy.kits import Authority, Federation
    from fedloom.errors import FedloomError

    old = Deployment(tmp_path).init()
    key = serialization.load_pem_private_key((old.path / "ca.key").read_bytes(), None)
    authority = Authority(key, x509.load_pem_x509_certificate((old.path / "ca.crt").read_bytes()))
    federation = Federation.open(old.path)
    authority.issue("127.0.0.1", ["127.0.0.1"], days=-1).save(old.path / "server")
    with pytest.raises(
        FedloomError,
        match=r"server.crt must be a certificate that is valid now, but it is valid from",
    ):
        Federation.open(old.path)  # our own command would not start with it
    server = processes.start_server(federation, insecure=False)
    try:
        processes.wait_until_up(federation, server)
        kit = old.path / "kits" / "hospital-a"
        assert "it does not (certificate has expired)" in refused(old, kit)
        assert flower_says(old, "hospital-a", kit, "certificate has expired")
    finally:
        processes.stop(server)
        old.stop()


def keys_of(federation, name):
    from cryptography.hazmat.primitives import serialization

    kit = federation.path / "kits" / name
    private = serialization.load_ssh_private_key((kit / "node.key").read_bytes(), None)
    return private, private.public_key()


def connection(federation, private, public):
    """A SuperNode's connection, signed by one key and claiming another."""
    from flwr.supercore.interceptors.http import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    from fedloom.deploy.kits import Federation

    told = Federation.open(federation.path)
    signing = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, public),
    ]
    address = f"127.0.0.1:{told.port}"
    authority = str(federation.path / "ca.crt")
    return told, FleetHttpClient.from_server_address(
        address, False, authority, interceptors=signing
    )


def refusal(call, request):
    import httpx

    with pytest.raises(httpx.HTTPStatusError) as caught:
        call(request)
    return caught.value.response.status_code


def test_a_site_that_claims_anothers_identity_is_turned_away(federation):
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    (mine, my_public), (_, others) = (
        keys_of(federation, "hospital-b"),
        keys_of(federation, "hospital-a"),
    )
    activate = ActivateNodeRequest(public_key=public_key_to_bytes(others), heartbeat_interval=30)
    told, client = connection(federation, mine, others)  # another's public key, signed by my own
    with client:
        assert refusal(client.ActivateNode, activate) == 401
    told, client = connection(
        federation, mine, my_public
    )  # honestly signed, but asking for another's post
    with client:
        assert refusal(client.ActivateNode, activate) in (401, 403)
        node = Node(node_id=told.nodes["hospital-a"])
        assert refusal(client.PullMessages, PullMessagesRequest(node=node)) in (401, 403)
    assert federation.said("server", '/v1/fleet/pull-messages HTTP/1.1" 40')


def test_insecure_is_loud_everywhere_and_works(tmp_path):
    deployment = Deployment(tmp_path).init()
    try:
        deployment.launch("server", "federation", "server", str(deployment.path), "--insecure")
        assert wait_for(lambda: deployment.said("server", "fedloom: serving"), 60), deployment.log(
            "server"
        ).read_text()
        for name in deployment.names:
            deployment.attend(name, None, None, "--insecure")
        done = deployment.run("fedavg", "--rounds", "1", "--width", "0.125", "--out", "run")
        assert done.returncode == 0, done.stderr
        loud = "--insecure: NOBODY IS AUTHENTICATED AND NOTHING IS ENCRYPTED"
        assert loud in done.stderr and all(
            deployment.said(name, loud) for name in ("server", *deployment.names)
        )
    finally:
        deployment.stop()


def test_ctrl_c_withdraws_the_run_and_it_can_be_resumed(federation):
    words = [
        "--rounds",
        "1",
        "--width",
        "0.125",
        "--federation",
        str(federation.path),
        "--out",
        "withdrawn",
    ]
    process = federation.launch("submitter", "run", "fedavg", *words)
    events = federation.folder / "withdrawn" / "events.jsonl"
    assert wait_for(lambda: events.exists() and "submitted" in events.read_text(), 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, federation.log("submitter").read_text()
    federation.running.pop("submitter")
    assert federation.said("submitter", "continue with `fedloom resume withdrawn`")
    done = federation.fedloom("resume", "withdrawn", "--json")
    assert done.returncode == 0, done.stderr
