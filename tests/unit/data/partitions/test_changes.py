import numpy as np
import pytest
import torch

from fedloom.data.augmenting.augment import rotate, shift_hue
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import amount_of, changed, check_changes
from fedloom.data.partitions.rule import Change
from fedloom.data.source import Source
from fedloom.data.split import make_split
from fedloom.errors import FedloomError


def images(channels=3, samples=60, dtype=np.uint8) -> Source:
    x = np.random.default_rng(0).integers(0, 256, (samples, channels, 6, 6)).astype(dtype)
    return Source("toy", x / dtype(256) if dtype == np.float32 else x, np.arange(samples) % 2)


def test_five_clients_have_the_angles_of_fedpnas():
    angles = [amount_of(Change("rotation", 30.0), client, 5) for client in range(5)]
    assert angles == [-30, -15, 0, 15, 30]


@pytest.mark.parametrize(("name", "half"), [("rotation", 180.0), ("hue", 0.5)])
def test_on_the_whole_circle_no_place_is_taken_twice(name, half):
    amounts = [amount_of(Change(name, half), client, 4) for client in range(4)]
    assert amounts == [-half, -half / 2, 0, half / 2]


def test_one_client_alone_is_changed_too():
    assert amount_of(Change("rotation", 90.0), 0, 1) == 90


def test_changes_come_in_the_order_of_the_text():
    x = torch.tensor(images().x)
    both_changes = changed(x, parse("iid+rotation:90+hue:0.25"), 2, 3)
    assert torch.equal(both_changes, shift_hue(rotate(x, 90.0), 0.25))
    assert changed(x, parse("iid+rotation:90"), 1, 3) is x  # the middle one is not turned at all


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("text", ["iid+rotation:90", "dirichlet:5+hue:0.25", "iid+rotation+hue"])
def test_a_client_reads_all_its_parts_changed(tmp_path, dtype, text):
    source = images(dtype=dtype)
    split = make_split(source, 3, text, 1, min_samples=4, server_share=0.1)
    plain = MappedClients.build(
        tmp_path / "plain",
        source,
        make_split(source, 3, text.split("+")[0], 1, min_samples=4, server_share=0.1),
    )
    MappedClients.build(tmp_path / "turned", source, split)
    clients_data = MappedClients.open(tmp_path / "turned")  # as a worker does
    assert str(clients_data.rule) == split.partition
    for client in range(3):
        turned = clients_data.client(client, 0.25)
        before = plain.client(client, 0.25)
        for part in ("train", "validation", "test"):
            mine = getattr(turned, part)
            theirs = getattr(before, part)
            assert torch.equal(mine.x, changed(theirs.x, parse(text), client, 3))
            assert torch.equal(mine.y, theirs.y)
            assert mine.x.dtype == theirs.x.dtype
            if client != 1:
                assert not torch.equal(mine.x, theirs.x)
    assert torch.equal(
        clients_data.server().x, plain.server().x
    )  # the server's own set is nobody's


def test_a_folder_that_is_used_again_forgets_the_transform(tmp_path):
    source = images()
    MappedClients.build(tmp_path, source, make_split(source, 3, "iid+rotation", 0))
    MappedClients.build(tmp_path, source, make_split(source, 3, "iid", 0))
    assert MappedClients.open(tmp_path).rule.changes == ()


def test_samples_are_dealt_as_without_the_transform():
    with_it, without = (make_split(images(), 4, text, 3) for text in ("iid+rotation:10", "iid"))
    assert with_it.indices.tolist() == without.indices.tolist()
    assert with_it.hash != without.hash


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (
            images(1),
            "iid+hue",
            "`--partition iid+hue:0.5` must have images in red, green and blue, but those of toy "
            "have 1 channel, which have no hue; put +tint before it, or leave hue out.",
        ),
        (images(4), "iid+rotation+hue:0.1", "have 4 channels"),
        (
            Source("words", np.zeros((9, 5), np.uint8), np.arange(9) % 2, kind="text"),
            "iid+rotation",
            "`--partition iid+rotation:30` must have images, but words is text; "
            "leave +rotation out.",
        ),
        (
            Source("talk", np.zeros((9, 1, 4, 4), np.float32), np.arange(9) % 2, kind="speech"),
            "iid+rotation",
            "but talk is speech",
        ),
    ],
)
def test_refuses(source, text, expected, tmp_path):
    with pytest.raises(FedloomError) as caught:
        check_changes(parse(text), source)
    assert expected in str(caught.value)
    with pytest.raises(FedloomError) as caught:
        make_split(source, 2, text, 0, min_samples=2)
    assert expected in str(caught.value)
