from collections import Counter
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import space_of
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.space import DARTS_V2, from_genotype
from fedloom.spaces.drawing import as_svg, as_text, graphs_of
from fedloom.spaces.layout import CHAR, Box, Layout
from fedloom.spaces.nasbench201.space import from_string
from fedloom.types import Arch

UNHURRIED = settings(deadline=None)  # other work may share the machine
NS = "{http://www.w3.org/2000/svg}"
BENCH = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_1x1~2|"
SPACES = st.sampled_from(
    ["darts:full:4", "darts:s1:4", "darts:s2:2", "darts:s4:5", "darts:full:1", "nasbench201"]
)
ARCHS = st.builds(
    lambda name, seed: space_of(name).sample(rng(seed)), SPACES, st.integers(0, 2**32)
) | st.builds(lambda name: space_of(name).full(), SPACES)


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{NS}text")]


def test_text_of_a_derived_cell():
    arch = Arch("darts:s2:2", ((0,), (1,), (), (0,), (1,), (1,), (1,), (1,), (0,), ()))
    assert as_text(arch) == "\n".join([
        "normal cell",
        "        0 ┬─ c_{k-2} ── skip_connect",
        "          └─ c_{k-1} ── sep_conv_3x3",
        "        1 ┬─ c_{k-1} ── skip_connect",
        "          └─ 0       ── sep_conv_3x3",
        "   output ── 0, 1",
        "",
        "reduction cell",
        "        0 ┬─ c_{k-2} ── sep_conv_3x3",
        "          └─ c_{k-1} ── sep_conv_3x3",
        "        1 ┬─ c_{k-2} ── sep_conv_3x3",
        "          └─ c_{k-1} ── skip_connect",
        "   output ── 0, 1",
    ])  # fmt: skip


def test_text_of_nasbench201():
    """An edge of `none` is no edge."""
    assert as_text(from_string(BENCH)) == "\n".join([
        "cell",
        "       1 ── input  ── nor_conv_3x3",
        "       2 ── 1      ── skip_connect",
        "  output ┬─ input  ── avg_pool_3x3",
        "         └─ 2      ── nor_conv_1x1",
    ])  # fmt: skip
    assert as_text(Arch("nasbench201", ((0,),) * 6)).count("── nothing") == 3


def test_text_of_a_mask():
    text = as_text(DartsCells("s3", 2).full())
    assert text.count("none + skip_connect + sep_conv_3x3") == 10
    assert "├─" in text


@UNHURRIED
@given(ARCHS)
def test_the_svg_holds_every_edge_once(arch):
    svg = as_svg(arch)
    drawn = []
    for path in ElementTree.fromstring(svg).iter(f"{NS}path"):
        if path.get("data-edge"):
            drawn.append(path.get("data-edge"))
    expected = []
    operations = Counter()
    for graph in graphs_of(arch):
        expected += [f"{source}-{target}" for source, target in graph.arrows]
        for link in graph.links:
            operations.update(link.ops)
    assert sorted(drawn) == sorted(expected)
    labels = words(svg)
    for operation, count in operations.items():
        assert labels.count(operation) == count
    for graph in graphs_of(arch):
        assert labels.count(graph.names[0]) == len(graphs_of(arch))


def overlap(one: Box, other: Box) -> bool:
    apart = one.x + one.width <= other.x or other.x + other.width <= one.x
    return not apart and abs(one.y - other.y) < (one.height + other.height) / 2


@UNHURRIED
@given(ARCHS)
def test_nothing_overlaps_and_nothing_sticks_out(arch):
    for layout in map(Layout, graphs_of(arch)):
        boxes = []
        for state in layout.states:
            boxes.append(layout.node(state))
            boxes += [box for _, box in layout.boxes(state)]
        assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
        for place in layout.lanes:
            column = layout.columns[place.column]
            line = Box(column.left, layout.y[place], column.right - column.left, 1)
            assert not any(overlap(line, box) for box in boxes)
        width, height = layout.size
        assert all(box.x >= 0 and box.x + box.width <= width for box in boxes)
        assert all(abs(box.y) + box.height / 2 <= height / 2 + 1e-9 for box in boxes)
        for link in layout.graph.links:
            assert link.width >= max(len(op) for op in link.ops) * CHAR
            assert layout.column[link.source] < layout.column[link.target]


def test_the_published_cell_is_laid_out_as_it_reads():
    normal, reduction = (
        Layout(graph) for graph in graphs_of(from_genotype(DARTS_V2, DartsCells()))
    )
    assert normal.column == [0, 0, 1, 1, 1, 2, 3]
    assert reduction.column == [0, 0, 1, 2, 2, 2, 3]
    assert normal.lanes == [(1, 0), (2, 2), (2, 3), (2, 4)]


TITLES = [
    "",
    "a & b",
    "<script>alert(1)</script>",
    "]]> \"quoted\" 'too'",
    "näive ☃ 𝔸",
    "line\nbreak",
    "\x00\x1b[31m\ud800",
]


@pytest.mark.parametrize("title", TITLES)
def test_titles_are_escaped(title):
    svg = as_svg(from_string(BENCH), title)
    root = ElementTree.fromstring(svg.encode())
    assert root.tag == f"{NS}svg"
    assert len(list(root.iter())) - bool(title) == len(
        list(ElementTree.fromstring(as_svg(from_string(BENCH))).iter())
    )
    if title.isprintable() and title:
        assert words(svg)[0] == root.get("aria-label") == title


@UNHURRIED
@given(st.text())
def test_any_title_is_valid_xml(title):
    ElementTree.fromstring(as_svg(from_string(BENCH), title).encode())


def test_the_svg_is_self_contained():
    svg = as_svg(DartsCells("full", 4).full(), "all")
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in svg
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    wide = ElementTree.fromstring(as_svg(from_string(BENCH), "x" * 500))
    assert float(wide.get("width", "0")) > 500 * CHAR


def test_what_does_not_fit_its_space_is_refused():
    for draw in (as_text, as_svg):
        with pytest.raises(FedloomError, match="must choose among"):
            draw(Arch("darts:s2:1", ((7,), (), (), ())))
        with pytest.raises(FedloomError, match="search space must be a known name"):
            draw(Arch("elsewhere", ()))
