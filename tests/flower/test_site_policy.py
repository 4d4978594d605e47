"""A site's policy with real processes: approval, its own test share, and the audit log."""

import json
import re

import pytest
import tiny

pytestmark = pytest.mark.flower

WORDS = ["fedavg", "--rounds", "1", "--seed", "7", "--width", "0.125", "--batch", "8"]


def test_a_site_waits_for_its_operator_and_writes_down_what_left(federation):
    """hospital-b tests on half of its samples and asks its operator first."""
    kit = federation.path / "kits" / "hospital-b"
    policy = kit / "policy.toml"
    before = policy.read_text()
    text = before.replace('approve = "policy"', 'approve = "ask"')
    policy.write_text(re.sub(r"^test = .*$", "test = 0.5", text, flags=re.M))
    try:
        waits = federation.run(*WORDS, "--out", "waits")
        rows = tiny.rows(federation.folder / "waits")
        reason = rows[-1]["refused"][0]["reason"]
        identity = re.search(r"approve KIT ([0-9a-f]{12})", reason)[1]
        listed = federation.fedloom("federation", "approve", str(kit), "--json")
        approved = federation.fedloom("federation", "approve", str(kit), identity)
        done = federation.run(*WORDS, "--out", "approved")
    finally:
        policy.write_text(before)
    assert waits.returncode == 0, waits.stderr
    assert "this site's operator must approve the experiment" in reason
    (shown,) = json.loads(listed.stdout)["waiting"]
    assert shown["id"].startswith(identity)
    assert (shown["method"], shown["trainings"]) == ("fedavg", 2)
    assert approved.returncode == 0, approved.stderr
    assert done.returncode == 0, done.stderr
    assert tiny.rows(federation.folder / "approved")[-1]["refused"] == []
    result = json.loads((federation.folder / "approved" / "result.json").read_text())
    assert result["site_tests"] == {"hospital-b": 0.5}
    log = (federation.folder / "approved" / "run.log").read_text()
    assert "hospital-b tests on 0.5 of its samples, as its policy has it, not on 0.2" in log

    audit = federation.fedloom("federation", "audit", str(kit), "--json")
    assert audit.returncode == 0, audit.stderr
    lines = json.loads(audit.stdout)["lines"]
    replies = [line for line in lines if line["event"] == "reply" and "loss" in line["fields"]]
    assert replies[-1]["weight"] == 21  # of 41, half for testing
    path = kit / "audit.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"weight": 21', b'"weight": 10'))
    damaged = federation.fedloom("federation", "audit", str(kit))
    path.write_bytes(whole)
    assert damaged.returncode == 2
    assert f"line {replies[-1]['number']} is not" in damaged.stderr
