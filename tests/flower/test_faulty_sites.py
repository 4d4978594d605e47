"""What a real site may do wrong, and what the round makes of it."""

import numpy as np
import pytest
import tiny
from deployment import wait_for

pytestmark = pytest.mark.flower

OPTIONS = ["--width", "0.125", "--batch", "8", "--evaluate-every", "100"]
REFUSED = {  # what client 1 does, and the reason that stands in the log
    "nan": "holds a NaN or Inf",
    "keys": "is missing",
    "count": "its weight 1e+09 is not between 0 and",
    "size": "bytes, at most",
    "raise": "method: number ",
    "other": "it says it comes from client 0",
    "late": "late: no reply within 40 s",
}


def test_a_bad_reply_is_refused_and_logged_and_its_round_completes(federation):
    rounds = str(len(REFUSED) + 2)  # the late one may still be busy in the next but last
    words = [
        "--mischief",
        ",".join(REFUSED),
        "--seconds",
        "41",
        "--rounds",
        rounds,
        "--deadline",
        "40",
    ]
    done = federation.run("mischief", *words, *OPTIONS, "--out", "mischief")
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    rows = tiny.rows(federation.folder / "mischief")
    log = (federation.folder / "mischief" / "run.log").read_text()
    for row, (what, reason) in zip(rows, REFUSED.items(), strict=False):
        (refused,) = row["refused"]
        assert (what, row["replies"], refused["client"]) == (what, 1, 1)
        assert reason in refused["reason"]
        assert f"round {row['round']}: client 1 (hospital-b) refused: " in log
    # the last round: everybody is counted once, and what came with refused replies never happened
    assert (rows[-1]["replies"], rows[-1]["refused"]) == (2, [])
    assert len(rows) + 1 <= 2 * rows[-1]["meta"]["worked"] <= len(rows) + 2
    for row in rows:
        clients_and_hops = [(line[0], line[1]) for line in row["ledger"]]
        assert len(set(clients_and_hops)) == len(clients_and_hops)
    assert (federation.folder / "twice.log").read_text()  # it did try


def test_a_killed_site_is_waited_for_until_the_deadline_and_rejoins_with_its_state(federation):
    marker = federation.folder / "hangs"
    words = [
        "--mischief",
        "honest,hang",
        "--marker",
        str(marker),
        "--rounds",
        "3",
        "--deadline",
        "60",
        *OPTIONS,
    ]
    process = federation.launch(
        "submitter",
        "run",
        "mischief",
        *words,
        "--federation",
        str(federation.path),
        "--out",
        "rejoined",
    )
    assert wait_for(marker.exists, 200), federation.log("server").read_text()
    federation.kill("hospital-b")
    metrics = federation.folder / "rejoined" / "metrics.jsonl"
    assert wait_for(
        lambda: metrics.read_text().count("\n") == 2, 120
    )  # back before the deadline, it would be asked again
    federation.attend("hospital-b")
    assert process.wait(300) == 0, federation.log("submitter").read_text()
    federation.running.pop("submitter")
    first, second, third = tiny.rows(federation.folder / "rejoined")
    assert (first["replies"], second["replies"], third["replies"]) == (2, 1, 2)
    ((client, reason),) = [(refused["client"], refused["reason"]) for refused in second["refused"]]
    assert client == 1 and ("no reply within 60 s" in reason or "Flower reports" in reason)
    assert (
        third["meta"]["worked"] == (3 + 2) / 2
    )  # its first round is still there, its second never happened


def test_a_site_with_other_data_is_refused_by_name_before_it_trains(federation):
    draw = np.random.default_rng(0)
    np.savez(
        federation.folder / "wide.npz",
        x=draw.integers(0, 256, (80, 6, 9), np.uint8),
        y=np.arange(80) % 3,
    )
    federation.leave("hospital-b")
    federation.attend("hospital-b", "wide.npz")
    try:
        done = federation.run("fedavg", "--rounds", "1", *OPTIONS, "--out", "wide")
    finally:
        federation.leave("hospital-b")
        federation.attend("hospital-b")
    assert done.returncode == 0, done.stderr
    (row,) = tiny.rows(federation.folder / "wide")
    ((client, reason),) = [(refused["client"], refused["reason"]) for refused in row["refused"]]
    assert client == 1 and "shape [1, 6, 9]" in reason and "[1, 6, 6]" in reason
    log = (federation.folder / "wide" / "run.log").read_text()
    assert "client 1 (hospital-b) refused: " in log
