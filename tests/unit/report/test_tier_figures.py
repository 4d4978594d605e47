"""Drawings for tiers of devices: where things lie, and what they are called."""

import pytest
from test_figures import drawn, kinds, named

from fedloom.report.figures.bars import Bars, Group
from fedloom.report.figures.chart import log_scale
from fedloom.report.figures.pareto import Pareto, Place
from fedloom.report.figures.ranked import MOST_DOTS, Ranked, Ranks
from fedloom.report.figures.tradeoff import Offer, Offers, Tradeoff
from fedloom.report.figures.tries import Tried


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        ([0.16, 1.4], (0.1, 2), (0.1, 0.2, 0.5, 1, 2)),
        ([1.0, 10.0], (1, 10), (1, 2, 5, 10)),
        ([0.2, 5.0], (0.2, 5), (0.2, 0.5, 1, 2, 5)),
        ([1e-3, 3e3], (1e-3, 5e3), (1e-3, 1e-2, 0.1, 1, 10, 100, 1e3)),
    ],
)
def test_powers_have_round_ends(values, ends, ticks):
    axis = log_scale(values, 0, 100)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks == pytest.approx(ticks)
    assert axis(axis.low) == 0 and axis(axis.high) == pytest.approx(100)
    assert axis((axis.low * axis.high) ** 0.5) == pytest.approx(
        50
    )  # the same ratio, the same distance


def pareto(scored, front=(), chosen=None, control=None, limit=None):
    return Pareto(
        "k",
        "a <title>",
        "about",
        scored,
        front,
        chosen,
        control,
        limit,
        "MACs",
        "loss",
        str,
        lambda v: f"{v:g}",
    ).draw()


def test_a_front_is_a_staircase_from_the_cheapest_on():
    root = drawn(pareto([], [Place(30, 1.0), Place(10, 3.0), Place(20, 2.0)]))
    (line,) = kinds(root, "curve")
    assert named(root) == "a <title>"
    assert line.get("d").count("H") == 2 and line.get("d").count("V") == 2
    places = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in kinds(root, "dot")]
    assert places == sorted(places) and line.get("d").startswith(f"M{places[0][0]} {places[0][1]}H")


def test_losses_that_differ_much_are_shown_by_powers():
    def heights(losses):
        root = drawn(pareto([], [Place(cost, loss) for cost, loss in enumerate(losses)]))
        return [float(dot.get("cy")) for dot in kinds(root, "dot")]

    low, middle, high = heights([0.1, 1.0, 10.0])
    assert low - middle == pytest.approx(middle - high, abs=0.2)
    low, middle, high = heights([0.5, 1.0, 2.0])
    assert middle - high == pytest.approx(2 * (low - middle), abs=0.3)


def test_a_front_of_nothing_and_losses_of_zero():
    assert kinds(drawn(pareto([])), "speck") == []
    root = drawn(
        pareto([Place(1, 0.0), Place(2, 9.0)], chosen=Place(1, 0.0), control=Place(2, 9.0), limit=3)
    )
    assert len(kinds(root, "level")) == 1 and len(kinds(root, "mark")) == 1


def test_many_points_are_finer():
    few = [Place(cost, 1.0) for cost in range(10)]
    assert kinds(drawn(pareto(few)), "fine") == []
    assert len(kinds(drawn(pareto(few * 50)), "fine")) == 1


def tradeoff(*lines):
    return drawn(
        Tradeoff("k", "t", "a", lines, "MACs", "acc", str, lambda v: f"{v:g}", (0.0, 1.0)).draw()
    )


def test_points_on_one_spot_have_one_name():
    same = [Offer("1", 5, 0.5), Offer("2", 5, 0.5), Offer("3", 9, 0.7)]
    root = tradeoff(Offers("a", same, 0), Offers("b", [Offer("1", 5, 0.5)], 1))
    assert [label.text for label in kinds(root, "label")] == ["1, 2", "3"]
    assert len(kinds(root, "curve")) == 1  # one point has no line


def test_a_spread_ends_where_figures_end():
    root = tradeoff(
        Offers("a", [Offer("1", 5, 0.95, spread=0.2), Offer("2", 9, 0.5, spread=0.1)], 0)
    )
    first, second = kinds(root, "whisker")
    top = min(float(path.get("d").split("V")[1]) for path in (first, second))
    assert top == pytest.approx(34.0)


def ranked(*groups, runs=("one",)):
    return drawn(
        Ranked("k", "t", "a", groups, runs, "clients", "acc", lambda v: f"{v:g}", (0.0, 1.0)).draw()
    )


def test_groups_lie_beside_each_other():
    root = ranked(
        Ranks("tier 1", [[0.1, 0.2], [0.3, 0.4]]), Ranks("tier 2", [[0.5], [0.6]]), runs=("a", "b")
    )
    colours = [dot.get("class") for dot in kinds(root, "dot")]
    assert colours == ["dot c0"] * 2 + ["dot c1"] * 2 + ["dot c0", "dot c1"]
    x = [float(dot.get("cx")) for dot in kinds(root, "dot")]
    assert x[0] == x[2] < x[1] == x[3] < x[4] == x[5]
    (cut,) = kinds(root, "cut")
    assert x[1] < float(cut.get("d")[1:].split()[0]) < x[4]


def test_many_clients_are_a_line():
    many = [number / 1000 for number in range(MOST_DOTS + 1)]
    root = ranked(Ranks("tier 1", [many]))
    assert kinds(root, "dot") == [] and len(kinds(root, "curve")) == 1


def test_an_unknown_amount_has_no_bar():
    root = drawn(
        Bars(
            "k", "t", "a", [Group("x", [10.0, None, 5.0])], ["a", "b", "c"], lambda v: f"{v:g}"
        ).draw()
    )
    bars = kinds(root, "dot")
    assert [bar.get("class") for bar in bars] == ["dot c0", "dot c2"]
    assert float(bars[0].get("width")) == pytest.approx(2 * float(bars[1].get("width")), rel=0.01)


def test_nothing_sent_is_still_drawn():
    root = drawn(Bars("k", "t", "a", [Group("x", [0.0])], ["a"], lambda v: f"{v:g}").draw())
    assert [element.text for element in kinds(root, "tick")] == ["0"]


def test_the_best_so_far():
    tried = Tried("tier 1", [0.2, 0.1, 0.5, 0.5, 0.4], 0)
    assert tried.best_so_far(lambda one, other: one > other) == [0.2, 0.2, 0.5, 0.5, 0.5]
    assert tried.best_so_far(lambda one, other: one < other) == [0.2, 0.1, 0.1, 0.1, 0.1]
