"""`fedloom search`: networks for other budgets from a finished supernet, and their uses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch.utils.data import TensorDataset

from fedloom import cli
from fedloom.cost.limits import Limit
from fedloom.errors import FedloomError
from fedloom.export.bundle import export
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.protocol.wire import read_state
from fedloom.methods.fedoras_search import SearchPaths, smallest_part, summed
from fedloom.records.folder import RunFolder
from fedloom.records.scores import read_scores
from fedloom.records.searches import all_scores
from fedloom.runs import path_scoring
from fedloom.runs import search as searching
from fedloom.runs.finished import model_of_search, open_finished
from fedloom.runs.results import Run
from fedloom.runs.running import take_back
from fedloom.runs.search import Supernet
from fedloom.searchers.budget_search import best_first
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
        assert answer["balanced_accuracy"] == best.balanced_accuracy != best.accuracy
        for name in ("accuracy", "balanced_accuracy"):
            assert answer["front"][-1][name] == getattr(best, name)
        assert (run / "scores.jsonl").read_bytes() == before
        assert (
            json.loads((run / "searches" / answer["search"] / "search.json").read_text())["macs"]
            == best.macs
        )

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
        scored_paths = {row.path for row in read_scores(run / "scores.jsonl")}
        first = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 10)
        again = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 12)
        assert first["from_scores"] + first["scored"] == 10
        assert (again["from_scores"], again["scored"]) == (10, 2)
        assert (first["search"], again["search"]) == ("macs-9k", "macs-9k-2")
        assert len(scored) == len(set(scored)) == first["scored"] + 2
        new = {row.path for row in all_scores(run)} - scored_paths
        assert len(new) == len(scored)

    def test_new_scores_are_those_of_the_runs_own_search(self, run: Path) -> None:
        supernet = Supernet.open(run)
        scores = supernet.scores()
        paths = sorted(scores)[:3]
        scorer = path_scoring.scorer_of(
            supernet.folder, supernet.frame, supernet.state.tensors, supernet.options
        )
        for path, score in scorer.scores(paths).items():
            assert score.loss == pytest.approx(scores[path].loss, rel=1e-9)
            assert (score.accuracy, score.samples) == (scores[path].accuracy, scores[path].samples)

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
            replies.append(
                SearchPaths(options).client(order, finished.site.data(client).train, None, run)[0]
            )
        scorer = path_scoring.scorer_of(supernet.folder, frame, supernet.state.tensors, options)
        scores = scorer.scores(paths)
        for path, total in zip(paths, summed(3, replies), strict=True):
            assert total.samples > 0
            sums = Score(total.mean_loss, total.accuracy, total.samples)
            assert replace(scores[path], balanced_accuracy=None, auc=None) == sums
            assert total.balanced_accuracy is None  # clients send sums over all classes

    def test_operations_may_be_missing_and_picks(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = (
            "search",
            run,
            "--limit",
            "macs=90k,params=10k",
            "--unsupported",
            "mb3e1",
            "--models",
            12,
        )
        answer = answered(capsys, *words, "--pick", 1)
        assert answer["limit"] == {"macs": 90_000.0, "params": 10_000.0}
        for point in answer["front"]:
            assert "mb3e1" not in point["path"]
        assert answer["path"] == answer["front"][0]["path"]

    def test_a_pick_is_told_from_a_second_search(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ("search", run, "--limit", "macs=90k", "--models", 1)
        names = [answered(capsys, *words)["search"] for _ in range(2)]
        assert names == ["macs-90k", "macs-90k-2"]
        best = (run / "searches" / "macs-90k-2" / "search.json").read_bytes()
        for pick in ("knee", 1, 2, 2):
            names.append(answered(capsys, *words, "--pick", pick)["search"])
        assert names[2:] == [
            "macs-90k-pick-knee",
            "macs-90k-pick-1",
            "macs-90k-pick-2",
            "macs-90k-pick-2-2",
        ]
        assert (run / "searches" / "macs-90k-2" / "search.json").read_bytes() == best

    def test_in_python(self, run: Path) -> None:
        searched = Run.open(run).search(macs=9e3, models=1)
        assert searched.answer.macs <= 9000
        assert searched.path == run / "searches" / "macs-9k"
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
        assert "has none; make one: `fedloom search" in refused(
            capsys, "export", run, "--search", "macs-9k"
        )
        answer = answered(capsys, "search", run, "--limit", "macs=9k", "--models", 10)
        assert (answer["search"], answer["scored"]) == ("macs-9k", 0)

    def test_in_a_federation_what_has_scores_answers_and_the_rest_is_refused(
        self,
        run: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        federated(run)
        words = ("search", run, "--limit", "macs=9k", "--models")
        assert answered(capsys, *words, 1)["scored"] == 0
        assert "whose server has none; add --data with samples that you have" in refused(
            capsys, *words, 60
        )
        assert "whose server has none; leave --tune out" in refused(capsys, *words, 1, "--tune", 2)


def federated(run: Path) -> None:
    """Make it look as if it had run on a federation, whose data are not here."""
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        config.replace("[engine]", '[engine]\nfederation = "hospitals"')
    )


def images(place: Path, *, samples: int = 20, side: int = 6, classes: int = 3, **more: Any) -> Path:
    """Other images than the run's."""
    draws = np.random.default_rng(1)
    y = np.arange(samples) % classes
    x = draws.integers(0, 255, (samples, side, side)).astype(np.uint8)
    arrays = {"x": x, "y": y, **more}
    np.savez(
        place / "own.npz", **{name: array for name, array in arrays.items() if array is not None}
    )
    return place / "own.npz"


class TestOwnSamples:
    def test_in_a_federation_all_candidates_are_scored_anew(
        self,
        run: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        scored: list[tuple[int, ...]] = []
        inner = path_scoring.score_paths

        def noting(model: Any, paths: Any, *rest: Any) -> Any:
            scored.extend(paths)
            return inner(model, paths, *rest)

        def no_data(folder: object) -> None:
            raise AssertionError("the sites' data were opened")

        monkeypatch.setattr(path_scoring, "score_paths", noting)
        monkeypatch.setattr(path_scoring, "reopen", no_data)
        federated(run)
        supernet = Supernet.open(run)
        scores = best_first(
            supernet.scores(),
            searching.space_within(supernet, searching.SearchRequest(Limit(macs=9e3))),
        )
        before = all_scores(run)
        data = images(tmp_path)
        models = len(scores) + 2
        words = ("search", run, "--limit", "macs=9k", "--models", models, "--data")
        answer = answered(capsys, *words, data)
        assert (answer["from_scores"], answer["scored"]) == (0, models)
        assert (answer["data"]["name"], answer["data"]["samples"]) == (str(data), 20)
        assert scored[: len(scores)] == scores
        assert len(set(scored)) == models
        assert answer["search"] == "macs-9k-on-own"
        files = sorted(file.name for file in (run / "searches" / "macs-9k-on-own").glob("scores*"))
        assert files == [f"scores-{answer['data']['digest'][:16]}.jsonl"]
        rows = read_scores(run / "searches" / "macs-9k-on-own" / files[0])
        assert {row.samples for row in rows} == {20}
        assert answer["loss"] == min(row.loss for row in rows)
        # a later search takes them only if it is on the same samples, wherever these lie
        assert all_scores(run) == before
        assert answered(capsys, "search", run, "--limit", "macs=9k", "--models", 1)[
            "from_scores"
        ] == len(scores)
        copy = shutil.copy(data, tmp_path / "copy.npz")
        again = answered(capsys, *words, copy)
        assert (again["from_scores"], again["scored"], again["path"]) == (models, 0, answer["path"])
        changed = np.load(data)["x"]
        changed[0, 0, 0] += 1
        other = answered(capsys, *words, images(tmp_path, x=changed))
        assert (other["from_scores"], other["scored"]) == (0, models)
        text = model_of_search(open_finished(run), "macs-9k-on-own").figures
        assert "on 20 samples of own.npz: loss" in text

    def test_scores_are_those_of_the_samples(self, run: Path) -> None:
        """On the samples that the run scored on, they are the run's."""
        supernet = Supernet.open(run)
        prepared = path_scoring.reopen(supernet.folder)
        server = path_scoring.server_samples(prepared, path_scoring.clients_of(prepared))
        assert server is not None
        scores = supernet.scores()
        paths = sorted(scores)[:3]
        parts = (supernet.folder, supernet.frame, supernet.state.tensors, supernet.options)
        for path, score in path_scoring.scorer_on(server, *parts).scores(paths).items():
            assert score.loss == pytest.approx(scores[path].loss, rel=1e-9)
            assert (score.accuracy, score.samples) == (scores[path].accuracy, scores[path].samples)

    def test_a_search_that_was_stopped_keeps_its_scores(
        self,
        run: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        data = images(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(searching, "write", lambda *parts: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                Run.open(run).search(macs=9e3, models=3, data=data)
        answer = Run.open(run).search(macs=9e3, models=4, data="own.npz", data_dir=tmp_path).answer
        assert (answer.name, answer.from_scores, answer.scored) == ("macs-9k-on-own", 3, 1)
        later = Run.open(run).search(macs=9e3, models=4, data=data).answer
        assert (later.name, later.from_scores, later.scored) == ("macs-9k-on-own-2", 4, 0)

    def test_a_torch_data_set(self, run: Path, tmp_path: Path) -> None:
        arrays = np.load(images(tmp_path))
        dataset = TensorDataset(
            torch.from_numpy(arrays["x"])[:, None], torch.from_numpy(arrays["y"])
        )
        answer = Run.open(run).search(macs=9e3, models=1, data=dataset).answer
        assert answer.data is not None
        same = Run.open(run).search(macs=9e3, models=1, data=tmp_path / "own.npz").answer
        assert same.from_scores == 1

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            (
                {"side": 5},
                "must have the shape [1, 6, 6] that the run was trained on, "
                "but they have [1, 5, 5]",
            ),
            ({"labels": np.array(["0", "1", "dog"])}, "must be among the run's, but 'dog' is not"),
            (
                {"samples": 1, "labels": np.array(["0", "1"])},
                "at least 2 samples to score paths on, but it has 1",
            ),
            ({"classes": 4}, "must be among the run's, but '3' is not"),
            ({"y": None}, "must have labels to score paths by, but it has none; save them as y"),
            ({"x": np.full((20, 6, 6), 0.5, np.float32)}, "and these end at 0.5"),
        ],
    )
    def test_samples_that_are_not_like_the_runs(
        self,
        original: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        changes: dict[str, Any],
        sentence: str,
    ) -> None:
        words = ("search", original, "--limit", "macs=9k", "--data")
        assert sentence in refused(capsys, *words, images(tmp_path, **changes))
        assert not list((original / "searches").glob("*"))

    def test_text_is_none_of_its_kind(
        self, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "play.txt").write_text("to be or not to be, that is the question\n" * 10)
        words = ("search", original, "--limit", "macs=9k", "--data", tmp_path / "play.txt")
        assert "must be image data as the run's is, but it is text" in refused(capsys, *words)

    def test_images_are_resized_as_the_runs_were(self, run: Path, tmp_path: Path) -> None:
        result = json.loads((run / "result.json").read_text())
        result["input"]["resize"] = 6
        (run / "result.json").write_text(json.dumps(result))
        answer = Run.open(run).search(macs=9e3, models=1, data=images(tmp_path, side=12)).answer
        assert answer.scored == 1


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
        assert any(
            not torch.equal(states[0].tensors[key], states[1].tensors[key])
            for key in states[0].tensors
        )
        exported = export(open_finished(run, search="macs-9k-2"))
        assert (exported.about.macs, exported.path.name) == (tuned["macs"], "search-macs-9k-2")
        data = place / "images.npz"
        words = (
            "adapt",
            run,
            "--data",
            data,
            "--epochs",
            1,
            "--search",
            "macs-9k-2",
            "--out",
            tmp_path / "new",
        )
        assert answered(capsys, *words)["from"] == "search macs-9k-2"
        begun = open_finished(tmp_path / "new").served(None).network().state_dict()
        assert all(torch.equal(begun[key], states[1].tensors[key]) for key in begun)

    def test_the_network_of_a_tier(
        self, original: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tiers = json.loads((original / "result.json").read_text())["tiers"]
        for row in tiers:
            served = open_finished(original, tier=row["tier"]).served(None)
            assert sum(part.numel() for part in served.network().parameters()) == row["params"]
        assert "from 1 to 2, but got 3" in refused(capsys, "export", original, "--tier", 3)
        both = ("--tier", 1, "--search", "x")
        assert "got --tier and --search" in refused(
            capsys, "predict", original, "--data", "x", *both
        )


def test_a_run_that_is_taken_back_forgets_its_searches(run: Path) -> None:
    Run.open(run).search(macs=9e3, models=1)
    assert (run / "searches").exists()
    take_back(RunFolder.open(run), 0)
    assert not (run / "searches").exists()


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--limit", "macs=10"), "and the cheapest path has"),
            (("--limit", "macs=9k", "--unsupported", "mb3e2"), "did you mean mb3e1"),
            (
                ("--limit", "macs=9k", "--unsupported", "conv1,ds3e1,mb3e1,identity"),
                "layer 1 has none",
            ),
            ((), "add --limit macs=100M"),
            (("--limit", "latency_ms=2"), "add --profile NAME"),
            (("--limit", "macs=9k", "--profile", "x"), "--profile must come with"),
            (("--limit", "macs=9k", "--models", "1", "--pick", "50"), "from 1 to"),
            (("--limit", "macs=9k", "--pick", "nice"), "--pick must be best, knee"),
            (("--limit", "macs=9k", "--data-dir", "."), "--data-dir must come with --data"),
            (("--limit", "macs=9k", "--data", "nowhere.npz"), "nowhere.npz"),
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
        assert "did you mean `fedloom run spider`" in refused(
            capsys, "search", "spider", "--limit", "macs=1M"
        )
        (run / "supernet.state").rename(run / "elsewhere")
        message = refused(capsys, "search", run, "--limit", "macs=1M")
        assert "supernet.state must be the state that a finished stage left" in message
        (run / "result.json").unlink()
        assert "it has no result yet" in refused(capsys, "search", run, "--limit", "macs=1M")
        tiny.start(place / "fedavg", "fedavg", tiny.tree(place / "images.npz", rounds=1))
        assert "is a run of fedavg" in refused(
            capsys, "search", place / "fedavg", "--limit", "macs=1M"
        )
