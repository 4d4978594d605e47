import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.export.newdata import Expected, check_units
from fedloom.types import Task


def trained_on(mean: float, std: float, dtype: type | None) -> Expected:
    task = Task("fedavg", {}, "image", (1, 8, 8), ("a", "b"), 0, (mean,), (std,))
    if dtype is None:
        return Expected(task)
    return Expected(task, dtype=np.dtype(dtype))


def test_values_far_from_those_of_training_are_refused():
    """Digits are numbers up to 16: bytes up to 255 would give nonsense."""
    digits = trained_on(4.9, 6.0, np.float64)
    check_units("new.npz", np.full((3, 8, 8), 16.0), digits)
    check_units("new.npz", np.zeros((0, 8, 8)), digits)
    with pytest.raises(
        FedloomError, match=r"those were about 4\.9 and these 127 on average; convert them"
    ):
        check_units("new.npz", np.full((3, 8, 8), 127.0), digits)


def test_fractions_are_no_bytes_also_where_nobody_knows_what_the_samples_were():
    bytes_at_sites = trained_on(127.5, 127.5, None)
    check_units("new.npz", np.zeros((3, 8, 8), np.uint8), bytes_at_sites)
    check_units("new.npz", np.full((3, 8, 8), 90.0, np.float32), bytes_at_sites)
    with pytest.raises(
        FedloomError, match=r"those were about 128 on average and these end at 0\.9; give them"
    ):
        check_units("new.npz", np.full((3, 8, 8), 0.9, np.float32), bytes_at_sites)
    check_units("new.npz", np.full((3, 8, 8), 0.9, np.float32), trained_on(0.0, 1.0, None))


def test_the_type_of_the_runs_values_tells_bytes_from_fractions():
    fractions = np.full((3, 8, 8), 0.9, np.float32)
    with pytest.raises(FedloomError, match="those were bytes and these end at 1"):
        check_units("new.npz", fractions, trained_on(127.5, 127.5, np.uint8))
    with pytest.raises(FedloomError, match="those were fractions and these are bytes"):
        check_units("new.npz", np.ones((3, 8, 8), np.uint8), trained_on(0.5, 0.5, np.float32))
