import numpy as np
import pytest

from fedloom.data import checks, mapped
from fedloom.data.checks import checked
from fedloom.data.mapped import blocks, map_rows, place_of
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

SYMBOLS = tuple("abc")
WINDOWS = np.array([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])


def opened(monkeypatch, **facts):
    monkeypatch.setattr("fedloom.data.sources.read_named", lambda *_: Source("made", **facts))
    return open_source("made")


def refusal(call, *args, **facts) -> str:
    with pytest.raises(FedloomError) as caught:
        call(*args, **facts)
    return str(caught.value)


# Kinds


def test_text_is_windows_of_symbol_numbers(monkeypatch):
    source = opened(monkeypatch, x=WINDOWS, y=[1, 2, 0], labels=SYMBOLS, kind="text")
    assert (source.x.dtype, source.x.shape, source.y.dtype) == (np.uint8, (3, 4), np.int64)
    assert (source.mean, source.std) == ((), ())  # symbols go into a network as they are
    many = tuple(str(number) for number in range(300))
    assert (
        opened(monkeypatch, x=WINDOWS + 256, y=[1, 2, 0], labels=many, kind="text").x.dtype
        == np.int32
    )


def test_text_that_is_none(monkeypatch):
    def refused(x, labels=SYMBOLS, **more):
        return refusal(
            opened, monkeypatch, x=np.array(x), y=[1, 2, 0], labels=labels, kind="text", **more
        )

    assert "from 0 to 2, but row 1 has 3" in refused(WINDOWS + np.array([[0], [1], [0]]))
    assert "row 0 has -1" in refused(WINDOWS - 1)
    assert "[n,window] symbol numbers, but got float64" in refused(WINDOWS / 2)
    assert "of shape (3, 4, 1)" in refused(WINDOWS[..., None])
    assert "must name its symbols" in refused(WINDOWS, ())
    monkeypatch.setattr(
        "fedloom.data.sources.read_named",
        lambda *_: Source("t", WINDOWS, [1, 2, 0], SYMBOLS, kind="text"),
    )
    assert "--data t is, but they are given" in refusal(open_source, "t", mean=[1.0])


def test_speech_keeps_its_features(monkeypatch):
    x = np.linspace(0, 1, 2 * 40 * 51, dtype=np.float32).reshape(2, 1, 40, 51)
    source = opened(monkeypatch, x=x, y=[0, 1], kind="speech")
    assert source.x is x
    assert (source.kind, source.mean, source.std) == ("speech", (0.0,), (1.0,))


def test_an_unknown_kind():
    assert "got 'video'" in refusal(
        checked, "a", np.zeros((2, 1, 4, 4)), np.array([0, 1]), (), None, "video"
    )


# Official parts


def test_official_parts_are_checked(monkeypatch):
    x = np.zeros((3, 1, 4, 4), np.uint8)
    y = [0, 1, 0]
    source = opened(monkeypatch, x=x, y=y, official=np.array([0, 1, 2]))
    assert source.official is not None
    assert (source.official.dtype, source.official.tolist()) == (np.uint8, [0, 1, 2])
    for wrong in ([0, 1, 3], [0, 1], [0.0, 1.0, 2.0], [-1, 0, 0]):
        text = refusal(opened, monkeypatch, x=x, y=y, official=np.array(wrong))
        assert "0 (train), 1 (validation) or 2 (test)" in text


# Blocks of a map


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(mapped, "BLOCK", 64)


def on_disk(folder, x, before=b"head"):
    (folder / "x.raw").write_bytes(before + np.ascontiguousarray(x).tobytes())
    return np.memmap(folder / "x.raw", x.dtype, "r", len(before), x.shape)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_blocks_of_memory_and_of_a_map_are_the_rows(tmp_path, small_blocks, dtype):
    x = np.arange(50 * 3).reshape(50, 3).astype(dtype)
    for array in (x, x[::2], np.asfortranarray(x), on_disk(tmp_path, x), on_disk(tmp_path, x)[7:]):
        starts, found_blocks = zip(*blocks(array), strict=True)
        assert len(found_blocks) > 1
        np.testing.assert_array_equal(np.concatenate(found_blocks), array)
        assert list(starts) == np.cumsum([0, *map(len, found_blocks[:-1])]).tolist()


def test_where_a_map_lies(tmp_path):
    x = on_disk(tmp_path, np.arange(24, dtype=np.float32).reshape(6, 2, 2))
    for view in (x, np.asarray(x), x[:, None], np.asarray(x)[2:][1:]):
        place = place_of(view)
        assert place is not None
        np.testing.assert_array_equal(map_rows(place, view.dtype, view.shape), view)
    assert place_of(np.asarray(x)[3:]) == (tmp_path / "x.raw", 4 + 3 * 16)
    for elsewhere in (
        x[::2],
        x.transpose(0, 2, 1),
        np.array(x),
        np.memmap(tmp_path / "x.raw", mode="c"),
    ):
        assert place_of(elsewhere) is None


def test_a_map_stays_a_map_and_has_the_digest_of_its_copy(tmp_path, small_blocks):
    values = np.random.default_rng(0).integers(0, 256, (40, 5, 5), dtype=np.uint8)
    y = np.arange(40) % 2
    part = checked("a", on_disk(tmp_path, values), y, (), None)
    assert place_of(part.x) == (tmp_path / "x.raw", 4)
    assert Source("a", part.x, y).digest == Source("b", values[:, None], y).digest


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64, ">f4"])
def test_a_map_in_another_form_is_rearranged_in_the_cache(
    tmp_path, small_blocks, monkeypatch, dtype
):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    values = np.random.default_rng(0).integers(0, 256, (40, 6, 5, 3)).astype(dtype)
    y = np.arange(40) % 2
    inside = checked("a", values, y, (), None).x
    for _ in range(2):
        part = checked("a", on_disk(tmp_path, values), y, (), None)
        np.testing.assert_array_equal(part.x, inside)
        assert (part.x.dtype, part.x.shape) == (inside.dtype, (40, 3, 6, 5))
        place = place_of(part.x)
        assert place is not None
        assert place.file.parent == tmp_path / "cache"


def test_a_bad_row_far_into_a_map_is_named(tmp_path, small_blocks):
    x = np.zeros((40, 1, 4, 4), np.float32)
    x[33] = np.nan
    assert "row 33 has NaN" in refusal(checks.images, "a", on_disk(tmp_path, x))
    x = np.zeros((40, 1, 4, 4), np.int64)
    x[33, 0, 1, 1] = 300
    assert "run from 0 to 300" in refusal(checks.images, "a", on_disk(tmp_path, x))


def test_a_file_that_shrinks_or_goes_is_a_sentence(tmp_path, small_blocks):
    x = on_disk(tmp_path, np.zeros((40, 1, 4, 4), np.float32))
    (tmp_path / "x.raw").write_bytes(b"short")
    assert "it was cut short" in refusal(checks.finite, "a", x)
    (tmp_path / "x.raw").unlink()
    assert "it is gone" in refusal(checks.finite, "a", x)
