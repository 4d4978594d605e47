import sys

import pytest

from fedloom import cli
from fedloom.commands import doctor, probing
from fedloom.commands.doctor import Finding, examine, guarded


def test_checks_without_a_process():
    for check in (doctor.versions, doctor.cores, doctor.memory, doctor.disk, doctor.data):
        finding = guarded(check)
        assert finding.text
        assert finding.good in (True, False)
    assert "1797 samples" in doctor.data().text
    assert "fedloom" in doctor.versions().text


def test_durable_writes_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert " ms each" in doctor.durable_writes().text
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_fails_does_not_hide_the_others(monkeypatch):
    def broken():
        raise OSError("the disk is on fire")

    monkeypatch.setattr(doctor, "memory", broken)
    monkeypatch.setattr(doctor, "worker", lambda: Finding("workers", True, "up"))
    monkeypatch.setattr(doctor, "convolutions", lambda: Finding("convolutions", True, "sound"))
    findings = {finding.name: finding for finding in examine()}
    assert findings["broken"] == Finding("broken", False, "OSError: the disk is on fire")
    assert {"versions", "cores", "disk", "durable writes", "data", "workers"} <= set(findings)


def test_the_command_fails_if_a_check_does(monkeypatch, capsys):
    monkeypatch.setattr(
        doctor, "examine", lambda: iter([Finding("a", True, "fine"), Finding("b", False, "not")])
    )
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out == "ok   a: fine\nBAD  b: not\n"
    monkeypatch.setattr(doctor, "examine", lambda: iter([Finding("a", True, "fine")]))
    assert cli.main(["doctor"]) == 0


def test_a_worker_that_does_not_start(monkeypatch):
    from fedloom.federation.engines import worker_pool

    monkeypatch.setattr(worker_pool.sys, "executable", "/bin/false")
    finding = doctor.worker()
    assert not finding.good
    assert "no answer" in finding.text


@pytest.mark.parametrize(
    ("deed", "found"),
    [
        ("sys.exit(0)", "torch's own strided 1×1 convolution computes correctly here"),
        ("sys.exit(3)", "computes wrong gradients here; FedLoom's own networks avoid it"),
        (
            "os.kill(os.getpid(), 6)",
            "a process that tried it was killed by signal 6 (SIGABRT); FedLoom's own networks",
        ),
        ("time.sleep(60)", "did not come to an end within 0.5 s; FedLoom's own networks avoid it"),
        ("sys.exit('no torch')", "RuntimeError: the probe ended with exit code 1: no torch"),
    ],
)
def test_what_a_probe_of_torch_may_find(deed, found, monkeypatch, tmp_path):
    """The machine is ready in any case, unless the probe itself cannot run."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{deed}\n")
    python.chmod(0o755)
    monkeypatch.setattr(probing.sys, "executable", str(python))
    if "sleep" in deed:
        monkeypatch.setattr(probing, "SECONDS", 0.5)
    finding = guarded(doctor.convolutions)
    assert found in finding.text
    assert finding.good == ("no torch" not in deed)


def test_a_real_probe_ends():
    """Whatever it finds: that depends on this machine's CPU."""
    assert doctor.convolutions().text.startswith("torch's own strided 1×1 convolution ")
