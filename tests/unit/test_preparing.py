"""What a configuration becomes before a run: each step by itself, without training."""

import numpy as np
import pytest

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.partition import parse
from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.records.result_parts import Input
from fedloom.runs.preparing import (
    as_before,
    check_device,
    check_labels_for_method,
    normalised_as,
    options_asked_for,
    partition_notices,
    pooled_share,
    prepare,
    sized_as,
)

IID = parse("iid")


def config_of(method: str = "fedavg", **sections: object) -> Experiment:
    config: Experiment = validated(Experiment, {"method": method, **sections})
    return config


def source_of(kind: str = "image", **fields: object) -> Source:
    x = np.zeros((6, 1, 4, 4), np.uint8)
    return Source("made-up", x, np.arange(6) % 2, ("0", "1"), kind=kind, **fields)


def input_of(**fields: object) -> Input:
    trained = {
        "kind": "image",
        "shape": [1, 4, 4],
        "labels": ["0", "1"],
        "mean": [100.0],
        "std": [50.0],
    }
    return Input(**{**trained, **fields})


@pytest.fixture
def images(tmp_path):
    x = np.random.default_rng(0).integers(256, size=(60, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(60) % 2)
    return str(tmp_path / "images.npz")


@pytest.fixture
def prepared(images):
    def make(method: str = "fedavg", **sections: object):
        data = {"name": images, "clients": 3, "partition": "iid"}
        return prepare(config_of(method, data=data, **sections))

    return make


# A whole configuration


def test_wrong_options_are_refused_before_data_is_read():
    with pytest.raises(FedloomError, match=r"`options\.lr` must be .* got 'fast'"):
        prepare(config_of(options={"lr": "fast"}, data={"name": "nowhere.npz"}))


def test_a_federation_is_not_prepared_here():
    with pytest.raises(FedloomError, match="the data must be at hand for this"):
        prepare(config_of(engine={"federation": "hospitals"}))


def test_a_given_split_is_used_whatever_the_seed(prepared, images):
    first = prepared()
    again = prepare(config_of(seed=1, data={"name": images, "clients": 3}), first.split)
    assert again.split is first.split
    assert prepared(seed=1).split.hash != first.split.hash


def test_the_task_has_what_the_data_is(prepared):
    task = prepared(seed=5).task
    assert (task.kind, task.shape, task.labels, task.seed) == ("image", (1, 4, 4), ("0", "1"), 5)
    assert len(task.mean) == len(task.std) == 1


def test_only_a_method_with_tiers_gets_some(prepared):
    assert prepared().tiers is None
    tiers = prepared("fjord", tiers={"limits": "2"}).tiers
    assert tiers is not None and len(tiers.of_client) == 3


# Samples that are held back


@pytest.mark.parametrize(
    ("evaluate", "hold"),
    [({}, 0.0), ({"select": "best", "hold": 0.5}, 0.5), ({"hold_back": True, "hold": 0.5}, 0.5)],
)
def test_samples_are_held_back_if_a_round_is_selected_or_judged(prepared, evaluate, hold):
    run = prepared(evaluate=evaluate)
    assert run.hold == hold
    # 20 samples of each client, 4 of them for testing
    assert run.training_samples == [16 - round(16 * hold)] * 3


# Options that follow from the data


def test_given_constants_imply_an_option_that_the_user_may_override():
    constants = {"mean": [1.0], "std": [2.0]}
    assert options_asked_for(config_of("local")) == {}
    assert options_asked_for(config_of("local", data=constants)) == {"constants": "fixed"}
    options = options_asked_for(config_of("local", data=constants, options={"constants": "own"}))
    assert options == {"constants": "own"}


def test_a_central_set_implies_that_paths_are_scored_on_it():
    with_set = config_of("fedoras", data={"server_share": 0.1})
    assert options_asked_for(with_set)["score"] == "central"
    assert "score" not in options_asked_for(config_of("fedoras"))


def test_only_a_pooled_score_shows_the_server_the_clients_samples(prepared):
    assert pooled_share(prepared()) is None


# The data of a run that goes on from another one


def test_images_have_the_size_of_the_earlier_run_unless_the_user_gives_one():
    before = input_of(resize=16, fit="pad")
    taken = sized_as(DataConfig(), before)
    assert (taken.resize, taken.fit) == (16, "pad")
    assert sized_as(DataConfig(resize=8), before) == DataConfig(resize=8)
    assert sized_as(DataConfig(), input_of()) == DataConfig()


def test_constants_are_those_of_the_earlier_run_unless_the_user_gives_some():
    before = input_of()
    assert normalised_as(DataConfig(), before, IID) == {"mean": [100.0], "std": [50.0]}
    assert normalised_as(DataConfig(mean=[3.0]), before, IID) == {"std": [50.0]}
    assert normalised_as(DataConfig(), input_of(mean=[], std=[]), IID) == {}  # text


def test_tinted_images_begin_with_the_constants_of_the_grey_ones():
    before = input_of(mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0])
    assert normalised_as(DataConfig(), before, parse("iid+tint")) == {"mean": [1.0], "std": [4.0]}
    assert normalised_as(DataConfig(), before, IID)["mean"] == [1.0, 2.0, 3.0]


def test_data_with_fewer_classes_gets_as_many_as_the_earlier_run_had(images):
    before = input_of(labels=["0", "1", "2", "3"])
    assert as_before(DataConfig(name=images), before, IID).classes == 4
    assert as_before(DataConfig(name=images), input_of(), IID).classes is None
    assert as_before(DataConfig(name=images, classes=3), before, IID).classes == 3


# Refusals and notices


def test_labels_that_are_numbers_need_a_method_that_predicts_them():
    numbers = source_of(kind="regression")
    check_labels_for_method("fedavg", config_of(), numbers)
    check_labels_for_method("knn-per", config_of(), source_of())
    with pytest.raises(FedloomError, match="knn-per must have labels that are classes") as refusal:
        check_labels_for_method("knn-per", config_of(), numbers)
    assert "fedavg" in str(refusal.value) and "adapt," not in str(refusal.value)
    by_labels = config_of(topology={"clusters": "labels"})
    with pytest.raises(FedloomError, match="--clusters labels must be used with labels that are"):
        check_labels_for_method("fedavg", by_labels, numbers)


@pytest.mark.parametrize(
    ("device", "refusal"),
    [
        ("phones", "did you mean --devices phones"),
        ("slow.csv", "did you mean --devices slow.csv"),
        ("meta", "--device meta must be usable here"),
        ("abacus", "--device abacus must be usable here"),
    ],
)
def test_a_device_must_be_one_that_torch_can_use(device, refusal):
    check_device("cpu")
    with pytest.raises(FedloomError, match=refusal):
        check_device(device)


@pytest.mark.parametrize(
    ("groups", "clients", "notice"),
    [
        (1, None, "the data comes from one site, which is the only client (--partition sites)"),
        (2, None, "the data comes in 2 sites and stays so (--partition sites)"),
        (2, 2, "the data comes in 2 sites and stays so (--partition sites)"),
        (3, 2, "the data comes in 3 sites, joined or cut into 2 (--partition sites)"),
    ],
)
def test_a_partition_that_the_data_decides_is_told(groups, clients, notice):
    names = tuple("abc"[:groups])
    source = source_of(groups=np.arange(6) % groups, group_names=names)
    decided = DataConfig(partition="sites", clients=clients)
    (text,) = partition_notices(DataConfig(clients=clients), decided, source)
    assert text.startswith(notice)
    assert partition_notices(decided, decided, source) == ()


def test_labels_that_are_numbers_are_dealt_out_evenly_and_that_is_told():
    (text,) = partition_notices(DataConfig(), DataConfig(partition="iid"), source_of())
    assert text.endswith("clients have equal random shares (--partition iid)")
