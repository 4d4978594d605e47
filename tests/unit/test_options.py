"""How options grow: what one that came later means in a run that was made before."""

import json
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from fedloom.config.models import Experiment
from fedloom.config.section import Section
from fedloom.methods import METHODS, recipe
from fedloom.options import Absent, Options, absence, as_before, section_of, spelled_out

FIRST = json.loads((Path(__file__).parents[1] / "fixtures" / "0.1.0" / "options.json").read_text())


class Engine(Section):
    workers: int = 1
    bound: Annotated[float | Literal["off"], Absent("off")] = 10.0


class Start(Section):
    run: str
    check: Annotated[bool, Absent(False)] = True


class Whole(Section):
    seed: int = 0
    engine: Engine = Engine()
    start: Start | None = None


class Grown(Options):
    lr: float = 0.1
    norm: Annotated[str, Absent("none")] = Field("batch", description="came later")


def test_what_is_missing_means_what_was_done_before():
    assert as_before(Grown, {"lr": 1.0}) == {"lr": 1.0, "norm": "none"}
    assert as_before(Whole, {"seed": 3}) == {"seed": 3, "engine": {"bound": "off"}}
    assert as_before(Whole, {"engine": {"workers": 2}}) == {
        "engine": {"workers": 2, "bound": "off"}
    }


def test_what_is_there_stays():
    assert as_before(Grown, {"norm": "batch"}) == {"norm": "batch"}
    assert as_before(Whole, {"engine": {"bound": 5.0}}) == {"engine": {"bound": 5.0}}


def test_what_was_there_from_the_beginning_keeps_its_default():
    assert "lr" not in as_before(Grown, {})
    assert Grown(**as_before(Grown, {})).lr == 0.1


def test_a_section_that_may_be_left_out_is_not_made():
    assert "start" not in as_before(Whole, {})
    assert as_before(Whole, {"start": {"run": "x"}})["start"] == {"run": "x", "check": False}


def test_a_new_run_has_the_default():
    assert Grown().norm == "batch" and Whole().engine.bound == 10.0


def test_nothing_is_changed_in_place():
    raw = {"engine": {"workers": 2}}
    as_before(Whole, raw)
    assert raw == {"engine": {"workers": 2}}


@pytest.mark.parametrize("odd", [3, "x", [1], None])
def test_what_is_no_section_is_left_to_the_schema(odd):
    with pytest.raises(ValidationError):
        Whole.model_validate(
            {"engine": as_before(Whole, {"engine": odd})["engine"] if odd is not None else 1}
        )


def test_spelled_out_says_the_later_ones_and_no_other():
    settled = Whole.model_validate({"engine": {"workers": 3}})
    assert spelled_out(settled, {"engine": {"workers": 3}}) == {
        "engine": {"workers": 3, "bound": 10.0}
    }
    assert as_before(Whole, spelled_out(settled, {})) == {"engine": {"bound": 10.0}}
    sections = {"engine": {"bound": "off"}}
    assert spelled_out(Whole.model_validate(sections), sections) == sections


# The options that there are


def options_of(schema: type[BaseModel], above: str = ""):
    """(name, field) of every option, those of sections by their path."""
    for name, field in schema.model_fields.items():
        section = section_of(field)
        if section is None:
            yield f"{above}{name}", field
        else:
            yield from options_of(section, f"{above}{name}.")


SCHEMAS = {"configuration": Experiment, **{name: recipe(name).options for name in METHODS.builtin}}


@pytest.mark.parametrize("where", SCHEMAS)
def test_every_option_that_came_after_the_first_version_says_what_its_absence_means(where):
    first_options = (
        FIRST["configuration"] if where == "configuration" else FIRST["methods"].get(where)
    )
    if first_options is None:
        return  # a method that came later: no older run has it
    later = [
        name
        for name, field in options_of(SCHEMAS[where])
        if name not in first_options and absence(field) is None
    ]
    assert later == [], "give it an Absent(…): what did fedloom do before this option came?"


@pytest.mark.parametrize("where", SCHEMAS)
def test_an_option_that_may_be_none_means_none_where_it_is_absent(where):
    """TOML cannot say None, so None and absent are the same in a run's config.toml."""
    for name, field in options_of(SCHEMAS[where]):
        mark = absence(field)
        if mark is None or mark.value is None:
            continue
        with pytest.raises(ValidationError):
            TypeAdapter(field.annotation).validate_python(None)
        assert mark.value == TypeAdapter(field.annotation).validate_python(mark.value), name
