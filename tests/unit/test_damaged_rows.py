"""metrics.jsonl, broken in every way.

Each reader takes it, or says what is wrong in one sentence, at once.
"""

import json
import shutil
from pathlib import Path

import mutating
import pytest
from test_edited_files import OLD, check_all, outcome_of

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.reading import Unreadable
from fedloom.records.folder import RunFolder
from fedloom.records.rows import MetricsRow, read_rows
from fedloom.report.page import run_page
from fedloom.report.rounds import as_csv, read_rounds
from fedloom.report.story import Reader
from fedloom.runs.preparing import reopen
from fedloom.runs.running import carry_out

COUNT = 80  # mutations for each reader
MANY = 3000  # of them in a slow test
RARE = {
    "refused": [{"client": 0, "reason": "late: x"}],
    "fresh": [0],
    "capped": {"0": 0.6},
    "updates": {"train parameters": {"usual": 1.0, "largest": 2.0}},
    "deaths": [{"client": 0, "signal": "SIGABRT"}, {"client": 1, "exit": 3}],
    "clusters": [
        {
            "cluster": 0,
            "members": [0, 1],
            "aggregator": 1,
            "replaced": [0],
            "level": 0.5,
            "seconds": 23.0,
            "steps": [["training", 2.0], ["heartbeat", 20.0], ["aggregation", 1.0]],
            "histogram": [3, 1],
        },
    ],
    "population": [5, 4],
    "paces": [{"client": 0, "steps": [["transfer", 1.0], ["training", 2.0]]}],
    "simulated": {"begin": 1.0, "end": 24.0},
}  # what a row tells of a round in which much went wrong


def as_lines(rows):
    return b"".join(mutating.as_json(row) + b"\n" for row in rows)


def broken(run, count, seed=0, rare=RARE):
    """Its rows, the first with everything that a row may tell."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows[0] = {**rows[0], **rare}
    return mutating.mutations(as_lines(rows), rows, as_lines, count, seed)


def rows_of(run):
    return list(RunFolder.open(run).rows())


def csv_of(run):
    return as_csv(read_rounds(run / "metrics.jsonl")).encode()


def page_of(run):
    return run_page(Reader(RunFolder.open(run)).read()).encode()


def copied(name, tmp_path):
    return Path(shutil.copytree(OLD / name, tmp_path / name))


@pytest.mark.parametrize("name", ["fedavg", "spider"])
@pytest.mark.parametrize("read", [rows_of, csv_of])
@pytest.mark.parametrize("count", [COUNT, pytest.param(MANY, marks=pytest.mark.slow)])
def test_rows_are_read_or_refused(name, read, count, tmp_path):
    run = copied(name, tmp_path)
    check_all(broken(run, count), run / "metrics.jsonl", lambda: read(run))


@pytest.mark.parametrize("name", ["stopped-spider", "spider"])
@pytest.mark.parametrize("count", [COUNT, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_page_leaves_out_what_is_damaged(name, count, tmp_path):
    run = copied(name, tmp_path)
    outcomes = []
    for content in broken(run, count, seed=1):
        (run / "metrics.jsonl").write_bytes(content)
        outcomes.append(outcome_of(lambda: page_of(run)))
    assert set(outcomes) == {"read"}


@pytest.mark.parametrize("count", [COUNT, pytest.param(MANY, marks=pytest.mark.slow)])
def test_what_a_run_goes_on_from_is_whole(count, tmp_path):
    """An old checkpoint has no checksum of its rows.

    They are read before a run goes on with them.
    """
    reached = set()
    for content in broken(OLD / "stopped-fedavg", count, seed=2, rare={}):
        run = copied("stopped-fedavg", tmp_path)
        (run / "metrics.jsonl").write_bytes(content)
        archive = Archive(run)
        at = archive.resumable() or Checkpoint()
        archive.cut_metrics(at)
        assert len(list(read_rows(run / "metrics.jsonl"))) == at.round
        reached.add(at.round)
        shutil.rmtree(run)
    assert reached >= {0, 1}


@pytest.mark.slow
def test_a_resumed_run_ends_with_all_its_rows(tmp_path):
    for number, content in enumerate(broken(OLD / "stopped-fedavg", 30, seed=3, rare={})):
        run = Path(shutil.copytree(OLD / "stopped-fedavg", tmp_path / str(number)))
        (run / "metrics.jsonl").write_bytes(content)
        folder = RunFolder.open(run)
        carry_out(folder, reopen(folder), lambda event: None)
        assert [row.round for row in folder.rows()] == [1, 2, 3]
        assert folder.result() is not None


@pytest.mark.parametrize(
    "damage", [b"\xff\n", b"[[[[" * 3000 + b"\n", b"{}\n", b'{"round": NaN}\n'], ids=repr
)
def test_the_command_line(damage, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Path(shutil.copytree(OLD / "fedavg", tmp_path / "runs" / "1-fedavg"))
    whole = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(whole + damage)
    assert cli.main(["runs"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["report", str(run)]) == 0
    warning = f"fedloom: {run / 'metrics.jsonl'} is damaged; the page says what follows from it.\n"
    assert capsys.readouterr().err == warning
    assert "3 rounds" in (run / "report.html").read_text()
    assert cli.main(["plot", str(run), "--out", str(tmp_path / "plots")]) == 2
    errors = capsys.readouterr().err
    assert (
        errors.startswith("fedloom: line 4 of ")
        and errors.count("\n") == 1
        and "must describe a round, but" in errors
    )


def test_a_report_tells_of_damage_in_one_sentence(tmp_path, capsys):
    one = copied("fedavg", tmp_path)
    other = copied("local", tmp_path)
    page = ["--out", str(tmp_path / "page.html")]
    assert cli.main(["report", str(one), str(other), *page]) == 0
    assert capsys.readouterr().err == ""  # nothing is damaged yet
    for run in (one, other):
        with (run / "metrics.jsonl").open("ab") as file:
            file.write(b"{}\n")
    assert cli.main(["report", str(one), str(other), *page]) == 0
    first = one / "metrics.jsonl"
    warning = f"fedloom: {first} and 1 more file are damaged; the page says what follows from it.\n"
    assert capsys.readouterr().err == warning


def test_a_report_tells_of_a_damaged_comparison(tmp_path, capsys):
    comparison = copied("compare", tmp_path)
    (comparison / "result.json").write_text("{")
    assert cli.main(["report", str(comparison)]) == 0
    warning = (
        f"fedloom: {comparison / 'result.json'} is damaged; the page says what follows from it.\n"
    )
    assert capsys.readouterr().err == warning


# What is said


def row(**changes):
    plain = json.loads((OLD / "fedavg" / "metrics.jsonl").read_text().splitlines()[0])
    plain = {**plain, **changes}
    return {name: value for name, value in plain.items() if value != "absent"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stage": "absent"}, "it lacks `stage`"),
        ({"totals": "absent"}, "it lacks `totals`"),
        ({"round": "x"}, "`round` should be a valid integer, and is 'x'"),
        ({"round": True}, "`round` should be a valid integer, and is True"),
        ({"round": 0}, "`round` should be greater than or equal to 1, and is 0"),
        ({"progress": float("nan")}, "it has NaN, which is no number of JSON"),
        ({"meta": {"loss": "1"}}, "`meta.loss` should be a valid number, and is '1'"),
        ({"ledger": [3]}, "its ledger is not a list of lists"),
        ({"ledger": [[0, 0, 1]]}, "it lacks `ledger.0.up`"),
        (
            {"refused": [{"client": -1, "reason": ""}]},
            "`refused.0.client` should be greater than or equal to 0",
        ),
        ({"capped": {"x": 0.5}}, "`capped.x.[key]` should be a valid integer"),
        ({"evaluation": []}, "its evaluation is not an object"),
        ({"evaluation": {"metric": "x"}}, "its evaluation names no metric that this version knows"),
        ({"evaluation": {"metric": "accuracy"}}, "its evaluation lacks `accuracy`"),
        (
            {"evaluation": {"metric": "accuracy", "accuracy": 1}},
            "`evaluation.part` should be 'validation' or 'test'",
        ),
        ({"x": 10**30}, "`x` has a whole number beyond 64 bits"),
    ],
    ids=str,
)
def test_what_is_wrong_in_a_row(changes, said, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(as_lines([row(), row(**changes)]))
    with pytest.raises(FedloomError) as caught:
        list(read_rows(tmp_path / "metrics.jsonl"))
    assert f"line 2 of {tmp_path / 'metrics.jsonl'} must describe a round, but {said}" in str(
        caught.value
    )


def test_rows_of_other_versions():
    line = [0, 0, 1, 2, 3, 0.5, 7, None, None, "x"]
    later = row(energy={"joules": 3}, totals={**row()["totals"], "joules": 3}, ledger=[line])
    read = MetricsRow.from_json(later)
    assert read.notes == {"energy": {"joules": 3}} and read.to_json()["energy"] == {"joules": 3}
    assert [line.memory for line in read.ledger] == [7]
    earlier = MetricsRow.from_json(row(ledger=[[0, 0, 1, 2, None, 0.5]]))
    assert [(line.macs, line.seconds, line.memory) for line in earlier.ledger] == [
        (None, 0.5, None)
    ]


def test_a_half_written_line_is_no_round(tmp_path):
    whole = as_lines([row(), row(round=2)])
    (tmp_path / "metrics.jsonl").write_bytes(whole[:-1])
    assert [each.round for each in read_rows(tmp_path / "metrics.jsonl")] == [1]
    assert list(read_rows(tmp_path / "none")) == []


def test_a_large_ledger_need_not_be_read():
    plain = row(ledger="nonsense")
    assert MetricsRow.from_json(plain, with_ledger=False).ledger == ()
    with pytest.raises(Unreadable):
        MetricsRow.from_json(plain)
