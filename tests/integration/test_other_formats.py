"""ONNX and ExecuTorch, where they are installed: `make test-export`."""

import sys

import numpy as np
import pytest
import tiny

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.export import executorch, onnx
from fedloom.export.bundle import export
from fedloom.runs.finished import open_finished

CELLS = {"ops": "s2", "cells": 2, "nodes": 1, "channels": 2, "batch": 8, "epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("formats")
    tiny.write_images(place / "images.npz", samples=45)
    (place / "words.txt").write_text(
        "in the beginning there was a word, and the word was long enough. " * 20
    )
    setting = tiny.tree(place / "images.npz", rounds=3)
    tiny.start(place / "fednas", "fednas", {**setting, "options": {**CELLS, "personal": True}})
    tiny.start(place / "fedavg", "fedavg", tiny.tree(place / "images.npz", rounds=1))
    text = tiny.tree(place / "words.txt", rounds=1, options={"width": "0.02"})
    text["data"]["name"] += ":8"
    tiny.start(place / "text", "fedavg", text)
    return place


@pytest.mark.export
@pytest.mark.parametrize("name", ["fednas", "fedavg", "text"])
def test_onnx_answers_alike_for_any_number_of_samples(runs, name):
    runtime = pytest.importorskip("onnxruntime")
    exported = export(open_finished(runs / name), client=1, format="onnx")
    assert 0 <= exported.difference < 1e-4 and "model.onnx" in exported.files
    session = runtime.InferenceSession(str(exported.path / "model.onnx"))
    (input_of_session,) = session.get_inputs()
    assert input_of_session.name == "samples" and isinstance(input_of_session.shape[0], str)
    kind = {"tensor(uint8)": np.uint8, "tensor(int64)": np.int64}[input_of_session.type]
    (scores,) = session.run(None, {"samples": np.zeros((7, *input_of_session.shape[1:]), kind)})
    assert scores.shape == (7, len(exported.about.labels))


@pytest.mark.export
def test_executorch_answers_alike(runs):
    pytest.importorskip("executorch")
    exported = export(open_finished(runs / "fedavg"), client=1, format="executorch")
    assert 0 <= exported.difference < 1e-4 and (exported.path / "model.pte").stat().st_size > 1000


PARTS = [("onnx", "onnxruntime", onnx), ("executorch", "executorch.exir", executorch)]


@pytest.mark.parametrize(("name", "module", "write"), PARTS)
def test_a_format_that_is_not_installed_says_how(monkeypatch, tmp_path, name, module, write):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FedloomError, match=rf"pip install 'fedloom\[{name}\]'"):
        write.write(tmp_path / "model", None, None)


def test_help_is_there(capsys):
    with pytest.raises(SystemExit):
        cli.main(["export", "--help"])
    assert "executorch" in capsys.readouterr().out
