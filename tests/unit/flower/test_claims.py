"""A site that tells of many more samples than in the experiment before is named to the operator."""

import json
import logging

import pytest

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.deploy.settled import checked, settle
from fedloom.deploy.terms import Facts
from fedloom.errors import FedloomError
from fedloom.reading import read_json
from fedloom.records.claims import (
    CLAIMS,
    LAST_COUNTS,
    Claim,
    claims_in,
    note_claims,
    read_last_counts,
)
from fedloom.records.folder import RunFolder
from fedloom.records.sites import NAME as SITES


@pytest.fixture
def experiment(tmp_path):
    """A new run of the same federation, each time."""
    (tmp_path / "federation").mkdir()
    number = 0

    def begin(**samples):
        nonlocal number
        number += 1
        folder = RunFolder.create("run", "x", tmp_path / f"run-{number}")
        return folder, note_claims(tmp_path / "federation", folder, samples)

    return begin


def test_the_first_experiment_has_nothing_to_compare(experiment, tmp_path, caplog):
    folder, claims = experiment(east=100, west=1 << 24)
    assert claims == [] and claims_in(folder) == [] and not (folder.path / CLAIMS).exists()
    assert json.loads((tmp_path / "federation" / LAST_COUNTS).read_text()) == {
        "format": 1, "sites": {"east": 100, "west": 1 << 24},
    }  # fmt: skip
    assert caplog.text == ""


def test_more_than_twice_as_many_are_told(experiment, caplog):
    experiment(east=100, north=10, west=50)
    folder, claims = experiment(east=201, north=20, west=30)
    assert claims == [Claim(site="east", before=100, now=201)]
    assert (
        "site east claims 201 samples, 100 in its last experiment: ask the site before you trust"
        in caplog.text
    )
    assert claims_in(folder) == ["site east claims 201 samples, 100 in its last experiment"]
    assert experiment(east=201, north=20, west=61)[1] == [Claim(site="west", before=30, now=61)]


def test_one_that_was_away_is_compared_with_when_it_was_last_there(experiment):
    experiment(east=100, west=50)
    experiment(east=100)
    assert experiment(east=100, west=101)[1] == [Claim(site="west", before=50, now=101)]


def test_killed_before_its_id_was_noted(experiment, tmp_path):
    """They are compared again; what was noted stays."""
    experiment(east=100)
    folder, _ = experiment(east=1000)
    assert note_claims(tmp_path / "federation", folder, {"east": 1000}) == []
    assert len(claims_in(folder)) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"format": 2}', b'{"sites": {"east": -1}}',
     b'{"sites": {"east": "9"}}', b'{"sites": {"east": 9.5}}', b'{"sites": [1]}',
     b'{"sites": {}, "more": 1}', b"[" * 100_000],
    ids=lambda content: repr(content[:30]),
)  # fmt: skip
def test_a_damaged_file_is_told_and_begun_anew(experiment, tmp_path, caplog, content):
    (tmp_path / "federation" / LAST_COUNTS).write_bytes(content)
    _, claims = experiment(east=100)
    assert claims == [] and "is damaged" in caplog.text
    assert read_last_counts(tmp_path / "federation" / LAST_COUNTS).sites == {"east": 100}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "3",
        '[{"site": "east"}]',
        '[{"site": 1, "before": [], "now": 2}]',
        '[{"site": "a", "before": 1e999, "now": 1}]',
        "[" * 5000,
    ],
)
def test_damaged_notes_of_a_run_are_none(tmp_path, content):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_text(CLAIMS, content)
    assert claims_in(folder) == []


# When a run begins

PLAIN = {
    "kind": "image",
    "shape": (1, 8, 8),
    "labels": ("a", "b"),
    "named": True,
    "mean": (0.0,),
    "std": (1.0,),
}


@pytest.fixture
def settled(tmp_path):
    """A run of two sites, the one with 10 samples before, on a federation."""
    (tmp_path / "federation").mkdir()
    (tmp_path / "federation" / LAST_COUNTS).write_text('{"sites": {"east": 10, "west": 40}}')

    def settled_with(**engine):
        folder = RunFolder.create("run", "x", tmp_path / "run")
        folder.write_text("config.toml", Experiment(method="fedavg", engine=engine).to_toml())
        settle(folder, {"west": Facts(**PLAIN, samples=50), "east": Facts(**PLAIN, samples=30)})
        return folder

    return settled_with


def test_settling_keeps_facts_and_split(settled):
    folder = settled()
    assert set(read_json(folder.path / SITES)) == {"east", "west"}
    assert Split.load(folder.path / "split.json").offsets.tolist() == [0, 30, 80]


def test_a_run_that_begins_compares_the_claims_once(settled, tmp_path, caplog):
    folder = settled()
    with caplog.at_level(logging.WARNING, "fedloom"):
        checked(folder, tmp_path / "federation")
        assert read_last_counts(tmp_path / "federation" / LAST_COUNTS).sites == {
            "east": 30,
            "west": 50,
        }
        (tmp_path / "federation" / LAST_COUNTS).write_text(
            '{"sites": {"east": 10, "west": 70}}'
        )  # of a later experiment
        checked(folder, tmp_path / "federation")  # a resume
    assert claims_in(folder) == ["site east claims 30 samples, 10 in its last experiment"]
    assert caplog.text.count("site east claims") == 1 and "site west" not in caplog.text
    assert read_last_counts(tmp_path / "federation" / LAST_COUNTS).sites == {"east": 10, "west": 70}


def test_a_run_that_is_refused_does_not_use_up_the_question(settled, tmp_path):
    folder = settled(min_replies=3)
    with pytest.raises(FedloomError, match="--min-replies must not exceed"):
        checked(folder, tmp_path / "federation")
    assert read_last_counts(tmp_path / "federation" / LAST_COUNTS).sites == {"east": 10, "west": 40}
    assert claims_in(folder) == []
