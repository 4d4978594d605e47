import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from fedloom.evaluate.paired import Paired, over_seeds, paired


def test_two_pairs_by_hand():
    # Differences 1 and 3: mean 2, std √2, standard error 1; t(0.975, 1) = tan(0.475 π).
    t = math.tan(0.475 * math.pi)
    assert paired([0.0, 1.0], [1.0, 4.0]) == Paired(2.0, pytest.approx(2 - t), pytest.approx(2 + t), 2)


def test_confidence():
    # t(0.75, 1) = 1.
    assert paired([0.0, 1.0], [1.0, 4.0], confidence=0.5) == pytest.approx((2.0, 1.0, 3.0, 2))


def test_the_sign_is_b_minus_a():
    assert paired([0.9], [0.8]).difference == pytest.approx(-0.1)


def test_one_pair_has_no_interval():
    assert paired([0.5], [0.75]) == Paired(0.25, None, None, 1)


def test_equal_methods_differ_by_exactly_nothing():
    assert paired([0.1, 0.7, 0.3], [0.1, 0.7, 0.3]) == Paired(0.0, 0.0, 0.0, 3)


def test_pairs_must_pair():
    with pytest.raises(ValueError, match="shorter"):
        paired([0.1, 0.2], [0.1])


def test_no_pairs():
    with pytest.raises(ValueError, match="at least one"):
        paired([], [])


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_against_scipy(n, seed, confidence):
    a, b = np.random.default_rng(seed).random((2, n))
    expected = ttest_rel(b, a).confidence_interval(confidence)
    found = paired(list(a), list(b), confidence)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.difference == pytest.approx((b - a).mean())


def test_over_seeds():
    assert over_seeds([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert over_seeds([0.25]) == (0.25, None)


def test_values_are_plain_floats():
    found = paired(list(np.float64([0.1, 0.2])), list(np.float64([0.3, 0.5])))
    assert [type(value) for value in found] == [float, float, float, int]
    assert [type(value) for value in over_seeds(list(np.float64([0.1, 0.2])))] == [float, float]


def test_scipy_is_imported_late():
    code = "import sys, fedloom.evaluate.paired; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
