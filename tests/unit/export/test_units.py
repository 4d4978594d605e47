from types import SimpleNamespace

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.export.newdata import check_units


def test_values_far_from_those_of_training_are_refused():
    """Digits are numbers up to 16: bytes up to 255 would go through the network as nonsense."""
    task = SimpleNamespace(kind="image", mean=(4.9,), std=(6.0,))
    finished = SimpleNamespace(task=task, source=SimpleNamespace(x=np.ones((2, 8, 8))))
    check_units("new.npz", np.full((3, 8, 8), 16.0), finished)
    check_units("new.npz", np.zeros((0, 8, 8)), finished)
    with pytest.raises(FedloomError, match=r"those were about 4\.9 and these 127 on average; convert them"):
        check_units("new.npz", np.full((3, 8, 8), 127.0), finished)
