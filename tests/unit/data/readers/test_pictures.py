"""Image files as they come: of differing sizes and depths, damaged, and from scanners."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedloom.config.models import DataConfig
from fedloom.data.configured import configured_source
from fedloom.data.image_rules import ImageRules
from fedloom.data.readers import dicom, image_files, pictures
from fedloom.data.resizing import resized
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDLOOM_CACHE", str(folder))
    return folder


def save(file: Path, pixels: np.ndarray) -> np.ndarray:
    """[h,w] grey or [h,w,3]; it comes back channels first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)


def noise(*shape: int, dtype=np.uint8, high: int = 256) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, high, shape).astype(dtype)


def read(folder: Path, **rules) -> Source:
    return open_source(str(folder), images=ImageRules(**rules))


# Sizes


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_files_of_differing_sizes_are_what_each_would_be_alone(tmp_path, fit):
    shapes = {"a/1.png": (9, 5), "a/2.png": (4, 4), "b/1.png": (6, 13), "b/2.png": (3, 2)}
    alone = [save(tmp_path / name, noise(*shape)) for name, shape in shapes.items()]
    source = read(tmp_path, side=4, fit=fit)
    assert source.x.dtype == np.uint8
    for image, expected in zip(source.x, alone, strict=True):
        np.testing.assert_array_equal(image, resized(expected[None], 4, fit)[0])


def test_each_size_and_fit_is_kept_by_itself(tmp_path):
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / name, noise(9, 5))
    asked = [(4, "stretch"), (4, "crop"), (4, "pad"), (3, "pad")]
    assert len({read(tmp_path, side=side, fit=fit).digest for side, fit in asked}) == 4


def test_one_size_resized_while_it_is_read_is_the_same_data_as_resized_afterwards(tmp_path):
    """So a run of an earlier version finds its split again."""
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / name, noise(7, 9))
    now = configured_source(DataConfig(name=str(tmp_path), resize=5))
    np.testing.assert_array_equal(now.x, resized(np.asarray(open_source(str(tmp_path)).x), 5))


def test_without_a_size_the_first_odd_file_and_their_number_are_told(tmp_path):
    for number in range(4):
        save(tmp_path / f"a/{number}.png", noise(5, 4 + number))
    save(tmp_path / "b/0.png", noise(5, 4))
    expected = (
        "1.png must be 4×5 pixels as .*0.png is, but it is 5×5, and 2 more have other sizes; "
        ".*--resize N"
    )
    with pytest.raises(FedloomError, match=expected):
        read(tmp_path)


def test_grey_and_colour_of_differing_sizes(tmp_path):
    save(tmp_path / "a/1.png", np.full((6, 4), 9, np.uint8))
    save(tmp_path / "b/1.png", np.full((5, 5, 3), (1, 2, 3), np.uint8))
    source = read(tmp_path, side=4)
    assert source.x[:, :, 0, 0].tolist() == [[9, 9, 9], [1, 2, 3]]


def test_a_fit_needs_a_size(tmp_path):
    with pytest.raises(FedloomError, match="--fit pad must be with --resize, but there is none"):
        configured_source(DataConfig(fit="pad"))


# Depths


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_keep_their_values_and_bring_their_constants(tmp_path, suffix):
    scans = [
        save(tmp_path / f"{name}{suffix}", noise(4, 6, dtype=np.uint16, high=4096))
        for name in ("a/1", "b/1")
    ]
    source = read(tmp_path)
    assert source.x.dtype == np.float32
    np.testing.assert_array_equal(source.x, scans)
    assert source.mean == pytest.approx([np.mean(scans)], rel=1e-5)
    assert source.std == pytest.approx([np.std(scans)], rel=1e-5)


def test_bytes_among_sixteen_bits_have_the_same_white(tmp_path):
    save(tmp_path / "a/1.png", np.full((4, 4), 65535, np.uint16))
    save(tmp_path / "b/1.png", np.full((4, 4), 255, np.uint8))
    save(tmp_path / "b/2.png", np.full((4, 4, 3), (255, 0, 1), np.uint8))
    assert read(tmp_path).x[:, :, 0, 0].tolist() == [[65535] * 3, [65535] * 3, [65535, 0, 257]]


def test_floats_keep_their_units_and_mix_with_no_others(tmp_path):
    save(tmp_path / "a/1.tif", np.full((4, 4), -1.5, np.float32))
    save(tmp_path / "b/1.tif", np.full((4, 4), 2.5, np.float32))
    source = read(tmp_path)
    assert (source.x[:, 0, 0, 0].tolist(), source.mean, source.std) == ([-1.5, 2.5], (0.5,), (2.0,))
    save(tmp_path / "b/2.png", noise(4, 4))
    with pytest.raises(
        FedloomError, match=r"a/1.tif has units of its own and .*b/2.png has 8 or 16 bits"
    ):
        read(tmp_path)


def test_images_that_are_all_alike_are_divided_by_one(tmp_path):
    for name in "ab":
        save(tmp_path / f"{name}/1.png", np.full((4, 4), 700, np.uint16))
    assert (read(tmp_path).mean, read(tmp_path).std) == ((700.0,), (1.0,))


def test_a_transparent_value_of_sixteen_bits(tmp_path):
    pixels = np.full((4, 4), 700, np.uint16)
    for name, value in {"a": 5, "b": 700}.items():
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "1.png", transparency=value)
    with pytest.raises(
        FedloomError, match=r"b/1.png must be opaque, but parts of it are transparent"
    ):
        read(tmp_path)


# Files that cannot be read


@pytest.fixture
def damaged(tmp_path) -> Path:
    """Seven files, four of them bad in four ways."""
    folder = tmp_path / "scans"
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        save(folder / name, noise(40, 40))
    content = (folder / "a/2.png").read_bytes()
    (folder / "a/2.png").write_bytes(content[: len(content) // 2])  # its head is whole
    (folder / "b/0.png").write_bytes(b"no image")
    (folder / "b/9.png").symlink_to(folder / "nowhere.png")
    (folder / "b/notes.txt").write_text("no image, and no image's name")
    return folder


def test_all_bad_files_are_told_at_once(damaged):
    with pytest.raises(FedloomError) as caught:
        read(damaged)
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "every image file must be usable, but 4 of 7 are not; "
        "repair or remove them, or leave them out with --skip-bad."
    )
    assert caught.value.code == 2
    named = sorted(line.split(": ")[0].strip() for line in lines)
    assert named == [
        str(damaged / name) for name in ("a/2.png", "b/0.png", "b/9.png", "b/notes.txt")
    ]
    assert any("truncated" in line for line in lines)


def test_bad_files_can_be_left_out_and_are_told(damaged, monkeypatch):
    source = read(damaged, skip_bad=True)
    assert (source.y.tolist(), source.labels) == ([0, 1, 1], ("a", "b"))
    assert sorted(file.file for file in source.skipped) == [
        str(damaged / name) for name in ("a/2.png", "b/0.png", "b/9.png", "b/notes.txt")
    ]
    np.testing.assert_array_equal(source.x[0, 0], noise(40, 40))
    monkeypatch.setattr(pictures, "decode", lambda *_: pytest.fail("it is in the cache"))
    again = read(damaged, skip_bad=True)
    assert (again.digest, sorted(again.skipped)) == (source.digest, sorted(source.skipped))


def test_what_was_skipped_once_is_told_again_without_the_flag(damaged):
    read(damaged, skip_bad=True)
    with pytest.raises(FedloomError, match="4 of 7 are not"):
        read(damaged)


def test_groups_and_parts_go_with_the_files_that_are_left(tmp_path):
    for number, name in enumerate(("east/a/1.png", "east/b/1.png", "west/a/1.png", "west/b/1.png")):
        save(tmp_path / name, np.full((4, 4), number, np.uint8))
    (tmp_path / "east/b/1.png").write_bytes(b"")
    source = read(tmp_path, skip_bad=True)
    assert source.groups is not None
    assert (source.groups.tolist(), source.y.tolist(), source.x[:, 0, 0, 0].tolist()) == (
        [0, 1, 1],
        [0, 0, 1],
        [0, 2, 3],
    )


def test_official_parts_go_with_them_too(tmp_path):
    for name in ("train/a/1.png", "train/b/1.png", "test/a/1.png", "test/b/1.png"):
        save(tmp_path / name, noise(4, 4))
    (tmp_path / "train/b/1.png").write_bytes(b"")
    source = read(tmp_path, skip_bad=True)
    assert source.official is not None
    assert source.official.tolist() == [0, 2, 2]


def test_nothing_but_bad_files(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"")
    with pytest.raises(
        FedloomError, match="at least one image file must be usable, but none of 2 is"
    ):
        read(tmp_path, skip_bad=True)


def test_a_damaged_memory_of_bad_files_is_made_again(damaged, cache):
    first = read(damaged, skip_bad=True)
    (memory,) = cache.glob("*-bad.json")
    for content in (b"", b"[[1]]", b"{}", b"7", b"\xff"):
        memory.write_bytes(content)
        assert read(damaged, skip_bad=True).digest == first.digest


# DICOM


def test_without_pydicom_one_hears_how_to_get_it(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.dcm").write_bytes(b"x")
    monkeypatch.setattr(dicom, "find_spec", lambda name: None)
    for skip_bad in (False, True):
        with pytest.raises(
            FedloomError,
            match=r"pydicom, but it is not installed; .*pip install 'fedloom\[dicom\]'",
        ):
            read(tmp_path, skip_bad=skip_bad)


def write_dicom(file: Path, pixels: np.ndarray, **fields) -> None:
    pydicom = pytest.importorskip("pydicom", reason="needs fedloom[dicom]")
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    dataset.PatientName = "Nobody^Known"
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    dataset.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = 8 * pixels.itemsize
    dataset.BitsStored = dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PixelData = pixels.tobytes()
    for name, value in fields.items():
        setattr(dataset, name, value)
    file.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(file, dataset, enforce_file_format=True)


def test_dicom_in_the_units_of_its_scanner(tmp_path):
    stored = noise(4, 6, dtype=np.int16, high=2000)
    write_dicom(tmp_path / "a/1.dcm", stored, RescaleSlope="2", RescaleIntercept="-1024")
    write_dicom(tmp_path / "b/1.DCM", stored.astype(np.uint16))
    source = read(tmp_path)
    assert (source.x.dtype, source.x.shape) == (np.float32, (2, 1, 4, 6))
    np.testing.assert_array_equal(source.x[:, 0], [stored * 2.0 - 1024, stored])


def test_dicom_that_shows_low_values_white_is_inverted(tmp_path):
    unsigned = np.array([[0, 4095], [1, 2]], np.uint16)
    signed = np.array([[-2048, 2047], [0, -1]], np.int16)
    write_dicom(
        tmp_path / "a/1.dcm",
        unsigned,
        PhotometricInterpretation="MONOCHROME1",
        BitsStored=12,
        HighBit=11,
    )
    write_dicom(
        tmp_path / "b/1.dcm",
        signed,
        PhotometricInterpretation="MONOCHROME1",
        BitsStored=12,
        HighBit=11,
    )
    source = read(tmp_path)
    assert source.x[:, 0].tolist() == [[[4095, 0], [4094, 4093]], [[2047, -2048], [-1, 0]]]


def test_dicom_in_colour_is_bytes_and_others_are_refused(tmp_path):
    pixels = noise(4, 6, 3)
    write_dicom(tmp_path / "a/1.dcm", pixels)
    save(tmp_path / "b/1.png", noise(4, 6))
    source = read(tmp_path)
    assert source.x.dtype == np.uint8
    np.testing.assert_array_equal(source.x[0], np.moveaxis(pixels, 2, 0))
    write_dicom(tmp_path / "a/2.dcm", noise(4, 6), NumberOfFrames="3")
    write_dicom(tmp_path / "a/3.dcm", noise(4, 6), PhotometricInterpretation="PALETTE COLOR")
    (tmp_path / "a/4.dcm").write_bytes((tmp_path / "a/1.dcm").read_bytes()[:-20])
    (tmp_path / "a/5.dcm").write_bytes(b"no DICOM")
    with pytest.raises(FedloomError) as caught:
        read(tmp_path)
    text = str(caught.value)
    assert "4 of 6 are not" in text
    assert "2.dcm: it has 3 frames" in text
    assert "3.dcm: its colours are PALETTE COLOR" in text
    assert [line.split(":")[0][-5:] for line in text.splitlines()[1:]] == [
        "2.dcm",
        "3.dcm",
        "4.dcm",
        "5.dcm",
    ]


def test_every_suffix_is_one_of_an_image():
    assert all(image_files.is_picture(f"a/B{suffix.upper()}") for suffix in image_files.SUFFIXES)
