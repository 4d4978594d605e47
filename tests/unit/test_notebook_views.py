"""How results look in a notebook, and their rounds as columns."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from rich.table import Table

import result_files
from fedloom.records.result import RunResult
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.report.notebook import Architecture, client_html, table_html
from fedloom.report.rounds import as_csv, columns, flat, read_rounds
from fedloom.runs.results import Client, Run
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.space import DARTS_V2, from_genotype

PLAIN = from_genotype(DARTS_V2, DartsCells("full", 4)).to_plain()
ROW = {
    "stage": "train",
    "round": 1,
    "progress": 0.0,
    "phase": "search",
    "search": {"due": 1, "of": 2},
    "meta": {"loss": 0.5},
    "replies": 2,
    "refused": [{"client": 1, "reason": "late"}],
    "ledger": [[0, 0, 1, 2, 3, 0.5]],
    "observed": {"0": {"x": 1}},
    "evaluation": {
        "part": "test",
        "clients": 0,
        "metric": "accuracy",
        "accuracy": None,
        "shared": None,
    },
    "totals": Totals(rounds=1, down=7, wall=0.5).to_json(),
}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("br",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(html):
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return parser.seen


def test_a_table_becomes_html_and_nothing_in_it_does():
    table = Table(title="<b>t</b>", caption="a & b")
    table.add_column("<i>", justify="right")
    table.add_column("x")
    table.add_row("<script>1</script>", "one\ntwo")
    html = table_html(table)
    assert read(html).count("td") == 2 and "script" not in read(html) and "i" not in read(html)
    assert (
        "&lt;script&gt;1&lt;/script&gt;" in html
        and "&lt;b&gt;t&lt;/b&gt;" in html
        and "a &amp; b" in html
    )
    assert "one<br>two" in html and "text-align:right" in html


def client(architecture, **more):
    figures = {
        "client": 3,
        "samples": 9,
        "accuracy": 0.5,
        "interval": [0.25, 0.75],
        "architecture": architecture,
        **more,
    }
    return Client(3, 9, 0.5, 7, 11, architecture, figures)


def test_a_client_shows_its_figures_and_its_cells():
    html = client(Architecture(PLAIN, "client 3"))._repr_html_()
    assert "<svg" in html and "0.25–0.75" in html and "client 3" in html
    other = client("<cnn>", reason="<b>late</b>")._repr_html_()
    read(other)
    assert "&lt;cnn&gt;" in other and "&lt;b&gt;late&lt;/b&gt;" in other
    assert "–" in client_html(SimpleNamespace(client=1, figures={"auc": None}, architecture=None))


def test_an_architecture_is_its_json_and_draws_itself(tmp_path):
    architecture = Architecture(PLAIN, "client <3>")
    assert (
        architecture == PLAIN
        and json.loads(json.dumps(architecture)) == PLAIN
        and isinstance(architecture, dict)
    )
    svg = architecture.draw(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == svg == architecture._repr_svg_()
    assert ET.fromstring(svg).get("aria-label") == "client <3>"


def test_a_run_gives_architectures_that_draw_themselves(tmp_path):
    rows = [
        result_files.client(0, architecture=PLAIN),
        result_files.client(1, architecture="cnn:1"),
    ]
    run = Run(tmp_path, RunResult.from_json(result_files.result(rows)))
    assert run.client(0).architecture.title == "client 0"
    assert run.client(1).architecture == "cnn:1"
    assert run.metrics == []


# Rounds as columns


def test_a_row_is_flat():
    columns = flat(MetricsRow.from_json(ROW))
    without_totals = {
        name: value for name, value in columns.items() if not name.startswith("totals.")
    }
    assert without_totals == {
        "stage": "train",
        "round": 1,
        "progress": 0.0,
        "phase": "search",
        "search.due": 1,
        "search.of": 2,
        "meta.loss": 0.5,
        "replies": 2,
        "refused": 1,
        "evaluation.part": "test",
        "evaluation.clients": 0,
        "evaluation.metric": "accuracy",
        "evaluation.accuracy": None,
        "evaluation.shared": None,
    }
    assert (columns["totals.rounds"], columns["totals.down"], columns["totals.wall"]) == (1, 7, 0.5)


def test_columns_do_not_depend_on_the_rows_order():
    first = flat(MetricsRow.from_json(ROW))
    second = {**first, "meta.extra": 1.0}
    assert columns([first, second]) == columns([second, first])
    assert columns([first, second])[:7] == [
        "stage",
        "round",
        "progress",
        "replies",
        "refused",
        "phase",
        "meta.extra",
    ]
    assert columns([first])[-12::11] == ["totals.rounds", "totals.wall"]


def test_csv_and_what_a_kill_left(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(
        json.dumps(ROW) + "\n" + json.dumps({**ROW, "round": 2, "meta": {}}) + '\n{"stage": "tr'
    )
    rows = read_rounds(file)
    assert [row["round"] for row in rows] == [1, 2]
    lines = list(csv.DictReader(as_csv(rows).splitlines()))
    assert [(row["round"], row["meta.loss"], row["evaluation.accuracy"]) for row in lines] == [
        ("1", "0.5", ""),
        ("2", "", ""),
    ]
    assert read_rounds(tmp_path / "none") == []


@pytest.mark.parametrize("value", ["a,b", 'say "x"', "two\nlines"])
def test_csv_quotes(value):
    (row,) = csv.DictReader(io.StringIO(as_csv([{"stage": value, "round": 1}])))
    assert row == {"stage": value, "round": "1"}
