"""Algorithm 2's steps: when, what, and which one stays."""

import pytest
import torch
from torch.nn import functional

from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.nets.model import Model
from fedloom.searchers.perturbation import (
    Candidate,
    Score,
    applied,
    by_chance,
    by_strength,
    by_validation,
    decide,
    edges,
    parts,
    prune,
    strongest,
    without,
)
from fedloom.searchers.schedule import FittedSchedule, Schedule
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.nasbench201 import NasBench201Cells
from fedloom.spaces.space import Size
from fedloom.types import Arch


def samples(count: int) -> Samples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 3, 8, 8, generator=generator)
    return Samples(x, torch.randint(0, 3, (count,), generator=generator))


def model(ops: str = "s2", nodes: int = 4, training: bool = True) -> Model:
    torch.manual_seed(0)
    space = DartsCells(ops, nodes) if ops != "nasbench201" else None
    if space is None:
        net = NasBench201Cells().network((3, 8, 8), 3, Size(1, 2), affine=True)
    else:
        net = space.network((3, 8, 8), 3, Size(4, 2))
    return Model(net, [0.1] * 3, [0.9] * 3).train(training)


# When


def test_the_papers_schedule_is_every_multiple_of_tau_from_t_s_on():
    """t ≥ 30 and t mod 20 = 0, fourteen edges, and the pruning one τ later."""
    schedule = Schedule(30, 20, 15)
    moments = [t for t in range(1000) if schedule.due(t) > schedule.due(t - 1)]
    assert (
        moments
        == [t for t in range(1000) if t >= 30 and t % 20 == 0][:15]
        == list(range(40, 321, 20))
    )


def test_a_period_below_one_round_decides_several_edges_at_once():
    schedule = Schedule(0.9, 0.6, 15)  # of 30 rounds
    assert [schedule.due(t) for t in range(11)] == [0, 0, 2, 4, 5, 7, 9, 10, 12, 14, 15]
    assert schedule.due(29) == 15


def test_a_search_may_start_at_once():
    assert [Schedule(0, 1, 3).due(t) for t in range(5)] == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("rounds", [10, 29, 58, 100, 333, 1000])
def test_a_period_that_is_no_binary_fraction_is_met_exactly(rounds):
    schedule = Schedule(0.03 * rounds, 0.02 * rounds, 10**6)
    for multiple in range(2, 50):
        assert schedule.due(0.02 * rounds * multiple) == multiple - 1


def test_the_fitted_schedule_is_the_papers_for_its_own_number_of_decisions():
    paper = Schedule.of_percent(15)
    fitted = FittedSchedule(15)
    for rounds in (30, 50, 100, 1000):
        for number in range(rounds):
            percent = 100 * number / rounds
            assert fitted.due(percent) == paper.due(percent), (rounds, number)


@pytest.mark.parametrize(
    ("events", "rounds", "lengths"),
    [(3, 30, (2, 8, 20)), (6, 60, (3, 17, 40)), (1, 100, (32, 0, 68)), (2, 100, (4, 28, 68))],
)
def test_a_search_of_few_edges_takes_the_papers_share_too(events, rounds, lengths):
    schedule = FittedSchedule(events)
    due = [schedule.due(100 * number / rounds) for number in range(rounds)]
    assert due == sorted(due)
    warm_up = due.count(0)
    final = due.count(events)
    assert (warm_up, rounds - warm_up - final, final) == lengths


# What


def test_an_edge_is_decided_in_both_cells_or_in_one():
    space = DartsCells("s2", 4)
    assert edges(space, paired=True) == [(edge, 14 + edge) for edge in range(14)]
    assert edges(space, paired=False) == [(slot,) for slot in range(28)]
    assert edges(NasBench201Cells(), paired=True) == [(slot,) for slot in range(6)]


LARGE = [pytest.param(ops, marks=pytest.mark.slow) for ops in ("s1", "s5", "full")]


@pytest.mark.parametrize("ops", ["s2", "s3", "nasbench201", *LARGE])
@pytest.mark.parametrize("training", [True, False])
def test_scores_are_those_of_a_plain_loop_over_whole_forward_passes(ops, training):
    net = model(ops, training=training)
    data = samples(23)
    full = net.net.space.full()
    archs = []
    for slot in (0, 3, 5):
        archs += [without(full, Candidate(slot, op)) for op in full.choice[slot]]
    plain = []
    with torch.no_grad():
        for arch in archs:
            correct = 0
            loss = 0.0
            for part in parts(data, 8):
                answer = net(part.x, arch)
                correct += int((answer.argmax(1) == part.y).sum())
                loss += float(functional.cross_entropy(answer, part.y, reduction="sum"))
            plain.append(Score(correct / 23, loss / 23))
    assert by_validation(net, data, 8)(archs) == plain


def test_scoring_computes_no_gradient_and_nothing_that_was_decided_away():
    net = model()
    data = samples(8)
    full = net.net.space.full()
    small = Arch(full.space, ((0,),) * len(full.choice))  # skips only
    with Meter() as whole:
        by_validation(net, data, 8)([full])
    with Meter() as cut:
        by_validation(net, data, 8)([small])
    assert cut.macs < 0.6 * whole.macs
    assert all(parameter.grad is None for parameter in net.parameters())


def test_no_part_is_a_single_sample():
    for count in range(2, 40):
        split = list(parts(samples(count), 8))
        assert sum(map(len, split)) == count and min(map(len, split)) >= min(8, count)
    assert [len(part) for part in parts(samples(1), 8)] == [1]


def test_nothing_to_validate_on_is_an_error():
    with pytest.raises(ValueError, match="nothing to validate on"):
        by_validation(model(), samples(0), 8)


def test_a_loss_that_is_no_number_is_kept_as_one():
    net = model()
    with torch.no_grad():
        net.net.classifier.bias.fill_(torch.inf)
    assert by_validation(net, samples(4), 8)([net.net.space.full()])[0].loss == 1e30


# Which one stays

ARCH = DartsCells("s2", 2).full()


def scorer(**by_arch):
    """Scores by what is missing: slot and operation."""

    def score(archs):
        scores = []
        for arch in archs:
            slot = next(s for s, live in enumerate(arch.choice) if live != ARCH.choice[s])
            scores.append(
                by_arch[f"s{slot}_{''.join(map(str, sorted({0, 1} - set(arch.choice[slot]))))}"]
            )
        return scores

    return score


def test_the_operation_whose_removal_hurts_most_stays():
    score = scorer(s0_0=Score(0.9, 1), s0_1=Score(0.5, 1), s5_0=Score(0.2, 1), s5_1=Score(0.4, 1))
    arch, decisions = decide(ARCH, (0, 5), score, "impact")
    assert arch.choice[0] == (1,) and arch.choice[5] == (0,)
    assert all(arch.choice[slot] == (0, 1) for slot in range(10) if slot not in (0, 5))
    assert [d.slot for d in decisions] == [0, 5] and decisions[0].without == {
        0: Score(0.9, 1),
        1: Score(0.5, 1),
    }
    literal, _ = decide(ARCH, (0, 5), score, "printed")
    assert literal.choice[0] == (0,) and literal.choice[5] == (1,)


@pytest.mark.parametrize(("keep", "kept"), [("impact", (1,)), ("printed", (0,))])
def test_ties_are_broken_by_the_loss_then_by_order(keep, kept):
    score = scorer(s0_0=Score(0.5, 1.0), s0_1=Score(0.5, 2.0))
    assert decide(ARCH, (0,), score, keep)[0].choice[0] == kept
    same = scorer(s0_0=Score(0.5, 1.0), s0_1=Score(0.5, 1.0))
    assert decide(ARCH, (0,), same, keep)[0].choice[0] == (0,)


def test_a_slot_with_one_operation_is_decided_unmeasured():
    one = applied(ARCH, decide(ARCH, (0,), scorer(s0_0=Score(1, 0), s0_1=Score(0, 0)), "impact")[1])
    arch, decisions = decide(one, (0,), lambda archs: [Score(0, 0) for _ in archs], "impact")
    assert arch == one and decisions[0].without == {}


def test_two_strongest_inputs_stay():
    space = DartsCells("s3", 2)  # edges: 0-2 1-2 | 0-3 1-3 2-3
    choice = [(2,)] * 10
    choice[2] = (0,)  # none: it is no input
    hurt = {7: 0.9, 8: 0.1, 9: 0.5}

    def score(archs):
        return [Score(hurt[arch.choice.index(())], 0.0) for arch in archs]

    arch, decisions = prune(space, Arch(space.name, tuple(choice)), score, "impact")
    assert [d.slot for d in decisions] == [7, 8, 9]
    assert arch.choice == (*choice[:7], (), (2,), (2,))
    full = NasBench201Cells().full()
    assert prune(NasBench201Cells(), full, score, "impact") == (full, [])


def test_chance_is_uniform():
    score = by_chance(torch.Generator().manual_seed(0))
    chosen = [decide(ARCH, (0,), score, "impact")[0].choice[0][0] for _ in range(2000)]
    assert abs(sum(chosen) / 2000 - 0.5) < 0.05


def test_magnitudes_decide_every_edge_or_two_inputs_a_node():
    space = DartsCells("s3", 2)
    rows = [torch.tensor([0.9, 0.1 * (slot % 2), 0.05]) for slot in range(10)]
    every = by_strength(space, rows, pruned=False)
    assert [d.kept for d in every] == [(2,), (1,)] * 5  # none does not count
    choice = [d.kept for d in by_strength(space, rows, pruned=True)]
    assert choice == list(space.derive([row.numpy() for row in rows]).choice)


def test_strongest_of_nothing_is_nothing():
    assert strongest({}, "impact", 1) == []
