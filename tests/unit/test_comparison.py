import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import result_files
from fedloom.cli import main
from fedloom.errors import FedloomError
from fedloom.evaluate.method_row import mean_macs, mean_params, method_row, with_holm
from fedloom.records.comparison import Difference, MethodRow, folder_labels
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan, grid_points, parse_grid, parse_seeds, read_plan
from fedloom.records.result import RunResult
from fedloom.report.progress import Screen
from fedloom.runs import comparison
from fedloom.runs.comparison import ComparisonRunner, Terms, continue_comparison, create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.planning import check_plan
from fedloom.runs.results import Run


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def finished(
    mean,
    *,
    pooled=None,
    worst=0.0,
    shared=None,
    params=(10,),
    macs=100,
    rounds=4,
    seconds=1.0,
    lan=0,
    metric="accuracy",
    **more,
):
    traffic = {
        "down": 1,
        "up": 2,
        "lan_down": lan,
        "lan_up": lan,
        "evaluate_down": 9000,
        "evaluate_up": 9000,
    }
    figures = {"mean": mean, "std": 0.0, "worst": worst, "pooled": pooled}
    clients = [
        result_files.client(k, **{metric: None}, params=size) for k, size in enumerate(params)
    ]
    more |= {"metric": metric, metric: figures, "global": shared, "macs": macs, "rounds": rounds}
    result = result_files.result(clients, bytes=traffic, seconds=seconds, **more)
    return Run(Path("run"), RunResult.from_json(result))


def row(method, runs, first, tuned):
    """As JSON; the first method is paired with nobody."""
    pairs = None
    if first is not runs:
        pairs = [run.record for run in first]
    records = [run.record for run in runs]
    return method_row(method, method, records, pairs, tuned).to_json()


# Rows


def test_a_row_by_hand():
    """Differences 0.1, 0.2 and 0.3: mean 0.2, std 0.1, half an interval t(0.975; 2)·0.1/√3."""
    first = [finished(0.5), finished(0.6), finished(0.7)]
    runs = [
        finished(
            0.6, pooled=0.5, worst=0.1, shared=0.2, params=(10, 20), macs=100, rounds=4, seconds=1.0
        ),
        finished(
            0.8,
            pooled=0.7,
            worst=0.3,
            shared=None,
            params=(None, 30),
            macs=300,
            rounds=6,
            seconds=3.0,
            lan=6,
        ),
        finished(
            1.0, pooled=0.9, worst=0.2, shared=0.4, params=(40,), macs=200, rounds=5, seconds=2.0
        ),
    ]
    method_row = row("mine", runs, first, {"lr": "0.1"})
    assert (method_row["method"], method_row["runs"], method_row["tuned"]) == (
        "mine",
        3,
        {"lr": "0.1"},
    )
    assert method_row["accuracy"] == pytest.approx({"mean": 0.8, "std": 0.2})
    half = 4.302652729749464 * 0.1 / 3**0.5
    t = 0.2 / (0.1 / 3**0.5)
    p = 1 - t / (2 + t * t) ** 0.5  # two-sided, of two degrees of freedom
    assert method_row["difference"] == pytest.approx(
        {"mean": 0.2, "low": 0.2 - half, "high": 0.2 + half, "better": None, "p": p}
    )
    assert (method_row["metric"], method_row["lower_is_better"]) == ("accuracy", False)
    assert method_row["pooled"] == pytest.approx({"mean": 0.7, "std": 0.2})
    assert method_row["worst"] == pytest.approx({"mean": 0.2, "std": 0.1})
    assert method_row["global"] == pytest.approx({"mean": 0.3, "std": 0.02**0.5})
    assert (
        method_row["params"],
        method_row["macs"],
        method_row["rounds"],
        method_row["seconds"],
    ) == (
        25.0,
        200.0,
        5.0,
        2.0,
    )
    assert method_row["bytes"] == pytest.approx((3 + 15 + 3) / 3)  # evaluation is booked apart


def test_pairing_is_by_seed():
    """The same figures in another order give another difference per seed, and a wider interval."""
    first = [finished(0.1), finished(0.5), finished(0.9)]
    same = row("m", [finished(0.2), finished(0.6), finished(1.1)], first, None)["difference"]
    mixed = row("m", [finished(1.0), finished(0.2), finished(0.6)], first, None)["difference"]
    assert same["mean"] == pytest.approx(0.4 / 3)
    assert same["high"] - same["low"] < 0.3
    assert mixed["mean"] == pytest.approx(0.1)
    assert mixed["high"] - mixed["low"] > 1


def test_the_first_method_differs_from_nobody():
    runs = [finished(0.5)]
    method_row = row("m", runs, runs, None)
    assert method_row["difference"] is None
    assert method_row["accuracy"] == {"mean": 0.5, "std": None}


def test_one_seed_has_no_interval():
    difference = row("m", [finished(0.75)], [finished(0.5)], None)["difference"]
    assert difference == {"mean": 0.25, "low": None, "high": None, "better": None, "p": None}


def test_the_same_difference_with_every_seed_is_no_improvement():
    first = [finished(0.1), finished(0.5), finished(0.9)]
    difference = row("m", [finished(0.2), finished(0.6), finished(1.0)], first, None)["difference"]
    assert difference == {
        "mean": pytest.approx(0.1),
        "low": None,
        "high": None,
        "better": None,
        "p": None,
    }


def test_verdicts_are_adjusted_for_all_comparisons():
    """Differences of mean 0.1 have spreads that give p = 0.01, 0.04 and 0.03.

    The adjusted values are 0.03, 0.06 and 0.06.
    """
    rows = [judged_row(None), judged_row(0.01), judged_row(0.04), judged_row(0.03)]
    adjusted = with_holm(rows)
    assert adjusted[0] == rows[0]
    verdicts = [row.difference.holm for row in adjusted[1:]]
    assert [verdict.p for verdict in verdicts] == pytest.approx([0.03, 0.06, 0.06])
    assert [verdict.significant for verdict in verdicts] == [True, False, False]
    assert adjusted[1].to_json()["difference"]["holm"] == {
        "p": pytest.approx(0.03),
        "significant": True,
    }


def test_a_difference_that_cannot_be_told_has_no_verdict():
    (judged,) = with_holm(
        [judged_row(0.01).replace(difference=Difference(mean=0.1, low=None, high=None, p=None))]
    )
    assert judged.difference.holm is None


def judged_row(p):
    difference = (
        None if p is None else {"mean": 0.1, "low": 0.05, "high": 0.15, "better": True, "p": p}
    )
    return MethodRow.from_json(result_files.method(difference=difference))


def test_an_interval_without_width_in_an_older_file_tells_nothing():
    older = Difference(
        mean=-0.0167, low=-0.016666666666667367, high=-0.01666666666666596, better=False
    )
    assert older.interval is None and older.is_improvement is None
    wide = Difference(mean=-0.2, low=-0.3, high=-0.1, better=False)
    assert wide.interval == (-0.3, -0.1) and wide.is_improvement is False


@pytest.mark.parametrize(
    ("metric", "better"), [("accuracy", [True, False]), ("perplexity", [False, True])]
)
def test_which_side_is_better_is_the_metrics_own(metric, better):
    first = [finished(value, metric=metric) for value in (3.0, 3.5, 4.0)]
    more = [finished(value, metric=metric) for value in (4.0, 4.5, 5.03)]
    less = [finished(value, metric=metric) for value in (2.0, 2.5, 3.03)]
    row_of_more = row("m", more, first, None)
    row_of_less = row("m", less, first, None)
    assert [row_of_more["difference"]["better"], row_of_less["difference"]["better"]] == better
    assert round(row_of_more[metric]["mean"], 2) == 4.51
    assert round(row_of_less[metric]["mean"], 2) == 2.51
    for compared in (row_of_more, row_of_less):
        assert compared["metric"] == metric
        assert compared["lower_is_better"] == (metric == "perplexity")


def test_a_run_without_a_figure_makes_no_difference():
    method_row = row("m", [finished(None), finished(0.5)], [finished(0.5), finished(0.5)], None)
    assert method_row["difference"] is None
    assert method_row["accuracy"] == {"mean": 0.5, "std": None}


# What is typed


def test_seeds():
    assert parse_seeds("0, 1,12") == (0, 1, 12)
    for text in ("", "a", "1,", "-1", "1.5", "1 2"):
        with pytest.raises(
            FedloomError, match="--seeds must be whole numbers of 0 or more, but got"
        ):
            parse_seeds(text)


def test_grid():
    assert parse_grid(["lr=.1,.03", "epochs=1"]) == {"lr": [".1", ".03"], "epochs": ["1"]}
    for text in ("lr", "lr=", "=1", "lr=1,,2"):
        with pytest.raises(FedloomError, match="--grid must look like option=A,B, but got"):
            parse_grid([text])


def test_grid_points():
    assert grid_points({}) == []
    points = grid_points({"a": [1, 2], "b": [3, 4]})
    assert points == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]


def test_labels_are_folder_names_and_never_the_same():
    methods = [
        "fedavg",
        "fedavg:lr=0.1,epochs=2",
        "a/m.py:Mine",
        "b/m.py:Mine",
        "m.py:Mine:lr=0.1",
        "m.py:Mine:lr=0.2",
    ]
    assert list(folder_labels(methods).values()) == [
        "fedavg", "fedavg_lr=0.1,epochs=2", "Mine-3", "Mine-4", "Mine_lr=0.1", "Mine_lr=0.2",
    ]  # fmt: skip


# Plans


def plan(*methods, seeds=(0,), grid=None, **tree):
    data = {"name": "digits", "clients": 3, "partition": "iid"}
    return Plan(methods, seeds, grid or {}, {"data": data, "engine": {"workers": 0}, **tree})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (plan(), "compare must be given different methods, but got none"),
        (
            plan("fedavg", "fedavg"),
            "compare must be given different methods, but got fedavg fedavg",
        ),
        (
            plan("fedavg", seeds=(1, 1)),
            r"--seeds must be different whole numbers, but got \[1, 1\]",
        ),
        (plan("fedavg", seeds=()), "--seeds must be different whole numbers"),
        (plan("fedavg", "lcoal"), "did you mean local?"),
        (plan("fedavg", grid={"lr": ["x"]}), "`options.lr` must be a valid number, but got 'x'"),
        (plan("fedavg", "fedprox", grid={"mu": ["1"]}), "option `options.mu` must be a known name"),
        (
            plan("fedavg", "local", engine={"topology": "clustered:2"}),
            "must allow averaging inside a cluster",
        ),
        (plan("fedavg", "local-adaptation", budget={"rounds": 1}), "--rounds must be at least 2"),
        (
            plan("fedavg", engine={"min_replies": 4}),
            "--min-replies must not exceed the clients that take part in a round, but got 4 of 3",
        ),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_is_made(wrong, message, tmp_path):
    with pytest.raises(FedloomError, match=message):
        create_comparison(wrong, None)
    assert list(tmp_path.iterdir()) == []


def test_an_equal_budget_needs_no_amount():
    check_plan(plan("fedavg", "local", budget={"equal": "macs"}))


def test_a_plan_is_kept():
    folder = create_comparison(
        plan("fedavg", "local:lr=1", seeds=(3, 4), grid={"epochs": ["1", "2"]}), None
    )
    assert (str(folder.path), folder.kind) == ("runs/1-compare-digits", "compare")
    again = read_plan(folder)
    assert (again.methods, again.seeds, again.grid) == (
        ("fedavg", "local:lr=1"),
        (3, 4),
        {"epochs": ["1", "2"]},
    )


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_a_comparison_that_was_killed_while_it_was_made(text, tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "half")
    if text is not None:
        (folder.path / "compare.json").write_text(text)
    with pytest.raises(
        FedloomError,
        match=r"must hold a comparison, but compare.json is unusable: .*start it again",
    ):
        continue_comparison(folder, Screen(None, None))


@pytest.mark.parametrize(
    ("unit", "budget"),
    [
        ("rounds", {"equal": "rounds", "amount": None}),
        ("macs", {"equal": "macs", "amount": 100}),
        ("bytes", {"equal": "bytes", "amount": 15}),
    ],
)
def test_the_first_method_sets_everybodys_budget(unit, budget, tmp_path):
    runner = ComparisonRunner(
        RunFolder(tmp_path), plan("fedavg", budget={"equal": unit}), Screen(None, None), None
    )
    assert runner._budget(finished(0.5, lan=6), Terms()) == budget


def test_what_the_servers_of_the_first_method_compute_is_part_of_the_budget(tmp_path):
    runner = ComparisonRunner(
        RunFolder(tmp_path), plan("fedavg", budget={"equal": "macs"}), Screen(None, None), None
    )
    assert runner._budget(finished(0.5, server_macs=70), Terms()) == {
        "equal": "macs",
        "amount": 170,
    }


def test_an_amount_that_is_given_is_everybodys_budget(tmp_path):
    """The first method's too: what it happens to spend sets nothing."""
    budget = {"equal": "macs", "amount": 5e9}
    runner = ComparisonRunner(
        RunFolder(tmp_path), plan("fedavg", "local", budget=budget), Screen(None, None), None
    )
    terms = runner._first_terms()
    assert terms.budget == budget
    assert runner._budget(finished(0.5, server_macs=70), terms) == budget
    without = ComparisonRunner(
        RunFolder(tmp_path), plan("fedavg", budget={"equal": "macs"}), Screen(None, None), None
    )
    assert without._first_terms() == Terms()


def test_the_first_method_alone_sets_budget_and_parameters_and_the_split_for_all(
    tmp_path, monkeypatch
):
    """Of three methods that spend and find different amounts, in two seeds."""
    methods = ("fedavg", "local", "fedprox")
    figures = {"fedavg": (100, 10), "local": (7, 70), "fedprox": (900, 90)}  # MACs, parameters
    runner = ComparisonRunner(
        RunFolder(tmp_path),
        plan(*methods, seeds=(0, 1), budget={"equal": "macs"}),
        Screen(None, None),
        None,
    )
    budgets = []
    targets = []
    splits = []

    def run_one(name, method, seed, changes, split):
        budgets.append(changes["budget"]["amount"])
        splits.append(split)
        macs, params = figures[method]
        return finished(
            0.5, macs=macs + seed, params=(params + seed,)
        ), split or f"split of seed {seed}"

    def width(plan, method, seed, split, target, point):
        targets.append(target)
        return {}

    monkeypatch.setattr(runner, "run_one", run_one)
    monkeypatch.setattr(comparison, "matched_width", width)
    runner.run()
    assert budgets == [None, 100, 100, None, 101, 101]
    assert targets == [None, 10, 10, None, 11, 11]
    assert splits == [None, *["split of seed 0"] * 2, None, *["split of seed 1"] * 2]


# On its way


@pytest.fixture
def quick(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        x=np.arange(40 * 25, dtype=np.uint8).reshape(40, 5, 5),
        y=np.arange(40) % 2,
    )
    data = {"name": "x.npz", "clients": 2, "partition": "iid"}
    return {
        "data": data,
        "options": {"width": "0.125"},
        "budget": {"rounds": 2},
        "engine": {"workers": 0},
    }


def test_a_comparison_goes_on_where_it_was_stopped(quick, monkeypatch, tmp_path):
    """Finished runs are read, the one that was begun is resumed, the rest are started."""
    folder = create_comparison(Plan(("fedavg", "local"), (0, 1), {}, quick), None)
    real = comparison.carry_out
    done = []

    def some(folder, *more):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(folder.path.name)
        return real(folder, *more)

    monkeypatch.setattr(comparison, "carry_out", some)
    with pytest.raises(KeyboardInterrupt):
        continue_comparison(folder, Screen(None, None))
    assert done == ["fedavg-seed0", "local-seed0"]
    monkeypatch.setattr(
        comparison,
        "carry_out",
        lambda folder, *more: done.append(folder.path.name) or real(folder, *more),
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the data was named from another folder
    compared = continue_comparison(RunFolder.open(tmp_path / folder.path), Screen(None, None))
    assert done == ["fedavg-seed0", "local-seed0", "fedavg-seed1", "local-seed1"]
    assert [run.result["seed"] for run in compared.runs] == [0, 1, 0, 1]
    saved = json.loads((tmp_path / folder.path / "result.json").read_text())
    assert saved["methods"] == compared.methods
    assert compared.to_json() == {
        "runs": [run.to_json() for run in compared.runs],
        "methods": compared.methods,
    }


@pytest.mark.parametrize(
    ("metric", "figures"),
    [("accuracy", (0.3, None, 0.6, 0.6)), ("perplexity", (9.0, None, 2.5, 2.5))],
)
def test_the_grid_takes_the_best_by_validation_and_the_first_of_equals(
    tmp_path, monkeypatch, metric, figures
):
    values = {f"grid-fedavg-{number}": figure for number, figure in enumerate(figures)}
    runner = ComparisonRunner(
        RunFolder(tmp_path),
        plan("fedavg", grid={"lr": ["1", "2", "3", "4"]}),
        Screen(None, None),
        None,
    )
    asked = []

    def run_one(name, method, seed, changes, split):
        asked.append(changes)
        return finished(
            -(values[name] or 0), metric=metric, validation=values[name]
        ), None  # the first on test

    monkeypatch.setattr(runner, "run_one", run_one)
    assert runner._tune("fedavg", Terms()) == {"lr": "3"}
    assert all(
        changes["evaluate"] == {"hold_back": True} for changes in asked
    )  # select stays what is reported
    assert (
        ComparisonRunner(RunFolder(tmp_path), plan("fedavg"), Screen(None, None), None)._tune(
            "fedavg", Terms()
        )
        is None
    )
    values |= dict.fromkeys(values)
    expected = (
        "--grid must have a point that can be judged, but none of the 4 points of fedavg "
        "got a validation figure"
    )
    with pytest.raises(FedloomError, match=expected):
        runner._tune("fedavg", Terms())


class Judged:
    """Runs of a grid, with what each evaluation during it found."""

    def __init__(self, folder, quick, select):
        quick = {**quick, "budget": {"rounds": 5}, "evaluate": {"every": 1, "select": select}}
        plan = Plan(("fedavg",), (0,), {"lr": ["0.01", "1", "0.1"]}, quick)
        self.chosen = ComparisonRunner(folder, plan, Screen(None, None), None)._tune(
            "fedavg", Terms()
        )
        self.points = dict(zip(plan.grid["lr"], range(3), strict=True))
        self.curves = {}
        self.validation = {}
        for lr, number in self.points.items():
            run = RunFolder.open(folder.path / f"grid-fedavg-{number}")
            self.curves[lr] = [row.evaluation.value for row in run.rows()]
            assert {row.evaluation.part for row in run.rows()} == {"validation"}
            self.validation[lr] = run.result().validation


@pytest.mark.parametrize(("select", "figure"), [("last", lambda curve: curve[-1]), ("best", max)])
def test_a_grid_is_tuned_on_the_round_that_is_reported(quick, tmp_path, select, figure):
    generator = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = generator.normal(60 + 30 * y[:, None, None], 40, (120, 6, 6)).clip(0, 255).astype(np.uint8)
    np.savez(tmp_path / "x.npz", x=x, y=y)
    judged = Judged(RunFolder(tmp_path), quick, select)
    expected = {lr: figure(curve) for lr, curve in judged.curves.items()}
    assert any(
        curve[-1] < max(curve) for curve in judged.curves.values()
    )  # so it makes a difference
    assert judged.validation == expected
    assert judged.chosen == {"lr": max(expected, key=expected.get)}


@pytest.mark.parametrize("method", ["local-adaptation", "fedrep", "perfedavg"])
def test_a_grid_judges_the_personal_model(quick, tmp_path, method):
    """Also of methods whose clients make it beyond the budget, in a stage of its own."""
    quick = {**quick, "budget": {"rounds": 3}, "evaluate": {"every": 100}}
    plan = Plan((method,), (0,), {"lr": ["0.1"]}, quick)
    ComparisonRunner(RunFolder(tmp_path), plan, Screen(None, None), None)._tune(method, Terms())
    run = RunFolder.open(tmp_path / f"grid-{method}-0")
    other = {
        **quick,
        "evaluate": {"every": 1, "hold_back": True},
        "options": {**quick["options"], "lr": "0.1"},
    }
    folder, prepared = create(configure(method, other), tmp_path / "other")
    again = comparison.carry_out(folder, prepared, lambda event: None)
    last = list(folder.rows())[-1]
    assert run.result().validation == again.record.validation == last.evaluation.value
    assert last.stage == prepared.stages[-1].name


@pytest.mark.parametrize("unit", ["rounds", "macs"])
def test_a_grid_tunes_the_width_and_the_budget_that_are_reported(quick, tmp_path, unit):
    """The first method is tuned with its own rounds; after its run, the others on its terms."""
    quick = {**quick, "options": {}, "budget": {"rounds": 1, "equal": unit}}
    plan = Plan(("fedavg:width=0.25", "local"), (3,), {"lr": [0.1, 0.05]}, quick, match_params=True)
    folder = create_comparison(plan, tmp_path / "compare")
    continue_comparison(folder, Screen(None, None))

    def config(name):
        return RunFolder.open(folder.path / name).config()

    first = config("fedavg_width=0.25-seed3")
    reported = config("local-seed3")
    assert reported.options["width"] == pytest.approx(0.25, rel=0.1)
    assert (reported.budget.amount is None) == (unit == "rounds")
    for number, lr in enumerate(plan.grid["lr"]):
        point = config(f"grid-local-{number}")
        assert (point.seed, point.budget, point.data) == (3, reported.budget, reported.data)
        assert point.options == {**reported.options, "lr": lr}
        assert point.evaluate.hold_back and not reported.evaluate.hold_back
        of_first = config(f"grid-fedavg_width=0.25-{number}")
        assert (of_first.budget, of_first.options) == (first.budget, {**first.options, "lr": lr})


def test_the_width_is_matched_for_the_point_of_a_grid():
    """A point may choose the head, and a width that a grid tunes stays."""
    asked = replace(plan("fedavg", "local"), match_params=True)

    def width(point):
        return comparison.matched_width(asked, "local", 0, None, 3000, point)

    assert width({"head": "mean"})["width"] > width({"head": "grid"})["width"]
    assert width({"width": "0.5"}) == {}


def test_a_point_whose_training_breaks_down_is_passed_over(quick, tmp_path):
    runner = ComparisonRunner(
        RunFolder(tmp_path),
        Plan(("fedavg",), (0,), {"lr": ["1e30", "0.1"]}, quick),
        Screen(None, None),
        None,
    )
    assert runner._tune("fedavg", Terms()) == {"lr": "0.1"}


def test_a_grid_that_cannot_be_judged_is_one_sentence(quick, tmp_path, capsys):
    words = [
        "--data",
        "x.npz",
        "--clients",
        "2",
        "--partition",
        "iid",
        "--rounds",
        "2",
        "--workers",
        "0",
    ]
    code = main(["compare", "fedavg", "local", *words, "--grid", "lr=1e30,1e35", "--quiet"])
    assert code == 2
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if "--grid" in line]
    assert (
        "--grid must have a point that can be judged, but none of the 2 points of fedavg got"
        in sentence
    )


def test_the_nearest_width_by_hand():
    from torch import nn

    from fedloom.runs.comparison import nearest_width

    def build(width: float) -> nn.Module:
        return nn.Linear(
            10, max(1, round(10 * width)), bias=False
        )  # 100 · width parameters, in steps of 10

    assert build(nearest_width(build, 250)).weight.numel() in (240, 250)
    assert build(nearest_width(build, 1)).weight.numel() == 10
    targets = (241, 244, 246, 249)
    assert [build(nearest_width(build, target)).weight.numel() for target in targets] == [
        240, 240, 250, 250,
    ]  # fmt: skip


def test_the_nearest_width_is_of_the_rounded_number():
    """A DenseNet of width 0.125 has more than three times the parameters of one just below."""
    import torch

    from fedloom.cost.count import parameters
    from fedloom.nets.densenet import DenseNet
    from fedloom.runs.comparison import nearest_width

    def build(width: float) -> torch.nn.Module:
        with torch.device("meta"):
            return DenseNet((1, 8, 8), 10, width)

    assert parameters(build(0.125)) > 3 * parameters(build(0.1249))
    assert parameters(build(nearest_width(build, 9000))) == parameters(build(0.1249))


def test_matched_networks_have_the_first_methods_parameters(tmp_path, monkeypatch):
    import fedloom

    monkeypatch.chdir(tmp_path)
    methods = ["fedavg:width=0.4", "local", "fedavg:width=0.25"]
    compared = fedloom.compare(
        methods, match_params=True, rounds=1, clients=2, partition="iid", workers=0
    )
    first, matched, own = (row["params"] for row in compared.methods)
    assert abs(matched - first) / first < 0.1
    assert own < 0.6 * first  # a width that was asked for stays


def test_the_nearest_width_by_another_size():
    from torch import nn

    from fedloom.cost.count import macs
    from fedloom.runs.comparison import nearest_width

    def build(width: float) -> nn.Module:
        return nn.Conv2d(
            1, max(1, round(10 * width)), 3, padding=1
        )  # 9 · 16 MACs an output channel on a 4×4 map

    def size(net: nn.Module) -> int:
        return macs(net, (1, 4, 4))

    assert build(nearest_width(build, 12.4 * 9 * 16, size)).out_channels == 12
    assert build(nearest_width(build, 12.6 * 9 * 16, size)).out_channels == 13


def test_matched_networks_have_the_first_methods_macs(quick, tmp_path):
    """A network of another kind has its MACs, not its parameters; the plan keeps what was asked."""
    first = "fedavg:network=resnet18,width=0.05,head=mean"
    asked = Plan((first, "local"), (0,), {}, {**quick, "options": {}}, match_macs=True)
    folder = create_comparison(asked, tmp_path / "compare")
    assert read_plan(folder).match_macs
    compared = continue_comparison(folder, Screen(None, None))
    expected, matched = (mean_macs([run.record]) for run in compared.runs)
    assert abs(matched - expected) / expected < 0.1
    one, other = (mean_params([run.record]) for run in compared.runs)
    assert abs(one - other) / one > 0.2


def test_parameters_and_macs_are_not_matched_at_once(quick, tmp_path):
    asked = Plan(("fedavg", "local"), (0,), {}, quick, match_params=True, match_macs=True)
    with pytest.raises(
        FedloomError, match="one of --match-params and --match-macs must say what is matched"
    ):
        create_comparison(asked, tmp_path / "compare")


@pytest.mark.parametrize(
    ("metric", "scale", "shown"),
    [("accuracy", 1, ["96.6", "-12.3"]), ("perplexity", 20, ["19.3", "-2.46", "lower is better"])],
)
def test_a_table_of_long_variants_fits_into_80_columns(metric, scale, shown):
    from rich.console import Console

    from fedloom.report.comparison_table import comparison_table

    of = {
        name: {"mean": 0.966 * scale, "std": 0.011}
        for name in (metric, "pooled", "worst", "global")
    }
    more = {
        "params": 18_800,
        "rounds": 20,
        "macs": 104e9,
        "bytes": 38.6e6,
        "runs": 3,
        "metric": metric,
    }
    first = result_files.method("fednas:ops=s2,cells=3,channels=8,nodes=2", **of, **more)
    gap = {"mean": -0.123 * scale, "low": -0.241 * scale, "high": 0.05}
    second = {**first, "name": "fedavg:network=densenet", "difference": gap}
    console = Console(width=80, markup=False, record=True, file=io.StringIO())
    rows = [MethodRow.from_json(row) for row in (first, second)]
    console.print(comparison_table(rows, "digits"))
    text = console.export_text()
    assert text.count("38.6 MB") == 2
    assert all(words in " ".join(text.split()) for words in shown)
