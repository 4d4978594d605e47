"""`federation status` and the metrics, without a server that runs."""

import datetime
import json
from dataclasses import replace

import pytest
from deployment import free_port

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


@pytest.fixture
def federation(tmp_path):
    from fedloom.deploy.kits import Federation

    return Federation.create(tmp_path / "made", ["a", "b"], "127.0.0.1", free_port())


def test_a_server_that_is_down_still_has_a_status(federation, capsys):
    from fedloom.cli import main

    assert main(["federation", "status", str(federation.path), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["health"], told["server"], told["audit_head"]) == ("down", "down", None)
    assert [site["site"] for site in told["sites"]] == ["a", "b"]
    assert 0 < told["disk"]["folder_bytes"] < told["disk"]["free_bytes"]
    assert told["run"] is None and told["last_error"] is None


def test_an_operator_is_warned_of_keys_that_end_and_versions_that_differ(federation):
    from fedloom.deploy.health import Disk, SiteStatus, warnings_of
    from fedloom.deploy.members import KeyRecord

    now = datetime.datetime.now(datetime.UTC)
    keys = {
        "a": KeyRecord("0", now + datetime.timedelta(days=29)),
        "b": KeyRecord("1", None),
    }
    sites = [SiteStatus("a", "online", version="0.0.9"), SiteStatus("b", "online")]
    warnings = warnings_of(replace(federation, keys=keys), sites, Disk(10**8, 10**12, 1))
    assert len(warnings) == 4
    assert warnings[0].startswith("the key of a expires at 20")
    assert warnings[1] == "the key of b never expires; rotate it"
    assert warnings[2].startswith("a runs fedloom 0.0.9, here is ")
    assert warnings[3] == "the disk has only 0.1 GB left"


def test_the_last_error_is_that_of_the_run_that_stopped(federation, tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission
    from fedloom.deploy.health import LastError, last_error
    from fedloom.deploy.server import note_current

    config = validated(
        Experiment, {"method": "fedavg", "engine": {"federation": str(federation.path)}}
    )
    folder = submission.create(config, tmp_path / "run")
    note_current(federation, folder)
    events = folder.path / "events.jsonl"
    assert last_error(federation) is None
    stopped = {"event": "stopped", "code": 3, "text": "a site is away"}
    events.write_text(json.dumps({"event": "submitted"}) + "\n" + json.dumps(stopped) + "\n")
    assert last_error(federation) == LastError(3, "a site is away")
    with events.open("a") as file:
        file.write(json.dumps({"event": "submitted"}) + "\n")
    assert last_error(federation) is None


def test_what_a_submitter_wrote_is_safe_for_the_admins_terminal(federation, tmp_path, capsys):
    from fedloom.cli import main
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission
    from fedloom.deploy.server import note_current

    config = validated(
        Experiment, {"method": "fedavg", "engine": {"federation": str(federation.path)}}
    )
    folder = submission.create(config, tmp_path / "run")
    note_current(federation, folder)
    stopped = {"event": "stopped", "code": 3, "text": "\x1b[2Jall is well"}
    (folder.path / "events.jsonl").write_text(json.dumps(stopped) + "\n")
    assert main(["federation", "status", str(federation.path)]) == 3
    assert "last error (3):  [2Jall is well\n" in capsys.readouterr().out


def test_a_kit_tells_its_key_and_the_head_of_its_audit_log(federation, capsys):
    from fedloom.cli import main
    from fedloom.deploy.audit import AuditLog

    kit = federation.path / "kits" / "a"
    assert main(["federation", "status", str(kit), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["site"], status["audit_head"]) == ("a", None)
    assert status["key_expires"].startswith("20")
    AuditLog(kit).append("order", {"kind": "train"})
    AuditLog(kit).append("reply", {"bytes": 12})
    assert main(["federation", "status", str(kit), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    head = AuditLog(kit).head()
    assert status["audit_head"] == {"number": 2, "digest": head.digest}


def test_a_site_that_answers_nothing_is_down(federation, capsys):
    """Its audit log was changed: `status` checks every line, not only the head."""
    from fedloom.cli import main
    from fedloom.deploy.audit import AuditLog

    kit = federation.path / "kits" / "a"
    log = AuditLog(kit)
    for number in range(3):
        log.append("order", {"n": number})
    assert main(["federation", "status", str(kit)]) == 0
    assert "health: ok" in capsys.readouterr().out
    log.path.write_bytes(log.path.read_bytes().replace(b'"n": 0', b'"n": 7'))
    assert main(["federation", "status", str(kit), "--json"]) == 3
    status = json.loads(capsys.readouterr().out)
    assert status["health"] == "down" and "line 1 is not" in status["audit_problem"]
    assert main(["federation", "status", str(kit)]) == 3
    assert "warning: the site answers nothing: " in capsys.readouterr().out


def test_metrics_are_prometheus_text_on_this_machine_alone(federation):
    import re
    import urllib.error
    import urllib.request

    from fedloom.deploy import metrics

    port = free_port()
    with metrics.served(federation, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
    assert "fedloom_server_up 0\n" in text
    assert 'fedloom_site_online{site="a"} 0\n' in text
    sample = re.compile(r'fedloom_[a-z_]+(\{[a-z]+="[^"]*"\})? [-+0-9.e]+')
    for line in text.splitlines():
        assert line.startswith(("# HELP fedloom_", "# TYPE fedloom_")) or sample.fullmatch(line)
