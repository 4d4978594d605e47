import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.data.readers.digits import digits
from fedloom.data.source import Source
from fedloom.data.sources import SOURCES, open_source
from fedloom.errors import FedloomError

PNEUMONIA = Path(__file__).parents[4] / "shared/data/medmnist/pneumoniamnist.npz"
X = np.arange(4 * 6 * 5, dtype=np.uint8).reshape(4, 6, 5)
Y = np.array([0, 1, 2, 0])


def npz(folder, name="toy.npz", **arrays):
    np.savez(folder / name, **arrays)
    return str(folder / name)


def refusal(*args, **options) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(*args, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


# What comes out


def test_digits():
    source = open_source("digits")
    assert (source.x.shape, source.x.dtype, source.y.dtype) == ((1797, 1, 8, 8), np.uint8, np.int64)
    assert (source.x.min(), source.x.max()) == (0, 16)
    assert source.labels == tuple("0123456789")
    assert source.mean == pytest.approx((source.x.mean(),), abs=1e-4)
    assert source.std == pytest.approx((source.x.std(),), abs=1e-4)
    assert "digits" in SOURCES.names()


def test_npz_of_x_and_y(tmp_path):
    source = open_source(npz(tmp_path, x=X, y=Y))
    assert source.name == "toy"
    np.testing.assert_array_equal(source.x, X[:, None])
    assert source.y.tolist() == [0, 1, 2, 0]
    assert source.labels == ("0", "1", "2")
    assert (source.mean, source.std) == ((127.5,), (127.5,))
    assert (source.kind, source.groups, source.group_names) == ("image", None, ())


def test_label_names_and_declared_classes(tmp_path):
    assert open_source(npz(tmp_path, x=X, y=Y, labels=["a", "b", "c", "d"])).labels == (
        "a",
        "b",
        "c",
        "d",
    )
    assert open_source(npz(tmp_path, x=X, y=Y), classes=5).labels == ("0", "1", "2", "3", "4")
    assert open_source(npz(tmp_path, x=X, y=Y * 0), classes=2).labels == (
        "0",
        "1",
    )  # one class is elsewhere


def test_medmnist_is_pooled_in_its_order(tmp_path):
    parts = {"test": X[3:], "train": X[:2], "val": X[2:3]}
    arrays = {f"{name}_images": part for name, part in parts.items()}
    arrays |= {"train_labels": Y[:2, None], "val_labels": Y[2:3, None], "test_labels": Y[3:, None]}
    source = open_source(npz(tmp_path, **arrays))
    np.testing.assert_array_equal(source.x[:, 0], X)
    assert source.y.tolist() == Y.tolist()
    assert source.official.tolist() == [0, 0, 1, 2] and source.groups is None


@pytest.mark.parametrize(
    ("client", "names"), [(["b", "a", "b", "c"], "abc"), ([10, 9, 10, 11], ("9", "10", "11"))]
)
def test_an_npz_may_say_who_each_sample_comes_from(tmp_path, client, names):
    source = open_source(npz(tmp_path, x=X, y=Y, client=client))
    assert (source.groups.tolist(), source.group_names, source.grouping) == (
        [1, 0, 1, 2],
        tuple(names),
        "client",
    )
    assert source.official is None


@pytest.mark.skipif(not PNEUMONIA.exists(), reason=f"{PNEUMONIA} is absent")
def test_pneumoniamnist():
    source = open_source("pneumoniamnist.npz", PNEUMONIA.parent)
    assert source.x.shape == (5856, 1, 28, 28)
    assert source.labels == ("0", "1")
    assert np.bincount(source.y).tolist() == [1583, 4273]
    assert np.bincount(source.official).tolist() == [4708, 524, 624]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 6, 5), (2, 1, 6, 5)),
        ((2, 6, 5, 3), (2, 3, 6, 5)),
        ((2, 6, 5, 1), (2, 1, 6, 5)),
        ((2, 3, 6, 5), (2, 3, 6, 5)),
        ((2, 4, 6, 2), (2, 4, 6, 2)),  # could be either: channels first
        ((2, 3, 3, 3), (2, 3, 3, 3)),
    ],
)
def test_layout(tmp_path, shape, expected):
    x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    source = open_source(npz(tmp_path, x=x, y=[0, 1]))
    assert source.x.shape == expected
    assert source.x.flags.c_contiguous
    if expected[1:] == (3, 6, 5) and shape[-1] == 3:
        np.testing.assert_array_equal(source.x[1, 2], x[1, :, :, 2])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.uint8, np.uint8), (">i4", np.uint8), (np.float64, np.float32), (">f2", np.float32)],
)
def test_types_of_values(tmp_path, dtype, expected):
    source = open_source(npz(tmp_path, x=X.astype(dtype), y=Y))
    assert source.x.dtype == expected
    np.testing.assert_array_equal(source.x[:, 0], X)
    if expected == np.float32:
        assert (source.mean, source.std) == ((0.0,), (1.0,))


def test_mean_and_std_given(tmp_path):
    path = npz(tmp_path, x=np.zeros((2, 3, 5, 5), np.uint8), y=[0, 1])
    source = open_source(path, mean=[1], std=(2, 3, 4))
    assert (source.mean, source.std) == ((1.0, 1.0, 1.0), (2.0, 3.0, 4.0))


def test_relative_paths_are_found_under_the_directory(tmp_path):
    npz(tmp_path, x=X, y=Y)
    assert len(open_source("toy.npz", tmp_path).y) == 4


def test_a_folder_is_one_site_a_file(tmp_path):
    folder = tmp_path / "hospitals"
    folder.mkdir()
    npz(folder, "b.npz", x=X[:1], y=Y[1:2])  # one class only: the others are at another site
    npz(folder, "a.npz", x=X[1:], y=Y[1:])
    source = open_source("hospitals", tmp_path)
    assert (source.name, source.group_names) == ("hospitals", ("a", "b"))
    assert source.groups is not None
    assert source.groups.tolist() == [0, 0, 0, 1]
    assert source.y.tolist() == [1, 2, 0, 1]
    np.testing.assert_array_equal(source.x[:, 0], X[[1, 2, 3, 0]])


def test_digest_depends_on_everything_that_is_data(tmp_path):
    source = Source("a", X[:, None], Y, ("0", "1", "2"))
    others = [
        Source("a", X[:, None] + 1, Y),
        Source("a", X[:, None], Y[::-1]),
        Source("a", X[:, None].transpose(0, 1, 3, 2), Y),
        Source("a", X[:, None].astype(np.float32), Y),
        Source("a", X[:, None], Y, groups=np.zeros(4, np.int64), group_names=("s",)),
    ]
    assert len({source.digest, *(other.digest for other in others)}) == 6
    assert source.digest == Source("b", X[:, None].copy(), Y.copy()).digest
    assert len(source.digest) == 64


EXTENSION = """
import numpy as np
from fedloom.data.source import Source
def good(directory):
    return Source("mine", np.zeros((2, 6, 6, 3)), [0, 1], groups=[0, 1], group_names=("s", "t"))
def nan(directory):
    return Source("mine", np.full((2, 1, 6, 6), np.nan), np.array([0, 1]))
def far(directory):
    return Source("mine", np.zeros((2, 1, 6, 6)), np.array([0, 7]), labels=("a", "b"))
def lost(directory):
    groups = np.array([0, 2])
    return Source("mine", np.zeros((2, 1, 6, 6)), np.array([0, 1]), groups=groups, group_names="st")
def wrong(directory):
    return 3
def failing(directory):
    return {}["images.npy"]
nothing = 4
"""


def test_a_callable_in_a_file_is_checked_like_an_npz(tmp_path):
    (tmp_path / "mine.py").write_text(EXTENSION)
    source = open_source("mine.py:good", tmp_path)
    assert (source.x.shape, source.x.dtype, source.labels) == ((2, 3, 6, 6), np.float32, ("0", "1"))
    assert source.groups is not None
    assert source.groups.dtype == np.int64
    assert "row 0 has NaN or Inf" in refusal("mine.py:nan", tmp_path)
    assert "from 0 to 1, but row 1 has 7" in refusal("mine.py:far", tmp_path)
    lost = refusal("mine.py:lost", tmp_path)
    assert "one index into its 2 group_names per sample, but got indices from 0 to 2" in lost
    assert "callable (directory) -> Source, but got int" in refusal("mine.py:wrong", tmp_path)
    assert "callable (directory) -> Source, but got int" in refusal("mine.py:nothing", tmp_path)
    failing = refusal("mine.py:failing", tmp_path)
    assert "must return a Source, but it raised KeyError: 'images.npy'; fix it" in failing
    assert "--data of a file must be given as FILE.py:NAME" in refusal("mine.py", tmp_path)


# What is refused


def test_unknown_name():
    text = refusal("digit")
    assert "got 'digit'; did you mean digits?" in text
    assert ".npz" in text


@pytest.mark.parametrize("name", ["scans.feather", "scans.xlsx", "scans"])
@pytest.mark.parametrize("content", [b"PAR1", b"PK\x03\x04 nearly a zip", b""])
def test_a_file_of_an_unknown_format_lists_the_formats(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    text = refusal(str(tmp_path / name))
    assert (
        f"--data {tmp_path / name} must be in a supported format, but it has an unknown format"
        in text
    )
    for word in (
        ".npz",
        "class folders",
        ".csv",
        ".wav",
        ".txt",
        ".json",
        "idx",
        "CIFAR",
        "file.py:Name",
    ):
        assert word in text


def test_one_image_is_no_data_set_and_an_npz_under_another_name_is_one(tmp_path):
    (tmp_path / "scan.png").write_bytes(b"")
    assert "it is one image, without a label" in refusal(str(tmp_path / "scan.png"))
    os.rename(npz(tmp_path, x=X, y=Y), tmp_path / "toy.data")
    assert len(open_source(str(tmp_path / "toy.data")).y) == 4


def test_missing_file(tmp_path):
    assert "there is none;" in refusal(str(tmp_path / "none.npz"))
    assert f"nor under {tmp_path}" in refusal("sub/none", tmp_path)
    assert "it has none" in refusal(str(tmp_path))  # a folder without .npz files


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x": X}, "its keys are x;"),
        ({"a": X, "b": Y}, "its keys are a, b;"),
        ({"train_images": X, "train_labels": Y, "val_images": X}, "its keys are train_images,"),
        ({}, "its keys are none;"),
        ({"x": X, "y": Y[:3]}, "has 4 and 3 labels"),
        ({"x": X[:0], "y": Y[:0]}, "at least one sample"),
        ({"x": X, "y": Y.astype(float)}, "must be integers, but their type is float64"),
        ({"x": X, "y": ["a", "b", "a", "b"]}, "must be integers"),
        ({"x": X, "y": [0, 1, -1, -2]}, "row 2 has -1"),
        ({"x": X, "y": Y, "labels": ["a", "b"]}, "from 0 to 1, but row 2 has 2"),
        (
            {"x": X, "y": Y, "labels": ["a", "b", "a"]},
            "must name every class once, but 'a' comes twice",
        ),
        (
            {"x": X, "y": Y, "client": [1, 2]},
            "one number or name for each of 4 samples, but it is int64 of shape (2,)",
        ),
        ({"x": X, "y": Y, "client": [0.5] * 4}, "but it is float64 of shape (4,)"),
        ({"x": X, "y": [0, 1, 10**9, 0]}, "row 2 has 1000000000"),
        ({"x": X, "y": np.array([0, 1, 2**63, 0], np.uint64)}, "row 2 has 9223372036854775808"),
        ({"x": X, "y": Y * 0}, "at least 2 classes, but every label is 0"),
        ({"x": X, "y": Y * 0, "labels": ["a"]}, "2 to 65536 classes, but got 1"),
        ({"x": X, "y": np.stack([Y, Y], 1)}, "shape (4, 2); choose one column: multi-label"),
        ({"x": X.reshape(4, 30), "y": Y}, "its shape is (4, 30)"),
        ({"x": np.zeros((4, 5, 5, 5)), "y": Y}, "its shape is (4, 5, 5, 5)"),
        ({"x": np.float32(1), "y": 0}, "its shape is ()"),
        ({"x": X.astype(int) + 200, "y": Y}, "run from 200 to 319"),
        ({"x": X.astype(int) - 1, "y": Y}, "run from -1 to 118"),
        ({"x": X > 3, "y": Y}, "its type is bool"),
        ({"x": X.astype(str), "y": Y}, "its type is <U"),
        ({"x": np.where(X == 60, np.nan, X), "y": Y}, "row 2 has NaN or Inf"),
        ({"x": np.where(X == 60, 1e300, X), "y": Y}, "row 2 has NaN or Inf"),
        (
            {"train_images": X, "train_labels": Y, "val_images": X[:, :4], "val_labels": Y},
            "(val_images) must have images of shape (1, 6, 5)",
        ),
    ],
)
def test_bad_arrays(tmp_path, arrays, expected):
    path = npz(tmp_path, **arrays)
    text = refusal(path)
    assert expected in text
    assert path in text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"classes": 2}, "from 0 to 1, but row 2 has 2"),
        ({"classes": 1}, "2 to 65536 classes, but got 1"),
        ({"classes": 0}, "2 to 65536 classes, but got 0"),
        ({"mean": [1, 2]}, "mean must be 1 finite number, but got [1.0, 2.0]"),
        ({"mean": [np.nan]}, "mean must"),
        ({"std": [0]}, "std must be 1 finite number above 0, but got [0.0]"),
        ({"std": [np.inf]}, "std must"),
    ],
)
def test_bad_options(tmp_path, options, expected):
    assert expected in refusal(npz(tmp_path, x=X, y=Y), **options)


def test_classes_against_label_names(tmp_path):
    assert "got 4 and 10 names" in refusal("digits", classes=4)
    assert open_source("digits", classes=10).labels == digits().labels


def test_sites_with_other_classes_have_all_of_them_in_sorted_order(tmp_path):
    npz(tmp_path, "north.npz", x=X, y=Y, labels=["flu", "well", "cold"])
    npz(tmp_path, "south.npz", x=X, y=Y, labels=["well", "asthma", "flu"])
    source = open_source(str(tmp_path))
    assert source.labels == ("asthma", "cold", "flu", "well")
    names = [source.labels[number] for number in source.y]
    assert names == ["flu", "well", "cold", "flu", "well", "asthma", "flu", "well"]
    assert source.notices == (
        "the sites have different classes: the model has all 4, in sorted order "
        "(asthma, cold, flu, well); north lacks asthma; south lacks cold",
    )


def test_a_site_may_have_one_class_alone(tmp_path):
    for name, labels in {"north": ["flu"], "south": ["flu", "cold"]}.items():
        np.savez(tmp_path / f"{name}.npz", x=X, y=np.zeros(len(X), int), labels=labels)
    source = open_source(str(tmp_path))
    assert (source.labels, set(source.y)) == (("cold", "flu"), {1})
    (tmp_path / "south.npz").unlink()
    with pytest.raises(FedloomError, match="2 to 65536 classes, but got 1"):
        open_source(str(tmp_path))


def test_sites_with_the_same_classes_in_another_order(tmp_path):
    npz(tmp_path, "north.npz", x=X, y=Y, labels=["b", "a", "c"])
    npz(tmp_path, "south.npz", x=X, y=Y, labels=["a", "b", "c"])
    source = open_source(str(tmp_path))
    assert (source.labels, source.y.tolist()) == (("a", "b", "c"), [1, 0, 2, 1, 0, 1, 2, 0])
    assert source.notices == (
        "the sites list the same 3 classes in different orders: here in sorted order (a, b, c)",
    )


def test_sites_with_the_same_list_keep_its_order(tmp_path):
    for name in ("north.npz", "south.npz"):
        npz(tmp_path, name, x=X, y=Y, labels=["b", "a", "c"])
    source = open_source(str(tmp_path))
    assert (source.labels, source.y.tolist(), source.notices) == (("b", "a", "c"), [*Y, *Y], ())


def test_classes_that_are_numbers_are_sorted_as_numbers(tmp_path):
    npz(tmp_path, "north.npz", x=X, y=Y, labels=["10", "9", "2"])
    npz(tmp_path, "south.npz", x=X, y=Y, labels=["2", "9", "11"])
    assert open_source(str(tmp_path)).labels == ("2", "9", "10", "11")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"x": X[:, :5], "y": Y, "labels": list("abc")}, "images of shape (1, 6, 5)"),
        ({"x": X.astype(float), "y": Y, "labels": list("abc")}, "values of type uint8"),
        ({"x": X, "y": Y}, "but it has none"),
        ({"x": X, "y": Y + 1, "labels": list("abc")}, "from 0 to 2, but row 2 has 3"),
    ],
)
def test_sites_that_differ_name_the_file(tmp_path, other, expected):
    npz(tmp_path, "north.npz", x=X, y=Y, labels=list("abc"))
    npz(tmp_path, "south.npz", **other)
    text = refusal(str(tmp_path))
    assert expected in text
    assert "south.npz" in text


# Files that are damaged, or worse


@pytest.mark.parametrize("cut", [0, 1, 50, 300, -1, -30])
def test_truncated(tmp_path, cut):
    path = Path(npz(tmp_path, x=X, y=Y))
    path.write_bytes(path.read_bytes()[:cut])
    assert str(path) in refusal(str(path))


def test_not_a_zip(tmp_path):
    for content in (b"hello, this is text", b"PK\x03\x04 nearly a zip", b"\x80\x04N."):
        (tmp_path / "toy.npz").write_bytes(content)
        assert "must be a complete .npz of plain arrays" in refusal(str(tmp_path / "toy.npz"))
    np.save(tmp_path / "one.npy", X)
    assert "one.npy" in refusal(str(tmp_path / "one.npy"))


@pytest.fixture(scope="module")
def whole() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=X, y=Y)
    return buffer.getvalue()


@given(where=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_gives_the_same_data_or_a_sentence(whole, tmp_path_factory, where, value):
    damaged = bytearray(whole)
    damaged[where % len(whole)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(damaged)
    try:
        source = open_source(str(path))
    except FedloomError as error:
        assert "damaged.npz" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(source.x[:, 0], X)
        assert source.y.tolist() == Y.tolist()


class Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("key", ["x", "y", "labels"])
@pytest.mark.parametrize("how", ["object array", "raw member", "whole file"])
def test_a_pickled_payload_never_runs(tmp_path, how, key):
    ran = tmp_path / "ran"
    path = tmp_path / "toy.npz"
    arrays = {"x": X, "y": Y, "labels": np.array(["a", "b", "c"])}
    if how == "object array":
        np.savez(path, **{**arrays, key: np.array([Payload(ran)], dtype=object)})
        assert "pickled objects" in refusal(str(path))
    elif how == "raw member":
        np.savez(path, **{name: array for name, array in arrays.items() if name != key})
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(f"{key}.npy", pickle.dumps(Payload(ran)))
        assert str(path) in refusal(str(path))
    else:
        path.write_bytes(pickle.dumps({key: Payload(ran)}))
        assert "pickled objects" in refusal(str(path))
    assert not ran.exists()
    pickle.loads(pickle.dumps(Payload(ran)))  # noqa: S301 - shows that the payload would have worked
    assert ran.exists()


@pytest.mark.parametrize(("largest", "says"), [(1, True), (63, True), (64, False), (255, False)])
def test_bytes_that_use_little_of_their_range_are_told(tmp_path, largest, says):
    x = np.zeros((6, 4, 4), np.uint8)
    x[3] = largest
    np.savez(tmp_path / "dark.npz", x=x, y=np.arange(6) % 2)
    path = str(tmp_path / "dark.npz")
    sentence = f"in 6 samples of --data {path} no value is above {largest}, but"
    assert any(sentence in notice for notice in open_source(path).notices) is says
    assert open_source(path, mean=[1.0], std=[2.0]).notices == ()
