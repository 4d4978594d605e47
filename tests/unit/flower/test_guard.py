"""Who may call a server, and which programs a site runs. These tests do not need Flower."""

import asyncio
import base64
import datetime
import io
import json
import zipfile

import pytest
import tomli_w
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedloom.deploy import guard, tokens
from fedloom.deploy.guard import COMPONENTS, Door, is_ours, passes
from fedloom.deploy.kits import pem_public
from fedloom.deploy.members import KeyRecord, RevokedKey, fingerprint_of


@pytest.mark.parametrize(
    ("kind", "host", "path", "expected"),
    [
        ("http", "127.0.0.1", "/v1/control/start-run", True),
        ("http", "::1", "/v1/control/start-run", True),
        ("http", "10.0.0.7", "/v1/fleet/pull-messages", True),
        ("http", "10.0.0.7", "/v1/control/start-run", False),
        ("http", "10.0.0.7", "/other/v1/fleet/pull-messages", False),
        ("http", "127.0.0.10", "/v1/control/start-run", False),
        ("websocket", "10.0.0.7", "/v1/fleet/pull-messages", False),
    ],
)
def test_from_another_machine_only_sites_calls_pass(kind, host, path, expected):
    assert passes({"type": kind, "client": (host, 4711), "path": path}) is expected


def test_a_caller_without_an_address_is_none_of_ours():
    assert not passes({"type": "http", "client": None, "path": "/v1/control/start-run"})


def project(components=COMPONENTS, dependencies=()):
    return {
        "project": {"dependencies": list(dependencies)},
        "tool": {"flwr": {"app": {"components": components}}},
    }


def program(about, **further):
    """The archive that a server sends, with further files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", tomli_w.dumps(about))
        archive.writestr(".info/CONTENT", "")
        for name, content in further.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_a_program_that_points_at_the_installed_fedloom_is_ours():
    assert is_ours(program(project()))


@pytest.mark.parametrize(
    "sent",
    [
        program(project(dependencies=["surprise"])),
        program(project(components={**COMPONENTS, "clientapp": "surprise:app"})),
        program(project(components={"clientapp": COMPONENTS["clientapp"]})),
        program({**project(), "tool": {**project()["tool"], "fedloom": {"protocol": 2}}}),
        program(project(), **{"surprise.py": ""}),
        program(project(), **{"fedloom/deploy/site.py": ""}),
        program({**project(), "large": "#" * (1 << 17)}),
        program({**project(), "project": {"dependencies": [], "version": "1/../../../../tmp/x"}}),
        program({**project(), "project": {"dependencies": [], "name": "other"}}),
        program({"tool": {}}),
        b"",
        b"no archive",
    ],
    ids=[
        "packages",
        "component",
        "no server",
        "protocol",
        "file",
        "our file",
        "large",
        "path in its version",
        "other name",
        "nothing said",
        "empty",
        "no archive",
    ],
)
def test_any_other_program_is_not(sent):
    assert not is_ours(sent)


def test_a_program_that_is_not_ours_is_in_the_audit_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guard.note_foreign_program(b"no archive")
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert line["reason"] == "the server sent a program that is not the installed fedloom"


# Calls on the server's own machine


class Call:
    """One call at the door, and what came of it."""

    def __init__(self, folder, path, headers=(), content=b"", host="127.0.0.1"):
        self.inside = []
        self.said = []
        self.was_read = False
        scope = {
            "type": "http",
            "client": (host, 4711),
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }
        asyncio.run(Door(self.app, folder)(scope, self.receive(content), self.send))

    async def app(self, scope, receive, send):
        self.inside.append((await receive())["body"])

    def receive(self, content):
        async def read():
            self.was_read = True
            return {"type": "http.request", "body": content, "more_body": False}

        return read

    async def send(self, event):
        self.said.append(event)

    @property
    def status(self):
        return self.said[0]["status"] if self.said else None


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.json").write_text('{"sites": []}')
    tokens.book_of(tmp_path)
    return tmp_path


def bearer(folder, role):
    token = tokens.issue(folder, role, role, 1, "127.0.0.1:1", "PEM")
    return [("Authorization", f"Bearer {token.secret}")]


def test_without_a_token_nothing_reaches_the_control_interface(folder):
    for call in ("start-run", "list-nodes", "register-node", "get-login-details", "anything"):
        found = Call(folder, f"/v1/control/{call}")
        assert (found.status, found.inside) == (401, [])


def test_a_viewers_token_lists_nodes_and_registers_none(folder):
    headers = bearer(folder, "viewer")
    assert Call(folder, "/v1/control/list-nodes", headers).inside == [b""]
    call = Call(folder, "/v1/control/register-node", headers)
    assert (call.status, call.inside) == (403, [])
    assert b"a viewer's token does not allow register-node" in call.said[1]["body"]


def test_two_tokens_in_one_call_are_none(folder):
    headers = bearer(folder, "viewer")
    assert Call(folder, "/v1/control/list-nodes", headers * 2).status == 401


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/", "/v2/control/start-run"])
def test_nothing_else_is_open_even_with_a_token(folder, path):
    assert Call(folder, path, bearer(folder, "admin")).status == 403


def test_a_damaged_book_closes_the_control_interface(folder):
    headers = bearer(folder, "admin")
    (folder / "tokens.json").write_text("{")
    assert Call(folder, "/v1/control/list-nodes", headers).status == 403


def test_a_book_that_others_can_read_closes_it_too(folder):
    headers = bearer(folder, "admin")
    (folder / "tokens.json").chmod(0o644)
    assert Call(folder, "/v1/control/list-nodes", headers).status == 403


class SitesKey:
    """A site's key, and the headers with which its SuperNode calls."""

    def __init__(self):
        self.private = ec.generate_private_key(ec.SECP384R1())
        self.public = pem_public(self.private.public_key())

    def headers(self, signer=None):
        moment = "2027-03-01T12:00:00+00:00"
        signer = signer or self
        signature = signer.private.sign(moment.encode(), ec.ECDSA(hashes.SHA256()))
        return [
            ("flwr-public-key", base64.b64encode(self.public).decode()),
            ("flwr-timestamp", moment),
            ("flwr-signature", base64.b64encode(signature).decode()),
        ]


@pytest.fixture
def keys(folder):
    """A key that was revoked, and one that is admitted."""
    revoked, admitted = SitesKey(), SitesKey()
    now = datetime.datetime.now(datetime.UTC)
    book = {
        "sites": ["b"],
        "keys": {"b": KeyRecord(fingerprint_of(admitted.public), None).to_json()},
        "revoked": [RevokedKey("a", fingerprint_of(revoked.public), now).to_json()],
    }
    (folder / "federation.json").write_text(json.dumps(book))
    return revoked, admitted


def test_a_revoked_key_reaches_nothing(folder, keys):
    revoked, admitted = keys
    found = Call(folder, "/v1/fleet/pull-messages", revoked.headers(), host="10.0.0.7")
    assert (found.status, found.inside) == (401, [])
    assert Call(folder, "/v1/fleet/pull-messages", SitesKey().headers()).status == 401
    found = Call(folder, "/v1/fleet/get-run", admitted.headers(), host="10.0.0.7")
    assert found.inside == [b""]
    assert Call(folder, "/v1/fleet/pull-messages", [("flwr-public-key", "ä")]).status == 401


def test_what_strangers_send_is_not_even_read(folder, keys):
    """Flower reads a call before it checks who signed it: anybody could fill the memory."""
    _, admitted = keys
    others = [
        [],
        admitted.headers(signer=SitesKey()),
        admitted.headers()[:1],
        [*admitted.headers()[:2], ("flwr-signature", "ä")],
    ]
    for headers in others:
        found = Call(folder, "/v1/fleet/push-object", headers, b"x" * 1000, host="10.0.0.7")
        assert (found.status, found.was_read, found.inside) == (401, False, [])
    assert Call(folder, "/v1/fleet/push-object", admitted.headers(), b"x").was_read
    (folder / "INSECURE").touch()
    assert Call(folder, "/v1/fleet/push-object", [], b"x").was_read


def test_sites_are_asked_seldom_unless_a_run_is_under_way(monkeypatch):
    slept = []
    moments = [100.0]
    monkeypatch.setattr(guard.time, "sleep", slept.append)
    monkeypatch.setattr(guard.time, "monotonic", lambda: moments[0])
    pace = guard.Pace()
    pace.sleep(3)
    pace.note_message()
    pace.sleep(3)
    pace.sleep(0.1)
    moments[0] += guard.BUSY
    pace.sleep(3)
    assert slept == [2.0, 0.25, 0.1, 2.0]
