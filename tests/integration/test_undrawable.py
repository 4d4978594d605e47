"""An architecture that nobody can draw costs a picture, never a result."""

import json

import pytest
import tiny

from fedloom.errors import FedloomError
from fedloom.report.page import NAME
from fedloom.runs.results import Run

NETWORK = """
from torch import nn


class Chain(nn.Sequential):
    architecture = {architecture}

    def __init__(self, shape, classes, width):
        super().__init__(nn.Flatten(), nn.Linear(36, classes))
"""


STRANGE = [
    (
        {"space": "chain:3", "choice": [[0], [1]]},
        "search space must be a known name, but got 'chain'",
    ),
    (
        {"layers": 3},
        "an architecture must have a `space` and a `choice` of whole numbers for every slot",
    ),
]


@pytest.mark.parametrize(("architecture", "reason"), STRANGE, ids=["space", "plain"])
def test_a_space_that_cannot_be_drawn(images, tmp_path, architecture, reason):
    (tmp_path / "chain.py").write_text(NETWORK.format(architecture=architecture))
    setting = tiny.tree(images, rounds=1, options={"network": f"{tmp_path}/chain.py:Chain"})
    run = tiny.start(tmp_path / "run", "fedavg", setting)
    assert [row["architecture"] for row in run.result["clients"]] == [architecture] * 3
    assert Run.open(tmp_path / "run").result == run.result
    written = sorted(path.name for path in (tmp_path / "run" / "architectures").iterdir())
    assert written == ["client-0.json", "client-1.json", "client-2.json"]
    assert (
        json.loads((tmp_path / "run" / "architectures" / "client-1.json").read_text())
        == architecture
    )
    assert (
        "3 of 3 architectures are of a space that cannot be opened here"
        in (tmp_path / "run" / NAME).read_text()
    )
    sentences = (tmp_path / "run" / "run.log").read_text().splitlines()
    assert len(sentences) == 3
    assert f"WARNING the architecture of client 0 was not drawn: {reason}" in sentences[0]


def test_a_notebook_shows_it_in_words(images, tmp_path):
    (tmp_path / "chain.py").write_text(NETWORK.format(architecture={"layers": 3}))
    setting = tiny.tree(images, rounds=1, options={"network": f"{tmp_path}/chain.py:Chain"})
    client = tiny.start(tmp_path / "run", "fedavg", setting).client(0)
    assert client.architecture._repr_svg_() is None
    assert "unknown" in client._repr_html_()
    with pytest.raises(
        FedloomError,
        match="an architecture must have a `space` and a `choice` of whole numbers for every slot",
    ):
        client.architecture.draw()
