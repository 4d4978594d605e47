"""Samples of one's own, on which `fedloom search --data` scores: which of them are the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.export.newdata import Expected
from fedloom.runs.central_set import digest_of, open_central_set
from fedloom.types import Task

TASK = Task("fedavg", {}, "image", (1, 4, 4), ("cat", "dog"), 0, (127.5,), (127.5,))
X = np.arange(6 * 16).reshape(6, 4, 4).astype(np.uint8)
Y = np.array([0, 0, 1, 1, 0, 1])


def digest(place: Path, **arrays: np.ndarray) -> str:
    np.savez(place / "own.npz", **{"x": X, "y": Y, **arrays})
    central = open_central_set(Expected(TASK), "own.npz", place)
    assert (central.about.name, central.about.samples) == ("own.npz", 6)
    return central.about.digest


def test_classes_are_the_runs_in_whatever_order_a_file_has_them(tmp_path: Path) -> None:
    plain = digest(tmp_path)
    assert digest(tmp_path, labels=np.array(["cat", "dog"])) == plain
    assert digest(tmp_path, labels=np.array(["dog", "cat"]), y=1 - Y) == plain
    assert digest(tmp_path, labels=np.array(["dog", "cat"])) != plain
    central = open_central_set(Expected(TASK), "own.npz", tmp_path)
    assert central.samples.y.tolist() == (1 - Y).tolist()


def test_symbols_of_a_text_are_the_runs(tmp_path: Path) -> None:
    task = Task("fedavg", {}, "text", (3,), tuple("abc"), 0, (), ())
    (tmp_path / "play.txt").write_text("cbcbcbcb")
    central = open_central_set(Expected(task), "play.txt:3:1", tmp_path)
    assert central.samples.x.tolist()[:2] == [[2, 1, 2], [1, 2, 1]]
    assert central.samples.y.tolist()[:2] == [1, 2]
    (tmp_path / "play.txt").write_text("cbcbxbcb")
    with pytest.raises(
        FedloomError,
        match=r"the symbols of --data play\.txt:3:1 must be among the run's, but 'x' is",
    ):
        open_central_set(Expected(task), "play.txt:3:1", tmp_path)


def test_samples_and_labels_and_their_form_count() -> None:
    x = torch.arange(8, dtype=torch.uint8).reshape(2, 1, 2, 2)
    y = torch.tensor([0, 1])
    digests = {
        digest_of(Samples(x, y)),
        digest_of(Samples(x, y.flip(0))),
        digest_of(Samples(x.flip(0), y)),
        digest_of(Samples(x.float(), y)),
        digest_of(Samples(x.reshape(2, 1, 1, 4), y)),
    }
    assert len(digests) == 5
    assert digest_of(Samples(x.clone(), y.clone())) in digests
