import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.parts import size_of_held
from fedloom.data.source import Source
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError


def toy(official, groups=None, names=()) -> Source:
    official = None if official is None else np.asarray(official, np.uint8)
    samples = 60 if official is None else len(official)
    x = np.arange(samples, dtype=np.uint8)[:, None, None, None]
    return Source(
        "toy",
        x,
        np.arange(samples) % 2,
        ("a", "b"),
        groups=groups,
        group_names=tuple(names),
        grouping="speaker",
        official=official,
    )


def attempted(make):
    """What it makes, or the one sentence that says why not."""
    try:
        return make(), ""
    except FedloomError as error:
        return None, str(error)


def parts_of(source, split):
    """For every client the official parts of its rest, in their order, and of its test part."""
    parts = []
    for client in range(len(split)):
        rest, test = split.client(client)
        parts.append((source.official[rest].tolist(), source.official[test].tolist()))
    return parts


def test_the_official_test_part():
    source = toy([0] * 30 + [1] * 12 + [2] * 18)
    split = make_split(source, 3, "iid", 0, parts="official")
    for rest, test in parts_of(source, split):
        assert set(test) == {2}
        assert rest == sorted(rest)  # validation at the end, where it is held back
        assert set(rest) == {0, 1}
    assert split.tests.sum() == 18
    assert split.test_share == 0.3
    assert sorted(split.indices.tolist()) == list(range(60))


def test_what_is_held_back_is_official_first(tmp_path):
    source = toy([0] * 30 + [1] * 12 + [2] * 18)
    clients_data = MappedClients.build(
        tmp_path, source, make_split(source, 1, "iid", 0, parts="official")
    )
    data = clients_data.client(0, hold=12 / 42)
    assert sorted(data.validation.x.flatten().tolist()) == list(range(30, 42))
    assert sorted(data.test.x.flatten().tolist()) == list(range(42, 60))
    assert sorted(clients_data.client(0, hold=0.1).validation.x.flatten().tolist()) != []
    assert set(clients_data.client(0, hold=0.1).validation.x.flatten().tolist()) <= set(
        range(30, 42)
    )


def test_the_order_within_each_part_is_the_clients_own():
    source = toy([0] * 40 + [2] * 20)
    own, official = (make_split(source, 2, "iid", 5, parts=parts) for parts in (None, "official"))
    for client in range(2):
        order = [*own.client(client)[1], *own.client(client)[0]]
        rest, test = official.client(client)
        assert rest.tolist() == [i for i in order if source.official[i] == 0]
        assert test.tolist() == [i for i in order if source.official[i] == 2]


def test_own_is_the_default():
    source = toy([0] * 40 + [2] * 20)
    assert make_split(source, 2, "iid", 5).hash == make_split(source, 2, "iid", 5, parts="own").hash


def test_the_server_never_gets_official_test_samples():
    source = toy([0] * 40 + [2] * 20)
    split = make_split(source, 2, "iid", 1, parts="official", server_share=0.5)
    assert len(split.server) == 30
    assert set(source.official[split.server].tolist()) == {0}
    assert split.tests.sum() == 20


def test_the_file_is_read_again(tmp_path):
    source = toy([0] * 40 + [2] * 20)
    split = make_split(source, 2, "iid", 1, parts="official")
    split.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json").hash == split.hash


@settings(deadline=None, max_examples=60)
@given(
    official=st.lists(st.sampled_from([0, 0, 1, 2]), min_size=20, max_size=60),
    seed=st.integers(0, 2**32),
)
def test_every_official_test_sample_tests(official, seed):
    source = toy(official)
    split, refused = attempted(
        lambda: make_split(source, 3, "iid", seed, min_samples=2, parts="official")
    )
    if split is None:
        assert "`--parts official`" in refused
        return
    tested = np.concatenate([split.client(k)[1] for k in range(3)])
    assert sorted(tested.tolist()) == np.flatnonzero(source.official == 2).tolist()


def refusal(source, clients, partition="iid") -> str:
    with pytest.raises(FedloomError) as caught:
        make_split(source, clients, partition, 0, min_samples=2, parts="official")
    return str(caught.value)


def test_refuses():
    assert (
        "must have data with an official test part, but toy has none; leave --parts out."
        in refusal(toy(None), 2)
    )
    speakers = np.repeat([0, 1, 2], 10)
    text = refusal(
        toy([0] * 10 + [0] * 5 + [2] * 5 + [2] * 10, speakers, ("ann", "bob", "cat")),
        None,
        "natural",
    )
    assert (
        "client 0 (ann) has no test samples, and so have 1 of 3 clients; try fewer --clients"
        in text
    )
    text = refusal(toy([0, 2] * 10 + [2] * 10, speakers, ("ann", "bob", "cat")), None, "natural")
    assert "client 2 (cat) has only test samples, and so have 1 of 3 clients" in text
    assert "client 0 has no test samples, and so have 2 of 2 clients" in refusal(toy([0] * 20), 2)


@given(rest=st.integers(1, 500), share=st.floats(0, 0.99))
def test_sizes_of_what_is_held_back(rest, share):
    size = size_of_held(rest, share)
    assert 0 <= size < rest
    assert abs(size - share * rest) <= 1


@pytest.mark.parametrize(
    ("train", "expected"), [(0.5, (40, 40, 20)), (0.75, (60, 20, 20)), (0.9, (72, 8, 20))]
)
def test_the_ratios_of_the_papers(tmp_path, train, expected):
    """The parts of 100 samples, a fifth of which are for testing.

    FedNAS halves the rest, SPIDER trains on 60 of 80, FedorAS on 90 %.
    """
    source = Source("toy", np.zeros((300, 1, 1, 1), np.uint8), np.arange(300) % 4)
    for text in ("iid", "dirichlet-equal:0.5", "dominant:0.6"):
        clients_data = MappedClients.build(tmp_path / text, source, make_split(source, 3, text, 0))
        for client in range(3):
            data = clients_data.client(client)
            first, second = data.train.split(train)
            assert (len(first), len(second), len(data.test)) == expected
