from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import fedloom
from fedloom.data.progress import listening
from fedloom.data.readers.torch_dataset import save_dataset
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

SMALL = {"clients": 3, "partition": "iid", "rounds": 2, "workers": 0, "width": 0.125}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Listed(Dataset):
    def __init__(self, items, classes=None) -> None:
        self.items = items
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


class Streamed(IterableDataset):
    def __iter__(self):
        for number in range(30):
            yield torch.full((1, 5, 5), number / 30), number % 2


def opened(dataset):
    return open_source(str(save_dataset(dataset)))


def test_tensors():
    x = torch.rand(20, 3, 6, 5, dtype=torch.float64)
    source = opened(TensorDataset(x, torch.arange(20) % 2))
    np.testing.assert_array_equal(source.x, x.float().numpy())
    assert source.y.tolist() == [0, 1] * 10
    assert (source.mean, source.labels) == ((0.0,) * 3, ("0", "1"))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("RGB", 3), ("P", 3)])
def test_pictures(mode, channels):
    items = [(Image.new("L", (5, 4), 50 * number).convert(mode), number % 2) for number in range(4)]
    source = opened(Listed(items, ["cat", "dog"]))
    assert (source.x.shape, source.x.dtype, source.labels) == (
        (4, channels, 4, 5),
        np.uint8,
        ("cat", "dog"),
    )
    if mode in ("L", "RGB"):
        assert source.x[:, 0, 0, 0].tolist() == [0, 50, 100, 150]


def test_labels_of_many_types():
    labels = [1, np.int64(0), torch.tensor(1), np.array(0)]
    source = opened(Listed([(np.zeros((4, 4), np.uint8), label) for label in labels]))
    assert source.y.tolist() == [1, 0, 1, 0]


def test_clients_that_a_data_set_names():
    items = [
        (torch.zeros(4, 4), number % 2, ("north", "south")[number // 3]) for number in range(6)
    ]
    source = opened(Listed(items))
    assert (source.groups.tolist(), source.group_names) == ([0] * 3 + [1] * 3, ("north", "south"))
    assert opened(
        TensorDataset(torch.zeros(4, 1, 4, 4), torch.arange(4) % 2, torch.arange(4))
    ).group_names == (*"0123",)
    assert opened(Listed([item[:2] for item in items])).groups is None


def test_a_stream_and_how_far_it_is():
    assert opened(Streamed()).x[:, 0, 0, 0].tolist() == [
        np.float32(number / 30) for number in range(30)
    ]
    heard = []
    with listening(lambda *facts: heard.append(facts)):
        save_dataset(Listed([(torch.zeros(4, 4), 0)] * 3))
    assert heard[-1] == ("reading the data set", 3, 3)


def test_the_name_is_of_the_content(cache):
    items = [(torch.full((4, 4), number), number % 2) for number in range(6)]
    first = save_dataset(Listed(items))
    assert save_dataset(Listed(list(items))) == first
    others = {
        save_dataset(Listed(items[::-1])),
        save_dataset(Listed(items, ["a", "b"])),
        save_dataset(Listed(items[:-1])),
    }
    assert len(others | {first}) == 4
    assert sorted(file.suffix for file in cache.iterdir()) == [".npz"] * 4


def test_a_large_one_is_mapped_from_its_file(monkeypatch):
    monkeypatch.setattr("fedloom.data.readers.npz.LARGE", 1)
    from fedloom.data.mapped import place_of

    file = save_dataset(TensorDataset(torch.rand(20, 1, 6, 5), torch.arange(20) % 2))
    place = place_of(open_source(str(file)).x)
    assert place is not None
    assert place.file == file


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], "must have samples, but it has none"),
        ([torch.zeros(4, 4)], "item 0 of the data set Listed must be (image, class number) or"),
        ([(torch.zeros(4, 4), 0, 1, 2)], "or (image, class number, client), but it is tuple"),
        (
            [(torch.zeros(4, 4), 0, {"who": 1})],
            "must have its client's name or number third, but it has {'who': 1}",
        ),
        ([(torch.zeros(4, 4), 0, "")], "but it has ''"),
        (
            [(torch.zeros(4, 4), 0, "a"), (torch.zeros(4, 4), 1)],
            "item 1 of the data set Listed must name its client",
        ),
        (
            [(torch.zeros(4, 4), 0), (torch.zeros(4, 4), 1, "a")],
            "if others do, and otherwise must not, but it has 3 values",
        ),
        ([("text", 0)], "must have a tensor, an array or a PIL image first, but it has str"),
        ([(torch.zeros(4, 4), 0.5)], "must have its class number second, but it has 0.5"),
        ([(torch.zeros(4, 4), "cat")], "but it has 'cat'"),
        ([(torch.zeros(4, 4), torch.zeros(2))], "must have its class number second"),
        (
            [(torch.zeros(4, 4), 0), (torch.zeros(5, 4), 1)],
            "item 1 of the data set Listed must be float32",
        ),
        ([(torch.zeros(4, 4), 0), (torch.zeros(4, 4).byte(), 1)], "it is uint8"),
        ([(Image.new("CMYK", (4, 4)), 0)], "its mode is CMYK"),
    ],
)
def test_bad_data_sets(cache, items, expected):
    with pytest.raises(FedloomError) as caught:
        save_dataset(Listed(items))
    assert expected in str(caught.value)
    assert not any(cache.iterdir())


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "file"))
    with pytest.raises(FedloomError, match="set FEDLOOM_CACHE to another"):
        save_dataset(Streamed())


def test_search_and_compare_take_one_and_resume(cache):
    run = fedloom.search("fedavg", data=Streamed(), **SMALL)
    assert run.path.name.startswith("1-fedavg-Streamed-")
    again = fedloom.search("fedavg", data=str(next(cache.glob("*.npz"))), **SMALL)
    assert again.accuracy == run.accuracy
    (run.path / "result.json").unlink()
    assert fedloom.resume(run.path).accuracy == run.accuracy
    comparison = fedloom.compare(
        ["local"], data=Streamed(), **{k: v for k, v in SMALL.items() if k != "width"}
    )
    assert len(comparison.runs) == 1
    next(cache.glob("*.npz")).unlink()
    (run.path / "result.json").unlink()
    with pytest.raises(
        FedloomError,
        match=r"the cache was emptied: give the same torch data set to fedloom\.search",
    ):
        fedloom.resume(run.path)
    save_dataset(Streamed())
    assert fedloom.resume(run.path).accuracy == run.accuracy
