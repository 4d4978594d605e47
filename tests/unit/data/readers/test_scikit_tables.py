import numpy as np
import pytest
from sklearn import datasets

from fedloom.data.sources import open_source


@pytest.mark.parametrize(
    ("name", "load"), [("breast-cancer", datasets.load_breast_cancer), ("wine", datasets.load_wine)]
)
def test_classes_are_those_of_scikit_learn(name, load):
    source = open_source(name)
    original = load()
    assert source.table.encoding.inputs == list(original.feature_names)
    np.testing.assert_array_equal(source.x, original.data.astype(np.float32))
    ours = [source.labels[number] for number in source.y]
    assert ours == [original.target_names[number] for number in original.target]
    np.testing.assert_allclose(source.mean, original.data.mean(0), rtol=1e-9)
    np.testing.assert_allclose(source.std, original.data.std(0), rtol=1e-9)


def test_diabetes_is_a_regression():
    source = open_source("diabetes")
    original = datasets.load_diabetes(scaled=False)
    assert source.kind == "regression" and source.labels == ("label",)
    mean, std = source.target
    assert (mean, std) == (
        pytest.approx(original.target.mean()),
        pytest.approx(original.target.std()),
    )
    np.testing.assert_allclose(mean + std * source.y, original.target, rtol=1e-5)
    np.testing.assert_array_equal(source.x[:, 0], original.data[:, 0].astype(np.float32))
    assert source.table.encoding.inputs[:4] == ["age", "sex is 1", "sex is 2", "bmi"]
