import math
import xml.etree.ElementTree as ElementTree

import pytest

from fedloom.report.figures.chart import scale
from fedloom.report.figures.curves import (
    MOST_POINTS,
    Band,
    Chart,
    Level,
    Line,
    thinned,
    whole_rounds,
)
from fedloom.report.figures.heat import Heat
from fedloom.report.figures.intervals import MOST_ROWS, Intervals, Item
from fedloom.report.figures.scatter import Mark, Scatter

NAN = math.nan


def drawn(markup):
    """The first SVG of a figure, as a browser's parser would have it."""
    return ElementTree.fromstring(markup[: markup.index("</svg>") + 6])


def named(root):
    """The name and description that everybody gets."""
    title = root.find("title")
    about = root.find("desc")
    assert (
        root.get("role") == "img"
        and root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    )
    return title.text


def kinds(root, kind):
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


@pytest.mark.parametrize(
    ("values", "bounds", "ends", "ticks"),
    [
        ([0.13, 0.91], (0, 1), (0, 1), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([0.93, 0.99], (0, 1), (0.92, 1.0), (0.92, 0.94, 0.96, 0.98, 1.0)),
        ([5.0], None, (4.4, 5.6), (4.4, 4.6, 4.8, 5.0, 5.2, 5.4, 5.6)),
        ([0.0, 0.0], (0, 1), (0.0, 0.6), (0.0, 0.2, 0.4, 0.6)),
        ([1.0], (0, 1), (0.9, 1.0), (0.9, 0.95, 1.0)),
        ([], None, (0, 1), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([1e9, 3e9], None, (1e9, 3e9), (1e9, 1.5e9, 2e9, 2.5e9, 3e9)),
    ],
    ids=str,
)
def test_scales_end_at_round_numbers(values, bounds, ends, ticks):
    axis = scale(values, 0, 100, bounds=bounds)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks == pytest.approx(ticks)
    assert axis(axis.low) == 0 and axis(axis.high) == 100


def test_rounds_have_whole_ticks():
    assert whole_rounds([1, 24], 0, 100).ticks == (5, 10, 15, 20)
    assert whole_rounds([1, 3], 0, 100).ticks == (1, 2, 3)
    assert whole_rounds([7], 0, 100).ticks == (7,)


def chart(points, **more):
    return Chart(
        "k",
        "a <title>",
        "about & more",
        "acc",
        lambda v: f"{v:.1f}",
        [Line("mine", points, 0)],
        **more,
    ).draw()


def test_a_curve_passes_over_what_is_no_number():
    root = drawn(chart([(1, 0.0), (2, None), (3, NAN), (4, 1.0)]))
    assert named(root) == "a <title>"
    (path,) = kinds(root, "curve")
    assert path.get("d").count("L") == 1
    assert "NaN" not in ElementTree.tostring(root, "unicode") and "nan" not in path.get("d")


def test_a_curve_rises_where_its_figures_do():
    """From the lower left to the upper right: SVG counts downwards."""
    (path,) = kinds(drawn(chart([(1, 0.2), (2, 0.4), (3, 0.9)])), "curve")
    points = [
        tuple(map(float, point.split())) for point in path.get("d").removeprefix("M").split("L")
    ]
    across, down = zip(*points, strict=True)
    assert across[0] < across[1] < across[2] and down[0] > down[1] > down[2]
    assert across[2] - across[1] == pytest.approx(across[1] - across[0], abs=0.2)
    assert down[1] - down[2] == pytest.approx(2.5 * (down[0] - down[1]), abs=0.5)


def test_one_figure_is_a_dot_and_none_is_nothing():
    assert (
        kinds(drawn(chart([(1, 0.5)])), "curve") == []
        and len(kinds(drawn(chart([(1, 0.5)])), "dot")) == 1
    )
    assert kinds(drawn(chart([(1, None)])), "dot") == []
    assert kinds(drawn(chart([])), "dot") == []


def test_phases_are_shaded_and_levels_are_named():
    bands = [Band("warm-up", 1, 4), Band("search", 5, 8), Band("final", 9, 20)]
    markup = chart(
        [(k, k / 20) for k in range(1, 21)], bands=bands, levels=[Level("by <chance>", 0.1)]
    )
    root = drawn(markup)
    assert [element.text for element in kinds(root, "phase")] == ["warm-up", "search", "final"]
    assert (
        len(kinds(root, "band")) == 1 and len(kinds(root, "cut")) == 2
    )  # every other one has a ground
    assert len(kinds(root, "level")) == 1 and "by &lt;chance&gt;: 0.1" in markup


def test_long_curves_are_thinned_and_keep_their_end():
    points = thinned([(k, float(k)) for k in range(10_001)])
    assert (
        len(points) <= MOST_POINTS + 2
        and points[0] == (0, 0.0)
        and points[-1] == (10_000, 10_000.0)
    )


def items(count):
    return [Item(f"<{k}>", k / count, (k / count, 1.0), worst=k == 0) for k in range(count)]


def test_intervals_mark_the_worst_by_shape():
    root = drawn(Intervals("i", "t", "a", items(3), "acc", lambda v: f"{v:.1f}", (0, 1)).draw())
    assert len(kinds(root, "whisker")) == 3
    (worst,) = kinds(root, "worst-name")
    assert worst.text == "<0>"
    assert [element.tag for element in kinds(root, "dot")] == ["path", "circle", "circle"]


def test_an_item_without_an_interval_has_no_whisker():
    root = drawn(
        Intervals("i", "t", "a", [Item("x", 0.5, None, other=0.4)], "acc", str, (0, 1)).draw()
    )
    assert kinds(root, "whisker") == [] and len(kinds(root, "ring")) == 1


def test_many_clients_are_one_line():
    markup = Intervals("i", "t", "a", items(1000), "acc", lambda v: f"{v:.1f}", (0, 1)).draw()
    root = drawn(markup)
    assert MOST_ROWS < 1000 and len(markup) < 60_000
    assert (
        len(kinds(root, "curve")) == 1
        and len(kinds(root, "area")) == 1
        and len(kinds(root, "dot")) == 1
    )


def heat(rows, columns, **more):
    row_names = []
    shares = []
    texts = []
    for row in range(rows):
        numbers = [row + column for column in range(columns)]
        row_names.append(f"r{row}")
        shares.append([number / (rows + columns) for number in numbers])
        texts.append([str(number) for number in numbers])
    column_names = [f"c{column}" for column in range(columns)]
    figure = Heat("h", "t", "a", row_names, column_names, shares, texts, "row", "column", **more)
    return figure.draw()


def test_a_small_matrix_has_its_numbers():
    root = drawn(heat(2, 3, framed=lambda row, column: row == column))
    assert len(kinds(root, "framed")) == 2
    assert [text.text for text in root.iter("text") if text.get("class") is None] == [
        "0",
        "1",
        "2",
        "1",
        "2",
        "3",
    ]
    assert len(kinds(root, "heat0")) == 1  # nothing is not shaded


def test_a_large_matrix_stays_small():
    root = drawn(heat(60, 100))
    assert len(heat(60, 100)) < 250_000
    assert (
        len(kinds(root, "label")) == 60 and len(list(root.iter("text"))) == 63
    )  # rows' names and both axes', no numbers


def test_unknown_cells_and_empty_matrices():
    markup = Heat("h", "t", "a", ["r"], ["c"], [[None]], [["–"]], "row", "column").draw()
    assert len(kinds(drawn(markup), "heat0")) == 1
    assert Heat("h", "t", "a", [], [], [], [], "row", "column").draw().startswith("<svg")


def test_scatter_names_do_not_lie_on_each_other():
    marks = [Mark(f"method {k}", 1.0, 0.5 + k / 1000, (0.4, 0.6), worst=k == 0) for k in range(4)]
    root = drawn(
        Scatter(
            "s", "t", "a", marks, "x", "y", lambda v: f"{v:g}", lambda v: f"{v:g}", (0, 1)
        ).draw()
    )
    places = [(label.get("x"), label.get("y")) for label in kinds(root, "label")]
    assert len(places) == 4 and len(set(places)) == 4
    assert [title.text for title in root.iter("title")][1] == "method 0: 1, 0.5"


def test_many_points_have_no_names_beside_them():
    marks = [Mark(str(k), k, 0.5) for k in range(1000)]
    root = drawn(Scatter("s", "t", "a", marks, "x", "y", str, str, (0, 1)).draw())
    assert kinds(root, "label") == [] and len(kinds(root, "dot")) == 1000
