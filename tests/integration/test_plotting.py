"""The classes in a plot of the split are counted in the data, where they still are as they were."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny

from fedloom.cli import main
from fedloom.config.models import Experiment, validated
from fedloom.data.source import Source
from fedloom.data.split import make_split
from fedloom.errors import FedloomError
from fedloom.runs.plotting import count_classes, names_of_clients


@pytest.mark.whole
def test_data_that_changed_are_not_counted(images, tmp_path, capsys):
    tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, rounds=1))
    assert main(["plot", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "plots" / "split.svg").exists()
    tiny.write_images(images, samples=90)
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "later")]) == 0
    assert "no split: the split must be of the data" in capsys.readouterr().out
    assert not (tmp_path / "later" / "split.svg").exists()


def test_sites_of_a_federation_keep_their_data():
    tree = {"method": "fedavg", "data": {"name": "digits"}, "engine": {"federation": "hospitals"}}
    config = validated(Experiment, tree)
    with pytest.raises(
        FedloomError, match=r"must be at hand .* but the sites of hospitals keep theirs"
    ):
        count_classes(SimpleNamespace(config=lambda: config))


@pytest.mark.parametrize(
    ("rule", "names"), [("sites", ["north", "south"]), ("natural", ["0", "1"])]
)
def test_clients_that_are_sites_have_their_names(rule, names):
    x = np.zeros((40, 1, 2, 2), np.uint8)
    groups = np.repeat([0, 1], 20)
    source = Source(
        "two", x, np.arange(40) % 2, ("a", "b"), groups=groups, group_names=("north", "south"),
        grouping="site" if rule == "sites" else "writer",
    )  # fmt: skip
    split = make_split(source, None, rule, 0)
    assert names_of_clients(source, split) == names
