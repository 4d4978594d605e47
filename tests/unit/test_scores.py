"""scores.jsonl: what is in it, and that a kill changes nothing of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.errors import FedloomError
from fedloom.federation.server.events import RoundEnded
from fedloom.records.scores import ScoredPath, read_scores, write_scores
from fedloom.testing import Toy, Trace

SPACE = str(Path(__file__).parents[1] / "contract" / "short_chain.toml")


def row(tier: int = 1, loss: float = 0.5) -> ScoredPath:
    return ScoredPath(tier, ("conv1", "identity"), loss, 0.25, 8, 100, 2000)


class Kill(Exception):
    pass


class TestFile:
    def test_a_row_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        rows = [row(), row(2, 1 / 3)]
        write_scores(tmp_path / "scores.jsonl", rows)
        assert read_scores(tmp_path / "scores.jsonl") == rows

    def test_the_names_in_the_file(self, tmp_path: Path) -> None:
        write_scores(tmp_path / "scores.jsonl", [row()])
        assert json.loads((tmp_path / "scores.jsonl").read_text()) == {
            "tier": 1,
            "path": ["conv1", "identity"],
            "loss": 0.5,
            "accuracy": 0.25,
            "samples": 8,
            "params": 100,
            "macs": 2000,
        }

    def test_what_a_path_has_beside_accuracy_stands_in_its_row_if_it_is_known(
        self, tmp_path: Path
    ) -> None:
        beside = {"balanced_accuracy": 0.2, "auc": 0.6}
        complete_row = replace(row(), **beside)
        write_scores(tmp_path / "scores.jsonl", [complete_row])
        assert json.loads((tmp_path / "scores.jsonl").read_text()).items() >= beside.items()
        assert read_scores(tmp_path / "scores.jsonl") == [complete_row]

    def test_more_rows_are_appended_and_the_old_bytes_stay(self, tmp_path: Path) -> None:
        path = tmp_path / "scores.jsonl"
        write_scores(path, [row()])
        file = path.stat().st_ino
        write_scores(path, [row(), row(2)])
        assert path.stat().st_ino == file
        assert read_scores(path) == [row(), row(2)]

    @pytest.mark.parametrize("cut", [1, 10])
    def test_half_a_line_is_completed(self, tmp_path: Path, cut: int) -> None:
        path = tmp_path / "scores.jsonl"
        write_scores(path, [row(), row(2)])
        path.write_bytes(path.read_bytes()[:-cut])
        assert read_scores(path) == [row()]
        write_scores(path, [row(), row(2), row(3)])
        assert read_scores(path) == [row(), row(2), row(3)]

    def test_rows_of_rounds_that_were_taken_back_go(self, tmp_path: Path) -> None:
        path = tmp_path / "scores.jsonl"
        write_scores(path, [row(), row(2)])
        write_scores(path, [row()])
        assert read_scores(path) == [row()]
        write_scores(path, [])
        assert not path.exists()
        assert read_scores(path) == []

    @pytest.mark.parametrize("line", ["[]", "{", '{"tier": 1}', '{"tier": -1, "path": []}'])
    def test_a_damaged_line_is_named(self, tmp_path: Path, line: str) -> None:
        path = tmp_path / "scores.jsonl"
        path.write_bytes(row().to_line() + line.encode() + b"\n")
        with pytest.raises(FedloomError, match="line 2 of"):
            read_scores(path)


def toy() -> Toy:
    options = {
        "space": SPACE,
        "epochs": 1,
        "models": 6,
        "pool": 3,
        "sample": 3,
        "score": "central",
    }
    return Toy.of("fedoras", options, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, toy().run(folder)


class TestRuns:
    def test_every_path_once_with_its_costs(self, run: tuple[Path, Trace]) -> None:
        folder, trace = run
        rows = read_scores(folder / "scores.jsonl")
        meta = trace.outcome.state.meta
        assert len({scored.path for scored in rows}) == len(rows)
        assert len(rows) == len(meta["search"]["scores"]) + len(meta["control_scores"])
        limits = [tier["limit"]["macs"] for tier in meta["tiers"]]
        for scored in rows:
            assert scored.macs <= limits[scored.tier - 1]
            assert scored.samples == 9
        assert {scored.tier for scored in rows} == {1, 2}

    def test_a_killed_and_resumed_run_leaves_the_same_file(
        self,
        run: tuple[Path, Trace],
        tmp_path: Path,
    ) -> None:
        whole, _ = run
        sizes = []

        def die(event: object) -> None:
            if isinstance(event, RoundEnded) and event.row.stage == "search":
                sizes.append((tmp_path / "scores.jsonl").stat().st_size)
                with open(tmp_path / "scores.jsonl", "ab") as file:
                    file.write(b'{"tier": 1, "pa')  # of the next generation
                raise Kill

        for _ in range(2):
            with pytest.raises(Kill):
                toy().run(tmp_path, listen=die)
        toy().run(tmp_path)
        assert sizes[0] < sizes[1]  # it is written as the search goes
        content = (tmp_path / "scores.jsonl").read_bytes()
        assert content == (whole / "scores.jsonl").read_bytes()
