"""Tests of a space's architectures, without a network: drawing, mutating, deriving, writing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import numpy as np
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from torch import nn

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import configured_space, space_of
from fedloom.spaces.drawing import as_svg, as_text
from fedloom.spaces.genotype import read
from fedloom.spaces.parameters import values_of
from fedloom.spaces.space import OpId, Space
from fedloom.testing.space_toy import SpaceSubject, SpaceToy, named
from fedloom.types import Arch

DRAWS = 600  # enough to draw every option of a slot that is empty in three of four architectures
UNEVEN = 4  # an option may be this many times rarer than its fair share
CHANGES = 40  # mutations to try


class Architectures(SpaceSubject):
    def test_its_name_names_it(self, toy: SpaceToy) -> None:
        again = space_of(toy.space.name)
        assert again == toy.space and hash(again) == hash(toy.space)
        assert again.slots == toy.space.slots
        wrong_kind = "its networks must be for the kind of data that they are tested on"
        assert toy.kind in toy.space.kinds, wrong_kind

    def test_its_parameters_make_it(self, toy: SpaceToy) -> None:
        """Every parameter has a description, and another value of it makes another space."""
        schema = toy.space.schema
        if toy.space.parameters and not schema.model_fields:  # it reads its name itself
            assert space_of(toy.space.name) == toy.space
            return
        values = values_of(toy.space)
        assert configured_space(type(toy.space), schema(**values)) == toy.space
        for name, field in schema.model_fields.items():
            assert field.description, f"parameter {name} must have a description"
            different_values = other_values(field, values[name])
            untested = f"test the space with another value of {name} than its default"
            assert different_values, untested
            for value in different_values:
                other = with_parameters(toy.space, {**values, name: value})
                if other is not None:
                    changed = f"{name}={value} must make another space, or be refused"
                    assert getattr(other, name) == value and other.name != toy.space.name, changed
                    assert makes_another(toy, other), changed

    def test_samples_are_its_own_and_reach_every_option(self, toy: SpaceToy) -> None:
        generator = rng(0, "samples")
        counts: Counter[tuple[int, int]] = Counter()
        for _ in range(DRAWS):
            arch = toy.space.sample(generator)
            toy.space.check(arch)
            for slot, live in enumerate(arch.choice):
                for op in live:
                    counts[slot, op] += 1
        once = toy.space.sample(rng(1))
        assert once == toy.space.sample(rng(1)), "a draw must come from the generator alone"
        for slot, op in toy.useful():
            options = len(toy.space.slots[slot].options)
            drawn_in_slot = 0
            for option in range(options):
                drawn_in_slot += counts[slot, option]
            least = max(1, drawn_in_slot // (UNEVEN * options))
            times = counts[slot, op]
            assert times >= least, f"{named(toy.space, OpId(slot, op))} is drawn {times} times"

    def test_a_mutation_is_one_decision(self, toy: SpaceToy) -> None:
        """A mutation changes one slot, or moves an operation from one rival to another."""
        arch = toy.space.sample(rng(0, "mutations"))
        for number in range(CHANGES):
            other = toy.space.mutate(arch, rng(number, "mutation"))
            toy.space.check(other)
            again = toy.space.mutate(arch, rng(number, "mutation"))
            assert other == again, "a mutation must be drawn from the generator that it is given"
            changed = changed_slots(arch, other)
            one_decision = len(changed) == 1 or moved(toy.space, arch, other, changed)
            assert one_decision, f"slots {changed} changed"
            arch = other

    def test_derived_architectures_are_its_own(self, toy: SpaceToy) -> None:
        generator = rng(0, "strengths")
        for arch in toy.drawn():
            strength = []
            for slot in toy.space.slots:
                strength.append(generator.dirichlet(np.full(len(slot.options), 0.3)))
            derived = toy.space.derive(strength)
            toy.space.check(derived)
            for rivals in toy.space.rivals():
                alive = [place for place in rivals.slots if derived.choice[place]]
                too_many = f"a derived architecture must keep at most {rivals.kept} of its rivals"
                assert len(alive) <= rivals.kept, too_many
            from_certainty = toy.space.derive(certain(toy.space, arch))
            assert from_certainty == arch, "an architecture with all the strength must be derived"

    def test_slots_that_go_together_exist(self, toy: SpaceToy) -> None:
        """The groups of slots that a search decides together cover every slot once."""
        slots = range(len(toy.space.slots))
        for groups in (toy.space.together(), toy.space.one_by_one()):
            decided: list[int] = []
            for group in groups:
                decided += group
            assert sorted(decided) == list(slots)
        rivalling: list[int] = []
        for rivals in toy.space.rivals():
            assert rivals.kept >= 1
            rivalling += rivals.slots
        assert set(rivalling) <= set(slots)
        assert len(set(rivalling)) == len(rivalling), "a slot may be the rival of only one set"

    def test_json_round_trip(self, toy: SpaceToy) -> None:
        for arch in (*toy.drawn(), *toy.extremes()):
            again = Arch.from_json(arch.to_json())
            assert again == arch and hash(again) == hash(arch)
            space_of(again.space).check(again)

    def test_a_genotype_file_builds_the_same_network(self, toy: SpaceToy, tmp_path: Path) -> None:
        for arch in toy.drawn():
            about = {**arch.to_plain(), **toy.size._asdict(), "affine": False}
            (tmp_path / "genotype.json").write_text(json.dumps(about))
            fixed = read(tmp_path / "genotype.json")
            assert fixed.arch == arch and fixed.kinds == toy.space.kinds
            expected = toy.supernet(arch=arch)
            assert sizes(fixed(toy.shape, toy.classes)) == sizes(expected)

    def test_it_is_drawn_or_told_in_words(self, toy: SpaceToy) -> None:
        for arch in (*toy.drawn(), *toy.extremes()):
            text = as_text(arch)
            if toy.space.graphs(arch) is not None:
                ElementTree.fromstring(as_svg(arch, "an <architecture>"))
                continue
            for slot, live in zip(toy.space.slots, arch.choice, strict=True):
                assert slot.name in text
                for op in live:
                    assert slot.options[op] in text


def other_values(field: FieldInfo, value: object) -> list[object]:
    """Other values that a parameter may have: its default, a neighbour, its choices."""
    candidates: list[object] = [field.default, *get_args(field.annotation)]
    if isinstance(value, bool):
        candidates.append(not value)
    elif isinstance(value, int):
        candidates.append(value + 1)
    elif isinstance(value, float):
        candidates.append(value / 2)
    different: list[object] = []
    for candidate in candidates:
        if type(candidate) is type(value) and candidate != value:
            different.append(candidate)
    return different


def with_parameters(space: Space, values: Mapping[str, object]) -> Space | None:
    """The same kind of space with these parameters; None if it refuses them."""
    try:
        return configured_space(type(space), space.schema.model_validate(values))
    except (FedloomError, ValidationError):
        return None


def makes_another(toy: SpaceToy, other: Space) -> bool:
    """Whether a space differs in its slots, its network or its cost."""
    if other.slots != toy.space.slots:
        return True
    network = toy.space.network(toy.shape, toy.classes, toy.size)
    other_network = other.network(toy.shape, toy.classes, toy.size)
    if sizes(network) != sizes(other_network):
        return True
    cost = toy.space.cost(toy.shape, toy.classes, toy.space.full(), toy.size)
    return cost != other.cost(toy.shape, toy.classes, other.full(), toy.size)


def changed_slots(arch: Arch, other: Arch) -> list[int]:
    """The slots in which two architectures differ."""
    changed = []
    for slot, live in enumerate(arch.choice):
        if live != other.choice[slot]:
            changed.append(slot)
    return changed


def moved(space: Space, arch: Arch, other: Arch, changed: list[int]) -> bool:
    """Whether an operation moved from one rival to another."""
    if len(changed) != 2 or not are_rivals(space, changed):
        return False
    filled_before = [slot for slot in changed if arch.choice[slot]]
    filled_after = [slot for slot in changed if other.choice[slot]]
    return len(filled_before) == 1 and len(filled_after) == 1


def are_rivals(space: Space, slots: list[int]) -> bool:
    """Whether all these slots are rivals of each other."""
    return any(set(slots) <= set(rivals.slots) for rivals in space.rivals())


def certain(space: Space, arch: Arch) -> list[np.ndarray]:
    """Strengths that are 1 for the operations of an architecture, and 0 for all others."""
    strength = [np.zeros(len(slot.options)) for slot in space.slots]
    for row, live in zip(strength, arch.choice, strict=True):
        row[list(live)] = 1.0
    return strength


def sizes(net: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter and buffer, by its key."""
    shapes = {}
    for key, tensor in net.state_dict().items():
        shapes[key] = tuple(tensor.shape)
    return shapes
