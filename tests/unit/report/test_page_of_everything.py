"""Every page shows what other parts measure: latencies, memory, phases, the start of --init."""

from html import unescape

import pytest
from fabricated import client, make_run, result, row
from rich.console import Console

from fedloom.cli import main
from fedloom.evaluate.method_row import method_row
from fedloom.records.result import RunResult
from fedloom.report.comparison_table import comparison_table
from fedloom.report.page import run_page
from fedloom.report.run_table import run_table
from fedloom.report.story import Reader
from fedloom.report.versus import beside_each_other, versus_page

MACHINE = {"processor": "<b>chip</b>", "system": "Linux", "device": "cpu", "torch": "2"}
INIT = {"run": "/old/<i>run</i>", "client": None, "hash": "f" * 64, "seen": 7}
UNFAIR = "NOT A FAIR TEST: the --init run was trained on"


def page(folder):
    return run_page(Reader(folder).read())


def printed(table):
    console = Console(width=200, record=True, markup=False)
    console.print(table)
    return console.export_text()


def test_latencies_have_a_column_a_figure_and_their_machine(tmp_path):
    clients = [
        client(0, 0.5, latency_ms=1.25),
        client(1, 0.6, latency_ms=2.5),
        client(2, None, latency_ms=None),
    ]
    text = page(make_run(tmp_path / "a", [row(1)], clients, latency={"profile": "mine", **MACHINE}))
    assert (
        '<th scope="col" class="number">ms</th>' in text and '<td class="number">1.25</td>' in text
    )
    assert "Accuracy against milliseconds per sample" in text
    assert "from the profile mine of &lt;b&gt;chip&lt;/b&gt;, Linux, torch 2 on cpu." in text
    assert ">ms</th>" not in page(make_run(tmp_path / "b", [row(1)], [client(0)]))


def test_memory_is_among_the_costs_where_it_is_known(tmp_path):
    assert "<strong>277 MB</strong>" in page(
        make_run(tmp_path / "a", [row(1)], [client(0)], memory=277_000_000)
    )
    assert "peak of one client" not in page(
        make_run(tmp_path / "b", [row(1)], [client(0)], memory=None)
    )


def test_the_schedule_stands_below_the_curve(tmp_path):
    phases = [
        {"phase": "warm-up", "rounds": 1, "paper": 0.04},
        {"phase": "final", "rounds": 3, "paper": 0.68},
    ]
    text = page(make_run(tmp_path / "a", [row(1)], [client(0)], phases=phases))
    assert "Rounds by phase: 1 warm-up (25 %), 3 final (75 %); the paper's 4, 68 %." in unescape(
        text
    )


@pytest.mark.parametrize(
    ("number", "whose"), [(None, "the shared weights"), (3, "the model of client 3")]
)
def test_what_a_run_began_with_and_whether_its_test_is_fair(tmp_path, number, whose):
    text = page(make_run(tmp_path / "a", [row(1)], [client(0)], init={**INIT, "client": number}))
    assert f"{whose} of /old/&lt;i&gt;run&lt;/i&gt;" in text
    assert f"{UNFAIR} 7 of these test samples." in text
    assert UNFAIR not in page(
        make_run(tmp_path / "b", [row(1)], [client(0)], init={**INIT, "seen": None})
    )


def test_a_comparison_says_that_it_is_not_fair(tmp_path):
    begun = RunResult.from_json(result([client(0)], init=INIT))
    rows = [
        method_row(name, name, [run], None, None)
        for name, run in (("fedavg", begun), ("local", RunResult.from_json(result([client(0)]))))
    ]
    assert [row.seen for row in rows] == [7, None]
    assert f"{UNFAIR} up to 7 of these" in " ".join(printed(comparison_table(rows, "")).split())
    assert UNFAIR not in printed(comparison_table(rows[1:], ""))


def test_runs_that_began_elsewhere_are_not_taken_for_seeds_of_one_method(tmp_path):
    for seed, more in enumerate(({}, {"init": INIT})):
        make_run(
            tmp_path / f"{seed}", [row(1)], [client(0)], config={"seed": seed}, seed=seed, **more
        )
    versus = beside_each_other([tmp_path / "0", tmp_path / "1"])
    assert [group.name for group in versus.groups] == ["fedavg (0)", "fedavg (1)"]
    assert f"{UNFAIR} up to 7 of these" in versus_page(versus, tmp_path)


def test_methods_beside_each_other_have_their_memory(tmp_path):
    for number, memory in enumerate((277_000_000, None)):
        make_run(tmp_path / f"{number}", [row(1)], [client(0)], memory=memory)
    text = versus_page(beside_each_other([tmp_path / "0", tmp_path / "1"]), tmp_path)
    assert '<td class="number">277 MB</td>' in text and '<td class="number">–</td>' in text


def test_the_terminal_has_the_same_columns(tmp_path):
    shown = result([client(0, latency_ms=1.25)], latency={"profile": "mine", **MACHINE})
    assert " ms architecture" in " ".join(
        ["", *printed(run_table(RunResult.from_json(shown))).split()]
    )


def test_runs_lists_those_that_are_named(tmp_path, capsys):
    for name in ("one", "two"):
        make_run(tmp_path / name, [row(1)], [client(0)])
    assert main(["runs", "list", str(tmp_path / "two")]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert "two" in shown and "one" not in shown.replace("noneyet", "")
