"""Images of another size, by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedloom.config.models import DataConfig
from fedloom.data.configured import configured_source, configured_split
from fedloom.data.resizing import resized, side_weights
from fedloom.errors import FedloomError


def image(rows: list[list[float]], dtype: type = np.uint8) -> np.ndarray:
    return np.array(rows, dtype)[None, None]


def test_shrinking_is_the_mean_of_what_a_pixel_covers() -> None:
    halved = resized(image([[0, 2, 10, 10], [4, 5, 10, 10], [0, 0, 1, 1], [0, 1, 1, 0]]), 2)
    assert halved.dtype == np.uint8
    assert halved[0, 0].tolist() == [[3, 10], [0, 1]]  # 2.75, 10; 0.25, 0.75


def test_a_pixel_that_is_covered_in_part_counts_in_part() -> None:
    assert side_weights(3, 2).tolist() == [[2, 1, 0], [0, 1, 2]]
    row = image([[0, 30, 90]] * 3, np.float32)
    assert resized(row, 2)[0, 0, 0].tolist() == pytest.approx([10, 70])


def test_halves_are_rounded_up() -> None:
    assert resized(image([[1, 2], [1, 2]]), 1)[0, 0].tolist() == [[2]]


def test_growing_is_bilinear_as_torch_has_it() -> None:
    x = np.random.default_rng(0).random((2, 3, 5, 7)).astype(np.float32)
    expected = functional.interpolate(
        torch.tensor(x), (12, 12), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(resized(x, 12), expected.numpy(), atol=1e-6)


def test_each_side_by_itself_and_a_mean_stays_a_mean() -> None:
    x = np.full((1, 1, 20, 3), 77, np.uint8)
    assert resized(x, 9).tolist() == np.full((1, 1, 9, 9), 77).tolist()


TALL = image([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]])


def test_cropping_takes_the_middle_square():
    assert resized(TALL, 2, "crop")[0, 0].tolist() == [
        [3, 4],
        [5, 6],
    ]  # of the two middles the upper one
    wide = np.swapaxes(TALL, 2, 3)
    assert resized(wide, 2, "crop")[0, 0].tolist() == [[3, 5], [4, 6]]
    assert resized(TALL, 1, "crop")[0, 0].tolist() == [[5]]  # 4.5


def test_padding_keeps_all_of_it_in_black():
    expected = [
        [0, 1, 2, 0, 0],
        [0, 3, 4, 0, 0],
        [0, 5, 6, 0, 0],
        [0, 7, 8, 0, 0],
        [0, 9, 10, 0, 0],
    ]
    assert resized(TALL, 5, "pad")[0, 0].tolist() == expected
    assert (
        resized(np.swapaxes(TALL, 2, 3), 5, "pad")[0, 0].tolist() == np.transpose(expected).tolist()
    )


def test_the_black_of_floats_is_their_own():
    floats = np.concatenate([TALL, TALL - np.float32(20)]).astype(np.float32)
    padded = resized(floats, 5, "pad")[:, 0, :, 0]
    assert padded.tolist() == [[1] * 5, [-19] * 5]


@pytest.mark.parametrize("fit", ["crop", "pad"])
def test_a_square_is_a_square_however_it_is_fitted(fit):
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 9), dtype=np.uint8)
    np.testing.assert_array_equal(resized(x, 4, fit), resized(x, 4))


def test_what_has_the_size_is_left_alone() -> None:
    x = np.zeros((1, 1, 8, 8), np.uint8)
    assert resized(x, 8) is x


def test_a_file_is_resized_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    x = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(resized(mapped, 4), resized(x, 4))
    (cached,) = (tmp_path / "cache").glob("*.npy")
    written = cached.stat().st_mtime_ns
    resized(mapped, 4)
    assert cached.stat().st_mtime_ns == written
    resized(mapped, 5)
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


def test_a_file_is_fitted_in_each_way_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    x = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 6), dtype=np.uint8)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for fit in ("stretch", "crop", "pad"):
        np.testing.assert_array_equal(resized(mapped, 4, fit), resized(x, 4, fit))
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 3


def test_a_split_is_of_one_size(tmp_path) -> None:
    data = DataConfig(clients=4, resize=6)
    source = configured_source(data)
    assert source.x.shape[1:] == (1, 6, 6)
    split = configured_split(data, 0, source)
    split.check(source)
    with pytest.raises(FedloomError, match="the same --resize"):
        split.check(configured_source(DataConfig(clients=4)))


def test_only_images_can_be_resized(tmp_path) -> None:
    text = tmp_path / "play.txt"
    text.write_text("to be or not to be, that is the question. " * 20)
    with pytest.raises(FedloomError, match="--resize must be given to images"):
        configured_source(DataConfig(name=str(text), resize=16))
