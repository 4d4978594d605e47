"""What decides a run is written down once, and read back as the same experiment."""

from pathlib import Path

import tiny

from fedloom.config.models import Experiment
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create, short_name
from fedloom.runs.loop_settings import experiment_id
from fedloom.runs.preparing import reopen


def test_a_resumed_run_is_the_same_experiment(images, tmp_path, monkeypatch):
    """Its orders carry the experiment's name.

    It may not change with a resume, wherever that is typed.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from fedloom.methods.fedavg import fedavg as mine\n")
    setting = tiny.tree(Path("images.npz"))
    setting["data"]["dir"] = "."
    folder, prepared = create(configure("mine.py:mine:lr=0.1", setting), tmp_path / "run")
    monkeypatch.chdir("/")
    again = reopen(folder)
    assert again.config == prepared.config
    assert experiment_id(again) == experiment_id(prepared)
    assert again.task == prepared.task
    assert again.config.data.name == str(images)
    assert again.config.method == f"{tmp_path}/mine.py:mine"
    assert again.config.options["lr"] == 0.1


def test_every_option_of_the_method_is_written_down(images, tmp_path):
    folder, _ = create(configure("fedprox", tiny.tree(images)), tmp_path / "run")
    assert {"mu", "lr", "epochs", "width"} <= set(folder.config().options)
    assert isinstance(folder.config(), Experiment)


def test_equal_settings_are_one_experiment_and_others_are_not(images, tmp_path):
    ids = [
        experiment_id(
            create(configure(method, tiny.tree(images, clients=clients)), tmp_path / str(number))[1]
        )
        for number, (method, clients) in enumerate(
            [("fedavg", 3), ("fedavg", 3), ("fedavg", 2), ("local", 3)]
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_names_of_folders():
    assert short_name("digits") == "digits"
    assert short_name("some/where/my data.npz") == "my_data"
    assert short_name("some/where/file.py:Name") == "Name"
    assert short_name("fsdd:logmel") == "fsdd-logmel"


def test_a_client_with_too_few_samples_for_a_validation_part_is_named(
    tmp_path, monkeypatch, capsys
):
    from fedloom.cli import main

    monkeypatch.chdir(tmp_path)
    few = ["--clients", "440", "--partition", "iid", "--set", "data.min_samples=4"]
    assert main(["run", "fednas", *few]) == 2
    error = capsys.readouterr().err
    assert "every client must have at least 4 samples to train on for fednas, but client" in error
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_files_is_found_from_any_folder(tmp_path, monkeypatch):
    from fedloom.config.models import DataConfig
    from fedloom.data.configured import with_absolute_paths

    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "c" / name).write_bytes(bytes(3073))
    expected = f"{tmp_path}/c/a.bin,{tmp_path}/c/b.bin"
    assert with_absolute_paths(DataConfig(name="c/a.bin,c/b.bin")).name == expected
    assert with_absolute_paths(DataConfig(name="a.bin, b.bin", dir="c")).name == expected
