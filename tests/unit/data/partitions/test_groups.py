import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.partition import partition
from fedloom.data.source import Source
from fedloom.errors import FedloomError


def toy(sizes, grouping="writer") -> Source:
    """Groups of these sizes, their samples mixed."""
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    names = tuple(f"w{number}" for number in range(len(sizes)))
    x = np.zeros((len(groups), 1, 1, 1), np.uint8)
    return Source(
        "toy", x, np.arange(len(groups)) % 2, groups=groups, group_names=names, grouping=grouping
    )


def dealt(source, clients=None, seed=0, min_samples=2):
    return partition(source, np.arange(len(source.y)), clients, "natural", seed, min_samples)


def attempted(make):
    """What it makes, or the one sentence that says why not."""
    try:
        return make(), ""
    except FedloomError as error:
        return None, str(error)


def groups_of(source, part) -> set[int]:
    return set(source.groups[part].tolist())


def refusal(source, *arguments, **options) -> str:
    with pytest.raises(FedloomError) as caught:
        dealt(source, *arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("clients", [None, 3])
def test_a_group_is_a_client(clients):
    source = toy([5, 3, 7])
    parts = dealt(source, clients)
    assert [groups_of(source, part) for part in parts] == [{0}, {1}, {2}]
    assert [len(part) for part in parts] == [5, 3, 7]


def test_more_clients_cut_the_largest_groups():
    source = toy([10, 4, 21])
    parts = dealt(source, 6)
    assert [groups_of(source, part) for part in parts] == [{0}, {1}, {2}, {2}, {2}, {2}]
    assert [len(part) for part in parts] == [10, 4, 6, 5, 5, 5]


def test_fewer_clients_join_whole_groups():
    source = toy([9, 5, 4, 3, 3])
    parts = dealt(source, 2)
    assert sorted(len(part) for part in parts) == [12, 12]
    together = [groups_of(source, part) for part in parts]
    assert together[0] & together[1] == set()
    assert {0} in [group & {0, 1} for group in together]  # the two largest are apart


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=20),
    clients=st.integers(1, 60),
    least=st.integers(1, 8),
)
def test_every_sample_once_and_groups_unmixed_or_whole(seed, sizes, clients, least):
    source = toy(sizes)
    parts, refused = attempted(lambda: dealt(source, clients, seed, least))
    if parts is None:
        assert "at least" in refused
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(sum(sizes)))
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= least
    groups_by_client = [groups_of(source, part) for part in parts]
    if clients >= len(sizes):
        assert all(len(groups) == 1 for groups in groups_by_client)
    else:
        assert sum(len(groups) for groups in groups_by_client) == len(
            sizes
        )  # nobody is in two places
        bound = sum(sizes) / clients + max(sizes)
        assert max(len(part) for part in parts) <= bound
    again = dealt(source, clients, seed, least)
    assert [part.tolist() for part in parts] == [part.tolist() for part in again]


def test_shards_are_drawn():
    source = toy([40, 10])
    assert dealt(source, 5, seed=0)[0].tolist() != dealt(source, 5, seed=1)[0].tolist()


# What is refused


def test_data_without_groups():
    source = Source("plain", np.zeros((4, 1, 1, 1), np.uint8), np.arange(4))
    text = refusal(source)
    assert (
        "must have data that says who each sample comes from, but plain does not; try iid" in text
    )


def test_small_groups_and_what_would_fit():
    source = toy([20, 12, 6, 5, 30], "speaker")
    text = refusal(source, min_samples=10)
    assert "each speaker must have at least 10 samples to be a client, but 2 of 5 have" in text
    assert "have fewer (w3 has 5); " in text
    assert "try --clients 4, which joins them, or --min-samples 5." in text
    assert min(len(part) for part in dealt(source, 4, min_samples=10)) == 11
    assert min(len(part) for part in dealt(source, min_samples=5)) == 5


def test_joined_groups_that_are_still_small():
    text = refusal(toy([3, 3, 3, 3]), 3, min_samples=4)
    assert (
        "4 of 4 have fewer (w0 has 3); try --clients 2, which joins them, or another partition."
        in text
    )


def test_all_samples_together_are_too_few():
    assert "4 of 4 have fewer (w0 has 3); try another partition." in refusal(
        toy([3, 3, 3, 3]), min_samples=13
    )


def test_too_many_shards_and_what_would_fit():
    source = toy([23, 13])
    text = refusal(source, 9, min_samples=4)
    assert "each of 9 clients at least 4 samples, but clients are shards of 2 writers" in text
    assert "shards of 2 writers, which must not be mixed" in text
    assert "try --clients 8 or fewer." in text
    assert len(dealt(source, 8, min_samples=4)) == 8


def test_cutting_does_not_help_a_small_group():
    text = refusal(toy([40, 3, 20]), 5, min_samples=5)
    assert "but 1 of 3 writers have fewer samples than that; try --clients 2, which" in text
    assert "which joins them." in text
    assert len(dealt(toy([40, 3, 20]), 2, min_samples=5)) == 2


def test_a_group_that_went_to_the_server_whole():
    source = toy([4, 4])
    samples_of_group = np.flatnonzero(source.groups == 1)
    with pytest.raises(FedloomError, match="1 of 2 have fewer \\(w0 has 0\\)"):
        partition(source, samples_of_group, None, "natural", 0, 2)
