import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from fedloom.evaluate.paired import Paired, holm, over_seeds, paired


def test_two_pairs_by_hand():
    # Differences 1 and 3: mean 2, std √2, standard error 1; t(0.975, 1) = tan(0.475 π).
    t = math.tan(0.475 * math.pi)
    # P(T > 2) of one degree of freedom is 1/2 − atan(2)/π.
    p = 1 - 2 * math.atan(2) / math.pi
    assert paired([0.0, 1.0], [1.0, 4.0]) == pytest.approx((2.0, 2 - t, 2 + t, 2, p))


def test_confidence():
    # t(0.75, 1) = 1.
    assert paired([0.0, 1.0], [1.0, 4.0], confidence=0.5)[:4] == pytest.approx((2.0, 1.0, 3.0, 2))


def test_the_sign_is_b_minus_a():
    assert paired([0.9], [0.8]).difference == pytest.approx(-0.1)


def test_one_pair_has_no_interval():
    assert paired([0.5], [0.75]) == Paired(0.25, None, None, 1)


def test_equal_methods_differ_by_exactly_nothing_and_nobody_knows_how_surely():
    assert paired([0.1, 0.7, 0.3], [0.1, 0.7, 0.3]) == Paired(0.0, None, None, 3, None)


@pytest.mark.parametrize("a", [(0.5, 0.25, 0.75), (0.1, 0.5, 0.9), (1e-6, 3e-6, 2e-6), (0.0, 0.0)])
def test_the_same_difference_with_every_seed_has_no_interval(a):
    """In floating point, 0.6 − 0.5 and 1.0 − 0.9 differ in their last digit: that is no spread."""
    pair = paired(a, [value + 0.1 for value in a])
    assert pair == Paired(pytest.approx(0.1), None, None, len(a), None)


def test_small_but_real_differences_have_an_interval():
    pair = paired([0.5, 0.5, 0.5], [0.5001, 0.5002, 0.5003])
    assert pair.low is not None and pair.high is not None and pair.p is not None


@pytest.mark.parametrize(
    ("seeds", "t", "p"),
    [(2, 12.706, 0.05), (3, 4.303, 0.05), (3, 9.925, 0.01), (5, 2.776, 0.05), (11, 3.169, 0.01)],
)
def test_p_by_the_table_of_students_t(seeds, t, p):
    """Differences whose mean is t standard errors."""
    spread = np.linspace(-1, 1, seeds)
    error = spread.std(ddof=1) / math.sqrt(seeds)
    for sign in (1, -1):
        differences = spread + sign * t * error
        assert paired([0.0] * seeds, list(differences)).p == pytest.approx(p, rel=1e-3)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.04]) == [0.04]
    assert holm([0.5, 0.9]) == [1.0, 1.0]  # no probability is above 1
    assert holm([0.02, 0.02]) == [0.04, 0.04]
    assert holm([]) == []


def test_a_comparison_that_cannot_be_judged_counts_in_holms_adjustment():
    assert holm([None, 0.01, None]) == [None, pytest.approx(0.03), None]


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
    pair = paired(list(a), list(b), confidence)
    assert (pair.low, pair.high) == pytest.approx((expected.low, expected.high))
    assert pair.difference == pytest.approx((b - a).mean())
    assert pair.p == pytest.approx(ttest_rel(b, a).pvalue)


def test_over_seeds():
    assert over_seeds([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert over_seeds([0.25]) == (0.25, None)


def test_values_are_plain_floats():
    pair = paired(list(np.float64([0.1, 0.2])), list(np.float64([0.3, 0.5])))
    assert [type(value) for value in pair] == [float, float, float, int, float]
    assert [type(value) for value in over_seeds(list(np.float64([0.1, 0.2])))] == [float, float]


def test_scipy_is_imported_late():
    code = "import sys, fedloom.evaluate.paired; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
