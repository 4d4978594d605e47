import errno
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedloom.data import mapped
from fedloom.data.mapped import place_of
from fedloom.data.progress import listening
from fedloom.data.readers import pictures
from fedloom.data.sources import SOURCES, open_source
from fedloom.errors import FedloomError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDLOOM_CACHE", str(folder))
    return folder


def draw(file: Path, value: int = 7, size=(5, 4), mode: str = "RGB", **options) -> Path:
    """An image of one value, but for its first pixel, which is black: width 5, height 4."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0]), value, np.uint8)
    pixels[0, 0] = 0
    Image.fromarray(pixels).convert(mode).save(file, **options)
    return file


def fill(folder: Path, value: int = 0) -> None:
    for number, name in enumerate(("cat", "dog", "dog")):
        draw(folder / name / f"{number}.png", value + 10 * number)


def refusal(name, directory=None) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(str(name), directory)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What comes out


def test_a_folder_a_class(tmp_path):
    fill(tmp_path / "pets", 50)
    (tmp_path / "pets/README.txt").write_text("beside the class folders")
    (tmp_path / "pets/cat/.DS_Store").write_bytes(b"hidden")
    (tmp_path / "pets/.git").mkdir()
    source = open_source("pets", tmp_path)
    assert (source.name, source.labels, source.x.shape) == ("pets", ("cat", "dog"), (3, 3, 4, 5))
    assert source.y.tolist() == [0, 1, 1]
    assert source.x[:, :, 1, 1].tolist() == [[50] * 3, [60] * 3, [70] * 3]
    assert (source.x[:, :, 0, 0] == 0).all()
    assert (source.official, source.groups) == (None, None)


def test_official_parts(tmp_path):
    for number, part in enumerate(("train", "val", "test")):
        fill(tmp_path / part, 100 * number)
    source = open_source(str(tmp_path))
    assert source.official is not None
    assert source.official.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert source.x[:, 0, 1, 1].tolist() == [0, 10, 20, 100, 110, 120, 200, 210, 220]


def test_a_folder_a_site(tmp_path):
    fill(tmp_path / "north", 100)
    draw(tmp_path / "east/fox/1.png", 9)  # a class that others lack
    source = open_source(str(tmp_path))
    assert (source.group_names, source.labels, source.grouping) == (
        ("east", "north"),
        ("cat", "dog", "fox"),
        "site",
    )
    assert source.groups is not None
    assert (source.groups.tolist(), source.y.tolist()) == ([0, 1, 1, 1], [2, 0, 1, 1])
    (notice,) = source.notices
    assert notice.endswith("in sorted order (cat, dog, fox); east lacks cat, dog; north lacks fox")


def test_numbered_classes_are_in_their_order(tmp_path):
    for number in (10, 9, 2):
        draw(tmp_path / str(number) / "a.png", number)
    source = open_source(str(tmp_path))
    assert (source.labels, source.x[:, 0, 1, 1].tolist()) == (("2", "9", "10"), [10, 2, 9])
    assert source.y.tolist() == [2, 0, 1]  # samples stay in the order of their folders' names


def test_cinic10(tmp_path):
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    for part in ("train", "valid", "test"):
        for name in names:
            draw(tmp_path / "cinic10" / part / name / "cifar10-1.png", 3, (32, 32))
    (tmp_path / "cinic10/imagenet-contributors.csv").write_text("x")
    source = open_source("cinic10", tmp_path)
    assert (source.name, source.x.shape, source.labels) == (
        "cinic10",
        (30, 3, 32, 32),
        tuple(names),
    )
    assert source.mean == pytest.approx((122.118, 120.431, 109.771), abs=1e-3)
    assert source.std == pytest.approx((61.725, 60.762, 65.981), abs=1e-3)
    assert source.official is not None
    assert np.bincount(source.official).tolist() == [10, 10, 10]
    assert open_source("cinic10", tmp_path / "cinic10").digest == source.digest
    assert "cinic10" in SOURCES.names()
    assert "must have its folders train, valid and test" in refusal(
        "cinic10", tmp_path / "cinic10/train"
    )
    os.rename(tmp_path / "cinic10/test/ship", tmp_path / "cinic10/test/boat")
    assert "CINIC-10's class folders, but it has airplane" in refusal("cinic10", tmp_path)


@pytest.mark.parametrize(
    "suffix", [".png", ".bmp", ".gif", ".tif", ".ppm", ".webp", ".JPG", ".jpeg"]
)
def test_formats(tmp_path, suffix):
    for name in "ab":
        draw(
            tmp_path / name / f"1{suffix}", 100, **({"lossless": True} if suffix == ".webp" else {})
        )
    source = open_source(str(tmp_path))
    assert source.x.shape[1:] in ((3, 4, 5), (1, 4, 5))  # a grey GIF comes back grey
    assert abs(int(source.x[0, 0, 3, 4]) - 100) <= 3  # JPEG is lossy


def test_grey_alone_and_among_colours(tmp_path):
    draw(tmp_path / "a/1.png", 50, mode="L")
    draw(tmp_path / "a/2.png", 200, mode="1")
    draw(tmp_path / "b/1.png", 90, mode="LA")
    grey = open_source(str(tmp_path))
    assert (grey.x.shape[1], grey.x[:, 0, 2, 2].tolist()) == (1, [50, 255, 90])
    draw(tmp_path / "b/2.png", 90, mode="RGBA")
    draw(tmp_path / "b/3.png", 60, mode="P")
    colour = open_source(str(tmp_path))
    assert colour.x.shape[1] == 3
    assert colour.x[:, :, 2, 2].tolist()[:4] == [[50] * 3, [255] * 3, [90] * 3, [90] * 3]


# The cache


def test_decoded_once_and_mapped(tmp_path, cache, monkeypatch):
    fill(tmp_path)
    first = open_source(str(tmp_path))
    place = place_of(first.x)
    assert place is not None
    assert place.file.parent == cache
    monkeypatch.setattr(pictures, "decode", lambda *_: pytest.fail("it is in the cache"))
    assert open_source(str(tmp_path)).digest == first.digest
    assert [file.suffix for file in cache.iterdir()] == [".npy"]


def test_a_change_is_seen_and_a_damaged_or_lost_cache_made_again(tmp_path, cache):
    fill(tmp_path)
    first = open_source(str(tmp_path)).digest
    draw(tmp_path / "cat/0.png", 99)
    os.utime(tmp_path / "cat/0.png", ns=(1, 1))
    assert open_source(str(tmp_path)).digest != first
    fill(tmp_path)
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:-7])
    assert open_source(str(tmp_path)).digest == first
    for file in cache.iterdir():
        file.unlink()
    assert open_source(str(tmp_path)).digest == first


def test_a_change_that_leaves_size_and_mtime_as_they_were_is_seen(tmp_path):
    """As unpacking another version of an archive does."""
    for name in ("cat", "dog"):
        draw(tmp_path / name / "0.bmp", 50)
    before = open_source(str(tmp_path)).digest
    times = (tmp_path / "cat/0.bmp").stat()
    draw(tmp_path / "cat/0.bmp", 60)
    os.utime(tmp_path / "cat/0.bmp", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (tmp_path / "cat/0.bmp").stat().st_size == times.st_size
    assert open_source(str(tmp_path)).digest != before


def test_many_blocks_and_how_far_they_are(tmp_path, monkeypatch):
    heard = []
    fill(tmp_path, 50)
    whole = open_source(str(tmp_path)).digest
    monkeypatch.setattr(pictures, "BLOCK", 60)  # an image a block
    monkeypatch.setattr(mapped, "BLOCK", 60)
    os.utime(tmp_path / "cat/0.png", ns=(1, 1))
    with listening(lambda *facts: heard.append(facts)):
        assert open_source(str(tmp_path)).digest == whole
    expected = []
    for what in ("checking images", "decoding images"):
        expected += [(what, done, 3) for done in (1, 2, 3)]
    assert heard == expected


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    fill(tmp_path / "pets")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "file"))
    assert "set FEDLOOM_CACHE to another" in refusal(tmp_path / "pets")


# What is refused


def test_mixed_sizes_name_the_first_odd_file(tmp_path, cache):
    fill(tmp_path)
    odd = draw(tmp_path / "dog/1.png", size=(5, 6))
    assert f"{odd} must be 5×4 pixels as {tmp_path / 'cat/0.png'} is, but it is 5×6" in refusal(
        tmp_path
    )
    assert not any(cache.iterdir())


def test_layouts_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "it has none" in refusal(tmp_path / "empty")
    fill(tmp_path / "a")
    (tmp_path / "a/fox").mkdir()
    assert f"the class folder {tmp_path / 'a/fox'} must hold images, but it is empty" in refusal(
        tmp_path / "a"
    )
    draw(tmp_path / "b/1.png")
    assert "1.png lies in no class folder" in refusal(tmp_path / "b")
    fill(tmp_path / "c/train")
    draw(tmp_path / "c/cat/1.png")
    assert "folders of one depth" in refusal(tmp_path / "c")
    fill(tmp_path / "d/train")
    fill(tmp_path / "d/paris")
    assert "there are train and paris" in refusal(tmp_path / "d")
    fill(tmp_path / "e/x/y")
    assert "must hold images only, but it has the folder cat" in refusal(tmp_path / "e")
    draw(tmp_path / "f/one/1.png")
    assert "2 to 65536 classes, but got 1" in refusal(tmp_path / "f")
    fill(tmp_path / "g/train")
    stray = draw(tmp_path / "g/train/1.png")
    assert f"{stray} must lie in a class folder" in refusal(tmp_path / "g")
    fill(tmp_path / "h")
    (tmp_path / "h/cat/notes.txt").write_text("x")
    assert "notes.txt must be an image" in refusal(tmp_path / "h")
    assert "it has an unknown format (its name ends in .txt)" in refusal(tmp_path / "h")
    for name in ("x", "y"):
        (tmp_path / "i" / name).mkdir(parents=True)
        (tmp_path / "i" / name / "scan").write_text("x")
    problem = f"{tmp_path / 'i/x/scan'} has an unknown format (its name has no ending)"
    assert f"{problem}, and no other file has a known" in refusal(tmp_path / "i")


def test_links(tmp_path):
    fill(tmp_path / "real")
    (tmp_path / "linked").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "linked" / name).symlink_to(tmp_path / "real" / name)
    assert len(open_source(str(tmp_path / "linked")).y) == 3
    (tmp_path / "linked/back").symlink_to(tmp_path / "linked")
    assert f"the link {tmp_path / 'linked/back'} must lead to other images" in refusal(
        tmp_path / "linked"
    )
    (tmp_path / "linked/back").unlink()
    (tmp_path / "linked/self").symlink_to(tmp_path / "linked/self")
    assert "linked/self must be readable" in refusal(tmp_path / "linked")
    (tmp_path / "real/cat/lost.png").symlink_to(tmp_path / "nowhere.png")
    assert "lost.png must be an image file, but it cannot be read" in refusal(tmp_path / "real")


def bomb(width: int, height: int) -> bytes:
    """A small PNG that claims to be large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("width", "height"), [(5000, 5000), (10_000, 10_000), (60_000, 60_000)])
def test_decompression_bombs(tmp_path, width, height, recwarn):
    fill(tmp_path)
    (tmp_path / "dog/1.png").write_bytes(bomb(width, height))
    text = refusal(tmp_path)
    assert str(tmp_path / "dog/1.png") in text
    assert "pixels" in text
    assert not recwarn.list


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".gif", ".tif", ".webp"])
def test_damaged_files(tmp_path, suffix):
    for number in range(3):
        draw(tmp_path / "ab"[number % 2] / f"{number}{suffix}", 100)
    odd = draw(tmp_path / f"b/9{suffix}", 100, (5, 4))
    whole = odd.read_bytes()
    for content in (b"", b"no image at all", whole[:12], whole[: len(whole) // 2]):
        odd.write_bytes(content)
        text = refusal(tmp_path)
        assert f"{odd} must be a complete image" in text


@settings(max_examples=60, deadline=None)
@given(
    where=st.integers(0, 10**6),
    value=st.integers(0, 255),
    suffix=st.sampled_from((".png", ".jpg", ".gif", ".tif")),
)
def test_a_changed_byte_gives_an_image_or_a_sentence(tmp_path_factory, where, value, suffix):
    file = draw(tmp_path_factory.getbasetemp() / f"damaged{suffix}", 100)
    content = bytearray(file.read_bytes())
    content[where % len(content)] = value
    file.write_bytes(content)
    try:
        image = pictures.decode(str(file), 3)
    except FedloomError as error:
        assert file.name in str(error)  # noqa: PT017
    else:
        assert (image.dtype, image.ndim, image.shape[0]) == (np.uint8, 3, 3)


def test_images_of_other_kinds(tmp_path):
    fill(tmp_path)
    odd = tmp_path / "dog/9.png"
    Image.new("CMYK", (5, 4)).save(tmp_path / "dog/9.jpg")
    assert "9.jpg must be grey or RGB, but its mode is CMYK" in refusal(tmp_path)
    (tmp_path / "dog/9.jpg").unlink()
    Image.fromarray(np.full((4, 5, 4), 100, np.uint8)).save(odd)
    assert f"{odd} must be opaque" in refusal(tmp_path)
    odd.unlink()
    frames = [Image.new("L", (5, 4), value) for value in (0, 200)]
    frames[0].save(tmp_path / "dog/9.gif", save_all=True, append_images=frames[1:])
    assert "9.gif must be one image, but it is animated" in refusal(tmp_path)
    (tmp_path / "dog/9.gif").unlink()
    (tmp_path / "dog/9.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n"
    )  # would start a program
    assert "9.png must be a complete image" in refusal(tmp_path)


class Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_pickle_under_another_name_never_runs(tmp_path):
    ran = tmp_path / "ran"
    folder = tmp_path / "pets"
    fill(folder)
    for name in ("dog/9.png", "dog/9.npy.png", "cat/0.png"):
        (folder / name).write_bytes(pickle.dumps(Payload(ran)))
        assert f"{folder / name} must be a complete image" in refusal(folder)
        (folder / name).unlink()
    assert not ran.exists()
    pickle.loads(pickle.dumps(Payload(ran)))  # noqa: S301 - shows that the payload would have worked
    assert ran.exists()


def test_classes_that_are_the_same_number_have_one_order(tmp_path):
    for name in ("10", "1", "2", "01"):
        draw(tmp_path / name / "a.png")
    assert open_source(str(tmp_path)).labels == ("01", "1", "2", "10")
    assert pictures.class_order({"1" * 5000, "2"}) == ("1" * 5000, "2")


@pytest.mark.parametrize("name", ["cat/pipe.png", "pipe.npz", "pipe"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    fill(tmp_path)
    os.mkfifo(tmp_path / name)
    assert f"{name} must be a" in refusal(tmp_path if "/" in name else tmp_path / name)


@pytest.mark.parametrize("name", [".", "cat"])
def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch, name):
    fill(tmp_path)
    closed = str(tmp_path / name)
    for listing in ("listdir", "scandir"):
        monkeypatch.setattr(os, listing, denying(getattr(os, listing), closed))
    assert f"{closed} must be readable, but it is not (Permission denied)" in refusal(tmp_path)


def denying(listing, closed: str):
    """As a folder without rights does; the superuser, as whom tests may run, has them anyway."""

    def denied(path):
        if os.fspath(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed)
        return listing(path)

    return denied
