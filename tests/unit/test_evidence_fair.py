"""The evidence for FedNAS and SPIDER: which runs there are, how they go on, and the tables."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from result_files import client, result

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from evidence_fair import Plan, carry_out
from fair_tables import (
    appendix_table,
    by_method,
    caution_lines,
    differences,
    differing_edges,
    lambda_table,
    macs_table,
    searchers_table,
    tuned_supernet,
)
from fair_trials import (
    ADAPT,
    DATA_SETS,
    DIGITS,
    LAMBDAS,
    SEARCHERS,
    SPIDER,
    Runs,
    appendix_folder,
    appendix_with,
    chosen_rate,
    equal_macs,
    read_run,
    searcher_folders,
    searcher_with,
    spider_with,
    trial_of,
    tuning_folder,
    tuning_run,
)
from fedloom import cli
from fedloom.commands import run
from fedloom.errors import FedloomError
from fedloom.federation.server.settings import CAP
from fedloom.records.comparison import folder_name
from fedloom.records.result import RunResult
from fedloom.runs.configure import configure, resolve_options

PNEUMONIA = DATA_SETS[2]


def of_seed(seed, accuracy=0.5, **more):
    """A finished run's result.json; balanced accuracy is half of accuracy."""
    balanced = {"mean": accuracy / 2, "std": 0.0, "worst": 0.1}
    data = {"name": "made", "partition": "iid", "split": f"{seed}" * 64}
    return {
        **result([client(0, accuracy)], seed=seed, data=data),
        "balanced_accuracy": balanced,
        **more,
    }


def finish(folder, seed, accuracy=0.5, **more):
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(of_seed(seed, accuracy, **more)))
    (folder / "run.json").write_text("{}")


def results(*accuracies, **more):
    return [
        RunResult.from_json(of_seed(seed, accuracy, **more))
        for seed, accuracy in enumerate(accuracies)
    ]


def folder_of(command):
    return Path(command[command.index("--out") + 1])


def value_of(command, flag):
    return command[command.index(flag) + 1]


@pytest.fixture
def plan(tmp_path):
    return Plan(tmp_path / "data", tmp_path, DATA_SETS)


# Runs


def finish_comparison(out, data_set, seeds, macs=18_000, width=0.65):
    for seed in seeds:
        for trial in (ADAPT, SPIDER):
            name = folder_name(trial.method(trial.rates[data_set.number]))
            finish(
                out / data_set.name / f"{name}-seed{seed}", seed, macs=macs + seed, server_macs=7
            )
        for name in ("local-adaptation, CNN", "ditto, CNN"):
            trial = trial_of(name)
            label = folder_name(trial.method(trial.rates[data_set.number]))
            finish(
                out / data_set.name / f"{label}-seed{seed}", seed, options={"width": width + seed}
            )


def test_at_equal_macs_cnns_have_the_width_and_the_macs_of_the_comparison(tmp_path):
    finish_comparison(tmp_path, DIGITS, (0, 1))
    commands = list(Plan(tmp_path, tmp_path, [replace(DIGITS, seeds=(0, 1))]).commands("macs"))
    assert len(commands) == 8 and len({folder_of(command) for command in commands}) == 8
    command = commands[1]
    assert command[1] == "local-adaptation:lr=.1,epochs=1,batch=32,width=1.65"
    assert (
        "budget.amount=18008" in command
        and value_of(command, "--equal") == "macs"
        and value_of(command, "--seed") == "1"
    )
    assert CAP * int(value_of(command, "--rounds")) >= 4000  # rounds do not end such a run


def test_equal_macs_need_the_comparison(plan):
    with pytest.raises(
        SystemExit, match=r"needs the finished comparison first: it lacks local-adaptation:lr=\.1"
    ):
        list(plan.commands("macs"))


def test_all_three_data_sets_have_rows_at_equal_macs():
    rows = [
        (equal.data_set.name, equal.plain.variant, equal.search.variant) for equal in equal_macs()
    ]
    assert len(rows) == len(set(rows)) == 12


def test_the_command_line_takes_every_run(plan, tmp_path, monkeypatch):
    """Nothing is run: only configured."""
    configurations = []

    def configure_alone(options, method, tree):
        config = configure(method, tree)
        resolve_options(config.method, config.options)
        configurations.append(config)
        raise FedloomError("this test", "only configures", "nothing")

    monkeypatch.setattr(run, "start_run", configure_alone)
    for data_set in DATA_SETS:
        finish_comparison(tmp_path, data_set, data_set.seeds)
        for variant in SEARCHERS:
            for rate, figure in (("0.03", 0.9), ("0.1", 0.8)):
                finish(tuning_folder(tmp_path, data_set, variant, rate), 0, validation=figure)
        for rate, figure in (("0.03", 0.8), ("0.1", 0.9)):
            finish(
                tuning_run(appendix_folder(tmp_path, data_set), appendix_with(rate)),
                0,
                validation=figure,
            )
    counts = {}
    for part in ("macs", "perturbation", "appendix", "share"):
        commands = list(plan.commands(part))
        counts[part] = len(commands)
        for command in commands:
            cli.main(command)
            config = configurations.pop()
            assert (config.data.clients, config.seed) == (8, int(value_of(command, "--seed")))
            assert (config.budget.equal == "macs") == (part == "macs")
            assert (config.data.server_share > 0) == (part == "perturbation")
    assert counts == {"macs": 44, "perturbation": 18 + 33, "appendix": 6 + 11, "share": 40}


def test_appendix_c_is_tuned_by_validation_data_and_then_run_with_every_seed(plan, tmp_path):
    command = next(plan.commands("appendix"))
    assert "evaluate.hold_back=true" in command and "searcher=milenas" in command[1]
    assert list(plan.appendix(DIGITS))[2:] == []  # no rate could be judged: nothing is run
    for rate, figure in (("0.03", 0.8), ("0.1", 0.9)):
        finish(
            tuning_run(appendix_folder(tmp_path, DIGITS), appendix_with(rate)), 0, validation=figure
        )
    commands = list(plan.appendix(DIGITS))[2:]
    assert [value_of(command, "--seed") for command in commands] == ["0", "1", "2", "3", "4"]
    for command in commands:
        assert command[1] == appendix_with("0.1") and "evaluate.hold_back=true" not in command


def test_appendix_c_stands_beside_the_comparisons_own_runs(tmp_path):
    folder = appendix_folder(tmp_path, DIGITS)
    cells = {"choice": [0, 1]}
    clients = [client(0, 0.8, cells), client(1, 0.8, {"choice": [1, 1]})]
    usual = [
        RunResult.from_json(of_seed(seed, 0.5 + seed / 100, clients=clients)) for seed in range(3)
    ]
    for seed in range(3):
        name = folder_name(appendix_with("0.1"))
        finish(folder / f"{name}-seed{seed}", seed, 0.6 + seed / 50, clients=clients)
    rows = {data_set.name: {SPIDER.name: []} for data_set in DATA_SETS} | {
        DIGITS.name: {SPIDER.name: usual}
    }
    assert list(appendix_table(tmp_path, rows)) == []  # its rate is not known
    finish(tuning_run(folder, appendix_with("0.1")), 0, validation=0.9)
    text = "\n".join(appendix_table(tmp_path, rows))
    assert "| Digits | perturbation | .03 | 3 | 51.0 ± 1.0 |  | 25.5 ± 0.5 |" in text
    assert (
        "| Digits | MiLeNAS (appendix C) | 0.1 | 3 | 62.0 ± 2.0 | **+11.0 [+8.5, +13.5]**" in text
    )
    assert "| 50.0 ± 0.0 |" in text and "p is adjusted for the 1 differences" in text


def test_lambda_has_five_seeds_in_one_comparison(plan):
    (command,) = plan.commands("lambda")
    assert value_of(command, "--seeds") == "0,1,2,3,4" and command[1:4] == [
        spider_with(value) for value in LAMBDAS
    ]


def test_seeds_that_an_earlier_comparison_lacks_go_into_a_second_one(plan, tmp_path):
    (tmp_path / "lambda").mkdir()
    (tmp_path / "lambda" / "compare.json").write_text(json.dumps({"seeds": [0, 1, 2]}))
    first, second = plan.commands("lambda")
    assert (folder_of(first).name, folder_of(second).name) == ("lambda", "lambda-more")
    assert value_of(second, "--seeds") == "3,4"


def test_searchers_are_tuned_first_and_finished_runs_are_used_again(tmp_path):
    """Rates are chosen while the commands run: the generator asks when the tuning is done."""
    data_set = replace(PNEUMONIA, seeds=(0, 1))
    earlier, own = searcher_folders(tmp_path, data_set)
    finish(earlier / f"{folder_name(searcher_with('fednas', '0.1'))}-seed0", 0)
    commands = []
    for command in Plan(tmp_path, tmp_path, [data_set]).commands("perturbation"):
        commands.append(command)
        folder = folder_of(command)
        if folder.name.startswith("tune-"):
            assert "evaluate.hold_back=true" in command and folder.parent == own
            best = "lr=0.03" if "random" in folder.name else "lr=0.1"
            finish(folder, 0, validation=0.9 if best in folder.name else 0.8)
    assert [chosen_rate(tmp_path, data_set, variant) for variant in SEARCHERS] == [
        "0.1",
        "0.1",
        "0.03",
    ]
    runs = [(command[1], value_of(command, "--seed")) for command in commands[6:]]
    expected = [
        (searcher_with("fednas:perturbation", "0.1"), "0"),
        (searcher_with("fednas:perturbation", "0.1"), "1"),
        (searcher_with("fednas", "0.1"), "1"),
        (searcher_with("fednas:random", "0.03"), "0"),
        (searcher_with("fednas:random", "0.03"), "1"),
    ]
    assert runs == expected
    assert all("data.server_share=0.1" in command for command in commands)


def test_a_rate_that_cannot_be_judged_is_not_chosen(tmp_path):
    finish(tuning_folder(tmp_path, DIGITS, "fednas", "0.03"), 0, validation=0.4)
    finish(tuning_folder(tmp_path, DIGITS, "fednas", "0.1"), 0, validation=None)
    assert chosen_rate(tmp_path, DIGITS, "fednas") == "0.03"
    assert chosen_rate(tmp_path, DIGITS, "fednas:random") is None


def test_what_is_finished_is_left_alone_and_what_was_interrupted_goes_on(tmp_path, monkeypatch):
    called = []

    def call(command, check):
        called.append(command[3:])
        return subprocess.CompletedProcess(command, 3 if "fails" in command else 0)

    monkeypatch.setattr(subprocess, "run", call)
    finish(tmp_path / "done", 0)
    finish(tmp_path / "begun", 0)
    (tmp_path / "begun" / "result.json").unlink()
    commands = [
        ["run", name, "--out", str(tmp_path / name)] for name in ("done", "begun", "fails", "new")
    ]
    assert carry_out(iter(commands)) == 3
    assert called == [["resume", str(tmp_path / "begun"), "--quiet"], commands[2], commands[3]]


# Tables


def test_other_splits_are_not_paired():
    other = [replace_split(run) for run in results(0.5, 0.6)]
    with pytest.raises(SystemExit, match="another split"):
        differences([(results(0.5, 0.6), other)], "accuracy")


def replace_split(run):
    return run.replace(data=run.data.replace(split="f" * 64))


def test_the_tuned_supernet_has_its_cell():
    def end(**more):
        return {
            "stages": [
                {"stage": "tune", "rounds": 1, "part": "test", "figure": 0.9, "shared": 0.5, **more}
            ]
        }

    with_balance = results(0.5, 0.5, **end(balanced_accuracy=0.75))
    assert tuned_supernet(with_balance) == "90.0 (75.0)"
    assert tuned_supernet(results(0.5, **end())) == "90.0 (–)"
    assert tuned_supernet([*with_balance, *results(0.5, **end())]) == "90.0 (–)"
    assert tuned_supernet(results(0.5)) == ""


def test_older_runs_have_it_in_the_rows_of_their_rounds(tmp_path):
    end = {"stage": "tune", "rounds": 1, "part": "test", "figure": 0.9, "shared": 0.5}
    finish(tmp_path / "a-seed0", 0, stages=[end])
    evaluation = {
        "part": "test",
        "clients": 1,
        "metric": "accuracy",
        "accuracy": 0.9,
        "shared": 0.5,
        "balanced_accuracy": 0.625,
    }
    names = (
        "rounds",
        "down",
        "up",
        "lan_down",
        "lan_up",
        "macs",
        "evaluate_down",
        "evaluate_up",
        "evaluate_macs",
    )
    totals = {**dict.fromkeys(names, 0), "seconds": 0.0, "clock": 0.0, "wall": 0.0}
    row = {
        "stage": "tune",
        "round": 1,
        "progress": 0.0,
        "meta": {},
        "replies": 1,
        "refused": [],
        "ledger": [],
        "evaluation": evaluation,
        "totals": totals,
    }
    (tmp_path / "a-seed0" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert read_run(tmp_path / "a-seed0").stages[0].balanced_accuracy == 0.625
    assert tuned_supernet(Runs(tmp_path).of("a")) == "90.0 (62.5)"


def test_clients_that_must_be_read_with_caution_are_counted_by_method():
    one_class = client(0, 1.0, answers=1, test_samples=30, balanced_accuracy=None)
    one_answer = client(1, 0.7, answers=1, test_samples=30)
    few = client(2, 0.7, answers=2, test_samples=19)
    doubtful = RunResult.from_json(result([one_class, one_answer, few]))
    known_answers = {"answers": 2, "test_samples": 30}
    others = [
        client(0, 0.9, balanced_accuracy=None, **known_answers),
        client(1, 0.7, **known_answers),
        few,
    ]
    fine = RunResult.from_json(result(others))
    text = caution_lines({"one": [doubtful, doubtful], "two": [fine, fine]})
    assert "Of 6 clients, each counted once a seed." in text
    assert "one answer for every test sample: one 4 (at 2 the test part has one class)." in text
    assert "the test part has one class: 2 with every method." in text
    assert "Fewer than 20 test samples: 2 with every method." in text
    assert by_method({"one": "0", "two": "0"}) == "none"


def test_edges_that_differ_between_clients():
    """Of four edges two pairs differ in one, and one pair in two."""
    choices = [[[0], [1], [], [1]], [[0], [1], [], [0]], [[1], [1], [], [1]]]
    clients = [
        client(number, 0.5, {"space": "x", "choice": choice})
        for number, choice in enumerate(choices)
    ]
    assert differing_edges(RunResult.from_json(result(clients))) == pytest.approx(
        (1 + 1 + 2) / 3 / 4
    )


def test_the_table_at_equal_macs(tmp_path):
    rows = {data_set.name: {ADAPT.name: [], SPIDER.name: []} for data_set in DATA_SETS}
    assert list(macs_table(tmp_path, rows)) == []
    rows["digits"][ADAPT.name] = results(0.5, 0.6, macs=1000)
    equal = next(equal_macs())
    for seed, (accuracy, macs) in enumerate(((0.75, 990), (0.8, 1010))):
        finish(equal.folder(tmp_path, seed), seed, accuracy, macs=macs, rounds=50)
    text = "\n".join(macs_table(tmp_path, rows))
    line = text.splitlines()[4]
    assert (
        "| Digits | local-adaptation, CNN | fednas, personal, adapt | 50 | 0.0 G | 99.0 to 101.0 "
        "% | 77.5" in line
    )
    assert "+22.5 [" in line and "p 0.07" in line and "| 38.8 ± 1.8 | +11.2 [" in line
    assert "p is adjusted for the 1 differences" in text


def test_lambdas_of_both_folders_are_one_table(tmp_path):
    rows = {"digits": {SPIDER.name: results(0.5, 0.6, 0.7)}}
    for value in LAMBDAS:
        for seed, place in ((0, "lambda"), (1, "lambda"), (2, "lambda-more")):
            finish(
                tmp_path / place / f"{folder_name(spider_with(value))}-seed{seed}",
                seed,
                0.4 + seed / 10,
            )
    lines = list(lambda_table(tmp_path, rows))
    cells = [line.split(" | ") for line in lines if line.startswith("| 0.01")]
    assert (
        cells[0][1:4] == ["3", "50.0 ± 10.0", "−10.0, no interval"] and cells[0][4] == "25.0 ± 5.0"
    )


def test_searchers_stand_with_their_own_rates(tmp_path):
    earlier, own = searcher_folders(tmp_path, DIGITS)
    assert list(searchers_table(tmp_path, DIGITS)) == []
    for number, variant in enumerate(SEARCHERS):
        rate = "0.1" if number else "0.03"
        finish(tuning_folder(tmp_path, DIGITS, variant, rate), 0, validation=0.5)
        for seed in (0, 1, 2):
            place = earlier if seed == 0 else own
            accuracy = 0.8 - number / 10 + seed * number / 100
            finish(
                place / f"{folder_name(searcher_with(variant, rate))}-seed{seed}", seed, accuracy
            )
    text = "\n".join(searchers_table(tmp_path, DIGITS))
    assert (
        "| perturbation | 0.03 | 80.0 ± 0.0 |" in text
        and "| MiLeNAS (α) | 0.1 | 71.0 ± 1.0 |" in text
    )
    assert "| perturbation − chance | **+18.0 [+13.0, +23.0]**, p 0.012* |" in text
    assert "p is adjusted for the 3 differences of a column." in text
