"""The leaderboard in words: what stands in its cells, and the commands below it."""

from pathlib import Path

import pytest
from rich.console import Console

from fedloom.metrics.metric import ACCURACY
from fedloom.records.auto import AutoResult, ClientWinner, Gap, LeaderboardRow, OnTest, Spent
from fedloom.records.comparison import MethodRow
from fedloom.records.decision import Decision
from fedloom.report.groups import Versus
from fedloom.report.leaderboard import (
    count_lines,
    leaderboard_cells,
    leaderboard_table,
    next_steps,
    use_commands,
)
from fedloom.report.sections.leaderboard import sections_of_auto
from result_files import method

NASTY = "<script>alert(1)</script>"


def row(name, *, chosen=False, gap=None, fits=None):
    test = OnTest(mean=0.5, std=0.1, worst=0.25, pooled=0.5, interval=[0.25, 0.75])
    leaderboard_row = LeaderboardRow(
        name=name,
        validation=0.5,
        test=test,
        to_control=gap,
        params=7000.0,
        macs=90_000.0,
        training_macs=2_000_000,
        bytes=3000,
        chosen=chosen,
    )
    return leaderboard_row if fits is None else leaderboard_row.replace(fits=fits)


@pytest.fixture
def auto_result():
    gap = Gap(mean=0.1, interval=[-0.05, 0.25])
    clients = [
        ClientWinner(client=0, chosen="local-adaptation", samples=9, only_chosen=4),
        ClientWinner(client=1, chosen="auto", samples=9),
    ]
    return AutoResult(
        runs=["/else/local-adaptation-seed0", "/else/auto-seed0"],
        methods=[MethodRow.from_json(method(name)) for name in ("local-adaptation", "auto")],
        verdict=f"Use it {NASTY}",
        leaderboard=[row("auto", chosen=True, gap=gap), row("local-adaptation", fits=False)],
        decisions=[
            Decision(
                decision="size", options=["1", "0.5"], counts={"1": [1, 2], "0.5": 7}, chosen="0.5"
            )
        ],
        spent=Spent(macs=10, bytes=20, rounds=3, share={"auto: race": 0.1}),
        clients=clients,
        mixed=OnTest(mean=0.625, std=0.1, worst=0.5, pooled=None, interval=None),
        note="2 GMACs for each contestant",
    )


def test_cells(auto_result):
    best, control = auto_result.leaderboard
    assert leaderboard_cells(best, ACCURACY) == [
        "auto\n  (use this)",
        "50.0",
        "50.0\n[25.0, 75.0]",
        "+10.0\n[-5.0, +25.0]",
        "25.0",
        "50.0",
        "90 k\n7 k",
        "2 M\n3 kB",
    ]
    assert leaderboard_cells(control, ACCURACY)[0] == "local-adaptation\n  (over the limit)"
    assert leaderboard_cells(control, ACCURACY)[3] == ""


def test_nothing_of_a_table_is_cut_off_in_80_columns(auto_result):
    """Long intervals break; the last column is there."""
    gap = Gap(mean=-0.089, interval=[-0.471, 0.294])
    rows = []
    for name in ("auto", "spider:lr=.1,cells=3,channels=8", "a-label-of-over-20-letters"):
        figures = {"training_macs": 14_400_000, "bytes": 12_400_000, "chosen": name == "auto"}
        rows.append(row(name, gap=gap).replace(**figures))
    rows += [row("local-adaptation", fits=False)]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(leaderboard_table(auto_result.replace(leaderboard=rows), ACCURACY, "title"))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(line.rstrip() for line in lines)
    assert "trained" in text and "12.4 MB" in text and "14.4 M" in text
    assert "[-47.1," in text and "+29.4]" in text


def test_counts_in_lines():
    assert count_lines({"1": {"correct": 3, "nll": 0.123456}, "0.5": None}) == [
        "1: correct 3, nll 0.1235",
        "0.5: –",
    ]
    assert count_lines([1, 2]) == ["1", "2"]
    assert count_lines({"nll": list(range(20))}) == ["nll: 0, 1, 2, … 17, 18, 19 (20 of them)"]


def test_commands_are_of_a_client_that_uses_the_winner_and_of_those_that_do_not(auto_result):
    assert use_commands(Path("my runs/a/auto-seed0"), auto_result) == [
        "fedloom export 'my runs/a/auto-seed0' --client 1 --format onnx",
        "fedloom predict 'my runs/a/auto-seed0' --client 1 --data NEW",
        "fedloom export 'my runs/a/local-adaptation-seed0' --client 0 --format onnx",
    ]
    assert next_steps(Path("a"), Path("a/auto-seed0"), auto_result)[0] == "report: a/report.html"


def test_the_page_escapes_and_tells(auto_result):
    rows = auto_result.methods
    versus = Versus(
        path=Path("a"),
        standing="finished",
        groups=[],
        rows=rows,
        command="",
        seeds=1,
        auto_result=auto_result,
    )
    shown = "".join(sections_of_auto(versus).values())
    assert NASTY not in shown
    assert '<tr class="best">' in shown and "data-sorted" in shown
    assert "over the limit" in shown and "auto: race" in shown and "10.0 %" in shown
    assert "fedloom export a/auto-seed0 --client 1 --format onnx" in shown
    assert ">+0<" in shown  # the axis of differences shows where there is none


def test_before_the_end_its_sections_are_there_and_hidden():
    versus = Versus(path=Path("a"), standing="running", groups=[], rows=[], command="", seeds=1)
    for key, section in sections_of_auto(versus).items():
        assert section == f'<section id="{key}" hidden></section>'
