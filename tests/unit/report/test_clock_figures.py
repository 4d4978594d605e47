"""The drawings of the simulated clock: blocks where their seconds are, shapes beside colours."""

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from test_figures import drawn, kinds, named

from fedloom.report.figures.curves import Chart, Line
from fedloom.report.figures.stacked import Bar, Stacked
from fedloom.report.figures.strip import Strip, cell_outline
from fedloom.report.figures.timeline import (
    Block,
    Label,
    Lane,
    Period,
    Takeover,
    Timeline,
    Turn,
    placed,
)


def timeline(lanes, periods):
    return Timeline(
        "k", "when", "about", lanes, periods, {"training": "training", "heartbeat": "gone"}
    )


def rects(root, kind):
    return [(float(box.get("x")), float(box.get("width"))) for box in kinds(root, kind)]


def test_blocks_are_as_long_as_their_seconds():
    blocks = [Block("training", 0, 30), Block("transfer", 30, 40), Block("waiting", 40, 100)]
    turn = Turn("all", "client 0", blocks)
    root = drawn(timeline([Lane("cluster 0", [turn])], [Period(1, 0, 100)]).draw())
    assert named(root) == "when"
    ((training_begin, training_width),) = rects(root, "c0")
    ((transfer_begin, transfer_width),) = rects(root, "c1")
    ((_, idle_width),) = rects(root, "idle")
    assert training_width == pytest.approx(3 * transfer_width, rel=0.01)
    assert idle_width == pytest.approx(6 * transfer_width, rel=0.01)
    assert transfer_begin == pytest.approx(training_begin + training_width, abs=0.1)
    heights = set()
    for kind in ("c0", "c1", "idle"):
        heights.update(box.get("height") for box in kinds(root, kind))
    assert len(heights) == 3  # not by colour alone


def test_a_takeover_is_marked_and_named():
    blocks = [Block("training", 0, 10), Block("heartbeat", 10, 50), Block("transfer", 50, 60)]
    turn = Turn("all", "client 0", blocks, [Takeover(50, "client 7")])
    root = drawn(timeline([Lane("cluster 0", [turn])], [Period(1, 0, 60)]).draw())
    (triangle,) = kinds(root, "mark")
    middle = float(triangle.get("points").split()[-1].split(",")[0])
    (lost,) = rects(root, "lost")
    assert middle == pytest.approx(lost[0] + lost[1], abs=0.2)
    texts = [text.text for text in root.iter("text")]
    assert "→ client 7" in texts and "client 0" in texts


def test_one_long_round_leaves_the_others_to_be_seen():
    """A round of 500 s among rounds of one: the drawing becomes broad, and scrolls."""
    periods = [Period(number, number, number + 1) for number in range(10)] + [Period(10, 10, 510)]
    turns = [Turn("all", "c", [Block("training", period.begin, period.end)]) for period in periods]
    root = drawn(timeline([Lane("cluster 0", turns)], periods).draw())
    assert min(width for _, width in rects(root, "c0")) > 10
    assert float(root.get("width")) <= 6000 and "timeline" in root.get("class")


@pytest.mark.parametrize(
    "periods", [[Period(1, 0, 0)], [Period(1, 5, 5), Period(2, 5, 5)]], ids=["one", "two"]
)
def test_rounds_without_time(periods):
    text = timeline([Lane("cluster 0", [])], periods).draw()
    assert "nan" not in text and "inf" not in text


def test_names_do_not_overlap_and_takeovers_come_first():
    labels = [
        Label(0, "client 1", 1),
        Label(20, "→ client 2", 0),
        Label(200, "client 3", 2),
        Label(990, "client 4", 1),
    ]
    assert [label.text for label in placed(labels, 1000)] == ["→ client 2", "client 3"]


def test_bars_are_stacked_by_share():
    drawing = Stacked(
        "k",
        "labels",
        "about",
        [Bar("everybody", [2, 2], ""), Bar("c", [30, 10], "0.5")],
        ["a", "b"],
        "d",
    )
    boxes = kinds(drawn(drawing.draw()), "piece")
    widths = [float(box.get("width")) for box in boxes]
    assert widths[0] == widths[1] and widths[2] == pytest.approx(3 * widths[3], rel=0.01)
    assert sum(widths[:2]) == pytest.approx(sum(widths[2:]), abs=0.1)
    assert float(boxes[3].get("x")) == pytest.approx(float(boxes[2].get("x")) + widths[2], abs=0.1)


def test_a_piece_of_nothing_is_not_drawn():
    drawing = Stacked(
        "k", "labels", "about", [Bar("all", [1, 0], ""), Bar("none", [0, 0], "")], ["a", "b"], "d"
    ).draw()
    assert len(kinds(drawn(drawing), "piece")) == 1 and "nan" not in drawing


def test_every_outcome_has_its_shape():
    outcomes = ["took part", "left", "late", "refused", "absent"]
    assert len({cell_outline(outcome, 0, 0, 10, 10) for outcome in outcomes}) == 5


def test_a_hundred_clients_are_a_strip_whose_names_can_be_read():
    cells = [["took part", None, "left"] for _ in range(100)]
    names = [f"client {number}" for number in range(100)]
    drawing = Strip(
        "k", "who", "about", names, ["1", "2", "3"], cells, {"took part": "yes", "left": "left"}
    )
    root = drawn(drawing.draw())
    (yes,) = kinds(root, "c0")
    (marks,) = kinds(root, "mark")
    assert yes.get("d").count("M") == marks.get("d").count("M") == 100
    places = [float(text.get("y")) for text in kinds(root, "label")]
    assert min(after - before for before, after in pairwise(places)) >= 13
    assert float(root.get("height")) < 1000


def test_a_line_over_what_was_spent_begins_at_nothing():
    line = Line("mine", [(100.0, 0.2), (200.0, 0.4)], 0)
    chart = Chart(
        "k",
        "t",
        "a",
        "acc",
        lambda v: f"{v:.1f}",
        [line],
        x_name="bytes",
        x_text=lambda v: f"{v:g} B",
    )
    root = drawn(chart.draw())
    assert "bytes" in ElementTree.tostring(root, "unicode") and "0 B" in [
        text.text for text in root.iter("text")
    ]
    (path,) = kinds(root, "curve")
    first, last = (float(point.split()[0]) for point in path.get("d").removeprefix("M").split("L"))
    axis = next(iter(kinds(root, "axis"))).get("d")
    begin = float(axis.removeprefix("M").split()[0])
    assert first - begin == pytest.approx(last - first, abs=0.2)
