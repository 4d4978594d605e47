"""Tests of a space's networks: choices, cuts, the owners of weights, and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import fx, nn

from fedloom.cost.count import macs, parameters
from fedloom.cost.steps import Steps
from fedloom.errors import FedloomError
from fedloom.nets import MAPS
from fedloom.nets.model import Model
from fedloom.spaces.checking import check_space, is_alive, masks
from fedloom.spaces.choice import Place
from fedloom.spaces.joint import Joint
from fedloom.spaces.space import Cost, Space
from fedloom.spaces.supernet import Supernet
from fedloom.testing.choosing import owned_by, removals, touched_by
from fedloom.testing.space_toy import SpaceSubject, SpaceToy, answer, in_words, named
from fedloom.types import Arch

MOST_SHOWN = 5  # keys that a failure names
OTHER_SCORES = (
    "the cut network gives other scores than the supernet under the same choice: `flow` must "
    "compute only the operations that are alive, which `part_of` returns"
)
NOT_THROUGH_RUN = (
    "computed together, architectures give other scores than alone: every step of `flow` must go "
    "through its `run`"
)
OTHER_FOR_SAMPLES = (
    "if each sample takes its own operations, a batch gets other scores than its samples alone"
)
NOT_SCALED = (
    "weights of 0 and 1 give other scores than the operations whose weight is 1: an operation "
    "must multiply its result by the weight that it gets, with `scaled`"
)
WRONG_OWNER = "a network must have exactly the weights whose `owner` is alive, and the shared ones."
WHICH_ACTIVATIONS = "activations (elements of all new tensors, except views and in-place results)"


class Networks(SpaceSubject):
    def test_it_can_be_searched(self, toy: SpaceToy) -> None:
        """The space passes the checks that a run makes before it uses a space from outside."""
        check_space(toy.space, toy.kind, toy.shape, toy.classes, toy.size)

    @pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
    def test_cut_is_the_masked_supernet(self, toy: SpaceToy, training: bool) -> None:
        """A cut network equals the masked supernet to the bit, in scores and running statistics."""
        for arch in (*toy.drawn(), *toy.extremes()):
            net = toy.supernet().train(training)
            cut = net.cut(arch)
            cut_answer = answer(cut, toy.samples())
            masked_answer = answer(net, toy.samples(), arch)
            same = torch.equal(cut_answer, masked_answer)
            assert same, f"{OTHER_SCORES}\nThe choice: {in_words(toy.space, arch)}"
            after = net.state_dict()
            for key, value in cut.state_dict().items():
                other_value = f"{key} of the cut network is not that of the supernet"
                assert torch.equal(value, after[key]), other_value

    def test_everything_is_alive_without_a_choice(self, toy: SpaceToy) -> None:
        net = toy.supernet().eval()
        everything = answer(net, toy.samples(), toy.space.full())
        same = torch.equal(answer(net, toy.samples()), everything)
        assert same, "without a choice, the scores must be those of the choice `full()`"

    def test_several_at_once_answer_as_each_alone(self, toy: SpaceToy) -> None:
        """Architectures that are computed together give the same scores as each one alone.

        For that, every step of `flow` must go through its `run`.
        """
        net = toy.supernet().eval()
        x = toy.samples()
        archs = [toy.space.full(), *toy.drawn()]
        alone = [net(x, arch) for arch in archs]
        together = Joint(net, archs)(x)
        for arch, expected, scores in zip(archs, alone, together, strict=True):
            same = torch.equal(scores, expected)
            assert same, f"{NOT_THROUGH_RUN}\nThe choice: {in_words(toy.space, arch)}"

    # Choices that are made while the network computes

    def test_each_sample_may_go_its_own_way(self, toy: SpaceToy) -> None:
        """Under a rule that depends on the input, a batch gets the scores of each sample alone."""
        net = toy.supernet().eval()
        x = toy.samples()
        rule = LooksAtInput(toy.space)
        together = net(x, rule)
        differ = any(len(set(options)) > 1 for options in rule.options_by_slot)
        assert differ, "the rule must send samples along different paths"
        alone = torch.cat([net(sample[None], rule) for sample in x])
        assert_alike(together, alone, OTHER_FOR_SAMPLES)

    def test_a_certain_answer_is_the_path(self, toy: SpaceToy) -> None:
        """Weights of 0 and 1 give the same scores as the architecture that they describe.

        This holds for weights of a whole batch, and for weights of each sample.
        """
        net = toy.supernet().eval()
        x = toy.samples()
        for arch in toy.drawn():
            expected = net(x, arch)
            for samples in (None, len(x)):
                scores = net(x, Certain(toy.space, arch, samples))
                choice = in_words(toy.space, arch)
                assert_alike(scores, expected, f"{NOT_SCALED}\nThe choice: {choice}")

    # The owners of weights

    def test_every_key_is_owned_or_everybodys(self, toy: SpaceToy) -> None:
        """A smaller network has exactly the keys of its operations and those without an owner."""
        net = toy.supernet()
        owners = {key: net.owner(key) for key in net.state_dict()}
        for owner in owners.values():
            assert owner is None or owner.op < len(toy.space.slots[owner.slot].options)
        with_one_less = [removal.remaining for removal in removals(toy.space.full())]
        for arch in (*with_one_less, *masks(toy.space), *toy.drawn()):
            with torch.device("meta"):  # only the names are needed
                existing = set(net.smaller(arch).state_dict())
            expected = set()
            for key, owner in owners.items():
                if is_alive(owner, arch):
                    expected.add(key)
            choice = f"\nThe choice: {in_words(toy.space, arch)}"
            dead = sorted(existing - expected)
            assert not dead, f"{WRONG_OWNER} Too many: {dead[:MOST_SHOWN]}{choice}"
            absent = sorted(expected - existing)
            assert not absent, f"{WRONG_OWNER} Missing: {absent[:MOST_SHOWN]}{choice}"

    def test_an_owned_key_is_its_operations_own(self, toy: SpaceToy) -> None:
        """An operation owns exactly what a training step no longer changes without it."""
        net = toy.supernet()
        x = toy.samples()
        y = toy.labels()
        everything = toy.space.full()
        whole = touched_by(net, everything, x, y)
        for removal in removals(everything):
            lost = whole - touched_by(net, removal.remaining, x, y)
            owned = owned_by(net, removal.op, whole)
            operation = named(toy.space, removal.op)
            not_owned = sorted(lost - owned)
            meaning = f"a training step without {operation} no longer changes"
            assert not not_owned, f"{meaning} {not_owned[:MOST_SHOWN]}, which it does not own"
            not_lost = sorted(owned - lost)
            meaning = f"a training step without {operation} still changes"
            assert not not_lost, f"{meaning} {not_lost[:MOST_SHOWN]}, which it owns"

    # Costs

    @pytest.mark.parametrize("affine", [False, True], ids=["plain", "affine"])
    def test_cost_formula_is_what_is_counted(self, toy: SpaceToy, affine: bool) -> None:
        for arch in (*toy.drawn(), *toy.extremes()):
            formula = cost_of(toy, arch, affine=affine)
            net = toy.supernet(arch=arch, affine=affine)
            check_count(toy, arch, "parameters", formula.params, parameters(net))
            check_count(toy, arch, "MACs", formula.macs, macs(net, toy.shape))

    def test_activations_are_what_is_made(self, toy: SpaceToy) -> None:
        for arch in (*toy.drawn(), *toy.extremes()):
            net = toy.supernet(arch=arch).eval()
            counted = activations(net.cut(arch), toy.samples()[:1])
            check_count(toy, arch, WHICH_ACTIVATIONS, cost_of(toy, arch).activations, counted)

    def test_cost_of_an_operation_is_what_it_adds(self, toy: SpaceToy) -> None:
        net = toy.supernet()
        everything = toy.space.full()
        whole = cost_of(toy, everything)
        for removal in removals(everything):
            added = toy.space.op_cost(removal.op, toy.shape, toy.classes, toy.size)
            difference = whole.minus(cost_of(toy, removal.remaining))
            operation = named(toy.space, removal.op)
            wrong = f"`op_cost` of {operation} must be what `cost` says that it adds"
            assert added == difference, f"{wrong}: {difference}, but it is {added}"
            owned = 0
            for key, parameter in net.named_parameters():
                if net.owner(key) == removal.op:
                    owned += parameter.numel()
            wrong = f"`op_cost` of {operation} must count the {owned:,} parameters that it owns"
            assert added.params == owned, f"{wrong}, but it counts {added.params:,}"

    def test_a_latency_table_knows_every_step(self, toy: SpaceToy) -> None:
        """The steps have the shapes that the network computes, and each can be measured alone."""
        if toy.kind not in MAPS:
            pytest.skip("latency tables are for networks of maps")
        net = toy.supernet()
        steps = Steps(Model(net, (0.0,) * toy.shape[0], (1.0,) * toy.shape[0]))
        try:
            pieces = steps.all_pieces()
        except FedloomError as error:
            pytest.skip(f"{error}")
        for arch in toy.drawn():
            assert set(steps.of(arch)) <= pieces
            assert shapes_in_steps(steps, arch) == shapes_computed(net, arch, toy.samples()[:1])
        for piece in pieces:
            work, inputs = steps.examples[piece]
            with torch.no_grad():
                assert work(*steps.tensors(inputs)).shape[1] == piece.outputs, f"{piece}"


class LooksAtInput:
    """Sends each sample through an option that depends on the mean of its input."""

    def __init__(self, space: Space) -> None:
        self.space = space
        # For every slot that asked, the option of each sample.
        self.options_by_slot: list[list[int]] = []

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        digits = (1000 * inputs[0].double().flatten(1).mean(dim=1).abs()).round().long()
        rows = []
        for slot in place.slots:
            options = len(self.space.slots[slot].options)
            chosen = (digits + slot) % options
            rows.append(nn.functional.one_hot(chosen, options).float())
            self.options_by_slot.append(chosen.tolist())
        return rows


class Certain:
    """Weights of 1 for an architecture's operations, for the whole batch or for each sample."""

    def __init__(self, space: Space, arch: Arch, samples: int | None) -> None:
        self.space = space
        self.arch = arch
        self.samples = samples

    def weights(self, place: Place, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [self.row(slot) for slot in place.slots]

    def row(self, slot: int) -> torch.Tensor:
        row = torch.zeros(len(self.space.slots[slot].options))
        row[list(self.arch.choice[slot])] = 1.0
        if self.samples is None:
            return row
        return row.repeat(self.samples, 1)


def assert_alike(scores: torch.Tensor, expected: torch.Tensor, meaning: str) -> None:
    """Assert that scores are equal, except for the rounding of sums in another order."""

    def message(difference: str) -> str:
        return f"{meaning}\n{difference}"

    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6, msg=message)


def check_count(toy: SpaceToy, arch: Arch, unit: str, by_formula: int, counted: int) -> None:
    """Assert that the space's formula gives the number that is counted in the network."""
    numbers = f"`cost` says {by_formula:,} {unit}, but the network has {counted:,}"
    assert by_formula == counted, f"{numbers}\nThe choice: {in_words(toy.space, arch)}"


def cost_of(toy: SpaceToy, arch: Arch, *, affine: bool = False) -> Cost:
    return toy.space.cost(toy.shape, toy.classes, arch, toy.size, affine=affine)


class TensorKeeper(fx.Interpreter):
    """Runs a plain network and keeps every tensor that it computes."""

    def __init__(self, net: fx.GraphModule) -> None:
        super().__init__(net)
        self.tensors: list[torch.Tensor] = []  # alive, so that no address is used twice

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        computes = n.op in ("call_module", "call_function", "call_method")
        if computes and isinstance(result, torch.Tensor):
            self.tensors.append(result)
        return result


def activations(net: nn.Module, x: torch.Tensor) -> int:
    """The number of elements of all tensors that a cut network computes.

    Views and results that are written in place do not count.
    """
    assert isinstance(net, fx.GraphModule)
    keeper = TensorKeeper(net)
    with torch.no_grad():
        keeper.run(x)
    sizes = {}
    for tensor in keeper.tensors:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
    sizes.pop(x.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


def shapes_computed(net: Supernet, arch: Arch, x: torch.Tensor) -> list[tuple[int, ...]]:
    """The shapes of a forward pass, step by step."""
    shapes = []

    def run(work: Callable[..., torch.Tensor], *inputs: Any) -> torch.Tensor:
        result = work(*inputs)
        shapes.append(tuple(result.shape))
        return result

    with torch.no_grad():
        deepcopy(net).eval().flow(run, x, arch)
    return shapes


def shapes_in_steps(steps: Steps, arch: Arch) -> list[tuple[int, ...]]:
    """The shapes that `Steps` passes on, step by step."""
    shapes = []
    flow = steps.net.flow

    def watching(run: Callable[..., Any], x: Any, choice: Any) -> Any:
        def noting(work: Any, *inputs: Any) -> Any:
            shape = run(work, *inputs)
            shapes.append(tuple(shape))
            return shape

        return flow(noting, x, choice)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.net, "flow", watching)
        steps.of(arch)
    return shapes
