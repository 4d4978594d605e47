import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.readers.digits import digits
from fedloom.data.source import Source
from fedloom.data.split import Split, canonical, hash_of, make_split, own_order, size_of_test
from fedloom.errors import FedloomError
from fedloom.rng import rng


def toy(samples, sites=None, names=()) -> Source:
    y = np.arange(samples) % 2
    return Source(
        "toy", np.zeros((samples, 1, 2, 2), np.uint8), y, groups=sites, group_names=tuple(names)
    )


@pytest.fixture
def split() -> Split:
    return make_split(toy(20), 2, "iid", 0, min_samples=5, server_share=0.2)


# What comes out


def test_exact(split):
    assert (len(split), split.samples, split.partition, split.seed) == (2, 20, "iid", 0)
    assert (split.data, split.digest, split.test_share) == ("toy", toy(20).digest, 0.2)
    assert split.offsets.tolist() == [0, 8, 16]
    assert split.tests.tolist() == [2, 2]
    assert split.server.tolist() == SERVER
    rest, test = split.client(1)
    assert (test.tolist(), rest.tolist()) == (TEST, REST)
    assert split.hash == HASH


def test_a_client_outside_is_no_client(split):
    for k in (-1, 2):
        with pytest.raises(IndexError, match=f"client {k} of 2"):
            split.client(k)


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [(2, 0.01, 1), (2, 0.99, 1), (10, 0.2, 2), (10, 0.99, 9), (13, 0.2, 3)],
)
def test_size_of_test_part(samples, share, expected):
    assert size_of_test(samples, share) == expected


def test_a_site_alone_finds_the_same_parts():
    """A site needs its samples in their order, the seed and its client number, and nothing else."""
    sites = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0])
    split = make_split(toy(12, sites, ("a", "b")), None, "sites", 5, min_samples=5)
    for k in (0, 1):
        own = np.flatnonzero(sites == k)
        order = own[own_order(5, k, len(own))]
        cut = size_of_test(len(own), 0.2)
        rest, test = split.client(k)
        assert (test.tolist(), rest.tolist()) == (order[:cut].tolist(), order[cut:].tolist())
        assert order.tolist() == own[rng(5, k, "parts").permutation(len(own))].tolist()


def test_the_server_set_is_carved_out_first():
    few = make_split(digits(), 4, "iid", 0, server_share=1e-9)
    assert len(few.server) == 1
    shared = make_split(digits(), 4, "dirichlet:0.5", 0, server_share=0.1)
    assert len(shared.server) == 180
    other = make_split(digits(), 7, "iid", 0, server_share=0.1)
    assert shared.server.tolist() == other.server.tolist()  # it does not depend on the clients


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(40, 150),
    clients=st.integers(1, 5),
    text=st.sampled_from(["iid", "dirichlet:2"]),
    test=st.floats(0.01, 0.99),
    server=st.floats(0, 0.4),
)
def test_every_sample_once_and_sizes_as_asked(seed, samples, clients, text, test, server):
    def make() -> Split:
        return make_split(
            toy(samples), clients, text, seed, test=test, min_samples=2, server_share=server
        )

    split = make()
    assert split.hash == make().hash
    every = [*split.indices.tolist(), *split.server.tolist()]
    assert sorted(every) == list(range(samples))
    assert len(split.server) == (max(1, round(server * samples)) if server else 0)
    for k in range(clients):
        rest, part = split.client(k)
        assert len(part) == min(
            len(rest) + len(part) - 1, max(1, round(test * (len(rest) + len(part))))
        )
        assert len(rest) >= 1


def test_the_hash_depends_on_everything():
    splits = [
        make_split(digits(), 8, "iid", 0),
        make_split(digits(), 8, "iid", 1),
        make_split(digits(), 7, "iid", 0),
        make_split(digits(), 8, "dirichlet:1", 0),
        make_split(digits(), 8, "iid", 0, test=0.3),
        make_split(digits(), 8, "iid", 0, server_share=0.1),
        make_split(Source("other", digits().x + 1, digits().y), 8, "iid", 0),
    ]
    assert len({split.hash for split in splits}) == len(splits)
    spelled = [make_split(digits(), 8, text, 0).hash for text in ("dirichlet:1", "dirichlet:1.00")]
    assert spelled[0] == spelled[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"test": 0}, "between 0 and 1, but got 0;"),
        ({"test": 1.0}, "between 0 and 1, but got 1.0;"),
        ({"test": float("nan")}, "between 0 and 1, but got nan;"),
        ({"server_share": 1}, "below 1, but got 1;"),
        ({"server_share": -0.1}, "below 1, but got -0.1;"),
        ({"min_samples": 1}, "at least 2, one to train on and one to test on, but got 1;"),
        ({"min_samples": 11}, "try 1 client or fewer"),
    ],
)
def test_refuses(options, expected):
    with pytest.raises(FedloomError) as caught:
        make_split(toy(20), 2, "iid", 0, **{"min_samples": 5, **options})
    assert expected in str(caught.value)


# The file


def test_save_and_load(split, tmp_path):
    path = tmp_path / "new" / "split.json"
    split.save(path)
    split.save(path)  # over the old one
    assert os.listdir(path.parent) == ["split.json"]
    loaded = Split.load(path)
    assert loaded.hash == split.hash
    assert canonical(loaded.content()) == canonical(split.content())
    assert loaded.indices.dtype == np.int64
    raw = json.loads(path.read_text())
    assert raw.pop("hash") == split.hash == hash_of(raw)


def test_a_failed_write_leaves_the_old_file(split, tmp_path, monkeypatch):
    path = tmp_path / "split.json"
    split.save(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        make_split(toy(20), 2, "iid", 1, min_samples=5).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["split.json"]


def refusal(path) -> str:
    with pytest.raises(FedloomError) as caught:
        Split.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_missing_or_no_json(tmp_path, split):
    path = tmp_path / "split.json"
    assert "but there is none" in refusal(path)
    split.save(path)
    whole = path.read_bytes()
    damage = {
        b"": "does not parse",
        whole[:-5]: "does not parse",
        b"\xff\xfe": "not text in UTF-8",
        b"[" * 100_000: "nested too deeply",
        whole.replace(b"{", b'{"seed": 1,'): "the name 'seed' twice",
    }
    for content, reason in damage.items():
        path.write_bytes(content)
        assert reason in refusal(path)
    for text in ("[]", "3", "{}", '{"format": "fedloom split 2"}'):
        path.write_text(text)
        assert "does not say 'fedloom split 1'" in refusal(path)


@pytest.mark.parametrize(
    "key", ["hash", "data", "digest", "samples", "seed", "indices", "offsets", "tests", "server"]
)
def test_missing_and_surplus_keys(tmp_path, split, key):
    path = tmp_path / "split.json"
    content = {**split.content(), "hash": split.hash}
    path.write_text(json.dumps({name: value for name, value in content.items() if name != key}))
    assert f"lacks keys ({key})" in refusal(path)
    path.write_text(json.dumps({**content, "more": 1}))
    assert "has unknown ones (more)" in refusal(path)


def test_an_edited_file(tmp_path, split):
    path = tmp_path / "split.json"
    split.save(path)
    path.write_text(path.read_text().replace('"seed":0', '"seed":1'))
    assert "damaged or edited" in refusal(path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"samples": 19}, "outside 0..18"),
        ({"indices": [-1, *range(1, 16)], "server": [16]}, "outside 0..19"),
        ({"indices": [*range(15), 3], "server": []}, "sample 3 is in two places"),
        ({"indices": [*range(16)], "server": [7]}, "sample 7 is in two places"),
        ({"offsets": [0, 8, 15]}, "offsets do not match"),
        ({"offsets": [1, 8, 16]}, "offsets do not match"),
        ({"offsets": [0, 16]}, "offsets do not match"),
        ({"offsets": [0, 17, 16]}, "no test part or nothing beside it"),
        ({"offsets": [0], "tests": [], "indices": []}, "no test part or nothing beside it"),
        ({"tests": [0, 2]}, "no test part or nothing beside it"),
        ({"tests": [8, 2]}, "no test part or nothing beside it"),
        ({"tests": [2.0, 2]}, "tests is not a list of integers"),
        ({"tests": [[2], 2]}, "tests is not a list of integers"),
        ({"tests": [True, 2]}, "tests is not a list of integers"),
        ({"server": 3}, "server is not a list of integers"),
        ({"server": [2**70]}, "beyond 64 bits"),
        ({"seed": "0"}, "seed is '0'"),
        ({"samples": True}, "samples is True"),
        ({"test_share": 2.0}, "test_share is 2.0"),
        ({"test_share": float("nan")}, "it has NaN"),
    ],
)
def test_wrong_content_under_a_right_hash(tmp_path, split, change, expected):
    path = tmp_path / "split.json"
    content = {**split.content(), **change}
    path.write_text(json.dumps({**content, "hash": hash_of(content)}))
    assert expected in refusal(path)


# Drawn once; see test_partition.py.
SERVER = [4, 5, 9, 18]
TEST = [8, 19]
REST = [11, 16, 10, 12, 2, 3]
HASH = "c588f2672a4f6f4a419dcf16f5ce6ba38e48e8b835b82a659df9af1ae1c80127"
