"""A site reads its own files as its owner and the run ask, exactly like an embedded run."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from fedloom.config.models import DataConfig, Experiment
from fedloom.data.configured import configured_source
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.split import make_split
from fedloom.deploy.settled import checked, notices_of_skipped, settle, terms_of
from fedloom.deploy.site_data import as_asked, site_data, site_source, site_table, to_flags
from fedloom.deploy.terms import Facts, ImageSize, Terms, own_data, settled
from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder

TERMS = Terms(seed=5, test=0.2, hold=0.25, size=ImageSize(resize=6, fit="crop"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def sites(tmp_path):
    """Photos of two sites: all of other sizes, and some damaged at one of them."""
    draw = np.random.default_rng(0)
    for site in ("east", "west"):
        for number in range(30):
            pixels = draw.integers(256, size=(5 + number % 4, 6 + number % 3), dtype=np.uint8)
            file = tmp_path / "photos" / site / "ab"[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    for name in ("a/0.png", "b/7.png"):
        (tmp_path / "photos/west" / name).write_bytes(b"no image")
    return tmp_path / "photos"


def test_a_site_reads_its_images_as_an_embedded_run_of_that_size(sites, tmp_path_factory):
    together = configured_source(DataConfig(name=str(sites), resize=6, fit="crop", skip_bad=True))
    split = make_split(together, None, "sites", TERMS.seed, test=TERMS.test)
    clients_data = MappedClients.build(tmp_path_factory.mktemp("data"), together, split)
    for client, name in enumerate(("east", "west")):
        started = site_data({"data": str(sites / name), "resize": "4", "skip-bad": True})
        alone = own_data(site_source(started, TERMS.size), client, TERMS)
        embedded = clients_data.client(client, TERMS.hold)
        for part in ("train", "validation", "test"):
            assert torch.equal(getattr(alone, part).x, getattr(embedded, part).x), (name, part)
            assert torch.equal(getattr(alone, part).y, getattr(embedded, part).y), (name, part)


def test_a_size_of_the_sites_own_holds_where_the_run_names_none(sites):
    started = site_data({"data": str(sites / "east"), "resize": "4", "fit": "pad"})
    assert as_asked(started, None) is started
    assert configured_source(started).x.shape == (30, 1, 4, 4)
    asked = as_asked(started, ImageSize(resize=6))
    assert (asked.resize, asked.fit) == (6, "stretch")


def test_a_site_may_have_one_class_alone(tmp_path):
    """As a file with names or numbers, or as one class folder. All sites together need two."""
    x = np.zeros((20, 4, 4), np.uint8)
    np.savez(tmp_path / "named.npz", x=x, y=np.zeros(20, int), labels=["well"])
    np.savez(tmp_path / "numbered.npz", x=x, y=np.zeros(20, int))
    (tmp_path / "folder/flu").mkdir(parents=True)
    Image.fromarray(x[0]).save(tmp_path / "folder/flu/1.png")
    facts = {}
    for name in ("named.npz", "numbered.npz", "folder"):
        source = site_source(site_data({"data": str(tmp_path / name)}))
        facts[name] = Facts.of(source, named=name != "numbered.npz")
    assert [site.labels for site in facts.values()] == [("well",), ("0",), ("flu",)]
    both = {name: facts[name] for name in ("named.npz", "folder")}
    assert settled(both, None, None).labels == ("flu", "well")
    with pytest.raises(
        FedloomError,
        match="together must have at least 2 classes, but all samples are 'flu'; add a",
    ):
        settled({"folder": facts["folder"]}, None, None)


def test_the_process_of_a_site_hears_of_its_data_in_any_folder(sites, monkeypatch):
    monkeypatch.chdir(sites)
    started = site_data(
        {"data": "west", "resize": "5", "fit": "crop", "skip-bad": True, "device": "cpu"}
    )
    words = to_flags(started)
    assert all(isinstance(word, str) for word in words.values())
    assert words["data"] == str(sites / "west")
    monkeypatch.chdir("/")
    again = configured_source(site_data(words))
    assert again.x.shape == (28, 1, 5, 5)
    assert len(again.skipped) == 2


def test_a_site_reads_its_table_as_the_federation_agreed(tmp_path):
    (tmp_path / "east.csv").write_text("age,ward,label\n30,e,ill\n50,w,well\n")
    (tmp_path / "west.csv").write_text("ward,age,label\nn,70,ill\n,60,ill\n")
    together = configured_source(DataConfig(name=str(tmp_path)))
    encoding = together.table.encoding
    rows = []
    for name in ("east", "west"):
        started = site_data({"data": f"{name}.csv", "data-dir": str(tmp_path), "skip-bad": True})
        assert len(site_table(started)) == 2
        source = site_source(started, None, encoding, together.labels)
        assert source.labels == ("ill", "well")  # of which the west has one
        rows.append(source.x)
    assert np.array_equal(np.concatenate(rows), together.x)
    assert site_table(site_data({"data": "digits"})) is None


@pytest.mark.parametrize(
    ("flags", "size"),
    [({}, ImageSize(resize=6)), ({"resize": "8"}, None), ({"resize": "8"}, ImageSize(resize=6))],
)
def test_a_table_cannot_be_resized(flags, size, tmp_path):
    (tmp_path / "rows.csv").write_text("age,label\n1,a\n2,b\n")
    started = site_data({"data": str(tmp_path / "rows.csv"), **flags})
    with pytest.raises(
        FedloomError, match=r"--resize must be given to images, but .*rows\.csv is a table; leave"
    ):
        site_table(started, size)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"resize": "2"}, "resize"),
        ({"resize": "large"}, "resize"),
        ({"fit": "squeeze", "resize": "8"}, "fit"),
    ],
)
def test_flags_of_a_site_are_checked(flags, message):
    with pytest.raises(FedloomError, match=message):
        site_data({"data": "digits", **flags})


def test_terms_without_a_size_are_those_that_every_version_knows():
    plain = Terms(seed=1, test=0.5, hold=0.0)
    assert json.loads(plain.to_json()) == {"seed": 1, "test": 0.5, "hold": 0.0}
    assert Terms.read(TERMS.to_json()) == TERMS


@pytest.mark.parametrize(
    "text", ['{"resize": 3}', '{"resize": 5000}', '{"resize": 8, "fit": "all"}', "{}", "8"]
)
def test_a_size_that_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match=r"ImageSize|resize"):
        ImageSize.read(text)
    with pytest.raises(ValueError, match=r"size"):
        Terms.read(f'{{"seed": 1, "test": 0.5, "hold": 0.0, "size": {text}}}')


def test_the_operator_hears_how_many_files_a_site_skipped(sites, tmp_path):
    (tmp_path / "federation").mkdir()
    folder = RunFolder.create("run", "x", tmp_path / "run")
    config = Experiment(
        method="fedavg",
        data={"resize": 6, "fit": "crop"},
        engine={"federation": str(tmp_path / "federation")},
    )
    folder.write_text("config.toml", config.to_toml())
    facts = {}
    for name in ("east", "west"):
        started = site_data({"data": str(sites / name), "skip-bad": True})
        source = configured_source(as_asked(started, ImageSize.of(config.data)))
        facts[name] = Facts.read(Facts.of(source, named=True).to_json())
    settle(folder, facts)
    prepared = checked(folder, tmp_path / "federation")
    assert (prepared.task.shape, prepared.task.labels) == ((1, 6, 6), ("a", "b"))
    assert terms_of(prepared).size == TERMS.size
    assert notices_of_skipped(folder) == (
        "files that west could not read and left out (it uses --skip-bad): 2; "
        "its own log names them",
    )
    rows = json.loads((folder.path / "sites.json").read_text())
    assert rows["west"]["skipped"] == 2
    assert "skipped" not in rows["east"]  # as an earlier version wrote it
