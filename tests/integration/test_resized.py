"""A run on resized images: resume, predict, export and a further run use the same size."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from fedloom import cli
from fedloom.data.resizing import resized
from fedloom.export.bundle import export
from fedloom.export.predicting import predict
from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.finished import open_finished
from fedloom.runs.preparing import reopen


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resized")
    tiny.write_images(folder / "images.npz", samples=45, side=10)
    config = tiny.tree(folder / "images.npz", rounds=1)
    config["data"]["resize"] = 6
    tiny.start(folder / "run", "fedavg", config)
    return folder


def test_the_size_stands_in_the_run(place: Path) -> None:
    again = reopen(RunFolder(place / "run"))
    assert again.task.shape == (1, 6, 6)
    again.split.check(again.source)
    result = RunResult.from_json(json.loads((place / "run" / "result.json").read_text()))
    assert result.input is not None and result.input.resize == 6


def test_predict_and_the_export_take_images_of_the_old_size(place: Path) -> None:
    finished = open_finished(place / "run")
    images = np.load(place / "images.npz")["x"][:, None]
    asked = predict(finished, str(place / "images.npz"))
    assert asked.trained.samples is not None and asked.trained.samples > 0  # they are known again
    np.savez(place / "small.npz", x=resized(images, 6)[:, 0])
    np.savez(place / "large.npz", x=images[:, 0])
    for name in ("small.npz", "large.npz"):
        unlabelled = predict(finished, str(place / name))
        np.testing.assert_array_equal(unlabelled.chances, asked.chances)
    folder = export(finished, out=place / "export").path
    assert "resized to 6×6 pixels" in (folder / "README.md").read_text()
    assert json.loads((folder / "architecture.json").read_text())["input"]["resize"] == 6
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    for before in (3, 4, 6, 7, 10, 13):
        some = np.random.default_rng(before).integers(
            0, 256, (2, 1, before, before + 1), dtype=np.uint8
        )
        np.testing.assert_array_equal(model.resized(torch.tensor(some)).numpy(), resized(some, 6))
    answers = model.predict(torch.tensor(images))
    np.testing.assert_allclose([chance for _, chance in answers], asked.chances.max(1), rtol=1e-6)


def test_a_newcomer_meets_the_same_size(place: Path) -> None:
    config = configure(
        "fedavg", tiny.tree(place / "images.npz", rounds=1, init={"run": str(place / "run")})
    )
    _, prepared = create(config, place / "after")
    assert prepared.config.data.resize == 6


def test_bad_sizes_in_one_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "fedavg", "--resize", "2"]) == 2
    assert "`--resize` must be greater than or equal to 4, but got '2'" in capsys.readouterr().err


@pytest.fixture(scope="module", params=["crop", "pad"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on image files of differing sizes, grey and colour, one of them damaged."""
    folder = tmp_path_factory.mktemp(request.param)
    random = np.random.default_rng(0)
    for number in range(40):
        size = (8 + number % 5, 12 - number % 3, 3)
        pixels = random.integers(0, 256, size).astype(np.uint8)
        if number % 4 == 0:
            pixels = pixels[..., 0]
        file = folder / "images" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    (folder / "images" / "a" / "99.png").write_bytes(b"damaged")
    config = tiny.tree(folder / "images", rounds=1)
    config["data"] |= {"resize": 6, "fit": request.param, "skip_bad": True}
    tiny.start(folder / "run", "fedavg", config)
    return folder


def test_how_images_were_fitted_and_what_was_skipped_stands_in_the_run(fitted: Path) -> None:
    again = reopen(RunFolder(fitted / "run"))
    assert again.task.shape == (3, 6, 6)
    again.split.check(again.source)
    result = json.loads((fitted / "run" / "result.json").read_text())
    assert (result["input"]["resize"], result["input"]["fit"]) == (6, again.config.data.fit)
    (skipped,) = result["data"]["skipped"]
    assert skipped["file"] == str(fitted / "images" / "a" / "99.png")
    assert "could not be read" in skipped["reason"]
    assert f"skipped {skipped['file']}" in (fitted / "run" / "run.log").read_text()


def test_predict_and_the_export_fit_new_images_in_the_same_way(fitted: Path) -> None:
    finished = open_finished(fitted / "run")
    fit = finished.fit
    assert fit in ("crop", "pad")
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 11, 7), dtype=np.uint8)
    np.savez(fitted / "new.npz", x=images)
    asked = predict(finished, str(fitted / "new.npz"))
    np.savez(fitted / "small.npz", x=resized(images, 6, fit))
    np.testing.assert_array_equal(
        predict(finished, str(fitted / "small.npz")).chances, asked.chances
    )
    grey = fitted / "grey"
    for name in "ab":
        (grey / name).mkdir(parents=True)
        Image.fromarray(images[0, 0]).save(grey / name / "1.png")
    assert len(predict(finished, str(grey)).chances) == 2
    folder = export(finished, out=fitted / "export").path
    words = {"crop": "cropped to their middle square", "pad": "padded to a black square"}
    assert words[fit] in (folder / "README.md").read_text()
    assert json.loads((folder / "architecture.json").read_text())["input"]["fit"] == fit
    spec = importlib.util.spec_from_file_location("fitted_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    for shape in ((3, 9), (9, 3), (6, 7), (13, 10), (6, 6), (8, 8)):
        some = np.random.default_rng(sum(shape)).integers(0, 256, (2, 3, *shape), dtype=np.uint8)
        np.testing.assert_array_equal(
            model.resized(torch.tensor(some)).numpy(), resized(some, 6, fit)
        )
        floats = some.astype(np.float32) - 100
        np.testing.assert_allclose(
            model.resized(torch.tensor(floats)).numpy(), resized(floats, 6, fit), rtol=1e-6
        )
    answers = model.predict(torch.tensor(images))
    np.testing.assert_allclose([chance for _, chance in answers], asked.chances.max(1), rtol=1e-6)


def test_a_newcomer_is_fitted_in_the_same_way(fitted: Path) -> None:
    data = {
        "data": {"name": str(fitted / "images"), "clients": 2, "partition": "iid", "skip_bad": True}
    }
    config = configure(
        "fedavg",
        {**tiny.tree(fitted / "images", rounds=1, init={"run": str(fitted / "run")}), **data},
    )
    _, prepared = create(config, fitted / "after")
    assert (prepared.config.data.resize, prepared.config.data.fit) == (
        6,
        open_finished(fitted / "run").fit,
    )


def test_predict_takes_images_without_labels(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without class folders, or one file; each answer names its file."""
    names = []
    for file in sorted((fitted / "images" / "b").iterdir()):
        names.append(shutil.copy(file, str(tmp_path / file.name)))
    (tmp_path / "notes.txt").write_text("no image")
    asked = ["predict", str(fitted / "run"), "--shared"]
    assert cli.main([*asked, "--data", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in answer["predictions"]] == names
    assert answer["figures"] is None and answer["trained_on"] > 0
    labelled = predict(open_finished(fitted / "run"), str(fitted / "images"), skip_bad=True)
    chances = labelled.answers()
    for row in answer["predictions"]:
        row.pop("file")
        assert row in chances
    out = tmp_path / "answers.csv"
    assert cli.main([*asked, "--data", names[1], "--out", str(out)]) == 0
    header, line = out.read_text().splitlines()
    assert header.startswith("file,label,probability") and line.startswith(names[1])
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert cli.main([*asked, "--data", str(tmp_path)]) == 2
    assert "bad.png" in capsys.readouterr().err
    assert cli.main([*asked, "--data", str(tmp_path), "--skip-bad", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == len(names)


def test_predict_and_adapt_can_leave_out_files_that_cannot_be_read(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = str(fitted / "images" / "a" / "99.png")
    asked = ["predict", str(fitted / "run"), "--shared", "--data", str(fitted / "images")]
    assert cli.main(asked) == 2
    assert "leave it out with --skip-bad" in capsys.readouterr().err
    assert cli.main([*asked, "--skip-bad", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["samples"], [row["file"] for row in answer["skipped"]]) == (40, [bad])
    words = [
        "adapt",
        str(fitted / "run"),
        "--data",
        str(fitted / "images"),
        "--epochs",
        "1",
        "--quiet",
    ]
    assert cli.main([*words, "--skip-bad", "--out", str(fitted / "adapted")]) == 0
    result = json.loads((fitted / "adapted" / "result.json").read_text())
    assert [row["file"] for row in result["data"]["skipped"]] == [bad]
