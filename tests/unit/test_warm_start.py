"""`--init RUN`: what is taken from a finished run, kept, checked, and taken again if it is damaged.

The finished runs are those of an earlier version, so nothing is trained here.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedloom.config.models import Experiment, InitConfig, validated
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder
from fedloom.records.warm_start import WarmStart
from fedloom.runs.warm_start import (
    FILE,
    check_clients,
    checked,
    digest,
    input_of,
    load_start,
    private_prefix,
    read_start,
    save_start,
    seen_before,
    splits_before,
    stored_config,
)
from fedloom.types import State

OLD = Path(__file__).parent.parent / "fixtures" / "0.1.0"
FEDAVG = InitConfig(run=str(OLD / "fedavg"))
SPIDER = str(OLD / "spider")


def split_of(tests: list[int], training: list[int], digest: str = "same data") -> Split:
    """One client's samples: first its test part, then those that it trains on."""
    indices = np.array([*tests, *training])
    offsets = np.array([0, len(indices)])
    server = np.array([], np.int64)
    return Split(
        "x.npz", digest, 10, "iid", 0, 0.5, indices, offsets, np.array([len(tests)]), server
    )


def run_with(path: Path, split: Split, init: InitConfig | None = None) -> InitConfig:
    """A folder as a run has it, as far as it is asked which samples it trained on."""
    folder = RunFolder.create("run", "made-up", path)
    config: Experiment = validated(Experiment, {})
    folder.write_text("config.toml", config.model_copy(update={"init": init}).to_toml())
    split.save(path / "split.json")
    return InitConfig(run=str(path))


# What is taken


def test_the_shared_weights_and_all_that_their_network_needs():
    start = read_start(FEDAVG, "fedavg")
    warm_start = WarmStart.read(start.meta)
    assert (warm_start.method, warm_start.seed, warm_start.own, warm_start.clients) == (
        "fedavg",
        3,
        None,
        None,
    )
    assert warm_start.options["width"] == 0.125
    assert len(warm_start.input.labels) == 10
    assert start.tensors and not any(name.startswith(warm_start.prefix) for name in start.tensors)


def test_private_states_are_for_adapt_alone():
    init = InitConfig(run=SPIDER, client=0)
    with pytest.raises(FedloomError, match=r"must stay its own, but init\.client is 0 for spider"):
        read_start(init, "spider")
    start = read_start(init, "adapt")
    warm_start = WarmStart.read(start.meta)
    assert warm_start.own is not None
    assert any(name.startswith(warm_start.prefix) for name in start.tensors)


def test_each_newcomer_may_begin_with_another_clients_model():
    start = read_start(InitConfig(run=SPIDER, clients=[1, 0]), "adapt")
    warm_start = WarmStart.read(start.meta)
    assert warm_start.clients is not None and [client.client for client in warm_start.clients] == [
        1,
        0,
    ]
    for client in (0, 1):
        assert any(name.startswith(f"{warm_start.prefix}{client}/") for name in start.tensors)


@pytest.mark.parametrize("init", [{"client": 7}, {"clients": [0, 7]}])
def test_only_clients_that_the_run_has(init):
    check_clients(InitConfig(run="run", client=6, clients=[0]), SimpleNamespace(registered=7))
    with pytest.raises(FedloomError, match="one of the run's clients, but got 7; there are 7"):
        check_clients(InitConfig(run="run", **init), SimpleNamespace(registered=7))


@pytest.mark.parametrize(
    ("init", "method", "refusal"),
    [
        ({"tier": 1, "search": "a"}, "adapt", "one of --from, --tier and --search must say"),
        ({"tier": 1, "client": 0}, "adapt", "one of --from, --tier and --search must say"),
        ({"tier": 1}, "fedavg", "init.tier or init.search is given for fedavg"),
        ({"tier": 1}, "adapt", "a run whose method has a network for every tier"),
    ],
)
def test_networks_of_tiers_and_searches_are_taken_alone_and_by_adapt(init, method, refusal):
    with pytest.raises(FedloomError, match=refusal):
        read_start(InitConfig(run=str(OLD / "fedavg"), **init), method)


def test_names_of_private_tensors_begin_as_no_shared_ones_do():
    assert private_prefix(["net.weight"]) == "own/"
    assert private_prefix(["net.weight", "own/0"]) == "own-own/"
    assert private_prefix(["own/0", "own-own/0"]) == "own-own-own/"


def test_a_result_without_the_networks_input_is_refused():
    folder = RunFolder(Path("old"))
    with pytest.raises(FedloomError, match=r"a version before 0\.1\.0 wrote it; run it again"):
        input_of(folder, SimpleNamespace(input=None))


# The hash in the configuration


def test_the_configuration_has_the_full_path_and_the_hash(monkeypatch):
    monkeypatch.chdir(OLD)
    start = State({"w": torch.ones(2)}, {"seed": 1})
    init = stored_config(InitConfig(run="fedavg"), start)
    assert init.run == str(OLD / "fedavg")
    assert init.hash == digest(start)
    assert checked(start, init) is start


@pytest.mark.parametrize(
    "other",
    [State({"w": torch.zeros(2)}, {"seed": 1}), State({"w": torch.ones(2)}, {"seed": 2})],
)
def test_other_weights_or_facts_have_another_hash(other):
    init = stored_config(FEDAVG, State({"w": torch.ones(2)}, {"seed": 1}))
    assert checked(other, FEDAVG) is other  # a new run has no hash yet
    with pytest.raises(FedloomError, match="must be unchanged since the run was created"):
        checked(other, init)


# What a run keeps


def test_what_is_kept_is_read_again_without_the_old_run(tmp_path):
    start = State({"w": torch.ones(2)}, {"seed": 1})
    init = stored_config(InitConfig(run=str(tmp_path / "gone")), start)
    run_with(tmp_path / "new", split_of([0], [1]), init)
    folder = RunFolder.open(tmp_path / "new")
    save_start(folder, start)
    again = load_start(folder)
    assert again is not None
    assert torch.equal(again.tensors["w"], start.tensors["w"]) and again.meta == start.meta


def test_a_run_without_init_keeps_nothing(tmp_path):
    run_with(tmp_path / "new", split_of([0], [1]))
    folder = RunFolder.open(tmp_path / "new")
    save_start(folder, None)
    assert not (tmp_path / "new" / FILE).exists()
    assert load_start(folder) is None


def test_a_damaged_file_is_written_again_if_the_old_run_is_there(tmp_path, caplog):
    old = tmp_path / "old"
    shutil.copytree(OLD / "fedavg", old)
    start = read_start(InitConfig(run=str(old)), "fedavg")
    run_with(tmp_path / "new", split_of([0], [1]), stored_config(InitConfig(run=str(old)), start))
    folder = RunFolder.open(tmp_path / "new")
    (tmp_path / "new" / FILE).write_bytes(b"damaged")
    again = load_start(folder)
    assert again is not None and digest(again) == digest(start)
    assert f"was damaged: what the run began with is taken from {old} again" in caplog.text
    shutil.rmtree(old)
    assert load_start(folder) is not None  # from the new file
    (tmp_path / "new" / FILE).unlink()
    with pytest.raises(FedloomError, match="must be what the run began with, but it cannot be"):
        load_start(folder)


# Test samples that an earlier run trained on


def test_test_samples_that_the_old_run_trained_on_are_counted(tmp_path):
    old = run_with(tmp_path / "old", split_of([0, 1], [2, 3, 4]))
    assert seen_before(old, split_of([0, 1], [2, 3, 4])) == 0
    assert seen_before(old, split_of([1, 2, 3], [0, 4])) == 2


def test_earlier_runs_count_too(tmp_path):
    first = run_with(tmp_path / "first", split_of([0, 1], [2, 3]))
    second = run_with(tmp_path / "second", split_of([2, 3], [0, 1]), first)
    assert len(list(splits_before(second))) == 2
    assert seen_before(second, split_of([1, 2], [0, 3])) == 2
    shutil.rmtree(tmp_path / "first")
    assert seen_before(second, split_of([1, 2], [0, 3])) == 1


def test_other_data_has_no_samples_to_compare(tmp_path):
    old = run_with(tmp_path / "old", split_of([0], [1, 2], digest="other data"))
    assert seen_before(old, split_of([1], [0, 2])) is None
    assert seen_before(old, split_of([1], [0, 2], digest="")) is None
