"""`fedloom search`: networks for other budgets from a finished supernet, and what they can be used for."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.export.bundle import export
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.protocol.wire import read_state
from fedloom.methods.fedoras_search import SearchPaths, smallest_part, summed
from fedloom.records.scores import read_scores
from fedloom.records.searches import all_scores
from fedloom.runs import path_scoring
from fedloom.runs import search as searching
from fedloom.runs.finished import open_finished
from fedloom.runs.results import Run
from fedloom.runs.search import Supernet
from fedloom.searchers.tier_search import Score
from fedloom.types import Order

SPACE = str(Path(__file__).parents[1] / "contract" / "short_chain.toml")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    tiny.write_images(folder / "images.npz")
    return folder


def fedoras(place: Path, name: str, **data: Any) -> Path:
    options = {"space": SPACE, "epochs": 1, "batch": 8, "models": 6, "pool": 4, "sample": 3}
    tree = tiny.tree(place / "images.npz", clients=3, rounds=3)
    tree["options"] = options
    tree["data"].update(data)
    tiny.start(place / name, "fedoras", tree)
    return place / name


@pytest.fixture(scope="module")
def original(place: Path) -> Path:
    return fedoras(place, "central", server_share=0.2)


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy, which a test may search in."""
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def answered(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert cli.main([*map(str, words), "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert cli.main([*map(str, words)]) == 2
    return capsys.readouterr().err


class TestAnswers:
    def test_from_scores_alone(
        self,
        run: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def no_data(folder: object) -> None:
            raise AssertionError("data were opened")

        monkeypatch.setattr(path_scoring, "reopen", no_data)
        rows = read_scores(run / "scores.jsonl")
        limit = sorted(row.macs for row in rows)[len(rows) // 2]
        fitting = [row for row in rows if row.macs <= limit]
        before = (run / "scores.jsonl").read_bytes()
        answer = answered(capsys, "search", run, "--limit", f"macs={limit}", "--models", 1)
        best = min(fitting, key=lambda row: (row.loss, row.macs))
        assert answer["path"] == list(best.path)
        assert (answer["loss"], answer["accuracy"]) == (best.loss, best.accuracy)
        assert (answer["params"], answer["macs"]) == (best.params, best.macs)
        assert answer["scored"] == 0
        assert answer["from_scores"] == len(fitting)
        assert answer["front"][-1]["path"] == answer["path"]
        assert (run / "scores.jsonl").read_bytes() == before
        assert json.loads((run / "searches" / answer["search"] / "search.json").read_text())["macs"] == best.macs

    def test_it_goes_on_and_nothing_is_scored_twice(
        self,
        run: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        scored: list[tuple[int, ...]] = []
        inner = path_scoring.score_paths

        def counting(model: Any, paths: Any, *rest: Any) -> Any:
            scored.extend(paths)
            return inner(model, paths, *rest)

        monkeypatch.setattr(path_scoring, "score_paths", counting)
        known = {row.path for row in read_scores(run / "scores.jsonl")}
        first = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 10)
        again = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 12)
        assert first["from_scores"] + first["scored"] == 10
        assert (again["from_scores"], again["scored"]) == (10, 2)
        assert (first["search"], again["search"]) == ("macs-9k", "macs-9k-2")
        assert len(scored) == len(set(scored)) == first["scored"] + 2
        new = {row.path for row in all_scores(run)} - known
        assert len(new) == len(scored)

    def test_new_scores_are_those_of_the_runs_own_search(self, run: Path) -> None:
        supernet = Supernet.open(run)
        known = supernet.scores()
        paths = sorted(known)[:3]
        scorer = path_scoring.scorer_of(supernet.folder, supernet.frame, supernet.state.tensors, supernet.options)
        for path, score in scorer.scores(paths).items():
            assert score.loss == pytest.approx(known[path].loss, rel=1e-9)
            assert (score.accuracy, score.samples) == (known[path].accuracy, known[path].samples)

    def test_clients_score_as_in_a_round_of_the_run(self, original: Path) -> None:
        supernet = Supernet.open(original)
        options = supernet.options.model_copy(update={"score": "federated"})
        frame = supernet.frame
        paths = sorted(supernet.scores())[:3]
        part = smallest_part(paths)
        meta = {"ops": part, "paths": paths, "train_share": options.train_share}
        order = Order(0, "score", frame.part(supernet.state.tensors, part), meta)
        finished = open_finished(original)
        assert finished.site is not None
        replies = []
        for client in range(3):
            run = ClientRun(finished.task, "search", 1, 0, client, "cpu", bytes)
            replies.append(SearchPaths(options).client(order, finished.site.data(client).train, None, run)[0])
        scorer = path_scoring.scorer_of(supernet.folder, frame, supernet.state.tensors, options)
        scores = scorer.scores(paths)
        for path, total in zip(paths, summed(3, replies), strict=True):
            assert total.samples > 0
            assert scores[path] == Score(total.mean_loss, total.accuracy, total.samples)

    def test_operations_may_be_missing_and_picks(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("search", run, "--limit", "macs=90k,params=10k", "--unsupported", "mb3e1", "--models", 12)
        answer = answered(capsys, *words, "--pick", 1)
        assert answer["limit"] == {"macs": 90_000.0, "params": 10_000.0}
        for point in answer["front"]:
            assert "mb3e1" not in point["path"]
        assert answer["path"] == answer["front"][0]["path"]

    def test_in_python(self, run: Path) -> None:
        found = Run.open(run).search(macs=9e3, models=1)
        assert found.answer.macs <= 9000
        assert found.path == run / "searches" / "macs-9k"
        with pytest.raises(FedloomError, match="a limit"):
            Run.open(run).search()

    def test_a_search_that_was_stopped_keeps_its_scores(
        self,
        run: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(searching, "write", lambda *parts: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                cli.main(["search", str(run), "--limit", "macs=9k", "--models", "10"])
        assert "has none; make one: `fedloom search" in refused(capsys, "export", run, "--search", "macs-9k")
        answer = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 10)
        assert (answer["search"], answer["scored"]) == ("macs-9k", 0)

    def test_in_a_federation_what_has_scores_answers_and_the_rest_is_refused(
        self,
        run: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = (run / "config.toml").read_text()
        (run / "config.toml").write_text(config.replace("[engine]", '[engine]\nfederation = "hospitals"'))
        words = ("search", run, "--limit", "macs=9k", "--models")
        assert answered(capsys, *words, 1)["scored"] == 0
        assert "whose server has none" in refused(capsys, *words, 60)
        assert "whose server has none" in refused(capsys, *words, 1, "--tune", 2)


class TestUse:
    def test_tuned_exported_and_adapted(
        self,
        place: Path,
        run: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        result = (run / "result.json").read_bytes()
        plain = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 1)
        tuned = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 1, "--tune", 1)
        assert tuned["path"] == plain["path"]
        assert tuned["tuned"]["rounds"] == 1
        assert tuned["tuned"]["figures"]["pooled"] is not None
        assert not (run / "searches" / tuned["search"] / "checkpoints").exists()
        assert (run / "result.json").read_bytes() == result
        files = [run / "searches" / name / "model.state" for name in ("macs-9k", "macs-9k-2")]
        states = [read_state(file.read_bytes()) for file in files]
        assert any(not torch.equal(states[0].tensors[key], states[1].tensors[key]) for key in states[0].tensors)
        exported = export(open_finished(run, search="macs-9k-2"))
        assert (exported.about.macs, exported.path.name) == (tuned["macs"], "search-macs-9k-2")
        data = place / "images.npz"
        words = ("adapt", run, "--data", data, "--epochs", 1, "--search", "macs-9k-2", "--out", tmp_path / "new")
        assert answered(capsys, *words)["from"] == "search macs-9k-2"
        begun = open_finished(tmp_path / "new").served(None).network().state_dict()
        assert all(torch.equal(begun[key], states[1].tensors[key]) for key in begun)

    def test_the_network_of_a_tier(self, original: Path, capsys: pytest.CaptureFixture[str]) -> None:
        tiers = json.loads((original / "result.json").read_text())["tiers"]
        for row in tiers:
            served = open_finished(original, tier=row["tier"]).served(None)
            assert sum(part.numel() for part in served.network().parameters()) == row["params"]
        assert "from 1 to 2, but got 3" in refused(capsys, "export", original, "--tier", 3)
        both = ("--tier", 1, "--search", "x")
        assert "got --tier and --search" in refused(capsys, "predict", original, "--data", "x", *both)


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--limit", "macs=10"), "and the cheapest path has"),
            (("--limit", "macs=9k", "--unsupported", "mb3e2"), "did you mean mb3e1"),
            (("--limit", "macs=9k", "--unsupported", "conv1,ds3e1,mb3e1,identity"), "layer 1 has none"),
            ((), "add --limit macs=100M"),
            (("--limit", "latency_ms=2"), "add --profile NAME"),
            (("--limit", "macs=9k", "--profile", "x"), "--profile must come with"),
            (("--limit", "macs=9k", "--models", "1", "--pick", "50"), "from 1 to"),
            (("--limit", "macs=9k", "--pick", "nice"), "--pick must be best, knee"),
        ],
    )
    def test_bad_input(
        self,
        original: Path,
        capsys: pytest.CaptureFixture[str],
        words: tuple[str, ...],
        sentence: str,
    ) -> None:
        assert sentence in refused(capsys, "search", original, *words)
        assert not list((original / "searches").glob("*"))

    def test_what_is_no_finished_run_with_a_supernet(
        self,
        place: Path,
        run: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert "did you mean `fedloom run spider`" in refused(capsys, "search", "spider", "--limit", "macs=1M")
        (run / "supernet.state").rename(run / "elsewhere")
        message = refused(capsys, "search", run, "--limit", "macs=1M")
        assert "supernet.state must be what a finished stage left" in message
        (run / "result.json").unlink()
        assert "it has no result yet" in refused(capsys, "search", run, "--limit", "macs=1M")
        tiny.start(place / "fedavg", "fedavg", tiny.tree(place / "images.npz", rounds=1))
        assert "is a run of fedavg" in refused(capsys, "search", place / "fedavg", "--limit", "macs=1M")
