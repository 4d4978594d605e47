"""Tokens that have expired, clocks that are wrong, kits of other users: in real processes."""

import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.flower

NOBODY = 65534
# The command line with a clock that is wrong by so many days.
AT_ANOTHER_TIME = """
import datetime, sys
days = int(sys.argv.pop(1))
actual = datetime.datetime

class Shifted(actual):
    @classmethod
    def now(cls, tz=None):
        return actual.now(tz) + datetime.timedelta(days=days)

datetime.datetime = Shifted
from fedloom.cli import main
sys.exit(main(sys.argv[1:]))
"""


def one_sentence(done):
    """What a command said, which must be one sentence of ours and exit code 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("fedloom: ")]
    assert len(said) == 1 and said[0] == done.stderr.strip().splitlines()[-1], done.stderr
    return said[0]


# Tokens


@pytest.fixture
def token(federation, tmp_path):
    path = tmp_path / "late.token"
    words = ["--role", "viewer", "--name", "late", "--days", "1", "--out", str(path)]
    done = federation.fedloom("federation", "token", str(federation.path), *words)
    assert done.returncode == 0, done.stderr
    yield path
    federation.fedloom("federation", "token", str(federation.path), "--withdraw", "late")


def written_private(path, content):
    """Replace a file at once, as the server may read it at any moment."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.chmod(0o600)
    draft.replace(path)


def test_the_server_refuses_a_token_that_has_expired(federation, token):
    """Its user's file says otherwise, and so may its user's clock."""
    looked = federation.fedloom("federation", "status", str(token))
    assert looked.returncode == 0, looked.stderr
    book = federation.path / "tokens.json"
    content = json.loads(book.read_text())
    for entry in content["tokens"]:
        if entry["name"] == "late":
            entry["expires"] = "2026-01-02T03:04:05Z"
    written_private(book, content)
    sentence = one_sentence(federation.fedloom("federation", "status", str(token)))
    assert sentence == (
        "fedloom: the federation's server must accept the token, but the token expired at "
        "2026-01-02 03:04 UTC; ask the federation's owner for one that fits."
    )
    words = ["run", "fedavg", "--rounds", "1", "--federation", str(token), "--out", "expired"]
    assert "the token expired at" in one_sentence(federation.fedloom(*words))


def test_an_expired_token_is_not_even_sent(federation, token):
    content = json.loads(token.read_text())
    written_private(token, {**content, "expires": "2026-01-02T03:04:05Z"})
    sentence = one_sentence(federation.fedloom("federation", "status", str(token)))
    assert "late.token must be valid now, but it expired at 2026-01-02 03:04 UTC; ask" in sentence


# Clocks


def at_another_time(federation, days, *words):
    command = [sys.executable, "-c", AT_ANOTHER_TIME, str(days), *words]
    return subprocess.run(
        command, cwd=federation.folder, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def copied_kit(federation, tmp_path):
    kit = tmp_path / "kit"
    ignored = shutil.ignore_patterns("flower", "state")
    shutil.copytree(federation.path / "kits" / "hospital-a", kit, ignore=ignored)
    return kit


def test_a_site_whose_clock_is_a_year_ahead_is_told(federation, copied_kit):
    """Its certificates are still valid then: only the server's clock tells."""
    words = ["federation", "site", str(copied_kit), "--data", "sites/hospital-a.npz"]
    sentence = one_sentence(at_another_time(federation, 365, *words))
    assert "the clocks of this machine and of the server must agree, but here it is" in sentence
    now = datetime.datetime.now(datetime.UTC)
    assert f"here it is {(now + datetime.timedelta(days=365)):%Y-%m-}" in sentence
    assert sentence.endswith("set the one that is wrong.")


@pytest.mark.parametrize("days", [-365, 3 * 365])
def test_a_site_whose_certificates_are_not_valid_by_its_clock_is_told(federation, copied_kit, days):
    words = ["federation", "site", str(copied_kit), "--data", "sites/hospital-a.npz"]
    sentence = one_sentence(at_another_time(federation, days, *words))
    assert "must be a certificate that is valid now, but it is valid from" in sentence
    assert "this machine's clock says" in sentence and "correct the clock" in sentence


def test_a_server_whose_clock_is_a_year_behind_does_not_start(federation):
    words = ["federation", "server", str(federation.path)]
    assert "correct the clock" in one_sentence(at_another_time(federation, -365, *words))


# Owners


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize(
    "words",
    [
        ["site", "KIT", "--data", "x.npz"],
        ["status", "KIT"],
        ["audit", "KIT"],
        ["approve", "KIT"],
        ["backup", "KIT", "--out", "OUT/kit.tar"],
        ["join", "KIT", "--site", "hospital-a"],
    ],
    ids=lambda words: words[0],
)
def test_another_user_opens_no_kit(federation, words, mode):
    with tempfile.TemporaryDirectory(dir="/tmp") as text:
        folder = Path(text)
        folder.chmod(0o755)
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        kit = folder / "kit"
        ignored = shutil.ignore_patterns("flower", "state")
        shutil.copytree(federation.path / "kits" / "hospital-a", kit, ignore=ignored)
        kit.chmod(mode)
        places = {"KIT": str(kit), "OUT/kit.tar": str(folder / "out" / "kit.tar")}
        given = [places.get(word, word) for word in words]
        done = as_nobody(folder, *given)

        sentence = one_sentence(done)
        assert f"{kit} must belong to the user who opens it, but it belongs to root" in sentence
        assert list((folder / "out").iterdir()) == []


def as_nobody(folder, *words):
    """Run a command as a user who has nothing."""
    script = f"""
import os, sys
import fedloom.cli, fedloom.federation.engines.flower
fedloom.federation.engines.flower.require()
import fedloom.deploy.commands
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(fedloom.cli.main(["federation", *sys.argv[1:]]))
"""
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder / "out",
        env={**os.environ, "HOME": str(folder / "out")},
        capture_output=True,
        text=True,
        timeout=300,
    )
