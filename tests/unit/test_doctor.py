from fedloom import cli, doctor
from fedloom.doctor import Finding, examine, guarded


def test_checks_without_a_process():
    for check in (doctor.versions, doctor.cores, doctor.memory, doctor.disk, doctor.data):
        found = guarded(check)
        assert found.text
        assert found.good in (True, False)
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
    found = {finding.name: finding for finding in examine()}
    assert found["broken"] == Finding("broken", False, "OSError: the disk is on fire")
    assert {"versions", "cores", "disk", "durable writes", "data", "workers"} <= set(found)


def test_the_command_fails_if_a_check_does(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: iter([Finding("a", True, "fine"), Finding("b", False, "not")]))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out == "ok   a: fine\nBAD  b: not\n"
    monkeypatch.setattr(doctor, "examine", lambda: iter([Finding("a", True, "fine")]))
    assert cli.main(["doctor"]) == 0


def test_a_worker_that_does_not_start(monkeypatch):
    from fedloom.federation.engines import local

    monkeypatch.setattr(local.sys, "executable", "/bin/false")
    found = doctor.worker()
    assert not found.good
    assert "no answer" in found.text
