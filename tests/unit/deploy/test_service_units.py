"""systemd units, which systemd itself must accept."""

import shutil
import subprocess

import pytest

from fedloom.deploy import units


def test_a_unit_names_its_folder_and_program(tmp_path):
    folder = tmp_path / "a federation"
    paths = units.write_units(folder, ("b",), tmp_path / "fedloom")
    server, site = (path.read_text() for path in paths)
    assert f'ExecStart={tmp_path}/fedloom federation server "{folder}"' in server
    assert f'ReadWritePaths="{folder}"' in server
    assert "RestartPreventExitStatus=2" in site and "--data ${FEDLOOM_DATA}" in site


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    program = tmp_path / "fedloom"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("plain", "with space", "50%off"):
        folder = tmp_path / name
        (folder / "kits" / "b").mkdir(parents=True)
        for path in units.write_units(folder, ("b",), program):
            words = ["systemd-analyze", "verify", "--man=no", str(path)]
            done = subprocess.run(words, capture_output=True, text=True)
            complaints = [line for line in done.stderr.splitlines() if path.name in line]
            assert (done.returncode, complaints) == (0, []), done.stderr
