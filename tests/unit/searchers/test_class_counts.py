"""A path's balanced accuracy and AUC are those of its answers, however they were added up."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedloom.metrics.classification import classify
from fedloom.searchers.path_scores import ClassCounts, PathScore, class_counts
from fedloom.searchers.tier_search import Memory, Score


def answers(classes: int, samples: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    draws = np.random.default_rng(4)
    scores = torch.from_numpy(draws.normal(size=(samples, classes))).float()
    truth = torch.from_numpy(
        draws.choice(classes, size=samples, p=[0.7, *[0.3 / (classes - 1)] * (classes - 1)])
    )
    return scores, truth


def score_of(scores: torch.Tensor, truth: torch.Tensor, classes: int) -> PathScore:
    hit = scores.argmax(dim=1) == truth
    return PathScore(1.0, int(hit.sum()), len(truth), class_counts(scores, truth, hit, classes))


@pytest.mark.parametrize("classes", [2, 5])
def test_they_are_those_of_all_answers_together(classes: int) -> None:
    scores, truth = answers(classes)
    total = PathScore(0.0, 0, 0)
    for part in (slice(0, 7), slice(7, 40), slice(40, 60)):
        total += score_of(scores[part], truth[part], classes)
    expected = classify(scores.numpy(), truth.numpy(), classes)
    assert total.accuracy == expected.value
    assert total.balanced_accuracy == pytest.approx(expected.of("balanced_accuracy"))
    assert total.balanced_accuracy != pytest.approx(total.accuracy)
    if classes == 2:
        assert total.auc == pytest.approx(expected.of("auc"))
    else:
        assert total.auc is None  # as in every table


def test_of_one_class_nothing_is_known() -> None:
    scores, _ = answers(2)
    score = score_of(scores, torch.zeros(60, dtype=torch.long), 2)
    assert score.balanced_accuracy is None and score.auc is None


def test_what_was_not_counted_everywhere_is_not_known() -> None:
    scores, truth = answers(3)
    counted = score_of(scores, truth, 3)
    uncounted = replace(counted, by_class=None)
    assert (counted + uncounted).balanced_accuracy is None
    assert (counted + PathScore(0.0, 0, 0)).balanced_accuracy == counted.balanced_accuracy


def test_counts_are_added_class_by_class() -> None:
    both = ClassCounts((3, 1), (2, 0), (0.5,), (True,)) + ClassCounts(
        (1, 4), (1, 4), (-1.0,), (False,)
    )
    assert both == ClassCounts((4, 5), (3, 4), (0.5, -1.0), (True, False))


@pytest.mark.parametrize("beside", [(), (0.4,), (0.4, 0.6)])
def test_a_search_remembers_what_it_knew(beside: tuple[float, ...]) -> None:
    """An earlier version's state has three figures a path."""
    memory = Memory(scores={(0, 1): Score(0.7, 0.5, 20, *beside)})
    plain = memory.to_plain()
    assert plain["scores"] == [[[0, 1], 0.7, 0.5, 20, *beside]]
    assert Memory.from_plain(plain) == memory
