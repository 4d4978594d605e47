"""The live page's server: who is let in, what it tells, and how it ends."""

import http.client
import json
import socket
import threading
import time

import pytest
from fabricated import client, counted, make_run, result, row

from fedloom.cli import main
from fedloom.errors import FedloomError
from fedloom.report import live as watching
from fedloom.report.live import HEADERS, Watch


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", [row(1)], classes=counted(3))


@pytest.fixture
def watch(folder):
    watch = Watch(folder, runs_here=True)
    yield watch
    watch.last_request = -watching.FRESH  # nobody looks any more: it need not wait
    watch.close()


def ask(watch, path="", *, token=None, method="GET", host=None, **headers):
    """(status, headers, body)"""
    line = http.client.HTTPConnection("127.0.0.1", watch.port, timeout=5)
    token = watch.token if token is None else token
    head = {
        "Host": host or f"127.0.0.1:{watch.port}",
        **{key.replace("_", "-"): text for key, text in headers.items()},
    }
    line.request(method, f"/{token}/{path}" if token else f"/{path}", headers=head)
    answer = line.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def state(watch, version=""):
    return json.loads(ask(watch, f"state?version={version}")[2])


def test_the_page(watch):
    code, headers, text = ask(watch)
    assert code == 200 and text.startswith("<!doctype html>") and "This run is in progress" in text
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert HEADERS.items() <= headers.items()
    assert "Access-Control-Allow-Origin" not in headers
    assert watch.address == f"http://127.0.0.1:{watch.port}/{watch.token}/"
    assert len(watch.token) >= 20 and watch.server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("token", ["", "wrong", "x" * 22, "..", "%00"])
@pytest.mark.parametrize("path", ["", "state", "other"])
def test_without_the_token_everything_is_refused(watch, token, path):
    code, headers, text = ask(watch, path, token=token)
    assert (
        code == 403
        and "token" in text
        and watch.token not in text
        and HEADERS.items() <= headers.items()
    )


def test_the_right_token_at_the_wrong_place(watch):
    assert ask(watch, f"x/{watch.token}/", token="")[0] == 403
    assert ask(watch, f"?{watch.token}/", token="")[0] == 403
    assert ask(watch, "../../etc/passwd")[0] == 404
    assert ask(watch, "result.json")[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example:{port}"]
)
def test_another_host_name_is_refused(watch, host):
    """A page of another origin may point its name at this machine: the name then betrays it."""
    assert ask(watch, host=host.format(port=watch.port))[0] == 403


def test_localhost_is_this_machine(watch):
    assert ask(watch, host=f"localhost:{watch.port}")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_another_origin_is_refused(watch, headers):
    assert ask(watch, "state", **headers)[0] == 403


def test_its_own_origin_may_ask(watch):
    assert (
        ask(
            watch,
            "state",
            Origin=watch.address.split("/" + watch.token)[0],
            Sec_Fetch_Site="same-origin",
        )[0]
        == 200
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_it_can_only_be_read(watch, method):
    assert ask(watch, method=method)[0] == 501


def test_what_changed_is_told_once(watch, folder):
    first = state(watch)
    assert first["standing"] == "running" and not first["ended"] and "fedavg" in first["title"]
    assert "convergence" in first["sections"]
    again = state(watch, first["version"])
    assert again["version"] == first["version"] and again["sections"] == {}
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(2, 0.9)) + "\n")
    after = state(watch, first["version"])
    assert after["version"] != first["version"]
    assert after["sections"]["convergence"] != first["sections"]["convergence"]
    folder.write_json("result.json", result([client(k) for k in range(3)]))
    assert state(watch)["standing"] == "finished"


def test_a_file_that_cannot_be_read_now_is_asked_for_again(watch, monkeypatch):
    def broken():
        raise RuntimeError("half written")

    monkeypatch.setattr(watch.view.reader, "read", broken)
    assert ask(watch, "state")[0] == 503 and ask(watch)[0] == 503
    monkeypatch.undo()
    assert ask(watch, "state")[0] == 200


def test_whoever_looks_sees_the_end_before_it_closes(folder, monkeypatch):
    monkeypatch.setattr(watching, "FAREWELL", 30.0)
    watch = Watch(folder, runs_here=True)
    state(watch)
    folder.write_json("result.json", result([client(k) for k in range(3)]))
    closing = threading.Thread(target=watch.close)
    closing.start()
    while not watch.ended:
        time.sleep(0.01)
    last = state(watch)
    assert last["ended"] and last["standing"] == "finished"
    closing.join(10)
    assert not closing.is_alive()
    with pytest.raises(OSError):  # noqa: PT011 - refused, in whatever words
        ask(watch)


def test_a_run_that_was_stopped_says_so_at_the_end(folder):
    watch = Watch(folder, runs_here=True)
    assert state(watch)["standing"] == "running"  # though nobody holds the lock yet
    watch.view.runs_here = False
    assert state(watch)["standing"] == "stopped"
    watch.last_request = -watching.FRESH
    watch.close()


def test_a_port_in_use(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            FedloomError,
            match=f"--port {port} must be free, but .*; name another, or leave --port out",
        ):
            Watch(folder, port)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_port_in_use_is_named_before_a_folder_is_made(tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main([command, "fedavg", "--watch", "--port", str(taken.getsockname()[1])]) == 2
    assert "must be free" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_port_that_is_asked_for(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    watch = Watch(folder, port)
    assert watch.port == port
    watch.close()
