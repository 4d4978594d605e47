"""What a federation settles before its first order: a normalisation, and how sites divide data."""

import numpy as np
import pytest
import torch

from fedloom.data.labels import with_labels
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.sources import open_source
from fedloom.data.split import make_split
from fedloom.data.tables.rules import TableRules
from fedloom.data.tables.samples import table_sums
from fedloom.data.tables.table import Numbers, number_in, table_of, texts_of
from fedloom.deploy import terms
from fedloom.deploy.terms import Facts, Terms, own_data, settled, split_of
from fedloom.errors import FedloomError

BYTES = {"mean": (127.5, 127.5), "std": (127.5, 127.5)}
SHARES = {"mean": (0.0, 0.0), "std": (1.0, 1.0)}


def site(**changes):
    plain = {
        "kind": "image",
        "shape": (2, 8, 8),
        "labels": ("a", "b"),
        "named": True,
        "samples": 10,
        **BYTES,
    }
    return Facts(**{**plain, **changes})


def test_sites_that_agree_are_taken_at_their_word():
    common = settled({"east": site(), "west": site()}, None, None)
    assert (common.mean, common.std, common.samples) == (*BYTES.values(), 20)


def test_a_site_in_other_units_is_named():
    facts = {"east": site(), "north": site(), "west": site(**SHARES)}
    message = (
        r"normalise their data alike, but west has mean \[0.0, 0.0\] .* most have \[127.5, 127.5\]"
    )
    with pytest.raises(FedloomError, match=message):
        settled(facts, None, None)


def test_a_site_of_another_shape_is_left_to_its_description():
    """Which names it; the others go on."""
    other = site(shape=(1, 8, 8), mean=(3.0,), std=(1.0,))
    assert settled({"east": site(), "north": site(), "west": other}, None, None).mean == (
        127.5,
        127.5,
    )


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


# Classes


def test_the_classes_of_all_sites_are_in_sorted_order():
    facts = {"east": site(labels=("flu", "cold")), "west": site(labels=("well", "flu"))}
    common = settled(facts, None, None)
    assert (common.labels, common.named) == (("cold", "flu", "well"), True)


def test_one_list_stays_in_its_order():
    facts = {"east": site(labels=("flu", "cold")), "west": site(labels=("flu", "cold"))}
    assert settled(facts, None, None).labels == ("flu", "cold")


def test_sites_that_differ_in_classes_alone_vote_together():
    alike = {name: site(labels=(name, "x")) for name in ("a", "b", "c")}
    other = {name: site(shape=(2, 9, 9)) for name in ("d", "e")}
    common = settled({**alike, **other}, None, None)
    assert (common.shape, common.labels) == ((2, 8, 8), ("a", "b", "c", "x"))


@pytest.mark.parametrize(
    ("labels", "named", "expected"),
    [
        ([("0", "1"), ("0", "1", "2")], [False, False], ("0", "1", "2")),
        ([("0", "1", "2"), ("1", "2", "10")], [False, True], ("0", "1", "2", "10")),
        ([("1", "2"), ("0", "1", "2")], [True, False], ("0", "1", "2")),
    ],
)
def test_numbers_are_joined_as_numbers(labels, named, expected):
    facts = {}
    for number, (names, is_named) in enumerate(zip(labels, named, strict=True)):
        facts[f"site {number}"] = site(labels=names, named=is_named)
    common = settled(facts, None, None)
    assert common.labels == expected
    assert common.named == (expected != tuple(map(str, range(len(expected)))))


def test_numbers_are_not_joined_with_names():
    facts = {"a": site(), "b": site(labels=("b", "c")), "c": site(labels=("0", "1"), named=False)}
    assert settled(facts, None, None).labels == ("a", "b", "c")


def test_symbols_of_a_text_are_those_of_most_sites():
    text = {"kind": "text", "shape": (8,), "mean": (), "std": ()}
    facts = {"a": site(labels=("x", "y"), **text), "b": site(labels=("x", "z"), **text)}
    assert settled({**facts, "c": facts["b"]}, None, None).labels == ("x", "z")


def test_a_run_of_an_earlier_version_keeps_the_classes_of_most_sites():
    facts = {
        "a": site(labels=("x", "y")),
        "b": site(labels=("x", "z")),
        "c": site(labels=("x", "z")),
    }
    assert settled(facts, None, None, joins_labels=False).labels == ("x", "z")
    numbered = {
        "a": site(labels=("0", "1"), named=False),
        "b": site(labels=("0", "1", "2"), named=False),
    }
    assert settled(numbered, None, None, joins_labels=False).labels == ("0", "1", "2")


def test_more_classes_than_there_may_be(monkeypatch):
    monkeypatch.setattr(terms, "MAX_CLASSES", 3)
    facts = {"east": site(labels=("a", "b")), "west": site(labels=("c", "d"))}
    with pytest.raises(FedloomError, match="together must have at most 3 classes, but they name 4"):
        settled(facts, None, None)


def test_a_site_has_the_samples_of_an_embedded_run_with_the_same_classes(
    tmp_path, tmp_path_factory
):
    labels = {"east": ("flu", "cold"), "west": ("well", "flu", "cold")}
    for name, names in labels.items():
        x = np.random.default_rng(len(names)).integers(256, size=(30, 4, 4), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(30) % len(names), labels=names)
    together = open_source(str(tmp_path))
    facts = {}
    for name in labels:
        facts[name] = Facts.of(open_source(str(tmp_path / f"{name}.npz")), named=True)
    common = settled(facts, None, None)
    assert common.labels == together.labels == ("cold", "flu", "well")
    split = make_split(together, None, "sites", TERMS.seed, test=TERMS.test)
    clients_data = MappedClients.build(tmp_path_factory.mktemp("data"), together, split)
    for client, name in enumerate(labels):
        alone = with_labels(open_source(str(tmp_path / f"{name}.npz")), common.labels)
        assert alone.labels == common.labels
        embedded = clients_data.client(client, TERMS.hold)
        for part in ("train", "validation", "test"):
            own = getattr(own_data(alone, client, TERMS), part)
            assert torch.equal(own.x, getattr(embedded, part).x), (name, part)
            assert torch.equal(own.y, getattr(embedded, part).y), (name, part)


def test_a_site_with_classes_that_the_run_does_not_know_keeps_its_own(tmp_path):
    np.savez(
        tmp_path / "a.npz", x=np.zeros((4, 4, 4), np.uint8), y=np.arange(4) % 2, labels=["x", "y"]
    )
    source = open_source(str(tmp_path / "a.npz"))
    assert with_labels(source, ("x", "z")) is source


# A site's own parts


@pytest.fixture
def folder(tmp_path):
    """Two sites of different sizes. A sample's only value is its number, which identifies it."""
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
    data = own_data(open_source(str(folder / "west.npz"), None), 1, TERMS)
    parts = [set(part.x.flatten().tolist()) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [28, 10, 9]
    assert set.union(*parts) == set(range(47))


def test_the_servers_picture_of_the_split_has_the_sites_sizes():
    facts = {"west": site(samples=47), "east": site(samples=30)}
    split = split_of(facts, TERMS.seed, TERMS.test, 10)
    assert (split.offsets.tolist(), split.tests.tolist()) == ([0, 30, 77], [6, 9])
    with pytest.raises(
        FedloomError, match="every site must have at least 31 samples, but east has 30"
    ):
        split_of(facts, TERMS.seed, TERMS.test, 31)


def test_facts_and_terms_with_a_key_that_stands_twice():
    facts = site().model_dump_json()
    assert Facts.read(facts) == site()
    with pytest.raises(ValueError, match="an object has the same key twice"):
        Facts.read(facts.replace('"samples":10', '"samples":9,"samples":10'))
    text = '{"seed": 1, "test": 0.5, "hold": 0.0}'
    assert Terms.read(text).seed == 1
    with pytest.raises(ValueError, match="an object has the same key twice"):
        Terms.read(text.replace('"seed"', '"seed": 2, "seed"'))


# Tables


def table_facts(lines, **rules):
    columns = {}
    header, *rows = [line.split(",") for line in lines]
    for place, name in enumerate(header):
        cells = [row[place] for row in rows]
        numbers = [number_in(cell) for cell in cells]
        columns[name] = texts_of(cells)
        if None not in numbers:
            columns[name] = Numbers(np.array(numbers, float))
    table = table_of("t.csv", columns)
    return Facts.of_table(table_sums(table, TableRules(**rules)), len(table))


def test_facts_of_a_table_cross_the_wire():
    facts = table_facts(["age,ward,label", "30,e,1.5", ",w,2"])
    assert Facts.read(facts.to_json()) == facts
    assert (facts.table.columns["age"].count, facts.table.columns["age"].missing) == (1, 1)


def test_tables_agree_on_columns_and_classes():
    facts = {
        "west": table_facts(["age,ward,label", "30,e,ill", "50,w,well"]),
        "east": table_facts(["ward,age,label", "n,70,ill", ",60,ill"]),
    }
    agreed = terms.agreed_table(facts, "auto")
    common = terms.facts_agreed(agreed, facts)
    assert (common.kind, common.labels, common.samples) == ("table", ("ill", "well"), 4)
    assert common.shape == (5,) and common.mean[agreed.encoding.inputs.index("age")] == 52.5
    assert any("east lacks well" in notice for notice in agreed.notices)
    agreed_terms = Terms(seed=0, test=0.2, hold=0.0, table=agreed.encoding)
    assert Terms.read(agreed_terms.to_json()) == agreed_terms
    assert "table" not in Terms(seed=0, test=0.2, hold=0.0).to_json()


def test_tables_beside_images_are_refused():
    facts = {"east": site(), "west": table_facts(["age,label", "1,a", "2,b"])}
    with pytest.raises(FedloomError, match="west has one and east has image data"):
        terms.agreed_table(facts, "auto")
    assert terms.agreed_table({"east": site()}, "auto") is None


def test_a_column_that_names_its_rows_is_not_told():
    lines = ["name,label", *[f"patient {number},{number % 2}" for number in range(40)]]
    with pytest.raises(
        FedloomError,
        match="40 different texts, such as 'patient 0'; leave it out with --ignore name",
    ):
        table_facts(lines)
    with pytest.raises(FedloomError, match=r"the column name of t\.csv must be"):
        table_facts(lines, label="name")
