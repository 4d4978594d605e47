import numpy as np
import pytest

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.configured import configured_source, configured_split
from fedloom.errors import FedloomError
from fedloom.runs.experiment import decided
from fedloom.runs.preparing import prepare


def data(**options) -> DataConfig:
    config: Experiment = validated(Experiment, {"data": options})
    return config.data


@pytest.fixture
def sites(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, samples in (("north", 40), ("south", 60)):
        draw = np.random.default_rng(samples)
        x = draw.integers(256, size=(samples, 4, 4), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(samples) % 2)
    return str(folder)


@pytest.mark.parametrize(
    ("options", "clients"),
    [
        ({}, 8),
        ({"partition": "natural"}, 2),
        ({"partition": "sites"}, 2),
        ({"partition": "natural+rotation"}, 2),
        ({"partition": "natural", "clients": 5}, 5),
        ({"partition": "label-skew:1", "clients": 4}, 4),
    ],
)
def test_how_many_clients(sites, options, clients):
    asked = data(name=sites, min_samples=4, **options)
    assert len(configured_split(asked, 0, configured_source(asked))) == clients


def test_a_split_file_is_used_again(sites, tmp_path):
    made = data(name=sites, partition="natural", clients=4)
    split = configured_split(made, 3, configured_source(made))
    split.save(tmp_path / "split.json")
    for more in ({}, {"clients": 4}, {"partition": "natural", "clients": 4}):
        asked = data(name=sites, split=str(tmp_path / "split.json"), **more)
        assert configured_split(asked, 0, configured_source(asked)).hash == split.hash


def test_flags_that_contradict_a_split_file(sites, tmp_path):
    made = data(name=sites, partition="iid", clients=4)
    configured_split(made, 3, configured_source(made)).save(tmp_path / "split.json")

    def refusal(name=sites, **more) -> str:
        asked = data(name=name, split=str(tmp_path / "split.json"), **more)
        with pytest.raises(FedloomError) as caught:
            configured_split(asked, 0, configured_source(asked))
        return str(caught.value)

    assert "--clients must agree with the split" in refusal(clients=5)
    assert "got 5 and the file has 4; leave --clients out." in refusal(clients=5)
    assert "got natural and the file has iid; leave --partition out." in refusal(partition="natural")
    assert "the split must be of the data digits as it is now, but it was made of sites" in refusal(name="digits")


def test_the_configuration_of_a_run_says_what_its_split_file_says(sites, tmp_path):
    made = data(name=sites, partition="natural", clients=4)
    configured_split(made, 3, configured_source(made)).save(tmp_path / "split.json")
    raw = {"data": {"name": sites, "split": str(tmp_path / "split.json")}}
    config = decided(prepare(validated(Experiment, raw))).config
    assert (config.data.partition, config.data.clients) == ("natural", 4)
    assert (
        prepare(validated(Experiment, config.model_dump(mode="json", exclude_none=True))).split.partition == "natural"
    )
