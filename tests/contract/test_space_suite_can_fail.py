"""Each fault of a space is found by the test that is there for it."""

import inspect
from pathlib import Path

import pytest

from fedloom.errors import FedloomError
from fedloom.spaces import open_space
from fedloom.testing import SpaceContract, SpaceToy

HERE = Path(__file__).parent
FAULTS = [
    ("Nameless", "its_name_names_it", {}),
    ("Aimless", "its_parameters_make_it", {}),
    ("Untold", "its_parameters_make_it", {}),
    ("Deeper", "its_parameters_make_it", {}),
    ("Favouring", "samples_are_its_own_and_reach_every_option", {}),
    ("Leaning", "samples_are_its_own_and_reach_every_option", {}),
    ("Foreign", "samples_are_its_own_and_reach_every_option", {}),
    ("Restless", "a_mutation_is_one_decision", {}),
    ("Dicing", "a_mutation_is_one_decision", {}),
    ("Idle", "a_mutation_is_one_decision", {}),
    ("Stubborn", "derived_architectures_are_its_own", {}),
    ("Greedy", "derived_architectures_are_its_own", {}),
    ("Forgetful", "slots_that_go_together_exist", {}),
    ("Counted", "slots_that_go_together_exist", {}),
    ("Typed", "json_round_trip", {}),
    ("Anonymous", "a_genotype_file_builds_the_same_network", {}),
    ("Undrawable", "it_is_drawn_or_told_in_words", {}),
    ("Crooked", "it_is_drawn_or_told_in_words", {}),
    ("unread", "it_can_be_searched", {}),
    ("stuck", "cut_is_the_masked_supernet", {"training": False}),
    ("recounting", "cut_is_the_masked_supernet", {"training": True}),
    ("halved", "everything_is_alive_without_a_choice", {}),
    ("direct", "several_at_once_answer_as_each_alone", {}),
    ("deaf", "each_sample_may_go_its_own_way", {}),
    ("twisted", "a_certain_answer_is_the_path", {}),
    ("ownerless", "every_key_is_owned_or_everybodys", {}),
    ("swapped", "every_key_is_owned_or_everybodys", {}),
    ("entangled", "an_owned_key_is_its_operations_own", {}),
    ("Cheap", "cost_formula_is_what_is_counted", {"affine": True}),
    ("Lazy", "cost_formula_is_what_is_counted", {"affine": False}),
    ("Light", "activations_are_what_is_made", {}),
    ("Free", "cost_of_an_operation_is_what_it_adds", {}),
    ("misnamed", "a_latency_table_knows_every_step", {}),
]


def toy_of(name: str) -> SpaceToy:
    return SpaceToy(open_space(f"{HERE}/faulty_spaces.py:{name}:3"))


def keep(promise, toy, folder, **more):
    """Run one test of the contract as pytest would."""
    test = getattr(SpaceContract(), f"test_{promise}")
    if "tmp_path" in inspect.signature(test).parameters:
        more["tmp_path"] = folder
    test(toy, **more)


@pytest.mark.parametrize(("fault", "promise", "more"), FAULTS)
def test_a_fault_is_found(fault, promise, more, tmp_path):
    with pytest.raises((AssertionError, FedloomError, KeyError, TypeError, ValueError)):
        keep(promise, toy_of(fault), tmp_path, **more)


@pytest.mark.parametrize(
    ("promise", "more"), sorted({(promise, tuple(more.items())) for _, promise, more in FAULTS})
)
def test_without_the_fault_there_is_nothing_to_find(promise, more, tmp_path):
    space = open_space(f"{HERE.parents[1]}/docs/examples/chain.py:Chain:3")
    keep(promise, SpaceToy(space), tmp_path, **dict(more))


def test_every_promise_has_a_fault():
    promises = {
        name.removeprefix("test_") for name in dir(SpaceContract) if name.startswith("test_")
    }
    assert {promise for _, promise, _ in FAULTS} == promises


def test_a_space_that_cannot_be_searched_fails_once(pytester):
    """Its other tests would fail for the same reason, and say it less well."""
    pytester.makepyfile(
        test_mine=f"""
        from fedloom.testing import SpaceContract

        class TestMine(SpaceContract):
            space = "{HERE}/faulty_spaces.py:unread:3"
        """
    )
    outcomes = pytester.runpytest_inprocess().parseoutcomes()
    assert outcomes.keys() == {"failed", "skipped"} and outcomes["failed"] == 1


@pytest.mark.parametrize(
    ("fault", "promise", "more", "sentence"),
    [
        (
            "Cheap",
            "cost_formula_is_what_is_counted",
            {"affine": True},
            r"`cost` says .* parameters",
        ),
        ("Light", "activations_are_what_is_made", {}, r"activations .*, but the network has"),
        ("twisted", "a_certain_answer_is_the_path", {}, "layer.0: "),
    ],
)
def test_a_failure_says_what_is_wrong(fault, promise, more, sentence, tmp_path):
    with pytest.raises(AssertionError, match=sentence):
        keep(promise, toy_of(fault), tmp_path, **more)
