"""Sites that make their own keys, and keys that are replaced, revoked or have expired."""

import datetime
import json
import subprocess

import pytest
from deployment import free_port, wait_for

from fedloom.errors import FedloomError

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


@pytest.fixture
def made(tmp_path):
    from fedloom.deploy.kits import Federation

    return Federation.create(tmp_path / "made", ["a"], "127.0.0.1", free_port())


def admitted(federation, request, *, days=730, ca_key=None, replace=False):
    from fedloom.deploy import joining

    return joining.admit(federation, request, days, ca_key, replace=replace)


def answer_file(tmp_path, admission):
    path = tmp_path / "answer.admission"
    path.write_text(admission.model_dump_json())
    return path


def private_keys_in(folder):
    marks = (b"PRIVATE KEY", b"OPENSSH PRIVATE")
    return [file for file in folder.rglob("*") if file.is_file() and marks[0] in file.read_bytes()]


def test_no_private_key_of_a_site_is_ever_at_the_server(tmp_path):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation, Kit

    made = Federation.create(tmp_path / "made", [], "127.0.0.1", free_port(), sites_join=True)
    before = private_keys_in(made.path)
    kit = tmp_path / "kit"
    request, fingerprint = joining.request(kit, "c")
    assert b"PRIVATE" not in request.read_bytes()
    federation, admission, same = admitted(made, request, days=10)
    assert same == fingerprint == federation.fingerprint("c")
    assert "PRIVATE" not in admission.model_dump_json()
    assert private_keys_in(made.path) == before
    joining.accept(kit, answer_file(tmp_path, admission))
    opened = Kit.open(kit)
    assert (opened.site, opened.server) == ("c", f"127.0.0.1:{made.port}")
    assert not (kit / "new").exists() and kit.stat().st_mode & 0o777 == 0o700
    again = Federation.open(made.path)
    assert again.sites == ("c",) and again.keys == federation.keys
    left = again.keys["c"].expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=9) < left < datetime.timedelta(days=10)


def test_a_key_is_replaced_by_the_site_and_its_kit_works_until_then(tmp_path, made):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Kit

    kit = made.path / "kits" / "a"
    before = (kit / "node.key").read_bytes()
    request, _ = joining.request(kit, "a")
    assert (kit / "node.key").read_bytes() == before and Kit.open(kit)
    with pytest.raises(FedloomError, match="a must not be in the federation yet, but it has a key"):
        admitted(made, request)
    changed, admission, fingerprint = admitted(made, request, replace=True)
    assert changed.fingerprint("a") == fingerprint != made.fingerprint("a")
    joining.accept(kit, answer_file(tmp_path, admission))
    assert (kit / "node.key").read_bytes() != before and Kit.open(kit)


def test_a_revoked_key_is_never_admitted_again(tmp_path, made):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    request, fingerprint = joining.request(tmp_path / "kit", "c")
    joining.revoke(admitted(made, request)[0], "c")
    left = Federation.open(made.path)
    assert left.sites == ("a",) and left.revoked[0].fingerprint == fingerprint
    with pytest.raises(FedloomError, match="a revoked key must never be admitted again"):
        admitted(left, request)
    fresh, _ = joining.request(tmp_path / "kit", "c")
    assert admitted(left, fresh)[0].sites == ("a", "c")


def test_with_an_offline_authority_the_server_has_no_key_to_sign_with(tmp_path):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    safe = tmp_path / "safe.key"
    made = Federation.create(tmp_path / "made", ["a"], "127.0.0.1", 9092, offline_ca=safe)
    assert not (made.path / "ca.key").exists()
    assert safe.stat().st_mode & 0o777 == 0o600
    assert safe.read_bytes() not in {file.read_bytes() for file in private_keys_in(made.path)}
    opened = Federation.open(made.path)  # as the running server does
    request, _ = joining.request(tmp_path / "kit", "c")
    with pytest.raises(FedloomError, match=r"must be given, but there is no .*; add --ca-key FILE"):
        admitted(opened, request)
    assert admitted(opened, request, ca_key=safe)[0].sites == ("a", "c")
    other = Federation.create(tmp_path / "other", ["a"], "127.0.0.1", 9092)
    with pytest.raises(FedloomError, match=r"must be the key of .*, but it is another one"):
        admitted(opened, request, ca_key=other.path / "ca.key")


@pytest.mark.parametrize("place", ["made/ca.key", "nowhere/ca.key", "taken"])
def test_the_authoritys_key_goes_to_a_new_file_elsewhere(tmp_path, place):
    from fedloom.deploy.kits import Federation

    (tmp_path / "taken").touch()
    with pytest.raises(FedloomError, match="--offline-ca must name a new file outside"):
        Federation.create(tmp_path / "made", ["a"], "127.0.0.1", 9092, offline_ca=tmp_path / place)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE REQUEST-----\n"])
def test_a_damaged_request_is_one_sentence(tmp_path, made, content):
    path = tmp_path / "x.request"
    path.write_bytes(content)
    with pytest.raises(FedloomError, match=r"x.request must be a request of `fedloom federation"):
        admitted(made, path)


def test_an_answer_for_another_key_completes_no_kit(tmp_path, made):
    from fedloom.deploy import joining

    request, _ = joining.request(tmp_path / "kit", "c")
    _, admission, _ = admitted(made, request)
    joining.request(tmp_path / "kit", "c")  # a new key
    file = answer_file(tmp_path, admission)
    with pytest.raises(FedloomError, match="must be the answer to the last request"):
        joining.accept(tmp_path / "kit", file)
    with pytest.raises(FedloomError, match="must have a key that waits for its admission"):
        joining.accept(tmp_path / "empty", file)


# Greetings


def greeting(folder, kit):
    from fedloom.deploy import hello
    from fedloom.deploy.guard import Door

    raw = Door(None, folder).greeting(hello.signed(kit / "node.key"))
    return hello.Greeting.from_json(json.loads(raw))


def test_the_server_knows_who_greets_it(made):
    from fedloom.deploy import hello, joining
    from fedloom.deploy.versions import read_versions
    from fedloom.version import __version__

    kit = made.path / "kits" / "a"
    assert hello.check_greeting(greeting(made.path, kit), "a") is None
    assert read_versions(made.path) == {"a": __version__}
    joining.revoke(made, "a")
    sentence = r"the server must admit a, but the key of a was revoked at \d{4}-.* UTC; ask whoever"
    with pytest.raises(FedloomError, match=sentence):
        hello.check_greeting(greeting(made.path, kit), "a")


def test_a_signature_of_another_key_is_none(made):
    from fedloom.deploy import hello
    from fedloom.deploy.guard import Door

    headers = hello.signed(made.path / "kits" / "a" / "node.key")
    headers[hello.MOMENT] = "2027-01-01T00:00:00+00:00"
    raw = json.loads(Door(None, made.path).greeting(headers))
    assert raw["refusal"] == "its key or signature is malformed"


@pytest.mark.parametrize(
    ("version", "protocol", "years", "said"),
    [
        ("0.2.0", 1, 0, None),
        ("0.2.7", 1, 0, "the server runs fedloom 0.2.7, this site 0.2.0; they work together"),
        ("0.3.0", 1, 0, "only versions with the same first two numbers are tested together"),
        ("0.3.0", 2, 0, FedloomError),
        ("0.2.0", 1, 1, FedloomError),
    ],
)
def test_what_differs_is_told(monkeypatch, version, protocol, years, said):
    from fedloom.deploy import hello

    monkeypatch.setattr(hello, "__version__", "0.2.0")
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365 * years)
    found = hello.Greeting(version, protocol, now, None)
    if said is FedloomError:
        with pytest.raises(FedloomError, match=r"must (speak the same protocol|agree), but"):
            hello.check_greeting(found, "a")
    elif said is None:
        assert hello.check_greeting(found, "a") is None
    else:
        assert said in hello.check_greeting(found, "a")


@pytest.mark.parametrize("years", [-1, 3])
def test_a_clock_that_is_wrong_by_a_year_is_one_sentence(made, monkeypatch, years):
    from fedloom.deploy import kits

    actual = datetime.datetime.now(datetime.UTC)

    class AnotherTime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return actual + datetime.timedelta(days=365 * years)

    kit = made.path / "kits" / "a"
    monkeypatch.setattr(kits.datetime, "datetime", AnotherTime)
    with pytest.raises(FedloomError, match=r"valid now, but it is valid .*; correct the clock"):
        kits.Kit.open(kit)


# Certificates of an existing PKI, made by openssl


def openssl(folder, *words):
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def pki(tmp_path):
    """An authority, and a certificate for `localhost` alone."""
    folder = tmp_path / "pki"
    folder.mkdir()
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(folder, *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Corporate CA")
    names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "fed.key", "-out", "fed.pem"]
    openssl(folder, *new, *signed, "-subj", "/CN=fed", "-days", "30", *names)
    return folder


def test_given_certificates_are_tried_as_a_site_would(tmp_path, pki):
    from fedloom.deploy.given_certificates import GivenCertificates

    given = GivenCertificates(pki / "ca.pem", pki / "fed.pem", pki / "fed.key")
    given.check("localhost")
    with pytest.raises(FedloomError, match=r"a site would refuse it \(Hostname mismatch"):
        given.check("fed.example.org")
    with pytest.raises(FedloomError, match=r"they are not \(key values mismatch\)"):
        GivenCertificates(pki / "ca.pem", pki / "fed.pem", pki / "ca.key").check("localhost")
    openssl(pki, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "x", "-out", "other",
            "-subj", "/CN=other")  # fmt: skip
    with pytest.raises(FedloomError, match="a site would refuse it"):
        GivenCertificates(pki / "other", pki / "fed.pem", pki / "fed.key").check("localhost")
    with pytest.raises(FedloomError, match="must be given together"):
        GivenCertificates(pki / "ca.pem", pki / "fed.pem").check("localhost")
    with pytest.raises(FedloomError, match="--host must be a name"):
        given.check("127.0.0.1")


def test_a_server_shows_the_given_certificate_to_sites(tmp_path, pki):
    """And its own to callers on its machine, who use 127.0.0.1."""
    from fedloom.deploy import control, hello, processes
    from fedloom.deploy.given_certificates import GivenCertificates
    from fedloom.deploy.kits import Federation

    given = GivenCertificates(pki / "ca.pem", pki / "fed.pem", pki / "fed.key")
    made = Federation.create(tmp_path / "made", ["a"], "localhost", free_port(), given=given)
    server = processes.start_server(made, insecure=False)
    try:
        processes.wait_until_up(made, server)
        registered = processes.register(made)
        assert [node.name for node in control.nodes(processes.access_of(registered))] == ["a"]
        kit = made.path / "kits" / "a"
        assert (kit / "ca.crt").read_bytes() == (pki / "ca.pem").read_bytes()
        said = hello.greet(f"localhost:{made.port}", kit / "ca.crt", kit / "node.key")
        assert said is not None and said.refusal is None
        assert hello.greet(f"127.0.0.1:{made.port}", kit / "ca.crt", kit / "node.key") is None
    finally:
        processes.stop(server)


# With real processes


def test_a_site_joins_a_running_federation_and_a_revoked_one_is_turned_away(federation, tmp_path):
    kit, request = tmp_path / "kit", tmp_path / "kit" / "hospital-c.request"
    answer = tmp_path / "c.admission"
    path = str(federation.path)
    for words in (
        ["join", str(kit), "--site", "hospital-c"],
        ["admit", path, str(request), "--out", str(answer)],
        ["join", str(kit), "--admission", str(answer)],
    ):
        done = federation.fedloom("federation", *words)
        assert done.returncode == 0, done.stderr
    federation.attend("hospital-c", "sites/hospital-a.npz", kit)

    def status():
        done = federation.fedloom("federation", "status", path, "--json")
        sites = json.loads(done.stdout)["sites"]
        return {site["site"]: site["status"] for site in sites}

    try:
        assert wait_for(lambda: status().get("hospital-c") == "online", 60)
        done = federation.fedloom("federation", "revoke", path, "--site", "hospital-c")
        assert done.returncode == 0, done.stderr
        process = federation.running["hospital-c"]
        assert process.wait(90) == 2, federation.log("hospital-c").read_text()[-2000:]
        last = federation.log("hospital-c").read_text().strip().splitlines()[-1]
        sentence = "the server must admit hospital-c, but the key of hospital-c was revoked at"
        assert sentence in last
        assert sorted(status()) == list(federation.names)
    finally:
        federation.running.pop("hospital-c", None)
    words = ["federation", "site", str(kit), "--data", "sites/hospital-a.npz"]
    again = federation.fedloom(*words)
    assert again.returncode == 2 and sentence in again.stderr
