"""Run folders that an earlier version made: they open, resume, report, export and predict.

See tests/fixtures.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from fedloom import api, cli
from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.sources import open_source
from fedloom.deploy.settled import note_identity, open_at_site, prepared_from
from fedloom.errors import FedloomError
from fedloom.options import spelled_out
from fedloom.reading import read_json
from fedloom.records import folder
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan, read_plan
from fedloom.runs.comparison import Comparison, create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.loop_settings import experiment_id
from fedloom.runs.preparing import prepare, reopen
from fedloom.runs.results import Run
from fedloom.runs.running import carry_out
from fedloom.version import __version__

OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0"
FINISHED = sorted(
    path.parent.name for path in OLD.glob("*/result.json") if path.parent.name != "compare"
)
STOPPED = ["stopped-fedavg", "stopped-spider", "stopped-first-round"]


def copied(name, tmp_path):
    return Path(shutil.copytree(OLD / name, tmp_path / name))


def old_result(name):
    return json.loads((OLD / name / "result.json").read_text())


@pytest.fixture(scope="module")
def new_samples(tmp_path_factory):
    path = tmp_path_factory.mktemp("new") / "new.npz"
    digits = open_source("digits")
    np.savez(path, x=digits.x[:20, 0], y=digits.y[:20])
    return path


def test_there_is_a_folder_for_every_method_of_that_version():
    methods = json.loads((OLD / "options.json").read_text())["methods"]
    assert {old_result(name)["method"] for name in FINISHED} == set(methods)


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_keeps_its_figures_and_gives_its_models(name, tmp_path, new_samples):
    path = copied(name, tmp_path)
    run = api.resume(path)
    assert isinstance(run, Run) and run.result == old_result(name)  # it was only opened
    assert (path / "report.html").exists()  # and made anew, which nobody had
    assert cli.main(["report", str(path)]) == 0
    predicted = run.predict(new_samples, client=0)
    assert len(predicted.to_json()["predictions"]) == 20
    assert (run.export(client=0, out=tmp_path / "model").path / "model.py").exists()
    assert json.loads((path / "result.json").read_text()) == old_result(name)
    assert experiment_id(reopen(RunFolder.open(path))) == experiment_id(
        reopen(RunFolder.open(OLD / name))
    )


def test_a_finished_comparison(tmp_path):
    path = copied("compare", tmp_path)
    compared = api.resume(path)
    assert isinstance(compared, Comparison) and len(compared.runs) == 4
    before = json.loads((OLD / "compare" / "result.json").read_text())
    first, second = tiny.timeless(compared.methods)
    first_before, second_before = tiny.timeless(before["methods"])
    # 0.1.0 took the same difference with every seed for certain
    assert second_before.pop("difference")["better"] is False
    mean = pytest.approx(-1 / 60)
    untold = {"low": None, "high": None, "better": None, "p": None, "holm": None}
    assert second.pop("difference") == {"mean": mean, **untold}
    for row, old_row in ((first, first_before), (second, second_before)):
        assert {name: row[name] for name in old_row} == old_row
        told_by_its_runs = {
            "balanced_accuracy",
            "pooled_balanced_accuracy",
            "shared_balanced_accuracy",
            "cautions",
        }
        assert set(row) - set(old_row) == told_by_its_runs
        assert row["shared_balanced_accuracy"] is None  # 0.1.0 did not keep it


def test_the_page_of_a_comparison_tells_what_its_runs_have(tmp_path):
    """Its own result says nothing of balanced accuracy, nor of clients with few samples."""
    path = copied("compare", tmp_path)
    assert cli.main(["report", str(path)]) == 0
    page = (path / "report.html").read_text()
    assert "Balanced accuracy of each client under each method" in page
    assert '<th scope="col" class="number">bal.</th>' in page


def test_a_comparison_goes_on_with_a_run_that_was_not_begun(tmp_path):
    path = copied("compare", tmp_path)
    shutil.rmtree(path / "local-seed1")
    (path / "result.json").unlink()
    compared = api.resume(path)
    before = json.loads((OLD / "compare" / "result.json").read_text())
    assert [row["method"] for row in compared.methods] == [
        row["method"] for row in before["methods"]
    ]
    assert (path / "local-seed1" / "result.json").exists()


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_killed_in_mid_round_is_finished(name, tmp_path, pool_of):
    path = copied(name, tmp_path)
    journal = [
        json.loads(line) for line in (path / "spool" / "journal.jsonl").read_text().splitlines()
    ]
    accepted = [receipt for receipt in journal if receipt["hop"] == 0 and receipt["reason"] is None]
    run = carry_out(
        RunFolder.open(path), reopen(RunFolder.open(path)), lambda event: None, pool_of(1)
    )
    rows = tiny.rows(path)
    assert [row["round"] for row in rows] == list(range(1, run.result["rounds"] + 1)) and accepted
    for receipt in accepted:  # the client was not asked again: its seconds are those of that time
        line = next(
            line
            for line in rows[receipt["round"] - 1]["ledger"]
            if line[:2] == [receipt["client"], 0]
        )
        assert line[5] == receipt["seconds"]
    assert all(client.accuracy is not None for client in run.clients)
    assert run.result["versions"]["took_part"] == ["0.1.0", __version__]
    assert run.export(client=0, out=tmp_path / "model").path.exists()


# Which versions took part


def test_a_resume_by_another_version_is_told(tmp_path, monkeypatch, capsys):
    tiny.stopped_after(
        1, tmp_path / "run", "fedavg", tiny.tree(tiny.write_images(tmp_path / "i.npz"), rounds=3)
    )
    tiny_folder = RunFolder.open(tmp_path / "run")
    made_by = tiny_folder.head().fedloom
    monkeypatch.setattr(folder, "__version__", "9.9.9")
    run = api.resume(tmp_path / "run", quiet=False)
    sentence = f"several versions of fedloom took part in this run ({made_by}, 9.9.9)"
    assert capsys.readouterr().err.count(sentence) == 1
    assert sentence in (tmp_path / "run" / "run.log").read_text()
    assert run.result["versions"]["took_part"] == [made_by, "9.9.9"]
    head = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (head["fedloom"], head["resumed_by"]) == (made_by, ["9.9.9"])
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"Several versions of fedloom took part ({made_by}, 9.9.9)" in page
    assert "versions of fedloom that took part" in page


def test_every_version_is_told_once(tmp_path, monkeypatch):
    run_folder = RunFolder.create("run", "x", tmp_path / "run")
    versions = []
    for version in ("2.0", "2.0", "3.0", "2.0", run_folder.head().fedloom):
        monkeypatch.setattr(folder, "__version__", version)
        versions = run_folder.note_version()
    assert versions == [run_folder.head().fedloom, "2.0", "3.0"]


def test_one_version_is_not_worth_a_word(tmp_path):
    run = tiny.start(
        tmp_path / "run", "fedavg", tiny.tree(tiny.write_images(tmp_path / "i.npz"), rounds=1)
    )
    assert set(run.result["versions"]) == {"fedloom", "torch", "python"}
    assert set(json.loads((tmp_path / "run" / "run.json").read_text())) == {
        "format",
        "kind",
        "fedloom",
    }
    assert "several versions" not in (tmp_path / "run" / "run.log").read_text()


# Options that came later, and the run's identity

BEFORE = """
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
class Mine(FedAvgOptions):
    pass
def stages(task):
    return (Stage("train", FedAvg(Mine(**task.options))),)
mine = Recipe("mine", Mine, stages)
"""
GROWN = """    taste: Annotated[str, Absent("plain")] = "sweet"
    salt: Annotated[float | None, Absent(None)] = 1.0
"""
AFTER = "from typing import Annotated\nfrom fedloom.options import Absent\n" + BEFORE.replace(
    "    pass\n", GROWN
)


def test_a_methods_option_that_came_later_means_what_was_done_before(tmp_path):
    file = tmp_path / "mine.py"
    data = tiny.write_images(tmp_path / "i.npz")
    file.write_text(BEFORE)
    method = f"{file}:mine"
    tree = tiny.tree(data, rounds=3)
    tiny.stopped_after(1, tmp_path / "run", method, tree)
    identity = experiment_id(reopen(RunFolder.open(tmp_path / "run")))
    file.write_text(AFTER)
    again = reopen(RunFolder.open(tmp_path / "run"))
    assert again.task.options["taste"] == "plain" and "salt" not in again.task.options
    assert experiment_id(again) == identity
    new = prepare(configure(method, tree))
    assert (new.task.options["taste"], new.task.options["salt"]) == ("sweet", 1.0)
    assert tiny.go_on(tmp_path / "run").result["options"]["taste"] == "plain"


def test_an_option_that_was_always_there_means_its_default_where_somebody_took_it_out(
    tmp_path, images
):
    folder, _ = create(configure("fedavg", tiny.tree(images)), tmp_path / "run")
    text = (folder.path / "config.toml").read_text()
    folder.write_text("config.toml", re.sub(r"momentum = .*\n", "", text))
    assert reopen(folder).task.options["momentum"] == 0.9


def test_the_id_is_of_the_text_whatever_this_version_makes_of_it(tmp_path, images):
    folder, prepared = create(configure("fedavg", tiny.tree(images)), tmp_path / "run")
    again = reopen(folder)
    assert prepared.written is None and experiment_id(again) == experiment_id(prepared)
    grown = replace(
        again, config=again.config.model_copy(update={"seed": 77})
    )  # as a new option would change it
    assert experiment_id(grown) == experiment_id(prepared)
    folder.write_text("config.toml", "# a remark\n" + (folder.path / "config.toml").read_text())
    assert experiment_id(reopen(folder)) != experiment_id(prepared)


# A deployment

SITES = ("hospital-a", "hospital-b")


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_sites_keep_their_states_under_the_id_of_that_time(name):
    prepared = prepared_from(RunFolder.open(OLD / "federation-runs" / name))
    identity = experiment_id(prepared)
    for client, site in enumerate(SITES):
        assert (
            OLD / "federation" / "kits" / site / "state" / identity / str(client) / "2.0.state"
        ).exists()


def test_a_site_takes_its_model_out_of_an_old_kit(tmp_path, new_samples):
    server = copied("federation-runs/finished", tmp_path)
    assert api.resume(server).result == json.loads(
        (OLD / "federation-runs" / "finished" / "result.json").read_text()
    )
    assert cli.main(["report", str(server)]) == 0
    for client, site in enumerate(SITES):
        kit = shutil.copytree(OLD / "federation" / "kits" / site, tmp_path / site)
        opened = open_at_site(
            server, kit, DataConfig(name=str(OLD / "federation-data" / f"{site}.npz"))
        )
        words = [
            "--kit",
            str(kit),
            "--kit-data",
            str(OLD / "federation-data" / f"{site}.npz"),
            "--client",
            str(client),
        ]
        assert opened.here == client and opened.served(client).own is not None
        assert (
            cli.main(["export", str(server), *words, "--out", str(tmp_path / f"model-{site}")]) == 0
        )
        assert (
            cli.main(
                [
                    "predict",
                    str(server),
                    *words,
                    "--data",
                    str(OLD / "federation-data" / f"{site}.npz"),
                ]
            )
            == 0
        )


def test_an_edited_configuration_of_a_federations_run_is_named(tmp_path):
    stopped = RunFolder.open(copied("federation-runs/stopped", tmp_path))
    note_identity(stopped, prepared_from(stopped))
    note_identity(stopped, prepared_from(stopped))  # a resume
    assert stopped.head().experiment == experiment_id(prepared_from(stopped))
    text = (stopped.path / "config.toml").read_text()
    stopped.write_text("config.toml", text.replace("deadline = 600.0", "deadline = 900.0"))
    with pytest.raises(
        FedloomError,
        match=r"must be as it was when the run started.*it was edited since; undo the edit",
    ):
        note_identity(stopped, prepared_from(stopped))


def test_an_edited_option_of_a_federations_run_is_refused(tmp_path):
    stopped = RunFolder.open(copied("federation-runs/stopped", tmp_path))
    text = (stopped.path / "config.toml").read_text()
    stopped.write_text("config.toml", text.replace("epochs = 1", "epochs = 0"))
    with pytest.raises(FedloomError, match=r"`options.epochs` must be greater than or equal to 1"):
        prepared_from(stopped)


def test_a_new_comparison_says_its_later_options_out_loud(tmp_path):
    """compare.json has every option of the configuration that has an `Absent`.

    So if one is missing, the file is old.
    """
    tree = {"data": {"name": "digits", "clients": 2}, "budget": {"rounds": 1}}
    folder = create_comparison(Plan(("fedavg", "local"), (0,), {}, tree), tmp_path / "compare")
    config: Experiment = validated(Experiment, tree)
    for section, options in spelled_out(config, {}).items():
        assert read_json(folder.path / "compare.json")["tree"][section].items() >= options.items()
    assert read_plan(folder).methods == ("fedavg", "local")
