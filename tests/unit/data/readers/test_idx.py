import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.readers.idx import CLOTHES, read_idx
from fedloom.data.sources import SOURCES, open_source
from fedloom.errors import FedloomError

SHARED = Path(__file__).parents[5] / "shared/data/qmnist"
CODES = {"u1": 8, ">i4": 12, ">f4": 13}
# labels
TRAIN = np.arange(7, dtype=np.uint8)
TEST = np.array([3, 4, 5], np.uint8)


def idx(array: np.ndarray, dtype: str = "u1") -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[dtype], array.ndim, *array.shape)
    return head + array.astype(dtype).tobytes()


def images(labels: np.ndarray) -> np.ndarray:
    """Images of 4×5 whose every pixel is their label."""
    return np.repeat(labels, 20).reshape(-1, 4, 5)


def write(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def fill(
    folder: Path, packed: str = "", mark: str = "-", train: str = "train", test: str = "t10k"
) -> None:
    for part, labels in ((train, TRAIN), (test, TEST)):
        write(folder, f"{part}-images{mark}idx3-ubyte{packed}", idx(images(labels)))
        write(folder, f"{part}-labels{mark}idx1-ubyte{packed}", idx(labels))


def fill_writers(folder: Path, train=(8, 8, 2, 2, 2, 8, 8), test=(1, 1, 9, 4, 4)) -> None:
    """QMNIST's tables: the digit first, the writer third; its test part is longer than MNIST's."""
    more = np.concatenate([TEST, [0, 0]])
    for part, labels, writers in (("train", TRAIN, train), ("test", more, test)):
        table = np.zeros((len(writers), 8), np.int32)
        table[:, 0] = labels[: len(writers)]
        table[:, 2] = writers
        write(folder, f"qmnist-{part}-labels-idx2-int.gz", idx(table, ">i4"))


def refusal(name, directory=None) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(str(name), directory)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What comes out


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("mark", ["-", "."])
def test_mnist_by_name(tmp_path, packed, mark):
    fill(tmp_path, packed, mark)
    source = open_source("mnist", tmp_path)
    assert (source.name, source.x.shape, source.x.dtype) == ("mnist", (10, 1, 4, 5), np.uint8)
    assert source.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 3, 4, 5]
    assert source.x[:, 0, 2, 2].tolist() == source.y.tolist()
    assert source.official is not None
    assert source.official.tolist() == [0] * 7 + [2] * 3
    assert (source.labels, source.groups) == (tuple("0123456789"), None)
    assert source.mean == pytest.approx((33.3285,))
    assert source.std == pytest.approx((78.5655,))


def test_fashion_has_names_and_its_own_folder(tmp_path, monkeypatch):
    fill(tmp_path / "fashion-mnist")
    fill(tmp_path, test="test")
    write(tmp_path, "test-labels-idx1-ubyte", idx(TEST + 1))
    source = open_source("fashion-mnist", tmp_path)
    assert (source.name, source.labels, source.y[-1]) == ("fashion-mnist", CLOTHES, 5)
    assert source.labels[9] == "Ankle boot"
    assert open_source("mnist", tmp_path).y[-1] == 6  # the folder itself
    assert {"mnist", "fashion-mnist"} <= set(SOURCES.names())
    monkeypatch.chdir(tmp_path)
    assert open_source("fashion-mnist").y[-1] == 5


def test_writers_of_qmnist_are_joined_by_row(tmp_path):
    fill(tmp_path)
    fill_writers(tmp_path)
    source = open_source("mnist", tmp_path)
    assert (source.grouping, source.group_names) == ("writer", ("0001", "0002", "0008", "0009"))
    assert source.groups is not None
    assert [source.group_names[group] for group in source.groups] == [
        f"{n:04d}" for n in (8, 8, 2, 2, 2, 8, 8, 1, 1, 9)
    ]


def test_any_idx_by_its_path(tmp_path):
    folder = tmp_path / "letters"
    fill(folder, ".gz", train="emnist-letters-train", test="emnist-letters-test")
    source = open_source("letters", tmp_path)
    assert (source.name, source.labels) == ("letters", tuple("0123456"))
    one = open_source(str(folder / "emnist-letters-test-images-idx3-ubyte.gz"))
    assert one.y.tolist() == [3, 4, 5]
    assert one.official is not None
    assert one.official.tolist() == [2, 2, 2]
    colour = np.zeros((3, 3, 4, 4), np.uint8)
    file = write(tmp_path / "colour", "train-images-idx4-ubyte", idx(colour))
    write(tmp_path / "colour", "train-labels-idx1-ubyte", idx(TEST))
    assert open_source(str(file)).x.shape == (3, 3, 4, 4)


def test_a_file_that_is_there_raw_and_packed_counts_once(tmp_path):
    fill(tmp_path)
    fill(tmp_path, ".gz")
    assert len(open_source("mnist", tmp_path).y) == 10


@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is absent")
def test_the_real_writers(tmp_path):
    for name in ("train", "test"):
        file = f"qmnist-{name}-labels-idx2-int.gz"
        (tmp_path / file).symlink_to(SHARED / file)
        labels = read_idx(tmp_path / file, (2,), ">i4")[: 60_000 if name == "train" else 10_000, 0]
        part = "train" if name == "train" else "t10k"
        write(tmp_path, f"{part}-images-idx3-ubyte", idx(np.zeros((len(labels), 2, 2))))
        write(tmp_path, f"{part}-labels-idx1-ubyte", idx(labels))
    source = open_source("mnist", tmp_path)
    assert source.groups is not None
    assert (source.y[:3].tolist(), len(source.groups)) == ([5, 0, 4], 70_000)
    assert len(np.unique(source.groups[:60_000])) == 539
    assert [source.group_names[group] for group in source.groups[:3]] == ["2154", "0000", "2232"]


# What is refused


def test_missing_files(tmp_path):
    assert "must have its files (train-images-idx3-ubyte" in refusal("mnist", tmp_path)
    assert "fedloom data get fashion-mnist" in refusal("fashion-mnist", tmp_path)
    fill(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert "there is no t10k-labels-idx1-ubyte" in refusal("mnist", tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    assert "it has only train-images-idx3-ubyte" in refusal("mnist", tmp_path)


def test_files_that_do_not_belong_together(tmp_path):
    fill(tmp_path)
    write(tmp_path, "t10k-labels-idx1-ubyte", idx(TRAIN))
    assert "a label for each of the 3 images of t10k-images-idx3-ubyte, but it has 7" in refusal(
        "mnist", tmp_path
    )
    fill(tmp_path)
    write(tmp_path, "t10k-images-idx3-ubyte", idx(images(TEST)[:, 1:]))
    assert "must have images of (4, 5) as train-images-idx3-ubyte has" in refusal("mnist", tmp_path)
    fill(tmp_path / "two")
    fill(tmp_path / "two", train="emnist-digits-train")
    assert "must have one data set's images" in refusal(tmp_path / "two")
    fill(tmp_path)
    write(tmp_path, "train-labels-idx1-ubyte", idx(TRAIN + 5))
    assert "from 0 to 9, but row 5 has 10" in refusal("mnist", tmp_path)


def test_writers_that_do_not_fit(tmp_path):
    fill(tmp_path)
    fill_writers(tmp_path, train=(1, 2))
    assert "must be those of train-labels-idx1-ubyte, row by row" in refusal("mnist", tmp_path)
    fill_writers(tmp_path)
    write(tmp_path, "train-labels-idx1-ubyte", idx(TRAIN[::-1]))
    assert "must be those of train-labels-idx1-ubyte, row by row" in refusal("mnist", tmp_path)
    fill(tmp_path)
    (tmp_path / "qmnist-test-labels-idx2-int.gz").unlink()
    assert "QMNIST's labels for train and test, or neither" in refusal("mnist", tmp_path)


WHOLE = idx(images(TRAIN))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "it begins with nothing"),
        (b"\x80\x04N.", "it begins with 80044e2e, which is no idx header"),  # a pickle
        (WHOLE[:3], "which is no idx header"),
        (WHOLE[:9], "it ends within its head"),
        (WHOLE[:-1], "it"),  # raw: the length; packed: the values
        (WHOLE + b"\0", "it"),
        (idx(images(TRAIN), ">f4"), "dimensions 3 or 4 of uint8, but it has 3 dimensions of >f4"),
        (idx(TRAIN), "but it has 1 dimensions of uint8"),
        (
            struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"\0" * 99,
            "cannot hold",
        ),
        (b"\0\0\x07\3" + WHOLE[4:], "which is no idx header"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_bad_files(tmp_path, content, expected, packed):
    fill(tmp_path, packed)
    file = write(tmp_path, f"train-images-idx3-ubyte{packed}", content)
    text = refusal("mnist", tmp_path)
    assert expected in text
    assert str(file) in text


def test_a_truncated_gz(tmp_path):
    fill(tmp_path, ".gz")
    file = tmp_path / "train-images-idx3-ubyte.gz"
    for cut in (0, 5, 20, -9, -1):
        file.write_bytes(gzip.compress(WHOLE)[:cut])
        assert f"{file} must be a complete idx file" in refusal("mnist", tmp_path)
    file.write_bytes(WHOLE)
    assert "Not a gzipped file" in refusal("mnist", tmp_path)


@settings(max_examples=40, deadline=None)
@given(where=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_of_a_gz_gives_the_same_data_or_a_sentence(tmp_path_factory, where, value):
    damaged = bytearray(gzip.compress(WHOLE))
    damaged[where % len(damaged)] = value
    file = tmp_path_factory.getbasetemp() / "damaged.gz"
    file.write_bytes(damaged)
    try:
        values = read_idx(file, (3,), "u1")
    except FedloomError as error:
        assert "damaged.gz" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(values, images(TRAIN))
