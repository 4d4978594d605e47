"""Architectures in a few words: the space says what its operations are called."""

import pytest

from fedloom.report.architectures import in_words
from fedloom.spaces import open_space


@pytest.mark.parametrize(
    ("space", "names"),
    [
        ("darts:full:4", "none max3 avg3 skip sep3 sep5 dil3 dil5"),
        ("darts:s4:2", "noise sep3"),
        ("nasbench201", "none skip conv1 conv3 avg3"),
    ],
)
def test_operations_have_short_names(space, names):
    everything = open_space(space).full()
    slots = len(everything.choice)
    assert in_words(everything.to_plain()) == ", ".join(f"{slots} {name}" for name in names.split())


def test_the_most_frequent_operation_comes_first():
    choice = [[1], [3], [3], [], [1], [3]]
    assert in_words({"space": "nasbench201", "choice": choice}) == "3 conv3, 2 skip"


@pytest.mark.parametrize(
    "edited",
    [{}, {"a": 1}, {"space": "nasbench201", "choice": [[9]] * 6}, {"space": 3, "choice": 3}],
)
def test_what_is_no_architecture_is_unknown(edited):
    assert in_words(edited) == "unknown"


def test_what_was_not_searched():
    assert (in_words("cnn"), in_words(None)) == ("cnn", "–")
