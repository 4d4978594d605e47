"""What a run decided on validation data, in result.json and in `--json`."""

import pytest

import result_files
from fedloom.reading import Unreadable
from fedloom.records.decision import Decision
from fedloom.records.result import RunResult
from fedloom.records.sections import Sections
from fedloom.runs.results import Run
from fedloom.runs.tier_results import with_sections

SIZE = {
    "decision": "size",
    "options": ["1", "0.5"],
    "counts": {
        "1": {"correct": 40, "nll": 12.5, "n": 60},
        "0.5": {"correct": 44, "nll": 11.0, "n": 60},
    },
    "chosen": "0.5",
}


def test_a_methods_decisions_stand_in_its_result():
    result = RunResult.from_json(result_files.result([result_files.client()]))
    assert "decisions" not in with_sections(result, Sections(), ()).to_json()
    decided = with_sections(result, Sections(decisions=(Decision(**SIZE),)), ())
    assert decided.to_json()["decisions"] == [SIZE]
    assert RunResult.from_json(decided.to_json()).decisions == [Decision(**SIZE)]


def test_json_of_a_run_has_them(tmp_path):
    result = RunResult.from_json(result_files.result([result_files.client()], decisions=[SIZE]))
    assert Run(tmp_path, result).to_json()["decisions"] == [SIZE]


@pytest.mark.parametrize("counts", [[1, "two"], {"a": {"b": True}}, "many"])
def test_counts_are_numbers(counts):
    with pytest.raises(Unreadable, match=r"decisions\.0\.counts"):
        RunResult.from_json(result_files.result([], decisions=[{**SIZE, "counts": counts}]))
