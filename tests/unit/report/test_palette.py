import pytest

from fedloom.report.palette import DARK, LIGHT, STEPS, contrast, step

MODES = pytest.mark.parametrize("mode", [LIGHT, DARK], ids=["light", "dark"])


def test_contrast_by_hand():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@MODES
@pytest.mark.parametrize("name", ["ink", "soft", "accent", "mark"])
def test_text_is_readable_on_every_ground(mode, name):
    assert (
        min(contrast(getattr(mode, name), ground) for ground in (mode.ground, mode.card, mode.band))
        >= 4.5
    )


@MODES
def test_numbers_are_readable_on_every_shade(mode):
    assert len(mode.heat) == len(mode.on_heat) == STEPS
    assert min(map(contrast, mode.heat, mode.on_heat)) >= 4.5


@MODES
def test_lines_stand_out(mode):
    for colour in mode.series:
        assert contrast(colour, mode.card) >= 3
        assert contrast(colour, mode.band) >= 3


def test_shades():
    assert [step(share) for share in (0.0, 1e-9, 0.5, 1.0)] == [0, 1, 4, 7]
    assert step(2.0) == STEPS - 1
