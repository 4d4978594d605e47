"""The command line, line by line: what it prints, where, and how it ends."""

import fcntl
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import processes
import pytest
import tiny

import fedloom
from fedloom import cli
from fedloom.config.flags import FLAGS


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(images):
    """Flags of a run of a fraction of a second."""
    data = ["--data", str(images), "--clients", "3", "--partition", "iid"]
    return [
        *data,
        "--rounds",
        "2",
        "--workers",
        "0",
        "--set",
        "options.width=0.125",
        "--set",
        "options.batch=8",
    ]


@pytest.fixture
def ask(capsys):
    """Run a command in this process: (exit code, output, errors)."""

    def run(*words):
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as end:  # argparse, after --help and --version
            code = end.code or 0
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


# What is said about the program


def test_version(ask):
    assert ask("--version") == (0, f"fedloom {fedloom.__version__}\n", "")


def test_no_command_gives_help(ask):
    code, output, _ = ask()
    assert code == 0
    for command in ("run", "compare", "resume", "list", "doctor", "runs"):
        assert re.search(rf"^    {command} ", output, re.MULTILINE)


def test_every_command_has_help(ask):
    _, output, _ = ask()
    commands = re.findall(r"^    ([a-z][a-z-]*) ", output, re.MULTILINE)
    assert {"compare", "export", "profile", "adapt"} <= set(commands)
    for command in commands:
        code, output, errors = ask(command, "--help")
        assert (code, errors) == (0, ""), command
        assert output.startswith("usage: "), command


def test_help_imports_nothing_that_takes_time():
    probe = (
        "import sys; from fedloom.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    )
    probe += (
        "print([name for name in ('torch', 'numpy', 'pydantic', 'rich') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_help_of_run_names_every_flag(ask):
    code, output, _ = ask("run", "--help")
    assert code == 0
    for flag in (
        *[flag.name for flag in FLAGS],
        "config",
        "set",
        "out",
        "json",
        "quiet",
        "debug",
        "dry-run",
    ):
        assert f"--{flag} " in output or f"--{flag}\n" in output


def test_help_of_auto_says_what_its_budget_is_and_hides_what_it_refuses(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, output, _ = ask("auto", "--help")
    (line,) = re.findall(r"^ +--budget .*$", output, re.MULTILINE)
    assert "minutes=10" in output.partition(line)[2][:200] or "minutes=10" in line
    assert "--federation" not in output and "--equal" not in output
    _, output, _ = ask("run", "--help")
    assert "--federation" in output and "--equal" in output


def test_common_flags_of_the_design_page():
    named = (
        "data data-dir clients partition rounds participation seed workers device engine "
        "topology equal"
    )
    assert set(named.split()) <= {flag.name for flag in FLAGS}


def test_help_of_a_method_shows_its_own_options_and_defaults(ask, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, output, _ = ask("run", "local-adaptation", "--help")
    assert code == 0
    for name, default in {"--lr": "0.05", "--adapt-share": "0.2", "--epochs": "1"}.items():
        assert re.search(rf"^{name} +{re.escape(default)} ", output, re.MULTILINE), name
    assert "by default cnn, lstm for text" in " ".join(output.split())
    assert "--mu" not in output
    assert "--mu" in ask("run", "fedprox", "--help")[1]
    code, _, errors = ask("run", "fedprxo", "--help")
    assert code == 2
    assert "did you mean fedprox?" in errors


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("methods", "fedavg fedprox fedadam fedyogi fedadagrad local local-adaptation"),
        ("networks", "cnn"),
        ("data", "digits"),
        ("partitions", "iid dirichlet sites"),
        ("augmentations", "crop:4 cutout:16 flip hue:0.1 randaugment:2:9 rotate:15"),
    ],
)
def test_list(ask, what, names):
    code, output, _ = ask("list", what)
    assert code == 0
    listed = {line.split()[0] for line in output.splitlines() if line.strip()}
    assert set(names.split()) <= listed


# Run


KEYS = [
    "run", "method", "seed", "metric", "lower_is_better", "accuracy", "balanced_accuracy", "auc",
    "global", "personal_gain", "shared_balanced_accuracy", "most_common_class", "cautions",
    "clients", "bytes", "seconds",
    "simulated",
]  # fmt: skip
CLIENT_KEYS = [
    "client", "samples", "test_samples", "accuracy", "balanced_accuracy", "auc", "answers",
    "params", "macs",
    "architecture",
]  # fmt: skip


def test_run_prints_exactly_one_json_object(ask, small):
    code, output, errors = ask("run", "fedavg", *small, "--json", "--seed", "3")
    assert (code, errors) == (0, "")
    assert output.count("\n") == 1
    printed = json.loads(output)
    assert list(printed) == KEYS
    assert (printed["run"], printed["method"], printed["seed"], printed["metric"]) == (
        "runs/1-fedavg-images", "fedavg", 3, "accuracy",
    )  # fmt: skip
    assert list(printed["accuracy"]) == ["mean", "std", "worst", "pooled"]
    assert list(printed["bytes"]) == ["down", "up", "lan_down", "lan_up"]
    assert [client["client"] for client in printed["clients"]] == [0, 1, 2]
    for client in printed["clients"]:
        assert list(client) == CLIENT_KEYS
        assert 0 <= client["accuracy"] <= 1
        assert client["samples"] == 24
    mean = sum(client["accuracy"] for client in printed["clients"]) / 3
    assert printed["accuracy"]["mean"] == pytest.approx(mean)
    assert printed["accuracy"]["pooled"] == pytest.approx(mean)  # the test parts are of one size
    assert printed["global"] == printed["accuracy"]["pooled"]  # fedavg has no other model


def test_accuracies_are_fractions_of_test_data(ask, small):
    _, output, _ = ask("run", "fedavg", *small, "--json")
    result = json.loads(Path("runs/1-fedavg-images/result.json").read_text())
    assert [client["test_samples"] for client in result["clients"]] == [5, 5, 5]
    for client in json.loads(output)["clients"]:
        assert client["accuracy"] * 5 == pytest.approx(round(client["accuracy"] * 5))


def test_a_run_is_a_folder(ask, small, tmp_path):
    code, output, errors = ask("run", "local", *small)
    assert code == 0
    assert "run folder: runs/1-local-images" in errors
    assert "round 2" in errors  # plain lines, as this is no terminal
    assert "accuracy on local test data: mean" in " ".join(output.split())
    names = {path.name for path in (tmp_path / "runs" / "1-local-images").iterdir()}
    assert {
        "config.toml",
        "split.json",
        "metrics.jsonl",
        "checkpoints",
        "result.json",
        "run.log",
    } <= names
    assert "exchange" not in names
    log = (tmp_path / "runs" / "1-local-images" / "run.log").read_text()
    assert "the network's last map is smaller than 2×2" in log
    assert "last map" not in errors  # nobody asked for a grid
    ask("run", "local", *small, "--quiet")
    assert (tmp_path / "runs" / "2-local-images" / "result.json").exists()


def test_quiet_says_only_the_result(ask, small):
    code, output, errors = ask("run", "fedavg", *small, "--quiet", "--out", "mine")
    assert (code, errors) == (0, "")
    assert "client" in output
    assert output.splitlines()[-3:] == [
        "report: mine/report.html",
        "next: fedloom export mine --client 0",
        "      fedloom predict mine --client 0 --data NEW",
    ]


def test_how_long_it_takes_is_said_if_that_is_more_than_a_minute(ask, small, monkeypatch):
    monkeypatch.setattr("fedloom.commands.finishing.A_MINUTE", 0.0)
    _, _, errors = ask("run", "fedavg", *small, "--out", "one")
    assert re.search(r"^this takes about \d+\.\d s here; Ctrl-C stops it", errors, re.MULTILINE)
    _, _, errors = ask("compare", "fedavg", "local", *small, "--grid", "lr=.1,.2", "--out", "two")
    assert "this takes about" in errors
    monkeypatch.setattr("fedloom.commands.finishing.A_MINUTE", 60.0)
    _, _, errors = ask("run", "fedavg", *small, "--out", "three")
    assert "this takes" not in errors


def test_small_searches_and_labels(ask, small, tmp_path):
    size = ["--set", "options.batch=8", "--out", "one"]
    data = [word for word in small if "options" not in word and word != "--set"]
    code, _, errors = ask("run", "fednas", *data, "--cells", "1", "--small", "--dry-run", *size)
    assert code == 0 and "--small: fednas searches with channels=8, nodes=2, ops=s2" in errors
    code, output, errors = ask(
        "compare", "fedavg:lr=.1@plain", "local", *small, "--small", "--out", "two"
    )
    assert code == 0 and "--small has no effect on local" in errors
    assert "plain" in output and "fedavg" not in output.split("next:")[0].replace("report:", "")
    assert (tmp_path / "two" / "plain-seed0").is_dir()


def test_method_flags_variants_set_and_config_mean_the_same(ask, small, tmp_path):
    (tmp_path / "given.toml").write_text('method = "fedavg"\n[options]\nlr = 1.0\n')
    ways = {
        "flag": ["fedavg", "--lr", "1.0"],
        "equals": ["fedavg", "--lr=1.0"],
        "variant": ["fedavg:lr=1.0"],
        "set": ["fedavg", "--set", "options.lr=1.0"],
        "config": ["--config", "given.toml"],
        "flag over config": ["fedavg", "--config", "given.toml", "--lr", "1.0"],
    }
    results = {}
    for way, words in ways.items():
        code, output, _ = ask("run", *words, *small, "--json", "--out", way.replace(" ", "-"))
        assert code == 0, way
        results[way] = {**json.loads(output), "run": "", "seconds": 0}
    assert all(result == results["flag"] for result in results.values())
    plain = json.loads(ask("run", "fedavg", *small, "--json")[1])
    assert (
        plain["accuracy"] != results["flag"]["accuracy"]
        or plain["clients"] != results["flag"]["clients"]
    )


def test_flags_win_over_the_file_and_set_over_flags(ask, small, tmp_path):
    (tmp_path / "given.toml").write_text("seed = 5\n[budget]\nrounds = 7\n")
    code, output, _ = ask(
        "run", "fedavg", *small, "--config", "given.toml", "--set", "budget.rounds=1", "--json"
    )
    assert code == 0
    assert json.loads(output)["seed"] == 5
    assert len(tiny.rows(tmp_path / "runs" / "1-fedavg-images")) == 1


@pytest.mark.parametrize("method", ["fedprox", "fedadam", "fedyogi", "fedadagrad"])
def test_every_method_runs(ask, small, method):
    code, output, _ = ask("run", method, *small, "--json")
    assert code == 0
    assert json.loads(output)["method"] == method


def test_partial_participation_and_clusters(ask, small, tmp_path):
    assert (
        ask("run", "fedavg", *small, "--participation", "0.34", "--out", "part", "--quiet")[0] == 0
    )
    assert [row["replies"] for row in tiny.rows(tmp_path / "part")] == [1, 1]
    assert (
        ask("run", "fedavg", *small, "--topology", "clustered:2x3", "--out", "clusters", "--quiet")[
            0
        ]
        == 0
    )
    assert [row["replies"] for row in tiny.rows(tmp_path / "clusters")] == [9, 9]
    result = json.loads((tmp_path / "clusters" / "result.json").read_text())
    assert result["bytes"]["lan_up"] > result["bytes"]["up"] > 0


def test_a_split_file_fixes_who_has_what(ask, small, tmp_path):
    assert ask("run", "fedavg", *small, "--quiet", "--seed", "1", "--out", "one")[0] == 0
    assert (
        ask(
            "run",
            "fedavg",
            *small,
            "--quiet",
            "--seed",
            "2",
            "--out",
            "two",
            "--split",
            "one/split.json",
        )[0]
        == 0
    )
    assert (tmp_path / "one" / "split.json").read_text() == (
        tmp_path / "two" / "split.json"
    ).read_text()


# Dry run


def test_dry_run_trains_nothing_and_leaves_nothing(ask, small, tmp_path):
    before = set(tmp_path.iterdir())
    code, output, errors = ask("run", "local-adaptation", *small, "--dry-run")
    assert (code, errors) == (0, "")
    assert re.search(
        r"about .* s of training for 2 rounds of 3 clients, .*MACs, .*B down, .*B up, .*B of "
        r"memory",
        output,
    )
    assert re.search(
        r"\n  adapt: 1 round of 3 clients, about .*\nevaluation comes on top, 3 times: about ",
        output,
    )
    code, output, _ = ask("run", "fedavg", *small, "--dry-run", "--json")
    printed = json.loads(output)
    assert printed["dry_run"] is True
    assert printed["rounds"] == 2
    assert min(printed["seconds"], printed["down"], printed["up"], printed["memory"]) > 0
    assert set(tmp_path.iterdir()) == before


def test_dry_run_foretells_the_bytes(ask, small):
    estimate = json.loads(ask("run", "fedavg", *small, "--dry-run", "--json")[1])
    spent = json.loads(ask("run", "fedavg", *small, "--json")[1])["bytes"]
    for way in ("down", "up"):
        assert estimate[way] == pytest.approx(spent[way], rel=0.02)


def test_dry_run_refuses_what_a_run_would_refuse(ask, small):
    code, _, errors = ask("run", "local", *small, "--dry-run", "--topology", "clustered:2")
    assert code == 2
    assert "must allow averaging inside a cluster" in errors


# The demo


def demo_flags(small):
    """The demo's methods have options of their own, and its search has three stages."""
    at = small.index("--set") if "--set" in small else len(small)
    return [*small[:at], *small[at + 2 :], "--rounds", "12"]


@pytest.mark.whole
def test_the_demo_is_auto_beside_fine_tuning_and_a_search(ask, small, tmp_path):
    code, output, errors = ask("run", *demo_flags(small), "--quiet")
    assert code == 0, errors
    for words in (
        "Use ",
        "(use this)",
        "what was decided",
        "normal cell",
        "runs/1-auto-images/report.html",
    ):
        assert words in output
    assert len(list(tmp_path.glob("runs/1-auto-images/fednas-seed0/architectures/*.svg"))) == 3
    assert (tmp_path / "runs/1-auto-images/report.html").exists()
    code, output, _ = ask("resume", "runs/1-auto-images", "--json")
    printed = json.loads(output)
    assert {row["name"] for row in printed["leaderboard"]} == {"auto", "fednas", "local-adaptation"}
    assert printed["verdict"].startswith("Use ")


# Resume, runs


def test_resume_of_a_finished_run_prints_its_result_again(ask, small):
    first = json.loads(ask("run", "fedavg", *small, "--json")[1])
    before = Path("runs/1-fedavg-images/metrics.jsonl").read_text()
    code, output, _ = ask("resume", "runs/1-fedavg-images", "--json")
    assert (code, json.loads(output)) == (0, first)
    assert Path("runs/1-fedavg-images/metrics.jsonl").read_text() == before
    code, output, _ = ask("resume", "runs/1-fedavg-images", "--quiet")
    assert code == 0
    assert "fedavg on images, iid, seed 0" in output


def test_resume_from_another_folder(ask, images, tmp_path, monkeypatch):
    """Paths in the configuration are absolute, whatever was typed."""
    (tmp_path / "mine.py").write_text(PLUS)
    words = [
        "--data",
        "images.npz",
        "--clients",
        "3",
        "--partition",
        "iid",
        "--rounds",
        "2",
        "--workers",
        "0",
    ]
    assert ask("run", "mine.py:plus", *words, "--width", "0.125", "--quiet", "--out", "run")[0] == 0
    before = tiny.left_behind(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ask("resume", "../run", "--quiet")[0] == 0
    assert tiny.unlike(before, tiny.left_behind(tmp_path / "run")) == []


def test_resume_while_another_process_works_there(ask, small, tmp_path):
    ask("run", "fedavg", *small, "--quiet")
    folder = tmp_path / "runs" / "1-fedavg-images"
    (folder / "result.json").unlink()
    with open(folder / "run.lock", "wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        code, _, errors = ask("resume", folder, "--quiet")
        assert code == 2
        assert_one_sentence(errors, "must not be in use, but another process works in it")
        code, _, errors = ask("runs", "remove", folder)
        assert code == 2
    assert folder.exists()
    assert ask("resume", folder, "--quiet")[0] == 0


def test_a_comparison_is_locked_as_a_whole(ask, small, tmp_path):
    assert ask("compare", "fedavg", "local", *small, "--quiet")[0] == 0
    with open(tmp_path / "runs" / "1-compare-images" / "run.lock", "wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        code, _, errors = ask("resume", "runs/1-compare-images")
    assert code == 2
    assert "must not be in use" in errors


def test_runs_list_and_remove(ask, small, tmp_path):
    assert "none yet" in ask("runs")[1]
    ask("run", "fedavg", *small, "--quiet")
    ask("run", "local", *small, "--quiet")
    (tmp_path / "runs" / "2-local-images" / "result.json").unlink()
    code, output, _ = ask("runs", "list")
    assert code == 0
    assert re.search(r"runs/1-fedavg-images +finished +2 ", output)
    assert re.search(r"runs/2-local-images +unfinished +2 ", output)
    code, output, _ = ask("runs", "remove", "runs/1-fedavg-images", "runs/2-local-images")
    assert (code, list((tmp_path / "runs").iterdir())) == (0, [])
    assert output.splitlines() == ["removed runs/1-fedavg-images", "removed runs/2-local-images"]


def test_runs_remove_removes_nothing_that_is_no_run(ask, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    code, _, errors = ask("runs", "remove", "precious")
    assert code == 2
    assert_one_sentence(errors, "must be the folder of a run")
    assert (tmp_path / "precious" / "thesis.txt").exists()


def test_doctor(ask):
    code, output, _ = ask("doctor")
    names = [line.split(":")[0].split(maxsplit=1)[1] for line in output.splitlines()]
    assert {"versions", "cores", "memory", "disk", "durable writes", "data", "workers"} <= set(
        names
    )
    assert code == (1 if "BAD" in output else 0)
    assert "ok   workers: up after" in output


# Compare


def test_compare_pairs_by_seed(ask, small, tmp_path):
    code, output, errors = ask("compare", "fedavg", "local", *small, "--seeds", "0,1,2", "--json")
    assert (code, errors) == (0, "")
    printed = json.loads(output)
    assert list(printed) == ["runs", "methods"]
    assert [(run["method"], run["seed"]) for run in printed["runs"]] == [
        ("fedavg", 0), ("fedavg", 1), ("fedavg", 2), ("local", 0), ("local", 1), ("local", 2),
    ]  # fmt: skip
    means = [run["accuracy"]["mean"] for run in printed["runs"]]
    gaps = [after - before for before, after in zip(means[:3], means[3:], strict=True)]
    first, second = printed["methods"]
    assert first["difference"] is None
    assert first["accuracy"]["mean"] == pytest.approx(np.mean(means[:3]))
    assert first["accuracy"]["std"] == pytest.approx(np.std(means[:3], ddof=1))
    half = 4.302652729911275 * np.std(gaps, ddof=1) / np.sqrt(3)  # t(0.975; 2)
    assert second["difference"]["mean"] == pytest.approx(np.mean(gaps))
    assert second["difference"]["low"] == pytest.approx(np.mean(gaps) - half)
    assert second["difference"]["high"] == pytest.approx(np.mean(gaps) + half)
    folder = tmp_path / "runs" / "1-compare-images"
    for seed in (0, 1, 2):  # every method was given exactly the same split
        assert (
            len(
                {
                    (folder / f"{name}-seed{seed}" / "split.json").read_text()
                    for name in ("fedavg", "local")
                }
            )
            == 1
        )
    code, output, _ = ask("resume", folder, "--json")
    assert (code, json.loads(output)) == (
        0,
        {**printed, "runs": [{**r, "run": str(tmp_path / r["run"])} for r in printed["runs"]]},
    )


@pytest.mark.parametrize("unit", ["macs", "bytes"])
def test_compare_at_equal_budgets(ask, small, unit, tmp_path):
    """Variants whose rounds differ in cost get different numbers of rounds.

    All spend the same, within one round.
    """
    words = ["--equal", unit, "--rounds", "6", "--out", "compared", "--quiet"]
    methods = ["fedavg", "fedavg:width=0.25", "fedavg:epochs=2"]
    assert (
        ask(
            "compare",
            *methods,
            *small[:6],
            "--workers",
            "0",
            "--set",
            "options.width=0.125",
            *words,
        )[0]
        == 0
    )
    spent = []
    per_round = []
    for name in ("fedavg", "fedavg_width=0.25", "fedavg_epochs=2"):
        totals = tiny.rows(tmp_path / "compared" / f"{name}-seed0")[-1]["totals"]
        spent.append(totals["macs"] if unit == "macs" else totals["down"] + totals["up"])
        per_round.append(spent[-1] / totals["rounds"])
    for cost, each in zip(spent, per_round, strict=True):
        assert abs(cost - spent[0]) <= each
    assert per_round[1] > 1.5 * per_round[0]  # or the test says nothing


def test_a_grid_is_tuned_on_validation_alone(ask, images, tmp_path, monkeypatch):
    """All test labels of the second data set are wrong, and yet the same option is chosen."""
    from fedloom.data import mapped_clients
    from fedloom.data.samples import ClientData

    words = ["--clients", "3", "--partition", "iid", "--rounds", "3", "--workers", "0", "--quiet"]
    words += ["--data", str(images), "--set", "options.batch=8", "--set", "options.width=0.25"]
    grid = ["--grid", "lr=0.00001,0.1"]
    assert ask("compare", "fedavg", *words, *grid, "--out", "honest")[0] == 0
    real = mapped_clients.MappedClients.client

    def poisoned(self, k, hold=0.0):
        data = real(self, k, hold)
        from dataclasses import replace

        return ClientData(data.train, data.validation, replace(data.test, y=(data.test.y + 1) % 3))

    monkeypatch.setattr(mapped_clients.MappedClients, "client", poisoned)
    assert ask("compare", "fedavg", *words, *grid, "--out", "poisoned")[0] == 0
    honest, poisoned = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("honest", "poisoned")
    )
    assert honest["methods"][0]["tuned"] == {"lr": "0.1"}
    assert poisoned["methods"][0]["tuned"] == {"lr": "0.1"}
    assert poisoned["methods"][0]["accuracy"]["mean"] < honest["methods"][0]["accuracy"]["mean"]
    for number in (0, 1):
        tuned, twin = (json.loads((tmp_path / n / f"grid-fedavg-{number}/result.json").read_text())
                       for n in ("honest", "poisoned"))  # fmt: skip
        assert tuned["validation"] == twin["validation"]
    config = (tmp_path / "honest" / "fedavg-seed0" / "config.toml").read_text()
    assert 'select = "last"' in config  # trained again on the whole


def test_compare_shows_a_table(ask, small):
    code, output, _ = ask("compare", "fedavg", "local", *small, "--quiet", "--seeds", "0,1")
    assert code == 0
    assert "±" in output
    assert "paired by seed" in " ".join(output.split())
    # The interval is in two lines; other columns' second lines may stand between its ends.
    assert re.search(r"\[[+-]\d+\.\d, [^\[\]]* [+-]\d+\.\d\]", output.replace("\n", " "))
    assert "bal." in output and "(most common" in output
    assert max(map(len, output.splitlines())) <= 80


def test_variants_of_an_outside_method_are_not_mixed_up(ask, small, tmp_path):
    (tmp_path / "mine.py").write_text(PLUS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.py").write_text(PLUS)
    methods = [
        "mine.py:plus:lr=0.1",
        "mine.py:plus:lr=0.2",
        "more/mine.py:plus:lr=0.2",
        "mine.py:plus",
    ]
    code, output, _ = ask("compare", *methods, *small, "--json")
    assert code == 0
    printed = json.loads(output)
    assert len({run["run"] for run in printed["runs"]}) == 4
    options = [
        json.loads((tmp_path / run["run"] / "result.json").read_text())["options"]
        for run in printed["runs"]
    ]
    assert [option["lr"] for option in options] == [0.1, 0.2, 0.2, 0.05]


# From outside the repository


PLUS = """
from dataclasses import dataclass

import numpy as np
from pydantic import Field
from torch import nn

from fedloom.data.source import Source
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions


class PlusOptions(FedAvgOptions):
    zeal: float = Field(0.5, gt=0, description="how much it wants to")


class Flat(nn.Module):
    def __init__(self, shape, classes, width=1.0):
        super().__init__()
        self.linear = nn.Linear(shape[0] * shape[1] * shape[2], classes)
        self.architecture = "flat"

    def forward(self, x):
        return self.linear(x.flatten(1))


def squares(directory=None):
    y = np.arange(60) % 2
    pixels = y[:, None, None, None] * 200 + np.arange(25).reshape(1, 1, 5, 5)
    return Source("squares", pixels.astype(np.uint8), y)


plus = Recipe(
    "Plus", PlusOptions, lambda task: (Stage("train", FedAvg(PlusOptions(**task.options))),)
)
"""


def test_method_network_and_data_from_a_file(ask, tmp_path):
    (tmp_path / "mine.py").write_text(PLUS)
    words = [
        "--data",
        "mine.py:squares",
        "--network",
        "mine.py:Flat",
        "--zeal",
        "2",
        "--workers",
        "0",
    ]
    words += ["--clients", "2", "--partition", "iid", "--rounds", "2", "--json"]
    code, output, errors = ask("run", "mine.py:plus", *words)
    assert (code, errors) == (0, "")
    printed = json.loads(output)
    assert printed["run"] == "runs/1-plus-squares"
    assert printed["method"] == f"{tmp_path}/mine.py:plus"
    assert [(row["architecture"], row["params"], row["macs"]) for row in printed["clients"]] == [
        ("flat", 52, 50)
    ] * 2
    assert printed["accuracy"]["mean"] == 1.0
    assert "--zeal" in ask("run", "mine.py:plus", "--help")[1]
    code, _, errors = ask("run", "mine.py:plsu", "--data", "mine.py:squares")
    assert code == 2
    assert_one_sentence(errors, "did you mean plus?")


def test_from_a_file_in_real_workers(ask, tmp_path):
    (tmp_path / "mine.py").write_text(PLUS)
    words = [
        "--data",
        "mine.py:squares",
        "--network",
        "mine.py:Flat",
        "--clients",
        "2",
        "--partition",
        "iid",
    ]
    code, output, _ = ask(
        "run", "mine.py:plus", *words, "--rounds", "1", "--workers", "1", "--json"
    )
    assert (code, json.loads(output)["accuracy"]["mean"]) == (0, 1.0)


def test_entry_points(ask, tmp_path, monkeypatch):
    """What an installed package registers runs by its name."""
    (tmp_path / "guest.py").write_text(PLUS)
    info = tmp_path / "guest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    groups = {
        "methods": "plus = guest:plus",
        "networks": "flat = guest:Flat",
        "data": "squares = guest:squares",
    }
    (info / "entry_points.txt").write_text(
        "".join(f"[fedloom.{kind}]\n{line}\n" for kind, line in groups.items())
    )
    monkeypatch.syspath_prepend(tmp_path)
    from fedloom import registry

    registry.entry_points.cache_clear()
    try:
        assert importlib.util.find_spec("guest") is not None
        words = ["--data", "squares", "--network", "flat", "--clients", "2", "--partition", "iid"]
        code, output, errors = ask(
            "run", "plus", *words, "--rounds", "1", "--workers", "0", "--json"
        )
        assert (code, errors) == (0, "")
        assert json.loads(output)["method"] == "plus"
        assert "plus" in ask("list", "methods")[1]
    finally:
        registry.entry_points.cache_clear()


# Bad input: exit code 2, one sentence, no traceback, nothing left behind


def assert_one_sentence(errors, *parts):
    assert re.fullmatch(r"fedloom: .* must .*, but .*; .*\.\n", errors), errors
    for part in parts:
        assert part in errors


@pytest.fixture
def refused(ask, tmp_path):
    def run(*words):
        before = sorted(tmp_path.rglob("*"))
        code, output, errors = ask(*words)
        assert (code, output) == (2, "")
        assert_one_sentence(errors)
        assert sorted(tmp_path.rglob("*")) == before, "something was left behind"
        return errors

    return run


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["run", "fedavgg"], "did you mean fedavg?"),
        (["run", "fedavg:lrr=1"], "did you mean lr?"),
        (["run", "fedavg", "--lrr", "0.1"], "did you mean lr?"),
        (["run", "fedavg", "--set", "options.lrr=0.1"], "did you mean lr?"),
        (["run", "fedavg", "--set", "budget.round=3"], "did you mean rounds?"),
        (["run", "fedavg", "--set", "budgets.rounds=3"], "did you mean budget?"),
        (["run", "fedavg", "--roundz", "3"], "did you mean rounds?"),
        (["run", "fedavg", "--network", "cn"], "did you mean cnn?"),
        (["run", "fedavg", "--data", "digit"], "did you mean digits?"),
        (["run", "fedavg", "--partition", "dirichlt:0.2"], "did you mean dirichlet?"),
        (["run", "fedavg", "--topology", "clusterd:2"], "did you mean clustered?"),
        (["compare", "fedavg", "locla"], "did you mean local?"),
        (["compare", "fedavg", "--grid", "lrr=1,2"], "did you mean lr?"),
        (["compare", "fedavg", "--seedz", "1"], "did you mean seed?"),
        (["run", "--roundz", "3"], "did you mean rounds?"),
        (["run", "fedavg", "--learning-rate", "0.1"], "did you mean lr?"),
        (["run", "fedavg", "--set", "options.learning_rate=0.1"], "did you mean lr?"),
        (["run", "--learning-rate", "0.1"], "fedloom run METHOD --lr"),
        (["compare", "fedavg", "local", "--learning-rate", "0.1"], "options.lr"),
        (["compare", "fedavg", "local", "--weight-decay", "0"], "--set options.weight_decay=VALUE"),
        (["run", "fedavg", "--set", "width=0.5"], "try --set options.width=0.5"),
        (["run", "fedavg", "--partition", "noniid"], "did you mean dirichlet?"),
    ],
)
def test_unknown_names_come_with_the_nearest(refused, words, near):
    assert near in refused(*words)


NUMERIC = {
    "--clients": ("0", "-1", "x", "1.5"), "--rounds": ("0", "-3", "x", "2.5"),
    "--seed": ("-1", "x", "0.5"),
    "--participation": ("0", "-0.1", "1.5", "x", "nan"), "--workers": ("-1", "x", "1000"),
    "--deadline": ("0", "-1", "x", "inf", "nan"), "--min-replies": ("0", "-1", "x"),
    "--evaluate-every": ("0", "-1", "x"), "--evaluate-clients": ("0", "-1", "x"),
    "--lr": ("0", "-1", "x", "nan", "inf"), "--epochs": ("0", "-1", "x"),
    "--batch": ("0", "-1", "x"),
    "--width": ("0", "-1", "x"), "--momentum": ("-0.1", "1", "x"), "--clip": ("0", "-1", "x"),
    "--partition": ("dirichlet:0", "dirichlet:-1", "dirichlet:x", "dirichlet", "iid:3"),
    "--min-samples": ("3", "-1", "x", "9.5"), "--parts": ("some", ""),
    "--topology": ("clustered:0", "clustered:x", "clustered:2x0"),
    "--clusters": ("nobody", "no.json"), "--relay": ("nobody",),
    "--availability": ("sometimes", "duty:0,1", "no.csv"),
    "--dropout": ("-0.1", "1.5", "x", "nan"), "--faults": ("no.csv",),
    "--overselect": ("0.5", "x", "inf"),
    "--round-deadline": ("0", "-1", "x"), "--budget": ("seconds", "seconds=0", "hours=1", "wan=x"),
    "--equal": ("nothing", "macs"), "--select": ("worst",), "--lost-state": ("cry",),
    "--engine": ("diesel",),
    "--device": ("nonsense", "cuda:99", "meta"), "--split": ("nowhere.json",),
    "--profile": ("nowhere", "a b"),
    "--sink": ("drain",), "--init": ("nowhere", "."),
    "--max-weight-share": ("0", "-0.1", "1.5", "x", "nan"),
    "--norm-bound": ("0", "1", "-5", "x", "inf", "nan"),
    "--cost": ["much"], "--shares": ["x,y"], "--resize": ("0", "3", "x", "9999"),
    "--fit": ("squeeze", "pad"), "--devices": ("abaci", "no.csv"),
    "--label": ("outcome",), "--task": ("guessing", "regression"), "--ignore": ("id",),
    "--categorical": ("zip,ward",),
}  # fmt: skip


def flags_and_values():
    for flag, values in NUMERIC.items():
        for value in values:
            yield flag, value


@pytest.mark.parametrize(("flag", "value"), list(flags_and_values()))
def test_values_that_cannot_be(refused, flag, value):
    errors = refused("run", "fedavg", flag, value)
    names = {"--equal": "equal", "--split": "nowhere.json", "--init": "folder of a run"}
    assert names.get(flag, flag.removeprefix("--")) in errors


def test_every_numeric_flag_is_tested():
    words = {"data", "data-dir", "federation", "skip-bad", "sink-paths"}
    words |= {
        "tiers",
        "tier-file",
        "unsupported",
    }  # read by methods that know tiers: tests/unit/test_asked_tiers.py
    assert {flag.name for flag in FLAGS} - words <= {flag.removeprefix("--") for flag in NUMERIC}


@pytest.mark.parametrize(
    "words",
    [
        ["run", "fedavg", "--clients", "100000"],
        ["run", "fedavg", "--min-replies", "9"],
        ["compare", "fedavg", "local", "--min-replies", "9"],
        ["run", "local", "--topology", "clustered:2"],
        ["compare", "fedavg", "local", "--topology", "clustered:2"],
        ["run", "local-adaptation", "--rounds", "1"],
        ["run", "fedavg", "--rounds"],
        ["run", "fedavg", "--lr"],
        ["run", "fedavg", "stray"],
        ["run", ":"],
        ["run", "fedavg:lr"],
        ["run", "nowhere.py:mine"],
        ["run", "fedavg", "--set", "lr"],
        ["run", "fedavg", "--set", "=3"],
        ["run", "fedavg", "--set", "options=3"],
        ["run", "fedavg", "--set", "data=3"],
        ["run", "fedavg", "--set", "data.mean=[1"],
        ["run", "fedavg", "--set", "data.mean=[1,2,3]"],
        ["run", "fedavg", "--set", "data.std=[0]"],
        ["run", "--set", "data=3"],
        ["run", "--seed", "x"],
        ["compare", "fedavg", "fedavg"],
        ["compare"],
        ["compare", "fedavg", "--seeds", "1,x"],
        ["compare", "fedavg", "--seeds", "-1"],
        ["compare", "fedavg", "--seeds", "1,1"],
        ["compare", "fedavg", "--grid", "lr"],
        ["compare", "fedavg", "--grid", "lr="],
        ["compare", "fedavg", "--grid", "lr=0,x"],
        ["compare", "fedavg", "--lr", "0.1"],
        ["resume"],
        ["resume", "nowhere"],
        ["resume", "nowhere", "--rounds", "3"],
        ["list", "everything"],
        ["list"],
        ["runs", "destroy"],
        ["runs", "remove"],
        ["runs", "remove", "nowhere"],
        ["frobnicate"],
        ["--frobnicate"],
    ],
    ids=" ".join,
)
def test_other_nonsense(refused, words):
    refused(*words)


def test_debug_shows_where_an_error_came_from():
    with pytest.raises(fedloom.FedloomError):
        cli.main(["run", "fedavgg", "--debug"])


# Data


def test_missing_data(refused):
    assert "there is none" in refused("run", "fedavg", "--data", "missing.npz")
    assert "there is none" in refused("run", "fedavg", "--data", "no/where")


def torn(path):
    path.write_bytes(path.read_bytes()[:-200])


def noise(path):
    path.write_bytes(b"\x93NUMPY, but not really" * 50)


def empty(path):
    path.write_bytes(b"")


def flipped(path):
    """One byte of the compressed data."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 0xFF
    path.write_bytes(raw)


def no_array(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", "this is text")
        file.writestr("y.npy", "and so is this")


def other_keys(path):
    np.savez(path, pictures=np.zeros((4, 2, 2)), labels=np.zeros(4))


def out_of_range(path):
    np.savez(path, x=np.zeros((40, 6, 6), np.uint8), y=np.array([0, 1, 2, -1] * 10))


def too_few(path):
    np.savez(path, x=np.zeros((12, 6, 6), np.uint8), y=np.arange(12) % 2)


def pickled(path):
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=np.zeros(1, np.int64))


def not_finite(path):
    np.savez(path, x=np.full((40, 6, 6), np.nan, np.float32), y=np.arange(40) % 2)


@pytest.mark.parametrize(
    "spoil",
    [torn, noise, empty, flipped, no_array, other_keys, out_of_range, too_few, pickled, not_finite],
)
def test_bad_npz(refused, images, spoil):
    spoil(images)
    assert "images" in refused("run", "fedavg", "--data", images) or spoil is too_few


def test_labels_beyond_the_number_of_classes(refused, images):
    errors = refused("run", "fedavg", "--data", images, "--set", "data.classes=2")
    assert "must be class numbers from 0 to 1" in errors


def test_more_clients_than_samples(refused, images):
    assert "there are 72 samples" in refused("run", "fedavg", "--data", images, "--clients", "73")


# Configuration files


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("rounds = = 3", "it does not parse"),
        ("[budget\n", "it does not parse"),
        ("[budget]\nround = 3", "did you mean rounds?"),
        ("[buget]\nrounds = 3", "did you mean budget?"),
        ("[budget]\nrounds = 'x'", "--rounds"),
        ("options = 3", "options"),
        ("data = 3", "data"),
        ("method = 3", "method"),
        ("[options]\nlrr = 1", "did you mean lr?"),
    ],
)
@pytest.mark.parametrize(
    "command", [["run", "fedavg"], ["compare", "fedavg"]], ids=["run", "compare"]
)
def test_bad_configuration_files(refused, tmp_path, text, part, command):
    (tmp_path / "given.toml").write_text(text)
    if text == "method = 3":
        command = ["run"]
    assert part in refused(*command, "--config", "given.toml")


def test_a_configuration_file_that_is_no_text(refused, tmp_path):
    (tmp_path / "given.toml").write_bytes(b"\xff\xfe\x00")
    refused("run", "fedavg", "--config", "given.toml")
    refused("run", "fedavg", "--config", "nowhere.toml")
    refused("run", "fedavg", "--config", tmp_path)


# Folders


def test_out_must_be_new_or_empty(refused, ask, small, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    assert "has content" in refused("run", "fedavg", *small, "--out", "full")
    assert "has content" in refused("compare", "fedavg", *small, "--out", "full")
    (tmp_path / "file").touch()
    refused("run", "fedavg", *small, "--out", "file")
    refused("run", "fedavg", *small, "--out", "file/below")
    (tmp_path / "empty").mkdir()
    assert ask("run", "fedavg", *small, "--out", "empty", "--quiet")[0] == 0


def test_a_place_where_nothing_can_be_written(refused, small):
    refused("run", "fedavg", *small, "--out", "/proc/run")
    refused("compare", "fedavg", *small, "--out", "/proc/run")


@pytest.mark.parametrize("head", ["", "{}", "[]", "not json", '{"format": "x"}', '{"format": 1}'])
def test_a_folder_that_is_no_run(refused, tmp_path, head):
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "run.json").write_text(head)
    refused("resume", "strange")


def test_a_run_of_a_newer_version(refused, ask, small, tmp_path):
    ask("run", "fedavg", *small, "--quiet", "--out", "run")
    (tmp_path / "run" / "run.json").write_text('{"format": 2, "kind": "run", "fedloom": "9.0"}')
    errors = refused("resume", "run")
    assert "written by fedloom 9.0 in format 2, this one reads 1; upgrade fedloom" in errors


@pytest.mark.parametrize("kind", ["run", "compare"])
def test_a_folder_that_a_kill_left_unfinished(refused, tmp_path, kind):
    """A process that is killed after the folder's first file leaves nothing to resume.

    There must be no traceback.
    """
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text(
        json.dumps({"format": 1, "kind": kind, "fedloom": "0"})
    )
    (tmp_path / "half" / "run.lock").touch()
    refused("resume", "half")


def test_data_that_changed_since_the_run_began(ask, small, images, tmp_path):
    ask("run", "fedavg", *small, "--quiet", "--out", "run")
    (tmp_path / "run" / "result.json").unlink()
    tiny.write_images(images, samples=80)
    code, _, errors = ask("resume", "run", "--quiet")
    assert code == 2
    assert_one_sentence(errors, "the split must be of the data images as it is now")


# Signals


@pytest.mark.whole
@pytest.mark.parametrize(
    ("number", "workers"),
    [pytest.param(2, 0, id="Ctrl-C"), pytest.param(15, 2, id="SIGTERM", marks=pytest.mark.slow)],
)
def test_interrupted_runs_can_be_resumed(tmp_path, number, workers, pool_of):
    data = tiny.write_images(tmp_path / "more.npz", samples=200)
    out = tmp_path / "run"
    tiny.start(
        tmp_path / "undisturbed", "local", tiny.tree(data, rounds=20, options={"epochs": "2"})
    )
    words = [
        "--data",
        str(data),
        "--clients",
        "3",
        "--partition",
        "iid",
        "--rounds",
        "20",
        "--evaluate-every",
        "1",
    ]
    words += ["--width", "0.125", "--batch", "8", "--epochs", "2", "--workers", str(workers)]
    process = processes.launch("run", "local", *words, "--out", str(out), "--json")
    assert processes.wait_for(
        lambda: processes.lines(out / "metrics.jsonl") >= 1 or process.poll() is not None
    )
    its_workers = processes.workers_of(process)
    assert len(its_workers) == workers
    process.send_signal(number)
    code, output, errors = processes.end(process)
    assert (code, output) == (130, "")
    assert f"fedloom: continue with `fedloom resume {out}`" in errors
    assert "Traceback" not in errors
    assert processes.wait_for(lambda: not any(map(processes.alive, its_workers)), 20)
    assert not (out / "result.json").exists()
    tiny.go_on(out, pool=pool_of(2) if workers else None)
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []


def test_an_interrupted_demo_says_how_to_go_on(ask, small, monkeypatch):
    from fedloom.runs import auto

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(auto, "continue_auto", interrupted)
    code, output, errors = ask("run", *demo_flags(small), "--json")
    assert (code, output) == (130, "")
    assert "fedloom: continue with `fedloom resume runs/1-auto-images`" in errors


def test_a_methods_own_flag_before_its_name(ask):
    code, output, errors = ask("run", "--lr", "0.1", "fedavg")
    assert (code, output) == (2, "")
    assert (
        "a method must be named before its own flags, but got --lr first; try `fedloom run METHOD "
        "--lr …`" in errors
    )
