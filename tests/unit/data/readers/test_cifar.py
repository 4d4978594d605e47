import gzip
import hashlib
import lzma
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.readers.cifar import HUNDRED, PIXELS, TEN, cifar10, cifar100, kind_of
from fedloom.data.sources import SOURCES, open_source
from fedloom.errors import FedloomError

SHARED = Path(__file__).parents[5] / "shared/data"
REAL = SHARED / "cifar-100-binary/test.bin.xz"
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def ten(*labels: int) -> bytes:
    """Records of CIFAR-10 whose pixels are 1, 2 and 3 in the three planes.

    Only the first pixel is different: it is the label.
    """
    return b"".join(
        bytes([label, label]) + b"\1" * 1023 + b"\2" * 1024 + b"\3" * 1024 for label in labels
    )


def hundred(*labels: int) -> bytes:
    return b"".join(bytes([19]) + ten(label) for label in labels)


def write(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(PACK[file.suffix if file.suffix in PACK else ""](content))
    return file


def fill(folder: Path, packed: str = "") -> None:
    for number, name in enumerate(TEN.files):
        write(folder / f"{name}{packed}", ten(number, 9 - number))


def refusal(name: str, directory: Path | None = None) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(name, directory)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What comes out


@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
def test_cifar10_by_name(tmp_path, packed):
    fill(tmp_path, packed)
    source = open_source("cifar10", tmp_path)
    assert (source.name, source.x.shape, source.x.dtype, source.y.dtype) == (
        "cifar10",
        (12, 3, 32, 32),
        "u1",
        "i8",
    )
    assert source.y.tolist() == [
        0,
        9,
        1,
        8,
        2,
        7,
        3,
        6,
        4,
        5,
        5,
        4,
    ]  # batches 1 to 5, then the test batch
    assert source.x[:, 0, 0, 0].tolist() == source.y.tolist()
    assert [np.unique(source.x[:, plane, 1:]).tolist() for plane in range(3)] == [[1], [2], [3]]
    assert source.labels[:2] == ("airplane", "automobile")
    assert (source.mean, source.std) == (TEN.mean, TEN.std)
    assert source.official is not None
    assert source.official.tolist() == [0] * 10 + [2] * 2


def test_cifar100_takes_the_fine_label(tmp_path):
    write(tmp_path / "train.bin", hundred(0, 99))
    write(tmp_path / "test.bin.gz", hundred(7))  # packed or not, file by file
    source = open_source("cifar100", tmp_path)
    assert (source.name, source.y.tolist(), len(source.labels)) == ("cifar100", [0, 99, 7], 100)
    assert source.x[:, 0, 0, 0].tolist() == [0, 99, 7]
    assert (source.mean, source.std) == (HUNDRED.mean, HUNDRED.std)


def test_the_folder_that_the_archive_makes(tmp_path, monkeypatch):
    fill(tmp_path / "cifar-10-batches-bin")
    assert len(cifar10(tmp_path).y) == 12
    assert len(cifar10(tmp_path / "cifar-10-batches-bin").y) == 12
    write(tmp_path / "data_batch_1.bin", ten(1))  # one file here does not hide the whole set there
    assert len(cifar10(tmp_path).y) == 12
    monkeypatch.chdir(tmp_path)
    assert len(open_source("cifar10").y) == 12


def test_raw_comes_before_packed(tmp_path):
    write(tmp_path / "test.bin.xz", hundred(1))
    write(tmp_path / "test.bin", hundred(2))
    write(tmp_path / "train.bin", hundred(3))
    assert cifar100(tmp_path).y.tolist() == [3, 2]


def test_a_list_of_files(tmp_path):
    first = write(tmp_path / "test_batch.bin.xz", ten(3, 4))
    second = write(tmp_path / "sub/data_batch_1.bin", ten(5))
    assert open_source(f"{first},{second}").y.tolist() == [3, 4, 5]  # in the order given
    assert open_source("sub/data_batch_1.bin, test_batch.bin.xz", tmp_path).y.tolist() == [5, 3, 4]
    assert open_source(str(first)).y.tolist() == [3, 4]
    assert open_source(str(write(tmp_path / "own.bin", hundred(42)))).name == "cifar100"
    assert open_source(f"{first},{second}").official.tolist() == [2, 2, 0]
    for one in (first, second, f"{first},{write(tmp_path / 'mine.bin', ten(1))}"):
        assert (
            open_source(str(one)).official is None
        )  # nothing official about a part, or an own file


def test_a_folder_with_a_comma_in_its_name(tmp_path):
    np.savez(tmp_path / "a,b.npz", x=np.zeros((2, 6, 5)), y=[0, 1])
    assert len(open_source("a,b.npz", tmp_path).y) == 2


def test_label_names_beside_the_files(tmp_path):
    file = write(tmp_path / "test_batch.bin", ten(0, 1))
    (tmp_path / "batches.meta.txt").write_text("\n".join(f"class {n} " for n in range(10)) + "\n\n")
    assert open_source(str(file)).labels[:2] == ("class 0", "class 1")
    (tmp_path / "batches.meta.txt").write_text("a\nb\n")
    text = refusal(str(file))
    assert "batches.meta.txt must name 10 classes, each once, but it names 2" in text


def test_names():
    assert len(set(TEN.names)) == 10
    assert len(set(HUNDRED.names)) == 100
    assert list(HUNDRED.names) == sorted(HUNDRED.names)  # as fine labels are numbered
    assert {"cifar10", "cifar100"} <= set(SOURCES.names())


def test_a_length_that_fits_both_kinds():
    """3073·3074 bytes: the labels decide, and CIFAR-10 if they cannot."""
    size = TEN.record * HUNDRED.record
    content = bytearray(size)
    assert kind_of(Path("x.bin"), bytes(content)) is TEN
    content[:: TEN.record] = b"\x0a" * HUNDRED.record
    assert kind_of(Path("x.bin"), bytes(content)) is HUNDRED


# What is refused


def test_missing_files_are_listed(tmp_path):
    fill(tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    text = refusal("cifar10", tmp_path)
    assert "but data_batch_2.bin is missing;" in text
    assert "--data path/data_batch_1.bin,path/test_batch.bin" in text
    (tmp_path / "test_batch.bin").unlink()
    assert "but data_batch_2.bin, test_batch.bin are missing;" in refusal("cifar10", tmp_path)
    assert "but train.bin, test.bin are missing;" in refusal("cifar100", tmp_path)
    assert "cifar-100-binary" in refusal("cifar100", tmp_path)


def test_the_python_version(tmp_path):
    file = write(tmp_path / "cifar-10-batches-py/data_batch_1", pickle.dumps({"data": 1}))
    for text in (refusal(str(file)), refusal("cifar10", tmp_path), refusal("cifar10", file.parent)):
        assert "Python version" in text
        assert "get the binary version" in text
    renamed = write(tmp_path / "data_batch_1.bin.gz", pickle.dumps({"data": 1}))
    assert f"{renamed} must be a complete file of CIFAR's binary version" in refusal(str(renamed))
    assert "Python version, a pickle" in refusal(str(renamed))
    write(tmp_path / "cifar-100-python/train", b"\x80\x02")
    assert "Python version" in refusal("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.bin", b"", "it is empty"),
        ("a.bin.xz", lzma.compress(b""), "it is empty"),
        (
            "a.bin",
            ten(1)[:-1],
            "3073 (cifar10) or 3074 (cifar100) bytes, but its 3072 bytes are not",
        ),
        ("a.bin.gz", gzip.compress(ten(1, 2)[:4000], mtime=0), "but its 4000 bytes are not"),
        (
            "a.bin.xz",
            lzma.compress(ten(1))[:-9],
            "it could not be read (Compressed data ended before",
        ),
        ("a.bin.xz", ten(1), "it could not be read (Input format not supported"),
        (
            "a.bin.gz",
            gzip.compress(ten(1), mtime=0)[:-9],
            "it could not be read (Compressed file ended before",
        ),
        ("a.bin.gz", ten(1), "it could not be read (Not a gzipped file"),
        ("a.bin", ten(1, 10), "must be from 0 to 9, but record 1 has 10"),
        ("a.bin", hundred(1, 100), "must be from 0 to 99, but record 1 has 100"),
    ],
)
def test_bad_files(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    text = refusal(name, tmp_path)
    assert expected in text
    assert str(tmp_path / name) in text


def test_bad_lists(tmp_path):
    one = write(tmp_path / "a.bin", ten(1))
    other = write(tmp_path / "b.bin", hundred(1))
    assert f"{other} must be of cifar10 as {one} is, but it is of cifar100" in refusal(
        "a.bin,b.bin", tmp_path
    )
    assert "occurs twice" in refusal("a.bin,a.bin", tmp_path)
    assert "occurs twice" in refusal(f"a.bin,{one}", tmp_path)
    assert "--data c.bin must be a file or a folder, but there is none" in refusal(
        "a.bin,c.bin", tmp_path
    )
    assert "there is none" in refusal("a.bin,", tmp_path)
    assert "there is none" in refusal(
        ",".join(["x" * 200] * 30), tmp_path
    )  # longer than a path may be
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 6, 5)), y=[0, 1])
    assert "must list files of CIFAR's binary version, but d.npz is not one" in refusal(
        "a.bin,d.npz", tmp_path
    )
    (tmp_path / "e.bin").mkdir()
    assert "e.bin" in refusal("a.bin,e.bin", tmp_path)


@settings(max_examples=30, deadline=None)
@given(where=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_of_an_xz_gives_the_same_data_or_a_sentence(tmp_path_factory, where, value):
    damaged = bytearray(lzma.compress(ten(1, 2)))
    damaged[where % len(damaged)] = value
    file = tmp_path_factory.getbasetemp() / "damaged.bin.xz"
    file.write_bytes(damaged)
    try:
        source = open_source(str(file))
    except FedloomError as error:
        assert "damaged.bin.xz" in str(error)  # noqa: PT017
    else:
        assert source.y.tolist() == [1, 2]


# The real files


@pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is absent")
def test_the_real_test_part_of_cifar100(tmp_path):
    content = lzma.decompress(REAL.read_bytes())
    assert hashlib.sha1(content).hexdigest() == "8fb6623e830365ff53cf14adec797474f5478006"
    source = open_source(str(write(tmp_path / "test.bin", content)))
    assert (source.x.shape, source.y[:3].tolist()) == ((10_000, 3, 32, 32), [49, 33, 72])
    assert np.bincount(source.y).tolist() == [100] * 100
    first = content[2 : 2 + PIXELS]
    assert source.x[0, :, 0, 0].tolist() == [first[0], first[1024], first[2048]] == [199, 215, 249]
    assert source.x[0, 2, 5, 7] == first[2048 + 5 * 32 + 7]
    some = source.x[:3000]  # the constants are of the training part, so near is enough
    assert some.mean((0, 2, 3)) == pytest.approx(HUNDRED.mean, abs=1.5)
    assert some.std((0, 2, 3)) == pytest.approx(HUNDRED.std, abs=1.5)


@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is absent")
def test_the_real_first_record_of_cifar10(tmp_path):
    with lzma.open(
        SHARED / "cifar-10-batches-bin/test_batch.bin.xz"
    ) as file:  # reading it whole takes seconds
        head = file.read(10 * TEN.record)
    source = open_source(str(write(tmp_path / "test_batch.bin", head)))
    assert source.y.tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]  # cat, ship, ship, airplane, frog, …
    assert source.x[0, :, 0, 0].tolist() == [158, 112, 49]
    assert (
        refusal("cifar10", SHARED).count("data_batch_") == 5
    )  # four are missing; the advice names one
