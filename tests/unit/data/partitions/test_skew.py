import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.partition import partition
from fedloom.data.readers.digits import digits as read_digits
from fedloom.data.source import Source
from fedloom.errors import FedloomError

DIGITS = read_digits()


def digits() -> Source:
    return DIGITS


def toy(y) -> Source:
    y = np.asarray(y, np.int64)
    return Source("toy", np.zeros((len(y), 1, 1, 1), np.uint8), y)


def attempted(make):
    """What it makes, or the one sentence that says why not."""
    try:
        return make(), ""
    except FedloomError as error:
        return None, str(error)


def counts(source, clients, text, seed=0, min_samples=1, indices=None) -> np.ndarray:
    """[client, class]; every sample is somewhere exactly once."""
    indices = np.arange(len(source.y)) if indices is None else indices
    parts = partition(source, indices, clients, text, seed, min_samples)
    assert np.concatenate(parts).size == len(indices)
    assert set(np.concatenate(parts).tolist()) == set(indices.tolist())
    return np.array([np.bincount(source.y[part], minlength=source.y.max() + 1) for part in parts])


def refusal(source, clients, text, **options) -> str:
    with pytest.raises(FedloomError) as caught:
        counts(source, clients, text, **options)
    return str(caught.value)


# dirichlet-equal


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    clients=st.integers(1, 30),
    alpha=st.sampled_from(["1e-12", "0.1", "1", "1000", "1e300"]),
)
def test_equal_clients_whatever_the_concentration(seed, clients, alpha):
    table = counts(digits(), clients, f"dirichlet-equal:{alpha}", seed)
    assert np.ptp(table.sum(axis=1)) <= 1


def test_a_large_concentration_gives_everybody_the_same_classes():
    uneven = toy(np.repeat([0, 1, 2], [600, 300, 100]))
    table = counts(uneven, 10, "dirichlet-equal:1e9")
    assert np.abs(table - [60, 30, 10]).max() <= 1


def test_the_smaller_the_concentration_the_fewer_classes():
    classes = []
    for alpha in (0.01, 0.1, 1, 100):
        table = counts(digits(), 20, f"dirichlet-equal:{alpha}")
        classes.append((table > 0).sum())
    assert classes == sorted(classes)
    assert classes[0] < 70
    assert classes[-1] == 200


def test_shares_follow_the_distribution():
    """With many clients the scaling changes little.

    Dir(0.5) over 4 classes has mean 1/4 and variance 3/48.
    """
    table = counts(toy(np.arange(400_000) % 4), 2000, "dirichlet-equal:0.5") / 200
    assert table.mean(axis=0) == pytest.approx([0.25] * 4, abs=1e-9)
    assert table.var(axis=0) == pytest.approx([3 / 48] * 4, abs=0.006)


# label-skew and missing


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 40), each=st.integers(1, 11))
def test_so_many_classes_a_client_or_a_setting_that_fits(seed, clients, each):
    source = digits()
    table, refused = attempted(lambda: counts(source, clients, f"label-skew:{each}", seed))
    if table is None:
        assert each > 10 or clients * each < 10 or "from the equal share of" in refused
        again = refused.rsplit("try ", 1)[1].rstrip(".")
        table = counts(source, clients, again, seed)
        each = int(again.split(":")[1])
    assert ((table > 0).sum(axis=1) == each).all()
    sizes = table.sum(axis=1)
    if each == 10:
        assert np.ptp(sizes) <= 1
    assert np.abs(sizes - sizes.mean()).max() <= 0.25 * sizes.mean() + 1


@pytest.mark.parametrize("each", [1, 2, 3, 7])
def test_equal_classes_give_equal_clients(each):
    """As in CIFAR-10: where classes divide evenly, nobody differs by more than one sample."""
    table = counts(toy(np.arange(6000) % 10), 20, f"label-skew:{each}")
    assert np.ptp(table.sum(axis=1)) <= 1
    assert ((table > 0).sum(axis=1) == each).all()


def test_a_large_class_has_more_clients():
    table = counts(toy(np.repeat([0, 1], [900, 100])), 10, "label-skew:1")
    assert (table > 0).sum(axis=0).tolist() == [9, 1]
    assert table.sum(axis=1).tolist() == [100] * 10


@pytest.mark.parametrize(
    ("share", "absent"), [("0", 0), ("0.1", 1), ("0.34", 3), ("0.4", 4), ("0.9", 9), ("0.99", 9)]
)
def test_missing_classes(share, absent):
    table = counts(digits(), 30, f"missing:{share}")
    assert ((table == 0).sum(axis=1) == absent).all()
    if absent < 9:
        assert np.ptp(table.sum(axis=1)) <= 1
        present_counts = table[table > 0]
        assert (
            present_counts.max() <= 2.5 * present_counts.min()
        )  # the classes that are there are there about evenly


def test_classes_are_drawn():
    has_class = [(counts(digits(), 5, "label-skew:2", seed) > 0).tolist() for seed in range(3)]
    assert has_class[0] != has_class[1] != has_class[2]


# dominant


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    clients=st.integers(10, 60),
    share=st.sampled_from([0.1, 0.2, 0.33, 0.4, 0.6, 0.8]),
)
def test_one_class_dominates(seed, clients, share):
    source = toy(np.arange(6000) % 10)
    table, refused = attempted(lambda: counts(source, clients, f"dominant:{share}", seed))
    if table is None:
        assert share * -(-clients // 10) * (6000 // clients) > 600 - clients, refused
        return
    sizes = table.sum(axis=1)
    assert np.ptp(sizes) <= 1
    main = np.rint(share * sizes)
    assert (table == main[:, None]).any(axis=1).all()
    if share > 0.3:
        assert (table.max(axis=1) == main).all()


def test_every_class_dominates_as_many_clients():
    table = counts(toy(np.arange(6000) % 10), 20, "dominant:0.8")
    assert np.bincount(table.argmax(axis=1)).tolist() == [2] * 10
    assert set(table.max(axis=1)) == {240}
    assert table.min() >= 6  # the rest is spread over all others


# What cannot be


@pytest.mark.parametrize(
    ("clients", "text", "expected"),
    [
        (
            4,
            "label-skew:2",
            "4 clients 2 of 10 classes, equally many, but then only 8 of 10 classes could be held; "
            "try label-skew:3.",
        ),
        (4, "label-skew:11", "but there are 10; try label-skew:10."),
        (1, "missing:0.5", "but then only 5 of 10 classes could be held; try missing:0."),
        (2, "missing:0.9", "but then only 2 of 10 classes could be held; try missing:0.5."),
        (
            8,
            "dominant:0.9",
            "each of 8 clients 0.9 of its samples from one class, but the sizes of the 10 classes "
            "do not allow it; try dominant:0.75 or other --clients.",
        ),
        (1, "dominant:0.5", "try other --clients, or dirichlet-equal:0.5."),
    ],
)
def test_refuses_and_says_what_fits(clients, text, expected):
    assert expected in refusal(digits(), clients, text)
    suggested = expected.rsplit("try ", 1)[1].rstrip(".").split(" or ")[0]
    if not suggested.startswith("other"):
        counts(digits(), clients, suggested)


def test_uneven_classes_are_refused():
    source = toy(np.repeat([0, 1, 2], [1000, 1000, 10]))
    assert (
        "a client would be 660 samples from the equal share of 670; try label-skew:2."
        in refusal(source, 3, "label-skew:1")
    )
    assert "the smallest class has 10 samples, too few" in refusal(source, 20, "label-skew:3")


@pytest.mark.parametrize(
    "text", ["dirichlet-equal:1", "label-skew:1", "missing:0.5", "dominant:0.5"]
)
def test_too_few_samples_for_so_many_clients(text):
    source = toy([0, 1] * 10)
    assert "each of 3 clients at least 8 samples, but there are 20" in refusal(
        source, 3, text, min_samples=8
    )
    assert "at least 1 client, but got None" in refusal(source, None, text)
    assert "at least 1 client, but got 0" in refusal(source, 0, text)


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    clients=st.integers(1, 12),
    text=st.sampled_from(
        ["dirichlet-equal:0.1", "label-skew:1", "label-skew:2", "missing:0.4", "dominant:0.7"]
    ),
    share=st.floats(0.3, 1),
)
def test_any_classes_give_a_partition_or_one_error(seed, sizes, clients, text, share):
    source = toy(np.repeat(np.arange(len(sizes)), sizes))
    draw = np.random.default_rng(seed)
    indices = draw.permutation(len(source.y))[: max(1, int(share * len(source.y)))]
    started = time.monotonic()
    table, refused = attempted(lambda: counts(source, clients, text, seed, indices=indices))
    if table is None:
        assert "try " in refused or "lower" in refused
    else:
        assert (table == counts(source, clients, text, seed, indices=np.sort(indices))).all()
    assert time.monotonic() - started < 20


def test_some_thousand_clients_take_seconds():
    source = toy(np.arange(200_000) % 100)
    for text in ("dirichlet-equal:0.1", "label-skew:5", "missing:0.3", "dominant:0.5"):
        started = time.monotonic()
        table = counts(source, 2000, text)
        assert np.ptp(table.sum(axis=1)) <= 1
        assert time.monotonic() - started < 15
