"""The examples of docs/spaces.md are the files that the contract suite runs."""

import re
from pathlib import Path

import pytest
import torch

from fedloom.nets.model import seeded
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.chains.grammar import SEQUENCE_OPS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "spaces.md").read_text()
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_two():
    assert len(EXAMPLES) == 2
    assert all(f"`{op}`" in PAGE for op in SEQUENCE_OPS)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_its_file(text):
    file = re.search(r"--space docs/(examples/[\w-]+\.toml)", text)[1]
    assert (DOCS / file).read_text() == text


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_trains(text, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    space = open_space(str(file))
    path = space.sample(rng(0, "example"))
    is_text = space.kinds == ("text",)
    shape = (6,) if is_text else (1, 8, 8)
    with seeded(0):
        net = space.network(shape, 4, space.usual, arch=path)
        x = torch.randint(0, 4, (8, *shape)) if is_text else torch.randn(8, *shape)
    y = torch.arange(8) % 4
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
