import argparse
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from fedloom.commands.data_show import add_arguments, show
from fedloom.data.readers.digits import digits
from fedloom.data.showing.drawing import MOST as DRAWN
from fedloom.data.showing.drawing import as_svg
from fedloom.data.showing.picture import Picture
from fedloom.data.source import Source
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError

SVG = "{http://www.w3.org/2000/svg}"


def options(*words) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def shown(capsys, *words) -> str:
    assert show(options(*words)) == 0
    return capsys.readouterr().out


def toy(y, labels, **more) -> Source:
    y = np.asarray(y)
    return Source("toy", np.zeros((len(y), 3, 2, 2), np.uint8), y, tuple(labels), **more)


def test_counts_sizes_and_distances():
    """Two sites of one class each are half of everything away from what all have together."""
    source = toy(
        [0] * 4 + [1] * 4, "ab", groups=np.repeat([0, 1], 4), group_names=("north", "south")
    )
    picture = Picture(source, make_split(source, None, "sites", 0, min_samples=2))
    assert picture.counts.tolist() == [[4, 0], [0, 4]]
    assert picture.sizes.tolist() == [4, 4]
    assert picture.classes.tolist() == [1, 1]
    assert picture.distances.tolist() == [0.5, 0.5]
    assert [picture.origin(client) for client in range(2)] == ["north", "south"]


def test_origin_of_joined_groups():
    groups = np.repeat(np.arange(4), 5)
    source = toy(np.arange(20) % 2, "ab", groups=groups, group_names=tuple("wxyz"), grouping="role")
    picture = Picture(source, make_split(source, 2, "natural", 0, min_samples=2))
    assert [picture.origin(client) for client in range(2)] == ["2 roles", "2 roles"]
    alone = Picture(digits(), make_split(digits(), 2, "iid", 0))
    assert alone.origin(0) == ""


def test_a_line_a_client(capsys):
    text = shown(capsys, "digits", "--partition", "dominant:0.6+rotation:30", "--clients", "10")
    assert "digits, dominant:0.6+rotation:30, seed 0" in text
    lines = [line for line in text.splitlines() if re.match(r"\s+\d+\s+1\d\d\s", line)]
    assert len(lines) == 10
    assert lines[0].split()[:6] == ["0", "180", "36", "10", "0.50", "-30"]
    assert all(line.count("█") == 2 and "░" in line for line in lines)


def test_many_clients_are_summarised(capsys):
    text = shown(capsys, "digits", "--partition", "iid", "--clients", "31")
    assert "third quartile" in text
    assert re.search(r"samples\s+57\s+58\s+58\s+58\s+58", text)
    assert "31 clients, 1797 samples" in text


def test_large_numbers_are_written_out(capsys, tmp_path):
    np.savez(
        tmp_path / "a.npz", x=np.zeros((62 * 12345, 1, 1), np.uint8), y=np.arange(62 * 12345) % 2
    )
    assert " 12345  " in shown(
        capsys, str(tmp_path / "a.npz"), "--partition", "iid", "--clients", "62"
    )


def test_many_classes_share_a_column(capsys, tmp_path):
    np.savez(tmp_path / "many.npz", x=np.zeros((1000, 2, 2), np.uint8), y=np.arange(1000) % 100)
    text = shown(capsys, str(tmp_path / "many.npz"), "--partition", "iid", "--clients", "2")
    assert "100 classes" in text
    strips = re.findall(r"[░▒▓█]+", text)
    assert [len(strip) for strip in strips] == [24, 24]


def test_json(capsys):
    picture = json.loads(
        shown(
            capsys,
            "digits",
            "--partition",
            "iid+rotation:90",
            "--clients",
            "3",
            "--seed",
            "5",
            "--json",
        )
    )
    split = make_split(digits(), 3, "iid+rotation:90", 5)
    assert (picture["data"], picture["partition"], picture["seed"], picture["split"]) == (
        "digits",
        "iid+rotation:90",
        5,
        split.hash,
    )
    assert [client["rotation"] for client in picture["clients"]] == [-90, 0, 90]
    assert sum(sum(client["counts"]) for client in picture["clients"]) == picture["samples"] == 1797
    assert picture["labels"] == [str(label) for label in range(10)]
    assert [client["test"] for client in picture["clients"]] == split.tests.tolist()
    assert "group" not in picture["clients"][0]


def test_save_makes_a_split_file_that_show_reads(capsys, tmp_path):
    file = str(tmp_path / "new" / "split.json")
    first = shown(
        capsys, "digits", "--partition", "label-skew:2", "--clients", "10", "--save", file, "--json"
    )
    again = shown(capsys, "digits", "--split", file, "--json")
    assert json.loads(first) == json.loads(again)
    assert Split.load(tmp_path / "new" / "split.json").partition == "label-skew:2"


def test_the_drawing_is_a_whole_svg_with_everything_inside(capsys, tmp_path):
    shown(capsys, "digits", "--partition", "dirichlet:0.2", "--out", str(tmp_path / "split.svg"))
    tree = ElementTree.fromstring((tmp_path / "split.svg").read_text())
    width = float(tree.get("width"))
    height = float(tree.get("height"))
    places = []
    cells = 0
    for path in tree.iter(f"{SVG}path"):
        places += re.findall(r"M([\d.]+) ([\d.]+)", path.get("d"))
        if path.get("class") == "cell":
            cells += path.get("d").count("z")
    for text in tree.iter(f"{SVG}text"):
        places.append((text.get("x"), text.get("y")))
    for x, y in places:
        assert 0 < float(x) < width and 0 < float(y) < height
    picture = Picture(digits(), make_split(digits(), 8, "dirichlet:0.2", 0))
    assert cells == (picture.counts > 0).sum()
    words = [text.text for text in tree.iter(f"{SVG}text")]
    assert words[0] == "digits, dirichlet:0.2, seed 0"
    assert {str(size) for size in picture.sizes} <= set(words)
    style = tree.find(f"{SVG}style").text
    assert "prefers-color-scheme:dark" in style


def test_shade_follows_the_count():
    source = toy([0] * 10 + [1] * 5, "ab")
    svg = as_svg(Picture(source, make_split(source, 1, "iid", 0, min_samples=2)))
    assert re.findall(r'fill-opacity="([\d.]+)"', svg) == ["0.5", "1"]


@pytest.mark.parametrize("clients", [1, 2, 45, 400])
def test_drawings_of_any_number_of_clients(clients):
    source = toy(np.arange(4000) % 3, ["<&>", "a\x00b", "a very long name indeed"])
    svg = as_svg(Picture(source, make_split(source, clients, "iid", 0, min_samples=2)))
    tree = ElementTree.fromstring(svg)
    rests = next(path for path in tree.iter(f"{SVG}path") if path.get("class") == "rest")
    assert rests.get("d").count("z") == min(clients, DRAWN)
    assert ("360 shown" in svg) == (clients > DRAWN)
    assert float(tree.get("height")) < 1000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["digits", "--partition", "dirichle:1"], "did you mean dirichlet?"),
        (["digits", "--clients", "none"], "`--clients` must be"),
        (["digit"], "did you mean digits?"),
        (["digits", "--partition", "natural"], "digits does not; try iid"),
        (["digits", "--parts", "official"], "digits has none; leave --parts out"),
        (
            ["digits", "--out", "/dev/null/split.svg"],
            "must be a file that can be written, but File exists",
        ),
        (
            ["digits", "--save", "/dev/null/split.json"],
            "must be a file that can be written, but File exists",
        ),
    ],
)
def test_refuses(words, expected):
    with pytest.raises(FedloomError) as caught:
        show(options(*words))
    assert expected in str(caught.value)


def test_names_do_not_reach_the_terminal_as_commands(capsys, tmp_path):
    labels = ["\x1b]", "b"]
    sites = ["\x1b[2J", "\udcff"]
    for site in sites:
        np.savez(
            tmp_path / f"{site}.npz",
            x=np.zeros((9, 4, 4), np.uint8),
            y=np.arange(9) % 2,
            labels=labels,
        )
    out = shown(capsys, str(tmp_path), "--partition", "sites", "--min-samples", "4")
    assert "\x1b" not in out and "\udcff" not in out and out.count("\ufffd") == 3
