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
    deployment = Deployment(tmp_path).init()
    kit = tmp_path / "kit-of-b"
    shutil.move(deployment.path / "kits" / "hospital-b", kit)
    port = free_port()
    try:
        deployment.launch(
            "server", "federation", "server", str(deployment.path), "--metrics", str(port)
        )
        assert wait_for(lambda: deployment.said("server", "fedloom: serving")), deployment.log(
            "server"
        ).read_text()
        deployment.attend("hospital-a")
        deployment.attend("hospital-b", None, kit)
        words = ["--rounds", "4", *OPTIONS, "--federation", str(deployment.path), "--out", "lost"]
        process = deployment.launch("submitter", "run", "ditto", *words)
        metrics = tmp_path / "lost" / "metrics.jsonl"
        assert wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, 200)
        scraped = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
        text = scraped.read().decode()
        assert "fedloom_server_up 1\n" in text and "fedloom_run_running 1\n" in text
        assert 'fedloom_site_online{site="hospital-b"} 1\n' in text
        deployment.kill("server")
        assert process.wait(200) == 3
        deployment.leave("hospital-b")
        for folder, name in ((deployment.path, "server.tar"), (kit, "b.tar")):
            done = deployment.fedloom("federation", "backup", str(folder), "--out", name)
            assert done.returncode == 0, done.stderr
            shutil.rmtree(folder)
            done = deployment.fedloom("federation", "restore", name, str(folder))
            assert done.returncode == 0, done.stderr
        deployment.leave("hospital-a")
        deployment.serve()
        deployment.attend("hospital-a")
        deployment.attend("hospital-b", None, kit)
        done = deployment.fedloom("resume", "lost", "--json")
        assert done.returncode == 0, done.stderr + deployment.log("server").read_text()
    finally:
        deployment.stop()
    rows = tiny.rows(tmp_path / "lost")
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert not any(row["refused"] for row in rows)
    assert json.loads(done.stdout)["method"] == "ditto"
