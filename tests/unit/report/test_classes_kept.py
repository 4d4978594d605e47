import numpy as np
import pytest
from fabricated import make_run

from fedloom.config.models import Experiment
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.records.classes import Classes
from fedloom.report.classes import MOST, MOST_JUDGED, count_classes, keep
from fedloom.report.story import Reader
from fedloom.runs.experiment import create


def source(y, kind="image", **more):
    y = np.array(y)
    return Source(
        "made",
        np.zeros((len(y), 1, 2, 2), np.uint8),
        y,
        ("cat", "dog"),
        (0.0,),
        (1.0,),
        kind,
        **more,
    )


def split(clients, each, tests, partition="iid"):
    return Split(
        data="made",
        digest="",
        samples=clients * each,
        partition=partition,
        seed=0,
        test_share=0.5,
        indices=np.arange(clients * each),
        offsets=np.arange(clients + 1) * each,
        tests=np.full(clients, tests),
        server=np.zeros(0, np.int64),
    )


def test_counts_and_the_usual_answer_by_hand():
    # Client 0: test 0, 1 and training 0, 0: it answers 0, and half is right.
    # Client 1: test 1, 1 and training 1, 0: of the tie it answers 0, and nothing is right.
    classes = count_classes(source([0, 1, 0, 0, 1, 1, 1, 0]), split(2, 4, 2))
    assert classes == Classes(labels=["cat", "dog"], counts=[[3, 1], [1, 3]], names=[], usual=0.25)


def test_only_as_many_clients_as_are_drawn():
    classes = count_classes(source([0, 1] * 100), split(100, 2, 1))
    assert len(classes.counts) == MOST == 60


def test_what_has_no_usual_answer():
    many = MOST_JUDGED + 1
    assert count_classes(source([0, 1] * many), split(many, 2, 1)).usual is None
    assert count_classes(source([0, 1] * 4, kind="text"), split(2, 4, 2)).usual is None


def test_names_of_sites():
    classes = count_classes(source([0, 1] * 2, group_names=("a", "b")), split(2, 2, 1, "sites"))
    assert classes.names == ["a", "b"]


def test_kept_and_found_again(tmp_path):
    folder = make_run(tmp_path / "run")
    classes = keep(folder, source([0, 1] * 4), split(2, 4, 2))
    assert Classes.read(folder.path) == classes == Reader(folder).read().classes


@pytest.mark.parametrize(
    "raw", [{}, [], {"labels": ["a"], "counts": [[1, 2]], "names": [], "usual": None}], ids=str
)
def test_what_is_damaged_is_made_anew_or_unknown(tmp_path, raw):
    folder = make_run(tmp_path / "run")
    folder.write_json("classes.json", raw)
    assert Reader(folder).read().classes is None  # the data is gone


def test_what_is_damaged_is_counted_again_from_the_data(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "x.npz", x=rng.integers(0, 255, (40, 6, 6), dtype=np.uint8), y=np.arange(40) % 2
    )
    data = {"name": str(tmp_path / "x.npz"), "clients": 2, "partition": "iid"}
    folder, _ = create(Experiment(method="fedavg", data=data), tmp_path / "run")
    before = Reader(folder).read()
    assert before.classes == Classes.read(folder.path) and before.damage == []
    (folder.path / "classes.json").write_text("3")
    after = Reader(folder).read()
    assert after.classes == before.classes
    assert [damage.sentence for damage in after.damage] == [
        "classes.json is damaged: it is not an object of JSON. "
        "The classes of each client were counted again from the data."
    ]
