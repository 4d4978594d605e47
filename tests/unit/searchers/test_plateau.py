"""When training has nothing more to gain."""

import numpy as np
import pytest

from fedloom.searchers.plateau import Check, has_plateau


def checks(nll, accuracy):
    return [Check(*pair) for pair in zip(nll, accuracy, strict=True)]


def stops_at(series, window):
    """The number of checks after which the rule first speaks; None: it never does."""
    for count in range(1, len(series) + 1):
        if has_plateau(series[:count], window):
            return count
    return None


def test_two_windows_are_needed():
    flat = checks([1.0] * 9, [0.5] * 9)
    assert not has_plateau(flat, 5)
    assert has_plateau([*flat, Check(1.0, 0.5)], 5)


def test_by_hand():
    assert has_plateau(
        checks([1.0, 0.8, 0.9, 0.9], [0.5, 0.5, 0.4, 0.6]), 2
    )  # means 0.9 and 0.9, 0.5 and 0.5
    assert not has_plateau(checks([1.0, 0.8, 0.9, 0.8], [0.5, 0.5, 0.4, 0.4]), 2)  # the loss falls
    assert not has_plateau(
        checks([1.0, 0.8, 1.9, 1.9], [0.5, 0.5, 0.5, 0.6]), 2
    )  # the accuracy rises


def test_a_loss_that_rises_alone_does_not_stop():
    """A network that gets surer of what it knows: its likelihood falls while it still learns."""
    nll = np.linspace(1.0, 2.0, 40)
    accuracy = np.linspace(0.5, 0.9, 40)
    assert stops_at(checks(nll, accuracy), 5) is None


def test_steady_learning_never_stops():
    steps = np.arange(60)
    assert stops_at(checks(np.exp(-steps / 30), 1 - np.exp(-steps / 30)), 5) is None


def test_overfitting_stops_soon_after_it_begins():
    """Better up to figure 20 (from 0), worse from there on, by the same steps.

    Of 30 figures the last ten are 20 to 29, nearer to the turn than 10 to 19. Of 31 figures they
    are 21 to 30, farther from it than 11 to 20.
    """
    steps = np.arange(60)
    nll = np.abs(steps - 20) / 20
    assert stops_at(checks(nll, 1 - nll), 5) == 31


def test_windows_grow_to_a_third():
    """Worse in the last five checks, better in the last third."""
    nll = [*np.linspace(3, 2, 20), *np.linspace(2, 1, 5), *[1.2] * 5]
    assert not has_plateau(checks(nll, [0.5] * 30), 5)
    assert has_plateau(checks([1.0] * 5 + [1.2] * 5, [0.5] * 10), 5)


@pytest.mark.parametrize("window", [3, 5, 8])
def test_noise_around_a_level_stops_before_long(window):
    """Without a trend both means get worse in one of four later checks, which stops training."""
    generator = np.random.default_rng(0)
    stops = []
    for _ in range(200):
        nll = 1 + 0.1 * generator.standard_normal(200)
        accuracy = 0.5 + 0.05 * generator.standard_normal(200)
        stops.append(stops_at(checks(nll, accuracy), window))
    assert None not in stops
    assert np.median(stops) < 8 * window


def test_learning_in_noise_goes_on():
    """A gain of twice the noise over two windows is seen: fewer than one run in ten stops."""
    generator = np.random.default_rng(1)
    stopped = 0
    for _ in range(200):
        trend = np.arange(30) / 30
        nll = 1 - trend + 0.1 * generator.standard_normal(30)
        accuracy = trend + 0.1 * generator.standard_normal(30)
        stopped += stops_at(checks(nll, accuracy), 5) is not None
    assert stopped < 20
