"""A server and a site that are lost with their disks come back from their backups."""

import json
import shutil
import urllib.request

import pytest
import tiny
from deployment import Deployment, free_port, wait_for

pytestmark = pytest.mark.flower

OPTIONS = ["--width", "0.125", "--batch", "8", "--evaluate-every", "100"]


def test_a_run_goes_on_after_server_and_site_were_restored(tmp_path):
    """ditto keeps private state at the sites: without it, replies would be refused."""
    made = Deployment(tmp_path).init()
    kit = tmp_path / "kit-of-b"
    shutil.move(made.path / "kits" / "hospital-b", kit)
    port = free_port()
    try:
        made.launch("server", "federation", "server", str(made.path), "--metrics", str(port))
        assert wait_for(lambda: made.said("server", "fedloom: serving")), made.log(
            "server"
        ).read_text()
        made.attend("hospital-a")
        made.attend("hospital-b", None, kit)
        words = ["--rounds", "4", *OPTIONS, "--federation", str(made.path), "--out", "lost"]
        process = made.launch("submitter", "run", "ditto", *words)
        metrics = tmp_path / "lost" / "metrics.jsonl"
        assert wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, 200)
        scraped = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
        text = scraped.read().decode()
        assert "fedloom_server_up 1\n" in text and "fedloom_run_running 1\n" in text
        assert 'fedloom_site_online{site="hospital-b"} 1\n' in text
        made.kill("server")
        assert process.wait(200) == 3
        made.leave("hospital-b")
        for folder, name in ((made.path, "server.tar"), (kit, "b.tar")):
            done = made.fedloom("federation", "backup", str(folder), "--out", name)
            assert done.returncode == 0, done.stderr
            shutil.rmtree(folder)
            done = made.fedloom("federation", "restore", name, str(folder))
            assert done.returncode == 0, done.stderr
        made.leave("hospital-a")
        made.serve()
        made.attend("hospital-a")
        made.attend("hospital-b", None, kit)
        done = made.fedloom("resume", "lost", "--json")
        assert done.returncode == 0, done.stderr + made.log("server").read_text()
    finally:
        made.stop()
    rows = tiny.rows(tmp_path / "lost")
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert not any(row["refused"] for row in rows)
    assert json.loads(done.stdout)["method"] == "ditto"
