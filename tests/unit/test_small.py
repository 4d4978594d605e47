import pytest

from fedloom.config.variants import labelled
from fedloom.methods import METHODS, recipe
from fedloom.runs.configure import resolve_options
from fedloom.runs.small import about_small, small_options, small_variant
from fedloom.spaces import SMALL_SEARCH
from fedloom.spaces.options import SpaceChoice


def test_what_is_given_stays():
    assert small_options("spider", {}) == {"cells": 3, "channels": 8, "nodes": 2}
    assert small_options("spider:cells=5", {"nodes": 1}) == {"channels": 8}
    assert small_variant("spider:lr=.1,cells=5", {}) == "spider:lr=.1,cells=5,channels=8,nodes=2"


def test_cells_have_two_operations_an_edge():
    assert small_options("fednas", {}) == {"cells": 3, "channels": 8, "nodes": 2, "ops": "s2"}
    assert "ops" not in small_options("fednas:ops=full", {})


def test_a_space_whose_name_has_its_parameters_keeps_them():
    assert "nodes" not in small_options("spider:space=darts:s2:4", {})


def test_a_method_that_searches_nothing_is_left_alone_and_that_is_said():
    assert small_variant("fedavg:lr=.1", {}) == "fedavg:lr=.1"
    assert "has no effect on fedavg:lr=.1" in about_small("fedavg:lr=.1", {})
    assert (
        about_small("spider:nodes=1", {})
        == "--small: spider:nodes=1 searches with cells=3, channels=8"
    )


SEARCHES = [name for name in METHODS.names() if issubclass(recipe(name).options, SpaceChoice)]


@pytest.mark.parametrize("method", SEARCHES)
def test_every_search_has_a_small_size_that_its_options_allow(method):
    options = small_options(method, {})
    assert options and set(options) <= {*SMALL_SEARCH, "ops"}
    resolve_options(method, options)


def test_tables_keep_the_names():
    variants = labelled(["spider", "spider:lr=.1@fast", "fedavg"]).changed(
        lambda method: small_variant(method, {})
    )
    assert [variants.names.get(method) for method in variants.methods] == ["spider", "fast", None]
    assert variants.methods[1:] == ("spider:lr=.1,cells=3,channels=8,nodes=2", "fedavg")
