"""What a page says of tiers of devices, from folders made by hand."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from fabricated import client, make_run, row
from test_report_page import read
from tiered import HEAVY, SCORES, make_tiered, rows, score, tier, two_tiers, write_scores

from fedloom.records.result import TierResult
from fedloom.records.scores import ScoredPath
from fedloom.report.live import View
from fedloom.report.page import sections
from fedloom.report.sections.fronts import best_places, fits_tier, largest_share
from fedloom.report.story import Reader


@pytest.fixture
def folder(tmp_path):
    return make_tiered(tmp_path / "run")


def story_of(folder):
    return Reader(folder).read()


def markup_of(text, key):
    """Its drawing and its table; the order of attributes is the page's."""
    match = re.search(rf'<figure[^>]*id="{key}-figure"[^>]*>.*?</figure>', text, re.S)
    assert match is not None, key
    return match.group()


def drawing_in(text, key):
    figure = markup_of(text, key)
    begin = figure.index("<svg")
    return ElementTree.fromstring(figure[begin : figure.index("</svg>") + 6])


def of_class(root, kind):
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


def cells_in(text, label):
    """The rows of a table, as texts."""
    table = re.search(rf'aria-label="{label}">(<table.*?</table>)', text, re.S).group(1)
    lines = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.S) for line in lines]


def test_the_table_of_tiers(folder):
    lines = cells_in(read(folder), "tiers of devices")
    assert lines == [
        [
            "tier",
            "at most",
            "clients",
            "eligible",
            "params",
            "MACs",
            "val. %",
            "control %",
            "supernet %",
            "all %",
            "own %",
            "worst %",
            "tuned",
        ],
        [
            "tier 1",
            "200 k MACs",
            "2",
            "4",
            "5 k",
            "100 k",
            "87.5",
            "62.5",
            "70.0",
            "80.0",
            "81.0",
            "60.0",
            "3",
        ],
        [
            "tier 2",
            "400 k MACs",
            "2",
            "4",
            "10 k",
            "300 k",
            "87.5",
            "62.5",
            "80.0",
            "90.0",
            "91.0",
            "70.0",
            "3",
        ],
    ]


def test_balanced_accuracy_stands_beside_a_tiers_own_figure(tmp_path):
    tiers = [tier(1, balanced_accuracy=0.655), tier(2, balanced_accuracy=None)]
    head, first, second = cells_in(
        read(make_tiered(tmp_path / "run", tiers=tiers)), "tiers of devices"
    )
    place = head.index("bal. %")
    assert head[place - 1] == "own %" and (first[place], second[place]) == ("65.5", "–")
    assert "AUC %" not in head


def test_balanced_accuracy_stands_behind_every_accuracy_of_a_tier(tmp_path):
    score = {"loss": 0.5, "accuracy": 0.875, "balanced_accuracy": 0.755}
    over_all = {"global_balanced_accuracy": 0.645, "supernet_balanced_accuracy": 0.535}
    tiers = [tier(1, validation=score, **over_all), tier(2)]
    text = read(make_tiered(tmp_path / "run", tiers=tiers))
    head, first, second = cells_in(text, "tiers of devices")
    by_name = dict(zip(head, first, strict=True))
    assert by_name["val. %"] == "87.5 (75.5)"
    assert (by_name["supernet %"], by_name["all %"]) == ("70.0 (53.5)", "80.0 (64.5)")
    assert dict(zip(head, second, strict=True))["all %"] == "80.0"
    assert (
        "In parentheses after supernet and all: balanced accuracy, mean over all clients." in text
    )
    assert "After val. and control: balanced accuracy on the same samples." in text
    assert cells_in(text, "Accuracy against MACs over the tiers")[1][2:] == [
        "70.0 (53.5)",
        "80.0 (64.5)",
    ]


def test_where_clients_scored_the_page_says_what_is_not_known(folder):
    assert (
        "Balanced accuracy of val. and control is not known: clients send sums over all classes"
        in read(folder)
    )


def test_of_two_classes_auc_stands_beside_a_tiers_own_figure(tmp_path):
    tiers = [tier(1, balanced_accuracy=0.655, auc=0.755), tier(2, balanced_accuracy=None)]
    confusion = {"labels": ["cat", "dog"], "clients": 3, "counts": [[3, 1], [0, 2]]}
    text = read(make_tiered(tmp_path / "run", tiers=tiers, confusion=confusion))
    head, first, second = cells_in(text, "tiers of devices")
    place = head.index("AUC %")
    assert head[place - 1] == "bal. %" and (first[place], second[place]) == ("75.5", "–")
    assert cells_in(text, "Accuracy of the clients of each tier")[0][2:] == [
        "accuracy %",
        "bal.",
        "AUC",
    ]


def test_columns_that_no_tier_fills_are_left_out(tmp_path):
    bare = [
        tier(
            1, validation=None, control={"reason": "nothing was searched"}, supernet=None, front=[]
        )
    ]
    text = read(make_tiered(tmp_path / "run", tiers=bare, scores=[]))
    assert cells_in(text, "tiers of devices")[0] == [
        "tier",
        "at most",
        "clients",
        "eligible",
        "params",
        "MACs",
        "all %",
        "own %",
        "worst %",
        "tuned",
    ]
    assert "control %:" not in text and "tuned: rounds of the last stage" in text
    assert "nothing was searched" not in text  # where nothing was chosen, a control is not missed


def test_widths_and_remarks_of_methods_that_search_nothing(tmp_path):
    dense = "macs are those of dense layers"
    tiers = [tier(number, width=number / 4, note=dense, architecture="cnn:1") for number in (1, 2)]
    text = read(make_tiered(tmp_path / "run", tiers=tiers, scores=[]))
    assert [line[4] for line in cells_in(text, "tiers of devices")] == ["width", "0.25", "0.5"]
    assert text.count(f"{dense}.") == 1
    assert "<b>tier 1</b> – cnn:1 " in text


def test_a_missing_control_and_a_missing_figure_are_told(tmp_path):
    tiers = two_tiers()
    tiers[0]["control"] = {"reason": "no path costs as much"}
    tiers[1] |= {"reason": "nobody answered", "global": None}
    text = read(make_tiered(tmp_path / "run", tiers=tiers))
    assert "Tier 1 has no control: no path costs as much" in text
    assert "tier 2 lacks a figure over all clients: nobody answered" in text


def test_a_front_has_all_scored_paths_the_choice_and_the_control(folder):
    text = read(folder)
    small = drawing_in(text, "front-1")
    (specks,) = of_class(small, "speck")
    assert (
        specks.get("d").count("M") == 3
    )  # its own two, and the one of tier 2 that is cheap enough
    assert len([dot for dot in of_class(small, "dot") if dot.tag == "circle"]) == 2  # the front
    assert len(of_class(small, "mark")) == 1 and len(of_class(small, "ring")) == 1
    assert any(element.text == "limit" for element in small.iter("text"))
    (all_specks,) = of_class(drawing_in(text, "front-2"), "speck")
    assert all_specks.get("d").count("M") == 5
    assert "3 scored paths fit this limit" in markup_of(text, "front-1")
    rows = cells_in(text, "front of tier 2")
    assert rows[1] == ["chosen", "300 k", "0.4", ", ".join(HEAVY)]
    assert rows[2][0] == "control" and [line[0] for line in rows[3:]] == ["front", "front"]


def scored_path(*facts, **more):
    raw = score(*facts, **more)
    return ScoredPath(**{**raw, "path": tuple(raw["path"])})


@pytest.mark.parametrize(
    ("limit", "path", "fits"),
    [
        ({"macs": 200.0}, scored_path(2, 1.0, 200), True),  # of a larger tier, but within the limit
        ({"macs": 200.0}, scored_path(2, 1.0, 201), False),
        ({"macs": 200.0}, scored_path(0, 1.0, 150), True),  # scored after the run
        (
            {"macs": 200.0, "params": 999.0},
            scored_path(2, 1.0, 150),
            False,
        ),  # all limits hold at once
        ({"latency_ms": 5.0}, scored_path(2, 1.0, 150), False),  # nobody can tell
        ({"latency_ms": 5.0}, scored_path(1, 1.0, 150), True),  # but it was scored for this tier
        ({}, scored_path(2, 1.0, 150), False),
    ],
)
def test_which_scored_paths_a_tier_may_have(limit, path, fits):
    network = TierResult.checked(TierResult.fields_in(tier(1, limit=limit)), {})
    assert fits_tier(network, path) is fits


def test_paths_that_nothing_cheaper_beats():
    paths = [
        scored_path(1, loss, macs)
        for loss, macs in ((5, 1), (3, 2), (4, 3), (1, 4), (2, 5), (0.5, 4))
    ]
    assert [(place.cost, place.loss) for place in best_places(paths)] == [(1, 5), (2, 3), (4, 0.5)]


def test_a_figure_against_macs_over_the_tiers(folder):
    text = read(folder)
    drawing = drawing_in(text, "tiers-macs")
    tips = [element.text for element in drawing.iter("title")][1:]
    assert tips == [
        "the tiers' networks, 1: 100 k, 80.0",
        "the tiers' networks, 2: 300 k, 90.0",
        "the same with the supernet's weights, before tuning, 1: 100 k, 70.0",
        "the same with the supernet's weights, before tuning, 2: 300 k, 80.0",
    ]
    assert len(of_class(drawing, "curve")) == 2


def test_clients_by_tier_are_in_ascending_order(folder):
    text = read(folder)
    assert cells_in(text, "Accuracy of the clients of each tier")[1:] == [
        ["client 1", "1", "50.0", "50.0"],
        ["client 0", "1", "90.0", "90.0"],
        ["client 3", "2", "60.0", "60.0"],
        ["client 2", "2", "70.0", "70.0"],
    ]
    drawing = drawing_in(text, "by-tier")
    heights = [float(dot.get("cy")) for dot in of_class(drawing, "dot")]
    assert heights[0] > heights[1] and heights[2] > heights[3] and heights[1] < heights[2]
    assert [element.text for element in of_class(drawing, "phase")] == ["tier 1", "tier 2"]


def test_every_stage_has_a_curve_of_its_own(folder):
    text = read(folder)
    assert "Round 1. A client's figure is that of a path" in text
    assert "Rounds 3 to 4, on a scale of their own.<" in text
    assert cells_in(text, "Stage search: accuracy of every scored path")[1:] == [
        ["tier 1", "2", "87.5"],
        ["tier 2", "2", "80.0"],
    ]
    assert cells_in(text, "Stage tune: training loss of each tier&#x27;s network")[1:] == [
        ["tier 1", "3", "0.3333"],
        ["tier 2", "4", "0.25"],
    ]


def test_bytes_stand_beside_those_of_whole_supernets(folder):
    text = read(folder)
    assert cells_in(text, "Bytes of each stage, compared with sending the whole supernet")[1:] == [
        ["supernet", "1 MB", "4 MB", "900 kB", "75 %"],
        ["search", "0B", "0B", "0B", "–"],
        ["tune", "30 kB", "60 kB", "30 kB", "50 %"],
    ]
    bars = of_class(drawing_in(text, "stage-bytes"), "dot")
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01) == max(widths)
    assert cells_in(text, "cost of each stage")[1] == [
        "supernet",
        "1",
        "50 %",
        "1 MB",
        "900 kB",
        "5 M",
        "0",
    ]


def test_counts_of_samples_do_not_flatten_the_losses(folder):
    text = read(folder)
    figure = markup_of(text, "losses")
    legend = re.search(r'<ul class="legend">(.*?)</ul>', figure, re.S).group(1)
    assert "loss" in legend and "samples" not in legend
    assert cells_in(text, "values of training")[:2] == [
        ["round", "loss", "samples"],
        ["1", "1.5", "800"],
    ]


def test_operations_are_shaded_by_the_largest_share(folder):
    text = read(folder)
    assert largest_share(story_of(folder).result.ops) == 0.6
    assert cells_in(text, "How often each operation was trained")[1:] == [
        ["layer 1", "10", "30", "60"],
        ["layer 2", "20", "–", "20"],
    ]
    drawing = drawing_in(text, "operations")
    (group,) = of_class(drawing, "heat7")
    assert [element.text for element in group.iter("text")] == ["60"]
    # conv1 of tier 1's first layer, and identity of its second
    assert len(of_class(drawing, "framed")) == 2
    assert "Most often: identity (57 %), conv1 (21 %), ds3e0.5 (21 %)." in text


def test_every_tier_is_drawn_and_told_in_text(folder):
    text = read(folder)
    assert 'data-key="cell-tier-1"' in text and 'data-key="cell-tier-2"' in text
    assert text.count("stage 1, 8 channels</text>") == 2
    heavy = text[text.index('data-key="cell-tier-2"') :]
    assert re.search(r"<pre[^>]*>stage 1, 8 channels\n.*── mb3e2", heavy)
    assert "fedoras found 2 different networks for 2 tiers of devices, 4 clients." in text


def test_a_network_that_an_earlier_tier_has_is_not_opened_again(tmp_path):
    text = read(make_tiered(tmp_path / "run", tiers=[tier(1), tier(2)]))
    assert "2 clients, as tier 1" in text
    opened = re.findall(r'<details data-key="cell-tier-\d"( open)?', text)
    assert opened == [" open", ""]


def test_who_scored_and_how_well_they_agree(folder):
    text = read(folder)
    assert "4 paths in 1 generation, scored on the server's own samples." in text
    assert "In the last pool 3 clients and the server agree with Kendall's τ 0.50." in text
    assert "At most 3 kB: the smallest part of the supernet" in text


def test_how_well_scores_foretold_the_figures(tmp_path):
    best = {
        "path": HEAVY,
        "macs": 5,
        "validation": {"loss": 0.4, "accuracy": 0.5},
        "tuned_rounds": 2,
        "global": 0.5,
    }
    text = read(make_tiered(tmp_path / "run", tiers=[tier(1, top=[best, best], top_tau=1 / 3)]))
    assert "Kendall's τ between scores and figures after tuning: tier 1 0.33 (2 paths)." in text


def test_the_live_page_shows_what_was_scored_so_far(tmp_path):
    folder = make_run(tmp_path / "run", rows()[:2])
    write_scores(folder, SCORES[:3])
    text = read(folder)
    assert "Tier 1: scored so far" in text and "Tier 2: scored so far" in text
    assert of_class(drawing_in(text, "front-1"), "mark") == []  # nothing is chosen yet
    assert "Stage search: accuracy of every scored path" in text
    view = View(folder)
    view.look()
    before = view.version
    write_scores(folder, SCORES[:4])
    view.look()
    assert (
        view.version != before and "2 paths, with the supernet's weights" in view.sections["search"]
    )


def test_damaged_scores_are_told_and_left_out(folder):
    folder.write_text("scores.jsonl", '{"tier": 1}\n')
    text = read(folder)
    assert "scores.jsonl is damaged" in text and "What the search scored is left out." in text
    assert of_class(drawing_in(text, "front-1"), "speck") == []  # its front is in the result


def test_text_is_drawn_by_its_loss(tmp_path):
    folder = make_run(tmp_path / "run", [])
    write_scores(folder, SCORES)
    perplexity = {
        "part": "test",
        "clients": 3,
        "metric": "perplexity",
        "perplexity": 5.0,
        "shared": 5.0,
    }
    lines = [{**line, "evaluation": perplexity} for line in rows()]
    folder.write_text("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert cells_in(read(folder), "Stage search: loss of every scored path")[1:] == [
        ["tier 1", "2", "0.4"],
        ["tier 2", "2", "0.5"],
    ]


def test_methods_without_tiers_have_none_of_it(tmp_path):
    folder = make_run(
        tmp_path / "run", [row(1), row(2, stage="other")], [client(0), client(1, 0.7)]
    )
    shown = sections(story_of(folder))
    for key in ("stages", "tiers", "search"):
        assert shown[key] == f'<section id="{key}" hidden></section>'
