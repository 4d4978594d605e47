"""Transforms `+each` and `+tint`.

`+each:…` gives each client its own exact, signed change; `+tint` gives grey images a colour.
"""

import numpy as np
import pytest
import torch

from fedloom.data.augmenting.augment import rotate, shift_hue
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import changed, check_changes, parse_transform, transforms_of
from fedloom.data.partitions.rule import Transform
from fedloom.data.partitions.tint import form_of, tint
from fedloom.data.source import Source
from fedloom.data.split import Split, make_split
from fedloom.errors import FedloomError

HIGH = "each:hue:-0.33/hue:0.33/none/rotation:-90/rotation:90"


def images(channels=3, samples=60, dtype=np.uint8, kind="image") -> Source:
    x = np.random.default_rng(0).integers(0, 256, (samples, channels, 6, 6)).astype(dtype)
    ones = (1.0,) * channels
    return Source("toy", x, np.arange(samples) % 2, ("a", "b"), ones, ones, kind)


def test_amounts_are_exact_and_signed():
    rule = parse(f"iid+{HIGH}")
    amounts = [transforms_of(rule, client, 5) for client in range(5)]
    assert amounts == [
        (Transform("hue", -0.33),),
        (Transform("hue", 0.33),),
        (),
        (Transform("rotation", -90.0),),
        (Transform("rotation", 90.0),),
    ]


def test_more_clients_go_round_the_list():
    rule = parse(f"iid+{HIGH}")
    for client in range(12):
        assert transforms_of(rule, client, 12) == transforms_of(rule, client % 5, 5)


def test_fewer_clients_than_changes_have_the_first():
    rule = parse(f"iid+{HIGH}")
    assert transforms_of(rule, 1, 2) == (Transform("hue", 0.33),)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"iid+{HIGH}", f"iid+{HIGH}"),
        (f"iid + tint + {HIGH}", f"iid+tint+{HIGH}"),
        ("dirichlet:0.5+each: rotation:90.0 / none", "dirichlet:0.5+each:rotation:90/none"),
        ("iid+each:hue:+0.25", "iid+each:hue:0.25"),
        ("iid+rotation+each:none", "iid+rotation:30+each:none"),
    ],
)
def test_one_spelling(text, canonical):
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def test_alone_an_amount_stays_a_spread():
    rule = parse("iid+rotation:30+hue:0.2")
    assert transforms_of(rule, 0, 5) == (Transform("rotation", -30.0), Transform("hue", -0.2))
    assert transforms_of(rule, 2, 5) == (Transform("rotation", 0.0), Transform("hue", 0.0))


def test_none_is_the_identity():
    x = torch.tensor(images().x)
    assert changed(x, parse(f"iid+{HIGH}"), 2, 5) is x


def test_a_quarter_turn_is_exact_and_has_a_direction():
    x = torch.tensor(images().x)
    assert torch.equal(changed(x, parse(f"iid+{HIGH}"), 4, 5), torch.rot90(x, 1, (2, 3)))
    assert torch.equal(changed(x, parse(f"iid+{HIGH}"), 3, 5), torch.rot90(x, -1, (2, 3)))


def test_hue_by_thirds_inverts():
    """A shift by a third and back gives the same hue.

    −1/2 and +1/2, as in the paper, are the same place on the circle.
    """
    x = torch.rand(8, 3, 6, 6)
    third = 1 / 3
    there = changed(x, parse(f"iid+each:hue:{third}"), 0, 1)
    back = changed(there, parse(f"iid+each:hue:-{third}"), 0, 1)
    assert torch.allclose(there, x.roll(1, 1), atol=1e-5)  # red is now green
    assert torch.allclose(back, x, atol=1e-5)
    halves = [changed(x, parse(f"iid+each:hue:{half}"), 0, 1) for half in (-0.5, 0.5)]
    assert torch.equal(*halves)


def test_tint_gives_three_channels_of_which_the_first_is_the_grey():
    grey = torch.tensor(images(1).x)
    coloured = tint(grey)
    assert coloured.shape == (60, 3, 6, 6) and coloured.dtype == torch.uint8
    assert torch.equal(coloured[:, :1], grey)
    assert torch.equal(coloured.amax(1, keepdim=True), grey)  # as bright as it was
    assert torch.equal(coloured[:, 1], (grey[:, 0] / 2).round().to(torch.uint8))
    assert torch.equal(
        coloured[:1], tint(grey[:1])
    )  # a sample's colour does not depend on the others
    assert not torch.equal(shift_hue(coloured, 1 / 3), coloured)


def test_order_is_as_written():
    grey = torch.tensor(images(1).x)
    tinted_and_shifted = changed(grey, parse(f"iid+tint+{HIGH}"), 0, 5)
    assert torch.equal(tinted_and_shifted, shift_hue(tint(grey), -0.33))
    turned_first = changed(grey, parse("iid+rotation:45+tint"), 1, 2)
    assert torch.equal(turned_first, tint(rotate(grey, 45.0)))


def test_what_the_network_sees_of_tinted_images():
    source = Source("toy", images(1).x, images(1).y, ("a", "b"), (40.0,), (80.0,))
    form = form_of(parse("iid+tint"), source)
    assert form.shape == (3, 6, 6)
    assert form.mean == (40.0, 20.0, 10.0) and form.std == (80.0, 40.0, 20.0)
    plain = form_of(parse("iid+rotation"), source)
    assert (plain.shape, plain.mean, plain.std) == ((1, 6, 6), (40.0,), (80.0,))


def test_every_part_of_a_client_and_the_server_set_are_tinted(tmp_path):
    source = images(1)
    text = f"iid+tint+{HIGH}"
    split = make_split(source, 5, text, 1, min_samples=4, server_share=0.1)
    split.save(tmp_path / "split.json")
    MappedClients.build(tmp_path / "data", source, Split.load(tmp_path / "split.json"))
    clients_data = MappedClients.open(tmp_path / "data")  # as a worker does
    for client in range(5):
        rest, test = split.client(client)
        own = clients_data.client(client)
        assert torch.equal(
            own.train.x, changed(torch.tensor(source.x[rest]), parse(text), client, 5)
        )
        assert torch.equal(
            own.test.x, changed(torch.tensor(source.x[test]), parse(text), client, 5)
        )
    assert torch.equal(clients_data.server().x, tint(torch.tensor(source.x[split.server])))


def test_samples_are_dealt_as_without():
    plain, changing = (make_split(images(1), 5, text, 3) for text in ("iid", f"iid+tint+{HIGH}"))
    assert plain.indices.tolist() == changing.indices.tolist()
    assert plain.digest == changing.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "iid+each:blur:2",
            "a change in `--partition iid+each:blur:2` must be a known name, but got 'blur'",
        ),
        ("iid+each:none/rotate:90", "did you mean rotation?"),
        ("iid+each:tint", "hue, none, rotation"),
        (
            "iid+each",
            "`--partition iid+each` must list a change for each client, but there is none; "
            "try each:rotation:-90/none/rotation:90.",
        ),
        ("iid+each:", "there is none"),
        ("iid+each:none//none", "got ''"),
        (
            "iid+each:rotation",
            "must say by how many degrees, from -180 to 180, but it has no amount; "
            "try rotation:90.",
        ),
        ("iid+each:rotation:far", "got 'far', which is not a number"),
        ("iid+each:rotation:181", "from -180 to 180, but got 181"),
        ("iid+each:rotation:nan", "got nan"),
        ("iid+each:hue:-0.6", "from -0.5 to 0.5, but got -0.6; try hue:0.33."),
        ("iid+each:none:1", "must have no amount, but got '1'; try none."),
        ("iid+tint:3", "must have no value, but got '3'; try tint."),
        ("iid+tint+tint", "tint comes twice"),
        ("iid+each:none+each:none", "each comes twice"),
    ],
)
def test_refuses_what_it_cannot_read(text, expected):
    with pytest.raises(FedloomError) as caught:
        parse(text)
    assert expected in str(caught.value)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (
            images(1),
            f"iid+{HIGH}",
            "must have images in red, green and blue, but those of toy have 1 channel, which "
            "have no hue; put +tint before it, or leave hue out.",
        ),
        (images(1), "iid+hue+tint", "put +tint before it"),
        (
            images(3),
            "iid+tint",
            "must have grey images for +tint, but those of toy have 3 channels; leave +tint out.",
        ),
        (
            images(1, kind="speech"),
            "iid+tint",
            "must have images, but toy is speech; leave +tint out.",
        ),
        (
            images(1, kind="speech"),
            "iid+each:none",
            "must have images, but toy is speech; leave +each out.",
        ),
        (
            Source("words", np.zeros((9, 5), np.uint8), np.arange(9) % 2, kind="text"),
            "iid+each:rotation:90",
            "must have images, but words is text; leave +each out.",
        ),
    ],
)
def test_refuses_what_the_samples_do_not_allow(source, text, expected):
    with pytest.raises(FedloomError) as caught:
        check_changes(parse(text), source)
    assert expected in str(caught.value)


def test_a_transform_by_itself():
    assert parse_transform("--transform", "rotation:-90") == Transform("rotation", -90.0)
    assert parse_transform("--transform", "none") is None
    with pytest.raises(
        FedloomError, match="a change in --transform must be a known name, but got 'turn'"
    ):
        parse_transform("--transform", "turn:3")
