"""The digits, read without scikit-learn's code."""

from pathlib import Path

import numpy as np

from fedloom.data.readers import digits, scikit_files


def test_they_are_what_scikit_learn_gives():
    from sklearn.datasets import load_digits

    expected = load_digits()
    source = digits.digits()
    assert source.x.dtype == np.uint8 and source.y.dtype == np.int64
    assert np.array_equal(source.x[:, 0], expected.images)
    assert np.array_equal(source.y, expected.target)


def test_another_version_may_keep_its_file_elsewhere(monkeypatch):
    usual = digits.digits_table()
    monkeypatch.setattr(scikit_files, "FOLDER", Path("elsewhere"))
    assert scikit_files.scikit_file("digits.csv.gz") is None
    assert np.array_equal(digits.digits_table(), usual)
