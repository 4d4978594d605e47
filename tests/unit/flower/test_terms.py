"""What a federation settles before its first order: one normalisation for all."""

import pytest

from fedloom.errors import FedloomError
from fedloom.flower.terms import Facts, Terms, settled

BYTES = {"mean": (127.5, 127.5), "std": (127.5, 127.5)}
SHARES = {"mean": (0.0, 0.0), "std": (1.0, 1.0)}


def site(**changes):
    plain = {"kind": "image", "shape": (2, 8, 8), "labels": ("a", "b"), "named": True, "samples": 10, **BYTES}
    return Facts(**{**plain, **changes})


def test_sites_that_agree_are_taken_at_their_word():
    common = settled({"east": site(), "west": site()}, None, None)
    assert (common.mean, common.std, common.samples) == (*BYTES.values(), 20)


def test_a_site_in_other_units_is_named():
    facts = {"east": site(), "north": site(), "west": site(**SHARES)}
    message = r"normalise their data alike, but west has mean \[0.0, 0.0\] .* most have \[127.5, 127.5\]"
    with pytest.raises(FedloomError, match=message):
        settled(facts, None, None)


def test_a_site_of_another_shape_is_left_to_its_description():
    """Which names it; the others go on."""
    other = site(shape=(1, 8, 8), mean=(3.0,), std=(1.0,))
    assert settled({"east": site(), "north": site(), "west": other}, None, None).mean == (127.5, 127.5)


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        ([1.0, 2.0], [3.0], ((1.0, 2.0), (3.0, 3.0))),
        ([5.0], None, ((5.0, 5.0), (127.5, 127.5))),
        (None, [4.0], ((127.5, 127.5), (4.0, 4.0))),
    ],
)
def test_what_the_user_gives_is_for_all(mean, std, expected):
    common = settled({"east": site(), "north": site(), "west": site(**SHARES)}, mean, std)
    assert (common.mean, common.std) == expected


def test_given_constants_must_fit():
    with pytest.raises(FedloomError, match="mean must be 1 or 2 finite numbers"):
        settled({"east": site()}, [1.0, 2.0, 3.0], None)


def test_facts_and_terms_with_a_key_that_stands_twice():
    facts = site().model_dump_json()
    assert Facts.read(facts) == site()
    with pytest.raises(ValueError, match="a key stands twice"):
        Facts.read(facts.replace('"samples":10', '"samples":9,"samples":10'))
    terms = '{"seed": 1, "test": 0.5, "hold": 0.0}'
    assert Terms.read(terms).seed == 1
    with pytest.raises(ValueError, match="a key stands twice"):
        Terms.read(terms.replace('"seed"', '"seed": 2, "seed"'))
