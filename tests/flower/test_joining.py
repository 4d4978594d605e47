"""Sites that make their own keys, and keys that are replaced, revoked or have expired."""

import base64
import datetime
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from deployment import free_port, wait_for

from fedloom.cli import main
from fedloom.errors import FedloomError

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


@pytest.fixture
def new_federation(tmp_path):
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

    new_federation = Federation.create(
        tmp_path / "made", [], "127.0.0.1", free_port(), sites_join=True
    )
    before = private_keys_in(new_federation.path)
    kit = tmp_path / "kit"
    request, fingerprint = joining.request(kit, "c")
    assert b"PRIVATE" not in request.read_bytes()
    federation, admission, same = admitted(new_federation, request, days=10)
    assert same == fingerprint == federation.fingerprint("c")
    assert "PRIVATE" not in admission.model_dump_json()
    assert private_keys_in(new_federation.path) == before
    joining.accept(kit, answer_file(tmp_path, admission))
    opened = Kit.open(kit)
    assert (opened.site, opened.server) == ("c", f"127.0.0.1:{new_federation.port}")
    assert not (kit / "new").exists() and kit.stat().st_mode & 0o777 == 0o700
    again = Federation.open(new_federation.path)
    assert again.sites == ("c",) and again.keys == federation.keys
    validity = again.keys["c"].expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=9) < validity < datetime.timedelta(days=10)


def test_a_key_is_replaced_by_the_site_and_its_kit_works_until_then(tmp_path, new_federation):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Kit

    kit = new_federation.path / "kits" / "a"
    before = (kit / "node.key").read_bytes()
    request, _ = joining.request(kit, "a")
    assert (kit / "node.key").read_bytes() == before and Kit.open(kit)
    with pytest.raises(FedloomError, match="a must not be in the federation yet, but it has a key"):
        admitted(new_federation, request)
    changed, admission, fingerprint = admitted(new_federation, request, replace=True)
    assert changed.fingerprint("a") == fingerprint != new_federation.fingerprint("a")
    joining.accept(kit, answer_file(tmp_path, admission))
    assert (kit / "node.key").read_bytes() != before and Kit.open(kit)


def test_a_revoked_key_is_never_admitted_again(tmp_path, new_federation):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    request, fingerprint = joining.request(tmp_path / "kit", "c")
    joining.revoke(admitted(new_federation, request)[0], "c")
    left = Federation.open(new_federation.path)
    assert left.sites == ("a",) and left.revoked[0].fingerprint == fingerprint
    with pytest.raises(FedloomError, match="a revoked key must never be admitted again"):
        admitted(left, request)
    fresh, _ = joining.request(tmp_path / "kit", "c")
    assert admitted(left, fresh)[0].sites == ("a", "c")


def test_a_key_that_is_revoked_while_the_server_starts_stays_out(new_federation, monkeypatch):
    """The server saves federation.json when it has started, with what it had read before."""
    from fedloom.deploy import processes
    from fedloom.deploy.kits import Federation

    def revoke(*started):
        assert main(["federation", "revoke", str(new_federation.path), "--site", "a"]) == 0

    monkeypatch.setattr(processes, "start_server", lambda *given, **options: None)
    monkeypatch.setattr(processes, "wait_until_up", revoke)
    monkeypatch.setattr(processes, "wait", lambda process: 0)
    monkeypatch.setattr(processes, "stop", lambda process: None)
    monkeypatch.setattr(processes.control, "nodes", lambda access: [])
    monkeypatch.setattr(processes.control, "register", lambda *given: 7)
    assert processes.serve(Federation.open(new_federation.path)) == 0
    left = Federation.open(new_federation.path)
    assert left.sites == () and [key.site for key in left.revoked] == ["a"]


def test_commands_at_the_same_time_lose_no_change(tmp_path):
    from fedloom.deploy.kits import Federation

    sites = [f"s{number}" for number in range(8)]
    new_federation = Federation.create(tmp_path / "several", sites, "127.0.0.1", free_port())

    def revoke(site):
        return main(["federation", "revoke", str(new_federation.path), "--site", site])

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(revoke, sites)) == {0}
    left = Federation.open(new_federation.path)
    assert left.sites == () and sorted(key.site for key in left.revoked) == sites


# Keys that were replaced


def refusal_by_the_guard(folder, kit):
    """Why a call of a site that has this kit's key is refused."""
    from fedloom.deploy import hello
    from fedloom.deploy.guard import SITE_KEY, SITE_MOMENT, SITE_SIGNATURE, Door

    signed = hello.signed(kit / "node.key")  # as Flower signs
    headers = {
        SITE_KEY: signed[hello.KEY],
        SITE_MOMENT: signed[hello.MOMENT],
        SITE_SIGNATURE: signed[hello.SIGNATURE],
    }
    return Door(None, folder).refusal_of_site(headers)


def test_a_rotated_key_opens_nothing_any_more(tmp_path, new_federation):
    from fedloom.deploy import joining

    stolen = shutil.copytree(new_federation.path / "kits" / "a", tmp_path / "stolen")
    assert refusal_by_the_guard(new_federation.path, stolen) is None
    changed = joining.rotate(new_federation, "a", 730, None)
    assert [key.fingerprint for key in changed.revoked] == [new_federation.fingerprint("a")]
    status, reason = refusal_by_the_guard(new_federation.path, stolen)
    assert status == 401 and reason.startswith("the key of a was revoked at")
    assert refusal_by_the_guard(new_federation.path, new_federation.path / "kits" / "a") is None


def test_a_key_that_its_site_replaced_opens_nothing_any_more(tmp_path, new_federation):
    from fedloom.deploy import joining

    stolen = shutil.copytree(new_federation.path / "kits" / "a", tmp_path / "stolen")
    kit = new_federation.path / "kits" / "a"
    request, _ = joining.request(kit, "a")
    changed, admission, _ = admitted(new_federation, request, replace=True)
    assert "was revoked" in refusal_by_the_guard(new_federation.path, stolen)[1]
    joining.accept(kit, answer_file(tmp_path, admission))
    assert refusal_by_the_guard(new_federation.path, kit) is None
    again, _, _ = admitted(changed, request, replace=True)  # the same key: nothing is revoked
    assert again.revoked == changed.revoked


def test_a_key_that_only_flower_knows_is_refused(tmp_path, new_federation):
    from fedloom.deploy.kits import Federation

    foreign = Federation.create(tmp_path / "foreign", ["a"], "127.0.0.1", 1)
    refusal = refusal_by_the_guard(new_federation.path, foreign.path / "kits" / "a")
    assert refusal == (401, "its key is not one of the federation's")
    (new_federation.path / "INSECURE").touch()  # then sites have keys of one start only
    assert refusal_by_the_guard(new_federation.path, foreign.path / "kits" / "a") is None


def test_a_federation_without_a_record_of_keys_gets_it_at_its_first_start(new_federation, capsys):
    """As an earlier version made it. Its keys are in files alone."""
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.processes import with_recorded_keys

    file = new_federation.path / "federation.json"
    earlier = json.loads(file.read_text())
    del earlier["keys"], earlier["revoked"]
    file.write_text(json.dumps(earlier))
    kit = new_federation.path / "kits" / "a"
    assert refusal_by_the_guard(new_federation.path, kit) is not None
    upgraded = with_recorded_keys(Federation.open(new_federation.path))
    said = "the keys of a are of an earlier version and never expire; rotate them"
    assert said in capsys.readouterr().err
    assert refusal_by_the_guard(new_federation.path, kit) is None
    assert with_recorded_keys(Federation.open(new_federation.path)) == upgraded
    assert capsys.readouterr().err == ""
    assert joining.rotate(upgraded, "a", 730, None).revoked[0].site == "a"


def test_with_an_offline_authority_the_server_has_no_key_to_sign_with(tmp_path):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    safe = tmp_path / "safe.key"
    port = free_port()
    new_federation = Federation.create(tmp_path / "made", ["a"], "127.0.0.1", port, offline_ca=safe)
    assert not (new_federation.path / "ca.key").exists()
    assert safe.stat().st_mode & 0o777 == 0o600
    assert safe.read_bytes() not in {
        file.read_bytes() for file in private_keys_in(new_federation.path)
    }
    opened = Federation.open(new_federation.path)  # as the running server does
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
def test_a_damaged_request_is_one_sentence(tmp_path, new_federation, content):
    path = tmp_path / "x.request"
    path.write_bytes(content)
    with pytest.raises(FedloomError, match=r"x.request must be a request of `fedloom federation"):
        admitted(new_federation, path)


def test_an_answer_for_another_key_completes_no_kit(tmp_path, new_federation):
    from fedloom.deploy import joining

    request, _ = joining.request(tmp_path / "kit", "c")
    _, admission, _ = admitted(new_federation, request)
    joining.request(tmp_path / "kit", "c")  # a new key
    file = answer_file(tmp_path, admission)
    with pytest.raises(FedloomError, match="must be the answer to the last request"):
        joining.accept(tmp_path / "kit", file)
    with pytest.raises(FedloomError, match="must have a key that waits for its admission"):
        joining.accept(tmp_path / "empty", file)


# Admissions that were swapped on their way


def with_certificate_of(federation, request, *, name="c", signer=None):
    """An admission whose certificate has this name and is signed by another authority."""
    from cryptography.hazmat.primitives import serialization

    from fedloom.deploy import joining

    _, key = joining.read_request(request)
    _, admission, _ = admitted(federation, request)
    certificate = (signer or federation).authority().sign(name, [name], key)
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return admission.model_copy(update={"certificate": text})


def test_a_swapped_admission_has_another_fingerprint(tmp_path, new_federation):
    """Whoever carries it can make one that fits together, with an authority of their own."""
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    kit = tmp_path / "kit"
    request, _ = joining.request(kit, "c")
    _, admission, _ = admitted(new_federation, request)
    foreign = Federation.create(tmp_path / "foreign", [], "127.0.0.1", 1, sites_join=True)
    _, swapped, _ = admitted(foreign, request)
    with pytest.raises(FedloomError, match="must be the admission with the given fingerprint, but"):
        joining.accept(kit, answer_file(tmp_path, swapped), admission.fingerprint)
    assert (kit / "new" / "site.key").exists()  # the right one may still come
    read_out = admission.fingerprint.upper().replace(" ", ":")
    accepted = joining.accept(kit, answer_file(tmp_path, admission), read_out)[1]
    assert accepted.fingerprint == admission.fingerprint


@pytest.mark.parametrize("field", ["site", "server", "certificate", "authority", "issuer"])
def test_the_fingerprint_is_of_everything_that_the_site_trusts(tmp_path, new_federation, field):
    from fedloom.deploy import joining

    _, admission, _ = admitted(new_federation, joining.request(tmp_path / "kit", "c")[0])
    other = admission.model_copy(update={field: "another"})
    assert other.fingerprint != admission.fingerprint


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "a" * 63, "\N{ARABIC-INDIC DIGIT ONE}" * 64])
def test_a_fingerprint_is_64_digits(tmp_path, new_federation, text):
    from fedloom.deploy import joining

    _, admission, _ = admitted(new_federation, joining.request(tmp_path / "kit", "c")[0])
    with pytest.raises(FedloomError, match="--fingerprint must be the 64 digits"):
        joining.accept(tmp_path / "kit", answer_file(tmp_path, admission), text)


def test_an_admission_must_be_for_the_name_that_was_requested(tmp_path, new_federation):
    from fedloom.deploy import joining

    kit = tmp_path / "kit"
    request, _ = joining.request(kit, "c")
    other_certificate = with_certificate_of(new_federation, request, name="d")
    _, admission, _ = admitted(new_federation, request)
    other_name = admission.model_copy(update={"site": "d"})
    for swapped in (other_certificate, other_name):
        with pytest.raises(FedloomError, match=r"must be for c, the site that was requested, but"):
            joining.accept(kit, answer_file(tmp_path, swapped))
    assert not (kit / "kit.json").exists()


def test_an_admission_must_be_signed_by_the_authority_in_it(tmp_path, new_federation):
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation

    kit = tmp_path / "kit"
    request, _ = joining.request(kit, "c")
    foreign = Federation.create(tmp_path / "foreign", [], "127.0.0.1", 1, sites_join=True)
    swapped = with_certificate_of(new_federation, request, signer=foreign)
    with pytest.raises(FedloomError, match="must be signed by the authority in it, but it is not"):
        joining.accept(kit, answer_file(tmp_path, swapped))
    assert not (kit / "kit.json").exists()


@pytest.mark.parametrize("server", ["abc", "127.0.0.1:99999", "127.0.0.1:0", "-:1", "a:1\n"])
def test_an_admission_names_a_server_that_can_be_called(tmp_path, new_federation, server):
    from fedloom.deploy import joining

    _, admission, _ = admitted(new_federation, joining.request(tmp_path / "kit", "c")[0])
    file = answer_file(tmp_path, admission.model_copy(update={"server": server}))
    with pytest.raises(FedloomError, match="must be the answer to a site's request, but it names"):
        joining.accept(tmp_path / "kit", file)


def test_both_sides_print_the_same_fingerprints(tmp_path, new_federation, monkeypatch, capsys):
    from fedloom.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["federation", "join", "kit", "--site", "c"]) == 0
    request = capsys.readouterr().out
    assert main(["federation", "admit", str(new_federation.path), "kit/c.request"]) == 0
    answer = capsys.readouterr().out
    key = re.search("the key's fingerprint: (\\w{64})", request)[1]
    assert f"the key's fingerprint: {key} (the site's request must have the same)" in answer
    line = re.search("the admission's fingerprint: (.*)", answer)[1]
    joined = ["federation", "join", "kit", "--admission", "c.admission"]
    assert main([*joined, "--fingerprint", "0" * 64]) == 2
    assert "do not use it" in capsys.readouterr().err
    assert main([*joined, "--fingerprint", line]) == 0
    assert f"the admission's fingerprint: {line}\n" in capsys.readouterr().out


# Greetings


def greeting(folder, kit):
    from fedloom.deploy import hello
    from fedloom.deploy.guard import Door

    raw = Door(None, folder).greeting(hello.signed(kit / "node.key"))
    return hello.Greeting.from_json(json.loads(raw))


GREETING = {"fedloom": "0", "protocol": 1, "now": "2027-03-01T12:00:00+00:00", "refusal": None}


@pytest.mark.parametrize(
    "said",
    [
        [],
        None,
        {**GREETING, "now": "2027-03-01T12:00:00"},
        {**GREETING, "protocol": float("inf")},
        {**GREETING, "protocol": "1"},
    ],
)
def test_a_strange_greeting_is_none(said):
    from fedloom.deploy import hello

    with pytest.raises((ValueError, TypeError)):
        hello.Greeting.from_json(said)


def test_what_the_other_side_says_is_safe_for_a_terminal(tmp_path, new_federation):
    from fedloom.deploy import hello

    raw = {**GREETING, "fedloom": "0.2\x1b[2J", "refusal": "no\x9b31m\n"}
    greeting = hello.Greeting.from_json(raw)
    assert (greeting.version, greeting.refusal) == ("0.2 [2J", "no 31m ")
    headers = hello.signed(new_federation.path / "kits" / "a" / "node.key")
    assert hello.question_in(headers | {hello.VERSION: "0.2\x9b2J"}).version == "0.2 2J"


def test_the_server_knows_who_greets_it(new_federation):
    from fedloom.deploy import hello, joining
    from fedloom.deploy.versions import read_versions
    from fedloom.version import __version__

    kit = new_federation.path / "kits" / "a"
    assert hello.check_greeting(greeting(new_federation.path, kit), "a") is None
    assert read_versions(new_federation.path) == {"a": __version__}
    joining.revoke(new_federation, "a")
    sentence = r"the server must admit a, but the key of a was revoked at \d{4}-.* UTC; ask whoever"
    with pytest.raises(FedloomError, match=sentence):
        hello.check_greeting(greeting(new_federation.path, kit), "a")


def test_a_signature_of_another_key_is_none(new_federation):
    from fedloom.deploy import hello
    from fedloom.deploy.guard import Door

    headers = hello.signed(new_federation.path / "kits" / "a" / "node.key")
    headers[hello.MOMENT] = "2027-01-01T00:00:00+00:00"
    raw = json.loads(Door(None, new_federation.path).greeting(headers))
    assert raw["refusal"] == "its key or signature is malformed"


def test_a_key_has_only_one_text(new_federation):
    """Keys are compared by their text: a revoked one must not come back in another form."""
    from fedloom.deploy import hello

    headers = hello.signed(new_federation.path / "kits" / "a" / "node.key")
    key = base64.b64decode(headers[hello.KEY])
    assert hello.question_in(headers) is not None
    for other in (key.strip() + b"\x01", b"a key\n" + key, key.replace(b"\n", b"\r\n")):
        changed = {**headers, hello.KEY: base64.b64encode(other).decode()}
        assert hello.question_in(changed) is None


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
def test_a_clock_that_is_wrong_by_a_year_is_one_sentence(new_federation, monkeypatch, years):
    from fedloom.deploy import kits

    actual = datetime.datetime.now(datetime.UTC)

    class AnotherTime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return actual + datetime.timedelta(days=365 * years)

    kit = new_federation.path / "kits" / "a"
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


def test_a_site_joins_a_federation_with_a_given_certificate(tmp_path, pki):
    """The PKI certifies the server; the federation's own authority certifies the site."""
    from fedloom.deploy import joining
    from fedloom.deploy.given_certificates import GivenCertificates
    from fedloom.deploy.kits import Federation, Kit

    given = GivenCertificates(pki / "ca.pem", pki / "fed.pem", pki / "fed.key")
    new_federation = Federation.create(
        tmp_path / "made", [], "localhost", free_port(), given=given, sites_join=True
    )
    kit = tmp_path / "kit"
    _, admission, _ = admitted(new_federation, joining.request(kit, "c")[0])
    assert admission.issuer == (new_federation.path / "authority.crt").read_text()
    joining.accept(kit, answer_file(tmp_path, admission), admission.fingerprint)
    assert Kit.open(kit).site == "c"
    assert (kit / "ca.crt").read_bytes() == (pki / "ca.pem").read_bytes()


def test_a_server_shows_the_given_certificate_to_sites(tmp_path, pki):
    """And its own to callers on its machine, who use 127.0.0.1."""
    from fedloom.deploy import control, hello, processes
    from fedloom.deploy.given_certificates import GivenCertificates
    from fedloom.deploy.kits import Federation

    given = GivenCertificates(pki / "ca.pem", pki / "fed.pem", pki / "fed.key")
    new_federation = Federation.create(
        tmp_path / "made", ["a"], "localhost", free_port(), given=given
    )
    server = processes.start_server(new_federation, insecure=False)
    try:
        processes.wait_until_up(new_federation, server)
        registered = processes.register(new_federation)
        assert [node.name for node in control.nodes(processes.access_of(registered))] == ["a"]
        kit = new_federation.path / "kits" / "a"
        assert (kit / "ca.crt").read_bytes() == (pki / "ca.pem").read_bytes()
        greeting = hello.greet(f"localhost:{new_federation.port}", kit / "ca.crt", kit / "node.key")
        assert greeting is not None and greeting.refusal is None
        assert (
            hello.greet(f"127.0.0.1:{new_federation.port}", kit / "ca.crt", kit / "node.key")
            is None
        )
    finally:
        processes.stop(server)


# With real processes


def test_a_site_joins_a_running_federation_and_a_revoked_one_is_turned_away(federation, tmp_path):
    kit = tmp_path / "kit"
    request = tmp_path / "kit" / "hospital-c.request"
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
