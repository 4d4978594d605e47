"""What a page shows of the simulated clock: timeline, spending, attendance and clusters."""

import json
import re
from itertools import pairwise

import pytest
from clocked import FULL, SHORT, cluster, clustered_rows, flat_rows, lines, spent
from fabricated import client, make_run, row, split_of
from test_report_page import read

from fedloom.federation.protocol.clustering import distance
from fedloom.metrics.metric import METRICS
from fedloom.records.rows import MetricsRow
from fedloom.report.attendance import attendance_of
from fedloom.report.live import View
from fedloom.report.page import sections
from fedloom.report.sections.attendance import records_of
from fedloom.report.sections.clusters import last_clustering, population_of
from fedloom.report.sections.spent import Moment, mean_moments, moments_of
from fedloom.report.sections.timeline import shares_of
from fedloom.report.story import Reader

METRIC = METRICS["accuracy"]
IN_CLUSTERS = {
    "engine": {"topology": "clustered:2x2"},
    "topology": {"clusters": "labels", "histograms": "laplace:2"},
}


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", clustered_rows(), config=IN_CLUSTERS, split=split_of(4))


def story_of(folder):
    return Reader(folder).read()


def text_of(markup):
    return re.sub(r"<[^>]*>", " ", markup)


# The timeline


def test_parts_of_a_round_add_up(folder):
    story = story_of(folder)
    for metrics in story.rows:
        for share in shares_of(story, metrics):
            blocks = share.turn().blocks
            assert sum(block.end - block.begin for block in blocks) == pytest.approx(
                share.end - share.begin
            )
            assert blocks[0].begin == share.begin
            for before, after in pairwise(blocks):
                assert before.end == after.begin


def test_the_aggregators_are_named_and_the_replaced_one_too(folder):
    story = story_of(folder)
    first, second = shares_of(story, story.rows[1])
    assert first.names == ("client 0", "client 1") and second.names == ("client 3",)
    turn = first.turn()
    assert (turn.name, [(takeover.name, takeover.at) for takeover in turn.takeovers]) == (
        "client 0",
        [("client 1", 26.5)],
    )
    assert first.waiting == 0.0 and second.waiting == 21.0
    assert turn.description == (
        "cluster 0, round 2 (client 0 → client 1): "
        "training 1 s, transfer 0.5 s, aggregation 1.5 s, heartbeat 20 s"
    )


def test_nobody_was_left_to_take_over(tmp_path):
    steps = [["training", 1.0], ["heartbeat", 20.0]]
    rows = [
        row(
            1,
            clusters=[cluster(0, [0, 1], steps, None, replaced=[0])],
            simulated={"begin": 0.0, "end": 21.0},
        )
    ]
    story = story_of(make_run(tmp_path / "run", rows, split=split_of(2)))
    (share,) = shares_of(story, story.rows[0])
    assert [takeover.name for takeover in share.turn().takeovers] == ["nobody"]
    page = sections(story)["timeline"]
    assert (
        ">nobody ←<" in page and "client 0 → nobody" in page
    )  # at the drawing's end, and in the table


def test_a_cluster_that_is_late_is_cut_off(tmp_path):
    rows = [
        row(
            1,
            clusters=[cluster(0, [0], FULL, 0), cluster(1, [1], SHORT, 1)],
            simulated={"begin": 0.0, "end": 2.5},
        )
    ]
    story = story_of(make_run(tmp_path / "run", rows, split=split_of(2)))
    late, in_time = shares_of(story, story.rows[0])
    assert late.is_late and not in_time.is_late
    assert late.turn().blocks[-1].end == 2.5 and "came too late" in sections(story)["timeline"]


def test_a_flat_run_shows_the_slowest_client_and_the_middle_one(tmp_path):
    story = story_of(make_run(tmp_path / "run", flat_rows(3)))
    slowest, middle = shares_of(story, story.rows[2])
    assert (slowest.lane, slowest.names, slowest.waiting) == ("slowest client", ("client 0",), 0.0)
    assert (middle.lane, middle.names, middle.waiting) == ("middle client", ("client 2",), 2.0)


def test_of_many_rounds_the_last_are_shown(tmp_path):
    page = sections(story_of(make_run(tmp_path / "run", flat_rows(50))))["timeline"]
    assert (
        "The last 20 of 50 rounds are shown." in page
        and "round 30 (" not in page
        and "round 31 (" in page
    )


def test_many_clusters_leave_the_quickest_out(tmp_path):
    several = [
        cluster(number, [number], [["training", 1.0 + number]], number) for number in range(30)
    ]
    rows = [row(1, clusters=several, simulated={"begin": 0.0, "end": 30.0})]
    page = sections(story_of(make_run(tmp_path / "run", rows, split=split_of(30))))["timeline"]
    assert "The 20 slowest of 30 clusters are shown." in page
    assert "cluster 9, round" not in page and "cluster 10, round" in page


def test_rows_of_an_earlier_version_have_no_timeline(tmp_path):
    before = clustered_rows()
    for line in before:
        del line["simulated"]
        for cluster_line in line["clusters"]:
            del cluster_line["steps"]
    page = sections(story_of(make_run(tmp_path / "run", before, split=split_of(4))))["timeline"]
    assert "timeline-figure" not in page and "spent-macs-figure" in page


# What was spent


def test_the_figure_against_each_cost(folder):
    page = sections(story_of(folder))["timeline"]
    for limit in ("seconds", "wan", "bytes", "macs"):
        assert f'id="spent-{limit}-figure"' in page
    assert "Accuracy against simulated seconds" in page and "Seconds are simulated." in page


def test_describing_is_not_spent():
    metrics_row = MetricsRow.from_json(
        row(3, 0.7, totals=spent(3, 9.0, describe_down=100, describe_up=50))
    )
    (moment,) = moments_of([metrics_row], METRIC)
    assert moment.spent == {
        "seconds": 9.0,
        "wan": 5700 - 150,
        "bytes": 5700 + 1500 - 150,
        "macs": 15000,
    }


def test_without_clusters_all_bytes_are_wan(tmp_path):
    rows = flat_rows(3)
    for line in rows:
        line["totals"] |= {"lan_down": 0, "lan_up": 0}
    page = sections(story_of(make_run(tmp_path / "run", rows)))["timeline"]
    assert 'id="spent-bytes-figure"' not in page and "nothing was sent inside clusters" in page


def test_means_over_seeds_are_of_both():
    def moments(*values):
        every = []
        for number, (spent_amount, value) in values:
            every.append(
                Moment(
                    number,
                    dict.fromkeys(("seconds", "wan", "bytes", "macs"), spent_amount),
                    value,
                    "test",
                )
            )
        return every

    one = moments((1, (10.0, 0.2)), (2, (20.0, 0.4)))
    other = moments((1, (30.0, 0.4)))
    (mean,) = mean_moments([one, other])
    assert (mean.round, mean.spent["wan"], mean.value) == (1, 20.0, pytest.approx(0.3))


# Who took part


def test_who_left_and_what_that_wasted(folder):
    """Of the two hops of client 0 the first was used: one hop is wasted."""
    story = story_of(folder)
    records = records_of(story)
    gone = records[0]
    assert (gone.rounds_asked, gone.took_part, gone.left) == (2, 1, 1)
    assert (gone.late, gone.refused) == (0, 0)
    assert (gone.wasted_bytes, gone.wasted_macs) == (180, 7000)
    assert (records[1].rounds_asked, records[1].lost) == (2, 0)
    page = text_of(sections(story)["attendance"])
    assert (
        "left during its work" in page
        and "in hop 1 of its cluster" in page
        and "aggregators that were gone" in page
    )


@pytest.mark.parametrize(
    ("reason", "outcome", "wasted"),
    [
        ("left: it went", "left", 180),
        ("late: the round", "late", 180),
        ("its reply is too long", "refused", 0),
    ],
)
def test_why(reason, outcome, wasted):
    metrics_row = row(1, refused=[{"client": 1, "reason": reason}], ledger=lines([0, 1, 2]))
    attended = attendance_of(MetricsRow.from_json(metrics_row), None)
    assert [attended.outcome(number) for number in range(4)] == [
        "took part",
        outcome,
        "took part",
        None,
    ]
    assert attended.lost[1].wasted_bytes == wasted


def test_describing_asks_for_no_work():
    metrics_row = row(1, ledger=[[5, -1, 10, 10, None, None], *lines([0])])
    assert attendance_of(MetricsRow.from_json(metrics_row), None).asked_clients == {0}


def test_a_late_cluster_is_late_with_all_its_members():
    metrics_row = row(
        1,
        clusters=[cluster(0, [0, 1], FULL, 0), cluster(1, [2], SHORT, 2)],
        ledger=lines(range(3), 2),
    )
    attended = attendance_of(MetricsRow.from_json(metrics_row), 3.0)
    assert [attended.outcome(number) for number in range(3)] == ["late", "late", "took part"]
    assert attended.lost[0].wasted_macs == 14000  # all hops


def test_who_was_away(tmp_path):
    """Client 1 is there for the first 5 of 10 seconds, client 0 always."""
    intervals = [{"client": 0, "begin": 0, "end": 10}, {"client": 1, "begin": 0, "end": 5}]
    config = {"clock": {"availability": "who.csv", "intervals": intervals, "period": 10}}
    rows = [
        row(1, ledger=lines([0, 1]), simulated={"begin": 0.0, "end": 6.0}),
        row(2, ledger=lines([0]), simulated={"begin": 6.0, "end": 9.0}),
    ]
    story = story_of(make_run(tmp_path / "run", rows, config=config, split=split_of(2)))
    page = sections(story)["attendance"]
    assert "absent when the round began" in page
    cells = re.findall(r"<tr>.*?</tr>", page)[-1]
    assert text_of(cells).split()[:8] == ["client", "1", "1", "1", "0", "0", "0", "1"]


def test_where_everybody_took_part_there_is_nothing_to_say(tmp_path):
    rows = [row(number, ledger=lines(range(3))) for number in (1, 2)]
    assert sections(story_of(make_run(tmp_path / "run", rows)))["attendance"].startswith(
        '<section id="attendance" hidden'
    )


def test_of_many_clients_those_lost_most_often(tmp_path):
    lost = [{"client": 149, "reason": "left: it went"}]
    rows = [row(1, ledger=lines(range(150)), refused=lost)]
    page = sections(story_of(make_run(tmp_path / "run", rows, split=split_of(150))))["attendance"]
    assert "The 100 of 150 clients that were lost most often." in page
    assert "client 149" in page and "client 98<" in page and "client 99<" not in page


# Clusters


def test_labels_of_clusters_beside_everybody(folder):
    page = text_of(sections(story_of(folder))["clusters"])
    assert (
        f"{distance([3, 1], [4, 4]):.3f}" == "0.500" and page.count("0.500") >= 4
    )  # drawn, and in the table
    assert "discrete Laplace noise (E = 2)" in page and "no column `place`" in page


def test_a_finished_run_shows_its_results_clusters(tmp_path):
    clusters = [
        {"cluster": 0, "members": [0, 2], "aggregator": 2, "level": 0.1, "histogram": [5, 5]},
        {"cluster": 1, "members": [1, 3], "aggregator": None, "level": None, "histogram": None},
    ]
    clients = [client(number) for number in range(4)]
    folder = make_run(
        tmp_path / "run", clustered_rows(), clients, config=IN_CLUSTERS, clusters=clusters
    )
    story = story_of(folder)
    assert [shown.members for shown in last_clustering(story)] == [(0, 2), (1, 3)]
    assert population_of(story, last_clustering(story)) == (4, 4)
    assert "0.000" in sections(story)["clusters"] and "the server" in sections(story)["clusters"]
    read(folder)


@pytest.mark.parametrize(
    ("clients", "population"), [(4, (6, 4)), (9, None)], ids=["all", "a cohort"]
)
def test_labels_of_everybody_where_rows_do_not_tell(tmp_path, clients, population):
    """An earlier version's: where all are in a cluster, their sum is everybody's."""
    clusters = [
        {"cluster": 0, "members": [0, 2], "aggregator": 2, "level": 0.1, "histogram": [5, 1]},
        {"cluster": 1, "members": [1, 3], "aggregator": 3, "level": 0.1, "histogram": [1, 3]},
    ]
    run_folder = make_run(
        tmp_path / "run", [row(1)], [client(k) for k in range(clients)], clusters=clusters
    )
    story = story_of(run_folder)
    assert population_of(story, last_clustering(story)) == population


def test_places_are_named_where_devices_have_them(tmp_path):
    device = {"macs_per_second": 1, "lan": 1, "wan_down": 1, "wan_up": 1, "place": "north"}
    config = {**IN_CLUSTERS, "devices": {"table": "my.csv", "rows": [device] * 4}}
    page = sections(
        story_of(make_run(tmp_path / "run", clustered_rows(), config=config, split=split_of(4)))
    )["clusters"]
    assert "messages between places are WAN" in page and "no column" not in page


def test_a_flat_run_has_no_clusters(tmp_path):
    story = story_of(make_run(tmp_path / "run", flat_rows(2)))
    assert sections(story)["clusters"].startswith('<section id="clusters" hidden')


# The live page


def test_a_live_page_grows_with_its_rows(tmp_path):
    rows = clustered_rows()
    folder = make_run(tmp_path / "run", rows[:1], config=IN_CLUSTERS, split=split_of(4))
    view = View(folder, runs_here=True)
    view.look()
    assert (
        "cluster-labels-figure" in view.sections["clusters"]
        and "round 1 (" in view.sections["timeline"]
    )
    assert "hidden" in view.sections["attendance"][:40]
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(rows[1]) + "\n")
    view.look()
    assert "another aggregator takes over" in view.sections["timeline"]
    assert (
        "cluster-labels-figure" in view.sections["clusters"]
    )  # the first round of the clustering told
    assert "left during its work" in view.sections["attendance"]


def test_the_page_is_sound(folder):
    text = read(folder)
    for key in ("timeline", "clusters", "attendance"):
        assert f'<section id="{key}" aria' in text
