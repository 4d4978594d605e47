"""Tokens: who may call the control interface, as what, and until when. No Flower is needed."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedloom.deploy import tokens
from fedloom.deploy.tokens import TokenBook, TokenFile
from fedloom.errors import FedloomError

NOW = datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that tests move."""
    moments = [NOW]
    monkeypatch.setattr(tokens, "now_in_seconds", lambda: moments[0])
    return moments


def issued(folder, role="submitter", days=30, name="anna"):
    return tokens.issue(folder, name, role, days, "127.0.0.1:9092", "PEM")


def refusal(folder, token, call="start-run"):
    header = f"Bearer {token.secret}"
    return tokens.refusal_of(TokenBook.read(folder), header, call)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("viewer", {"list-nodes", "list-runs"}),
        ("submitter", {"list-nodes", "list-runs", "start-run", "stop-run"}),
        ("admin", tokens.ADMIN),
    ],
)
def test_a_role_may_do_this_and_nothing_else(tmp_path, role, allowed):
    token = issued(tmp_path, role)
    for call in [*tokens.ADMIN, "start-automation", "stream-logs", "", "start-run/"]:
        answer = refusal(tmp_path, token, call)
        assert (answer is None) is (call in allowed)
        assert answer is None or answer[0] == 403


def test_the_server_keeps_no_token_and_the_files_are_private(tmp_path):
    token = issued(tmp_path)
    token.write(tmp_path / "anna.token")
    assert token.secret not in (tmp_path / "tokens.json").read_text()
    for name in ("tokens.json", "anna.token"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert TokenFile.read(tmp_path / "anna.token") == token


def test_a_token_expires_at_the_server_and_at_its_user(tmp_path, clock):
    token = issued(tmp_path, days=2)
    token.write(tmp_path / "anna.token")
    clock[0] = NOW + datetime.timedelta(days=2) - datetime.timedelta(seconds=1)
    assert refusal(tmp_path, token) is None
    clock[0] += datetime.timedelta(seconds=1)
    assert refusal(tmp_path, token) == (401, "the token expired at 2027-03-03 12:00 UTC")
    sentence = (
        r"anna.token must be valid now, but it expired at 2027-03-03 12:00 UTC; "
        r"ask the federation's owner for a new one, and check this machine's clock\.$"
    )
    with pytest.raises(FedloomError, match=sentence):
        TokenFile.read(tmp_path / "anna.token")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, "the call has no token"),
        ("", "the call has no token"),
        ("Bearer", "the token is malformed"),
        ("Bearer fedloom_0123456789abcdef_short", "the token is malformed"),
        ("Basic fedloom_0123456789abcdef_" + "x" * 43, "the token is malformed"),
        ("Bearer fedloom_0123456789abcdef_" + "x" * 43, "the token is of another federation"),
    ],
)
def test_any_other_header_is_refused(tmp_path, header, reason):
    issued(tmp_path)
    answer = tokens.refusal_of(TokenBook.read(tmp_path), header, "list-nodes")
    assert answer == (401, reason)


def test_a_withdrawn_or_replaced_token_opens_nothing(tmp_path):
    first = issued(tmp_path)
    second = issued(tmp_path)
    assert refusal(tmp_path, first) == (401, "the token is unknown here, or was withdrawn")
    assert refusal(tmp_path, second) is None
    tokens.withdraw(tmp_path, "anna")
    assert refusal(tmp_path, second) == (401, "the token is unknown here, or was withdrawn")
    with pytest.raises(FedloomError, match="must name a token, but got 'anna'; known: none"):
        tokens.withdraw(tmp_path, "anna")


def test_commands_at_the_same_time_lose_no_change(tmp_path):
    """A token that is withdrawn while another is made would come back."""
    names = [f"user-{number}" for number in range(16)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda name: issued(tmp_path, name=name), names))
    assert sorted(entry.name for entry in TokenBook.read(tmp_path).tokens) == sorted(names)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda name: tokens.withdraw(tmp_path, name), names))
    assert TokenBook.read(tmp_path).tokens == ()


def test_the_owners_token_is_made_once_and_renewed_when_it_expired(tmp_path, clock):
    first = tokens.owners_token(tmp_path, "127.0.0.1:1", "PEM")
    assert first.role == "admin"
    assert tokens.owners_token(tmp_path, "127.0.0.1:1", "PEM").secret == first.secret
    clock[0] += datetime.timedelta(days=31)
    renewed = tokens.owners_token(tmp_path, "127.0.0.1:1", "PEM")
    assert renewed.secret != first.secret
    assert refusal(tmp_path, renewed) is None


@pytest.mark.parametrize("name", ["tokens.json", "owner.token"])
def test_a_file_that_others_can_read_is_refused(tmp_path, name):
    tokens.owners_token(tmp_path, "127.0.0.1:1", "PEM")
    (tmp_path / name).chmod(0o640)
    with pytest.raises(FedloomError, match=f"{name} must be readable by its owner alone, but its"):
        tokens.owners_token(tmp_path, "127.0.0.1:1", "PEM")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"federation": "x"}'])
def test_a_damaged_token_is_one_sentence(tmp_path, content):
    path = tmp_path / "anna.token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(FedloomError, match=r"anna.token must be as fedloom wrote it, but "):
        TokenFile.read(path)


@pytest.mark.parametrize("days", [0, -1, 367, 10**9])
def test_a_token_is_valid_for_a_year_at_most(tmp_path, days):
    with pytest.raises(FedloomError, match=f"must be a number from 1 to 366, but got {days};"):
        issued(tmp_path, days=days)
