import pytest

from fedloom.errors import FedloomError, RunStopped, unknown


def test_the_grammar():
    error = FedloomError(
        "`--partition dirichlet:0` must have a concentration above 0", "got 0", "try dirichlet:0.5"
    )
    assert (
        str(error) == "`--partition dirichlet:0` must have a concentration above 0, but got 0; "
        "try dirichlet:0.5."
    )


def test_the_exit_codes():
    assert FedloomError("a", "b", "c").code == 2
    assert FedloomError("a", "b", "c", code=5).code == 5
    assert RunStopped("a", "b", "c").code == 3


def test_one_class_catches_all():
    assert isinstance(RunStopped("a", "b", "c"), FedloomError)
    assert str(RunStopped("a", "b", "c")) == "a, but b; c."


def test_an_unknown_name_with_a_near_one():
    expected = (
        "method must be a known name, but got 'fedavgg'; "
        "did you mean fedavg? Known: fedavg, spider."
    )
    assert str(unknown("method", "fedavgg", ["spider", "fedavg"])) == expected


def test_an_unknown_name_far_from_all():
    expected = "method must be a known name, but got 'zzz'; choose from fedavg, spider."
    assert str(unknown("method", "zzz", iter(["spider", "fedavg"]))) == expected


@pytest.mark.parametrize("name", ["", "x" * 70])
def test_any_name_can_be_unknown(name):
    assert repr(name) in str(unknown("method", name, ["fedavg"]))


def test_it_stays_one_sentence_of_one_line():
    assert str(unknown("method", "x" * 1000, ["fedavg"])) == (
        f"method must be a known name, but got '{'x' * 78}…; choose from fedavg."
    )
    text = str(
        FedloomError("a  file must be there", "it said\n  this\nand that " + "x" * 5000, "fix it")
    )
    assert text.startswith(
        "a  file must be there, but it said this and that xxx"
    ) and text.endswith("x…; fix it.")
    assert len(text) < 500


@pytest.mark.parametrize(
    ("name", "names", "ours"),
    [
        ("learning-rate", ["lr", "learning"], "lr"),
        ("learning_rate", ["lr", "alpha_lr"], "lr"),
        ("noniid", ["iid", "dirichlet"], "dirichlet"),
        ("Non-IID", ["iid", "dirichlet"], "dirichlet"),
    ],
)
def test_a_name_from_elsewhere_comes_with_ours(name, names, ours):
    assert f"did you mean {ours}?" in str(unknown("a flag", name, names))


def test_a_name_from_elsewhere_is_none_of_ours_where_there_is_no_such_thing():
    assert "did you mean clients?" in str(unknown("a flag", "num-clients", ["clients"]))
    assert "choose from cnn" in str(unknown("a network", "noniid", ["cnn"]))


def test_details_stand_in_lines_of_their_own():
    error = FedloomError(
        "files must be whole", "2 are not", "restore them", details=["a: cut\nshort", "b: empty"]
    )
    assert (
        str(error)
        == "files must be whole, but 2 are not; restore them.\n  a: cut short\n  b: empty"
    )
    many = FedloomError("a", "b", "c", details=["x"] * 1003)
    assert str(many).splitlines()[-2:] == ["  x", "  and 3 more"]
