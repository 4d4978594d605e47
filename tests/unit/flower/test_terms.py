"""What a federation settles before its first order: one normalisation for all, and how each site divides its data."""

import numpy as np
import pytest
import torch

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.sources import open_source
from fedloom.data.split import make_split
from fedloom.deploy.terms import Facts, Terms, own_data, settled, split_of
from fedloom.errors import FedloomError

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


# A site's own parts


@pytest.fixture
def folder(tmp_path):
    """Two sites of other sizes. A sample's one value is its number, so that parts can be told apart."""
    for name, samples in (("east", 30), ("west", 47)):
        x = np.arange(samples, dtype=np.uint8).reshape(-1, 1, 1)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(samples) % 2)
    return tmp_path


TERMS = Terms(seed=5, test=0.2, hold=0.25)


def test_a_site_divides_its_samples_as_an_embedded_run_would(folder, tmp_path_factory):
    together = open_source(str(folder), None)
    split = make_split(together, None, "sites", TERMS.seed, test=TERMS.test)
    clients_data = MappedClients.build(tmp_path_factory.mktemp("data"), together, split)
    for client, name in enumerate(("east", "west")):
        alone = own_data(open_source(str(folder / f"{name}.npz"), None), client, TERMS)
        embedded = clients_data.client(client, TERMS.hold)
        for part in ("train", "validation", "test"):
            assert torch.equal(getattr(alone, part).x, getattr(embedded, part).x), (name, part)
            assert torch.equal(getattr(alone, part).y, getattr(embedded, part).y), (name, part)


def test_no_sample_of_a_site_is_in_two_parts(folder):
    found = own_data(open_source(str(folder / "west.npz"), None), 1, TERMS)
    parts = [set(part.x.flatten().tolist()) for part in (found.train, found.validation, found.test)]
    assert [len(part) for part in parts] == [28, 10, 9]
    assert set.union(*parts) == set(range(47))


def test_the_servers_picture_of_the_split_has_the_sites_sizes():
    facts = {"west": site(samples=47), "east": site(samples=30)}
    split = split_of(facts, TERMS.seed, TERMS.test, 10)
    assert (split.offsets.tolist(), split.tests.tolist()) == ([0, 30, 77], [6, 9])
    with pytest.raises(FedloomError, match="every site must have at least 31 samples, but east has 30"):
        split_of(facts, TERMS.seed, TERMS.test, 31)


def test_facts_and_terms_with_a_key_that_stands_twice():
    facts = site().model_dump_json()
    assert Facts.read(facts) == site()
    with pytest.raises(ValueError, match="a key stands twice"):
        Facts.read(facts.replace('"samples":10', '"samples":9,"samples":10'))
    terms = '{"seed": 1, "test": 0.5, "hold": 0.0}'
    assert Terms.read(terms).seed == 1
    with pytest.raises(ValueError, match="a key stands twice"):
        Terms.read(terms.replace('"seed"', '"seed": 2, "seed"'))
