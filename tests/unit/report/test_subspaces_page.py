"""What a page says of a search in sub-spaces: which went where, and the group that was found."""

import re

import pytest
from clocked import SHORT, cluster, spent
from fabricated import client, make_run, row, split_of

from fedloom.report.page import sections
from fedloom.report.sections.subspaces import shades
from fedloom.report.story import Reader
from fedloom.spaces.groups import CellGroup

SPACE = CellGroup("s2", 1, 1)  # one cell of one node: two edges, each skip or sep3
BOTH = {"space": SPACE.name, "choice": [[0, 1], [0, 1]]}
SKIPS = {"space": SPACE.name, "choice": [[0], [0]]}
CONVOLUTIONS = {"space": SPACE.name, "choice": [[1], [1]]}


def text_of(markup):
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def searched(number, worths):
    clusters = []
    for place, (accuracy, cost, worth, space) in enumerate(worths):
        members = [2 * place, 2 * place + 1]
        noted = {"space": space, "c": accuracy, "R": cost, "worth": worth}
        clusters.append(cluster(place, members, SHORT, members[0], **noted))
    end = 2.0 * number
    return row(
        number,
        0.2,
        stage="search",
        clusters=clusters,
        simulated={"begin": end - 2, "end": end},
        totals=spent(number, end),
    )


def rows():
    return [
        searched(1, [(None, 0.5, 2.0, BOTH), (None, 0.25, 4.0, SKIPS)]),
        searched(2, [(0.6, 0.5, 1.2, SKIPS), (0.3, 0.25, 1.2, CONVOLUTIONS)]),
    ]


def final():
    candidates = [
        {"architecture": SKIPS, "validation": 0.25, "chosen": False},
        {"architecture": CONVOLUTIONS, "validation": 0.5, "chosen": True},
    ]
    return {
        "architecture": CONVOLUTIONS,
        "group": 1,
        "stack": 6,
        "cells": 6,
        "reductions": [2, 4],
        "params": 1200,
        "macs": 34000,
        "candidates": candidates,
    }


@pytest.fixture
def page(tmp_path):
    clients = [client(number, 0.5) for number in range(4)]
    folder = make_run(tmp_path / "run", rows(), clients, split=split_of(4), final=final())
    return sections(Reader(folder).read())


def test_every_cluster_and_round_is_told(page):
    text = text_of(page["search"])
    assert "Sub-space of each cluster" in text
    assert (
        "1 0 0.250 – 0.500 2.000 2 skip, 2 sep3" in text
    )  # round, cluster, level, c, R, worth, operations
    assert "2 1 0.250 30.0 0.250 1.200 2 sep3" in text


def test_the_group_and_its_rivals_are_told(page):
    text = text_of(page["search"])
    assert "a group of 1 cell 6 times: 6 cells, of which 2 and 4 halve the feature map" in text
    assert "1 25.0 2 skip" in text
    assert "2 50.0 chosen 2 sep3" in text


def test_a_round_is_shaded_by_itself():
    """The first round has 1/R, which is larger than any c/R: it would leave the others pale."""
    assert shades([[2.0, 1.2], [4.0, 0.6], [None, None]]) == [[0.5, 1.0], [1.0, 0.5], [None, None]]


def test_a_run_without_sub_spaces_tells_nothing_of_them(tmp_path):
    plain = [row(1, 0.2, clusters=[cluster(0, [0, 1], SHORT, 0)], totals=spent(1, 2.0))]
    folder = make_run(tmp_path / "run", plain, split=split_of(2))
    assert "sub-space" not in sections(Reader(folder).read())["search"]
