import json

import pytest
from fabricated import client, make_run, result, row
from test_tiers_page import cells_in

from fedloom.cli import main
from fedloom.errors import FedloomError
from fedloom.evaluate.paired import paired
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan, read_plan
from fedloom.report.reproducing import command
from fedloom.report.sections.methods import verdict
from fedloom.report.versus import Comparing, beside_each_other, versus_page, write_comparison

NASTY = "<script>alert(1)</script>"


def run(path, method="fedavg", accuracy=0.5, seed=0, **more):
    folder = make_run(
        path,
        [row(1, accuracy), row(2, accuracy)],
        [client(0, accuracy), client(1, 0.7)],
        config={"seed": seed, "method": method},
    )
    split = more.pop("split", f"{seed}" * 64)
    data = {"name": "made", "partition": "iid", "split": split}
    folder.write_json(
        "result.json",
        result([client(0, accuracy), client(1, 0.7)], method=method, seed=seed, data=data, **more),
    )
    return folder.path


def difference(versus, name):
    return next(row.difference for row in versus.rows if row.name == name)


def test_runs_of_one_method_are_taken_together_and_paired_by_seed(tmp_path):
    fedavg0 = run(tmp_path / "fedavg0", "fedavg", 0.5, 0)
    fedavg1 = run(tmp_path / "fedavg1", "fedavg", 0.5, 1)
    local0 = run(tmp_path / "local0", "local", 0.7, 0)
    local1 = run(tmp_path / "local1", "local", 0.702, 1)
    versus = beside_each_other([fedavg0, fedavg1, local1, local0])  # in whatever order
    assert [(group.name, len(group.stories)) for group in versus.groups] == [
        ("fedavg", 2),
        ("local", 2),
    ]
    assert versus.alike and difference(versus, "fedavg") is None
    assert difference(versus, "local").mean == pytest.approx(0.1005)
    text = versus_page(versus, tmp_path)
    assert "By mean accuracy, local beats fedavg, beyond chance" in text
    assert 'href="local1/report.html"' in text


def test_balanced_accuracy_over_the_rounds_stands_in_the_table_of_curves(tmp_path):
    """Means over seeds, for rounds that all seeds have; a method without any has no column."""
    paths = []
    for seed, balanced in ((0, 0.4), (1, 0.5)):
        path = run(tmp_path / f"fedavg{seed}", "fedavg", 0.6, seed)
        rows = [row(1, 0.6), row(2, 0.6)]
        rows[1]["evaluation"] |= {"balanced_accuracy": balanced}
        lines = [json.dumps(line) + "\n" for line in rows]
        (path / "metrics.jsonl").write_text("".join(lines))
        paths.append(path)
    paths.append(run(tmp_path / "local", "local", 0.7))
    text = versus_page(beside_each_other(paths), tmp_path)
    assert cells_in(text, "curves") == [
        ["round", "fedavg", "local", "fedavg, balanced"],
        ["1", "60.0", "70.0", "–"],
        ["2", "60.0", "70.0", "45.0"],
    ]


def three_methods(tmp_path, local, ditto):
    """The figures of two methods with each of three seeds, beside FedAvg's 0.5."""
    paths = []
    for method, figures in (("fedavg", (0.5, 0.5, 0.5)), ("local", local), ("ditto", ditto)):
        for seed, figure in enumerate(figures):
            paths.append(run(tmp_path / f"{method}{seed}", method, figure, seed))
    return beside_each_other(paths)


def test_verdicts_beside_all_comparisons_stand_next_to_the_plain_ones(tmp_path):
    """t = 22 and 3.5 with two degrees of freedom: p = 0.002 and 0.07; the smaller is doubled."""
    versus = three_methods(tmp_path, (0.69, 0.7, 0.72), (0.52, 0.54, 0.56))
    gaps = [difference(versus, name) for name in ("local", "ditto")]
    assert [gap.holm.significant for gap in gaps] == [True, False]
    assert [gap.holm.p for gap in gaps] == pytest.approx([2 * gaps[0].p, gaps[1].p])
    text = versus_page(versus, tmp_path)
    assert f"p={gaps[0].holm.p:.3f}*" in text
    assert "p is adjusted for 2 comparisons (Holm)" in text


def test_a_verdict_that_does_not_stand_beside_the_others(tmp_path):
    """t = 6.05 of two degrees of freedom: p = 0.026, and twice that is no longer below 0.05."""
    versus = three_methods(tmp_path, (0.54, 0.55, 0.57), (0.5, 0.51, 0.49))
    gap = difference(versus, "local")
    assert gap.is_improvement and 0.025 < gap.p < 0.05 and not gap.holm.significant
    text = versus_page(versus, tmp_path)
    assert "By mean accuracy, local beats fedavg, beyond chance" in text
    assert "Adjusted for 2 comparisons (Holm), none of it is beyond chance." in text


def test_the_same_difference_with_every_seed_cannot_be_told(tmp_path):
    text = versus_page(three_methods(tmp_path, (0.6, 0.6, 0.6), (0.7, 0.7, 0.7)), tmp_path)
    assert "It is unclear whether local, ditto and fedavg differ" in text
    assert "+5.0 inconclusive" in text and "beyond chance" not in text


def test_what_cannot_be_told_is_said_beside_what_can(tmp_path):
    """Also where one method is beaten, and where another differs by chance alone."""
    beaten = verdict(three_methods(tmp_path / "beaten", (0.69, 0.7, 0.72), (0.6, 0.6, 0.6)))
    assert beaten.startswith("By mean accuracy, local beats fedavg, beyond chance")
    assert beaten.endswith(
        "It is unclear whether ditto and fedavg differ: the difference is the same with every seed."
    )
    chance = verdict(three_methods(tmp_path / "chance", (0.5, 0.52, 0.49), (0.6, 0.6, 0.6)))
    assert (
        chance.startswith("No difference in accuracy to fedavg is beyond")
        and "whether ditto and" in chance
    )
    text = verdict(three_methods(tmp_path / "told", (0.69, 0.7, 0.72), (0.5, 0.52, 0.49)))
    assert "is unclear" not in text


def test_the_worst_over_seeds_is_a_mean(tmp_path):
    several = versus_page(three_methods(tmp_path, (0.6, 0.6, 0.7), (0.7, 0.7, 0.7)), tmp_path)
    assert "worst: the mean over seeds of the worst client" in several
    one = versus_page(beside_each_other([tmp_path / "fedavg0", tmp_path / "local0"]), tmp_path)
    assert "worst: the worst client;" in one


def test_a_pair_has_the_same_seed_in_whatever_order_the_runs_are_named(tmp_path):
    accuracies = {("fedavg", 0): 0.5, ("fedavg", 1): 0.7, ("local", 0): 0.9, ("local", 1): 0.6}
    paths = {}
    for (method, seed), accuracy in accuracies.items():
        paths[method, seed] = run(tmp_path / f"{method}{seed}", method, accuracy, seed)
    order = [("fedavg", 1), ("local", 0), ("fedavg", 0), ("local", 1)]
    gap = difference(beside_each_other([paths[run_key] for run_key in order]), "local")
    expected = paired(
        [0.6, 0.7], [0.8, 0.65]
    )  # a run's mean is that of its client and of one with 0.7
    assert (gap.mean, gap.low, gap.high) == pytest.approx(
        (expected.difference, expected.low, expected.high)
    )


def test_other_splits_are_not_paired(tmp_path):
    paths = [run(tmp_path / "a", "fedavg"), run(tmp_path / "b", "local", split="9" * 64)]
    versus = beside_each_other(paths)
    assert not versus.alike and difference(versus, "local") is None
    assert "used different splits" in versus_page(versus, tmp_path)


def test_the_same_method_and_seed_twice(tmp_path):
    versus = beside_each_other([run(tmp_path / "a"), run(tmp_path / "b", accuracy=0.6)])
    assert [group.name for group in versus.groups] == ["fedavg (a)", "fedavg (b)"]
    assert difference(versus, "fedavg (b)").mean == pytest.approx(0.05)
    assert "One seed: this is an example, not evidence." in versus_page(versus, tmp_path)


def test_a_federations_run_beside_others(tmp_path):
    versus = beside_each_other([run(tmp_path / "a"), run(tmp_path / "b", "local", macs=None)])
    assert versus.rows[1].macs is None
    assert "–" in versus_page(versus, tmp_path)


def test_runs_that_cannot_stand_beside_each_other(tmp_path):
    clients = [client(0, perplexity=2.0)]
    text = make_run(
        tmp_path / "text", [], clients, metric="perplexity", perplexity={"mean": 2.0}
    ).path
    with pytest.raises(
        FedloomError, match="must be judged by one metric, but got accuracy and perplexity"
    ):
        beside_each_other([run(tmp_path / "a"), text])
    unfinished = make_run(tmp_path / "unfinished").path
    with pytest.raises(FedloomError, match="must be a finished run"):
        beside_each_other([run(tmp_path / "b"), unfinished])


@pytest.fixture
def comparison(tmp_path):
    """Of two methods and two seeds, of which one run is there."""
    folder = RunFolder.create("compare", "x", tmp_path / "cmp")
    tree = {"data": {"name": NASTY, "mean": [0.5]}, "budget": {"rounds": 2}}
    plan = {
        "methods": ["fedavg", "local"],
        "seeds": [0, 1],
        "grid": {"lr": ["1", "2"]},
        "tree": tree,
        "match_params": True,
        "names": {"local": NASTY},
    }
    folder.write_json("compare.json", plan)
    run(folder.path / "fedavg-seed0")
    return folder


def test_a_comparison_that_is_not_finished(comparison):
    text = write_comparison(comparison).read_text()
    assert (
        "not finished, and no process is working on it" in text
        and "1 of 4 runs are finished, 1 begun." in text
    )
    assert "<script>alert" not in text and 'href="fedavg-seed0/report.html"' in text
    with comparison.lock():
        assert "This comparison is in progress: 1 of 4" in write_comparison(comparison).read_text()


def test_a_comparison_as_it_grows(comparison):
    reader = Comparing(comparison)
    assert [len(group.stories) for group in reader.read().groups] == [1, 0]
    run(comparison.path / "_script_alert_1_script_-seed0", "local")
    assert [len(group.stories) for group in reader.read().groups] == [1, 1]


def test_a_comparison_whose_result_is_damaged(comparison):
    (comparison.path / "result.json").write_text('{"runs": []}')
    text = write_comparison(comparison).read_text()
    assert (
        "This comparison has no readable result, and no process is working on it: "
        "1 of 4 runs are finished" in text
    )
    assert "not finished" not in text
    assert (
        "result.json is damaged: it lacks `methods`. "
        f"`fedloom resume {comparison.path}` makes it again." in text
    )


def test_damage_of_runs_beside_each_other_is_told(comparison, tmp_path):
    path = run(tmp_path / "a")
    for folder in (path, comparison.path / "fedavg-seed0"):
        (folder / "metrics.jsonl").write_text("{}\n")
    sentence = (
        "metrics.jsonl is damaged: 1 row is left out of this page, "
        "the first is line 1: it lacks `stage`."
    )
    assert f"a: {sentence}" in versus_page(beside_each_other([path, run(tmp_path / "b")]), tmp_path)
    assert f"fedavg-seed0: {sentence}" in write_comparison(comparison).read_text()


def test_its_command(comparison):
    assert command(read_plan(comparison)) == (
        "fedloom compare fedavg local --seeds 0,1 --grid lr=1,2 --match-params "
        f"--set 'data.name={NASTY}' --set 'data.mean=[0.5]' --set budget.rounds=2 "
        # Its file has neither: a version without these options wrote it.
        "--set engine.norm_bound=off --set topology.aggregator=lowest"
    )
    assert command(Plan(("a",), (3,), {}, {})) == "fedloom compare a --seeds 3"


# The command


def test_report_of_one_run(tmp_path, capsys):
    path = run(tmp_path / "a")
    assert main(["report", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}/report.html\n"
    assert (path / "report.html").read_text().startswith("<!doctype html>")
    assert main(["report", str(path), "--out", str(tmp_path / "new" / "x.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/new/x.html\n"
    assert (tmp_path / "new" / "x.html").read_text() == (path / "report.html").read_text()


def test_report_of_several(tmp_path, capsys):
    paths = [str(run(tmp_path / "a")), str(run(tmp_path / "b", "local"))]
    out = tmp_path / "both.html"
    assert main(["report", *paths, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n" and 'href="a/report.html"' in out.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "{}/none"], "must be the folder of a run"),
        (["report", "{}/a", "{}/none"], "must be the folder of a run"),
        (["report", "{}/a", "{}/cmp"], "several runs must be single runs, but"),
        (["report", "{}/a", "{}/a", "--out", "{}"], "must be a file that can be written"),
        (["report"], "the command line must be valid"),
        (["watch", "{}/none"], "must be the folder of a run"),
        (["watch", "{}/a", "--port", "x"], "--port must be a whole number of at least 1"),
        (["watch", "{}/a", "--port", "70000"], "--port must be at most 65535"),
        (["resume", "{}/a", "--port", "1"], "--port must come with --watch"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(tmp_path, capsys, words, says):
    run(tmp_path / "a")
    RunFolder.create("compare", "x", tmp_path / "cmp")
    assert main([word.format(tmp_path) for word in words]) == 2
    text = capsys.readouterr().err
    assert says in text and len(text.splitlines()) == 1


def test_json_of_a_comparison_is_not_needed_for_its_page(comparison):
    comparison.write_json("result.json", json.loads('{"runs": [], "methods": []}'))
    assert "2 methods on" in write_comparison(comparison).read_text()
