import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.mapped_clients import MappedClients, to_samples, torch_copy
from fedloom.data.source import Source
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError


def toy(samples, dtype=np.uint8) -> Source:
    """Sample i is an image of the value i, so that a test can see which one it is."""
    x = np.broadcast_to(np.arange(samples, dtype=dtype)[:, None, None, None], (samples, 2, 3, 3))
    return Source("toy", np.ascontiguousarray(x), np.arange(samples) % 2)


def which(samples) -> list[int]:
    assert (samples.x == samples.x[:, :1, :1, :1]).all()
    ids = samples.x[:, 0, 0, 0].long()
    assert torch.equal(samples.y, ids % 2)
    return [int(i) for i in ids]


@pytest.fixture
def split_and_clients(tmp_path) -> tuple[Split, MappedClients]:
    source = toy(50)
    split = make_split(source, 3, "iid", 1, server_share=0.1)
    return split, MappedClients.build(tmp_path / "clients_data", source, split)


def test_a_client_gets_its_samples_in_the_order_of_the_split(split_and_clients):
    split, clients_data = split_and_clients
    assert len(clients_data) == len(split) == 3
    for k in range(3):
        rest, test = split.client(k)
        data = clients_data.client(k)
        assert which(data.train) == rest.tolist()
        assert which(data.test) == test.tolist()
        assert len(data.validation) == 0
        assert data.validation.x.shape == (0, 2, 3, 3)


def test_hold_takes_the_last_share_of_the_rest(split_and_clients):
    split, clients_data = split_and_clients
    rest, test = split.client(0)  # 15 samples: 3 to test, 12 others
    data = clients_data.client(0, hold=0.25)
    assert (which(data.train), which(data.validation)) == (rest[:9].tolist(), rest[9:].tolist())
    assert which(data.test) == test.tolist()
    for hold, held in ((0.001, 1), (0.5, 6), (0.999, 11)):
        assert len(clients_data.client(0, hold).validation) == held


def test_one_sample_is_always_left_to_train_on(tmp_path):
    source = toy(4)
    clients_data = MappedClients.build(
        tmp_path, source, make_split(source, 2, "iid", 0, min_samples=2)
    )
    data = clients_data.client(1, hold=0.5)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [1, 0, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_types_are_kept(tmp_path, dtype):
    source = toy(20, dtype)
    data = MappedClients.build(tmp_path, source, make_split(source, 2, "iid", 0)).client(0)
    assert data.train.x.dtype == {np.uint8: torch.uint8, np.float32: torch.float32}[dtype]
    assert data.train.y.dtype == torch.int64


def test_server(split_and_clients, tmp_path):
    split, clients_data = split_and_clients
    server = clients_data.server()
    assert server is not None
    assert which(server) == split.server.tolist()
    assert len(server) == 5
    source = toy(50)
    assert (
        MappedClients.build(tmp_path / "none", source, make_split(source, 3, "iid", 1)).server()
        is None
    )


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000),
    clients=st.integers(1, 6),
    hold=st.floats(0, 0.99),
    server=st.floats(0, 0.4),
)
def test_everything_is_somewhere_once(tmp_path_factory, seed, clients, hold, server):
    source = toy(60)
    split = make_split(source, clients, "dirichlet:5", seed, min_samples=2, server_share=server)
    clients_data = MappedClients.build(tmp_path_factory.mktemp("clients_data"), source, split)
    seen = [] if clients_data.server() is None else which(clients_data.server())
    for k in range(clients):
        data = clients_data.client(k, hold)
        assert len(data.train) >= 1
        assert len(data.test) >= 1
        seen += which(data.train) + which(data.validation) + which(data.test)
    assert sorted(seen) == list(range(60))


def test_what_a_client_does_to_its_tensors_stays_with_it(split_and_clients):
    _, clients_data = split_and_clients
    before = clients_data.client(0).train
    clients_data.client(0).train.x.fill_(7)
    assert torch.equal(clients_data.client(0).train.x, before.x)
    with pytest.raises(ValueError, match="read-only"):
        clients_data.x[0] = 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("order", ["C", "F"])
def test_samples_that_nobody_may_write_to_are_copied_without_a_warning(order):
    values = np.asarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4), order=order)
    values.flags.writeable = False
    copy = torch_copy(values)
    assert copy.is_contiguous()
    assert copy.dtype == torch.float32
    assert np.array_equal(copy.numpy(), values)
    copy.fill_(7)
    assert values[0, 0, 1] == 1


def test_arrays_are_maps_of_plain_files(split_and_clients, tmp_path):
    _, clients_data = split_and_clients
    names = {"x.npy", "y.npy", "indices.npy", "offsets.npy", "tests.npy", "server.npy"}
    assert set(os.listdir(tmp_path / "clients_data")) == names
    for array in (
        clients_data.x,
        clients_data.y,
        clients_data.indices,
        clients_data.offsets,
        clients_data.tests,
    ):
        assert isinstance(array.base, np.memmap)


def sums(folder, k, queue):
    queue.put(int(MappedClients.open(folder).client(k).train.x.sum()))


def test_another_process_reads_the_same(split_and_clients, tmp_path):
    _, clients_data = split_and_clients
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=sums, args=(tmp_path / "clients_data", 2, queue))
    process.start()
    assert queue.get(timeout=30) == int(clients_data.client(2).train.x.sum())
    process.join(timeout=30)


def test_rebuilding_leaves_open_maps_alone(split_and_clients, tmp_path):
    _, clients_data = split_and_clients
    before = which(clients_data.client(0).train)
    other = Source("toy", 9 - toy(50).x % 10, toy(50).y)
    MappedClients.build(tmp_path / "clients_data", other, make_split(other, 5, "iid", 2))
    assert which(clients_data.client(0).train) == before
    assert len(MappedClients.open(tmp_path / "clients_data")) == 5


def test_refuses(split_and_clients, tmp_path):
    split, clients_data = split_and_clients
    with pytest.raises(FedloomError, match="it was made of toy with digest"):
        MappedClients.build(tmp_path / "other", toy(51), split)
    assert not (tmp_path / "other").exists()
    for hold in (-0.1, 1.0, float("nan")):
        with pytest.raises(FedloomError, match="share held back"):
            clients_data.client(0, hold)
    for k in (-1, 3):
        with pytest.raises(IndexError):
            clients_data.client(k)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "pickle"])
def test_damaged_folder(split_and_clients, tmp_path, damage):
    path = tmp_path / "clients_data" / "x.npy"
    whole = path.read_bytes()
    path.unlink()  # not in place: the first clients_data still maps it
    if damage == "pickle":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    elif damage != "missing":
        path.write_bytes(whole[:200] if damage == "cut" else b"")
    with pytest.raises(FedloomError, match=r"x\.npy must be an array of the run's data"):
        MappedClients.open(tmp_path / "clients_data")


# Samples that are mapped from a file already


@pytest.fixture
def lying(tmp_path) -> Source:
    """The toy's samples as a source that maps them, from the middle of a file."""
    (tmp_path / "data").mkdir()
    x = toy(50).x
    (tmp_path / "data/all.raw").write_bytes(b"some head" + x.tobytes())
    return Source("toy", np.memmap(tmp_path / "data/all.raw", x.dtype, "r", 9, x.shape), toy(50).y)


@pytest.mark.parametrize("links", [True, False])
def test_mapped_samples_are_noted_not_copied(tmp_path, lying, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("another disk")))
    split = make_split(lying, 3, "iid", 1)
    assert split.hash == make_split(toy(50), 3, "iid", 1).hash
    clients_data = MappedClients.build(tmp_path / "clients_data", lying, split)
    assert not (tmp_path / "clients_data/x.npy").exists()
    for k in range(3):
        assert which(clients_data.client(k).train) == split.client(k)[0].tolist()
    file = tmp_path / ("clients_data/x.file" if links else "data/all.raw")
    assert os.path.samefile(file, tmp_path / "data/all.raw")
    assert isinstance(clients_data.x.base, np.memmap)
    assert Path(clients_data.x.base.filename) == file
    with pytest.raises(ValueError, match="read-only"):
        clients_data.x[0] = 1


def test_a_cache_that_is_emptied_does_not_disturb_a_run(tmp_path, lying):
    split = make_split(lying, 3, "iid", 1)
    MappedClients.build(tmp_path / "clients_data", lying, split)
    (tmp_path / "data/all.raw").unlink()
    assert (
        which(MappedClients.open(tmp_path / "clients_data").client(1).train)
        == split.client(1)[0].tolist()
    )


@pytest.mark.parametrize(
    ("harm", "expected"), [("cut", "it has changed"), ("gone", "it cannot be read")]
)
def test_a_file_that_is_not_as_noted(tmp_path, lying, harm, expected):
    MappedClients.build(tmp_path / "clients_data", lying, make_split(lying, 3, "iid", 1))
    file = tmp_path / "clients_data/x.file"
    file.write_bytes(b"short") if harm == "cut" else file.unlink()
    with pytest.raises(
        FedloomError, match=f"must stay as it was when the run began, but {expected}"
    ):
        MappedClients.open(tmp_path / "clients_data")


def test_a_later_build_forgets_the_note(tmp_path, lying):
    MappedClients.build(tmp_path / "clients_data", lying, make_split(lying, 3, "iid", 1))
    other = Source("toy", 9 - toy(50).x % 10, toy(50).y)
    clients_data = MappedClients.build(
        tmp_path / "clients_data", other, make_split(other, 5, "iid", 2)
    )
    np.testing.assert_array_equal(clients_data.x, other.x)


def test_samples_have_torchs_own_strides_however_the_array_lies():
    """The strides of a dimension of size one must be those of torch.

    They mean nothing to numpy, but another memory format to torch.
    """
    flat = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)
    odd = np.lib.stride_tricks.as_strided(flat, (2, 1, 6, 6), (36, 1, 6, 1))
    copied = to_samples(odd, np.zeros(2, np.int64), np.arange(2)).x
    assert copied.stride() == torch.empty(2, 1, 6, 6).stride()
    assert torch.equal(copied, torch.tensor(flat)[:, None])
