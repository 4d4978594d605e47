import copy
from math import inf, nan
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from pydantic import Field

from fedloom.config.histograms import HistogramRule
from fedloom.federation.protocol.admission import Expected, refuse, required_tensors
from fedloom.federation.protocol.basic_replies import (
    MOST_SAMPLES,
    refuse_description,
    refuse_evaluation,
)
from fedloom.federation.protocol.envelope import BASIC
from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.metrics.classification import classify
from fedloom.metrics.metric import ACCURACY, PERPLEXITY
from fedloom.metrics.perplexity import measure_perplexity
from fedloom.types import Fields, Order, Reply, Task

FIELDS = Fields(tensors=("net.*",), meta=("loss",), extra=("alpha.*",))
SENT = {"net.w": torch.zeros(2, 2), "net.n": torch.tensor(0), "net.d": torch.zeros(1).double()}
ORDER = Order(3, "train", {**SENT, "hint": torch.zeros(9)})
HONEST = {name: tensor + 1 for name, tensor in SENT.items()}


def reason(tensors=HONEST, weight=10.0, meta=None, fields=FIELDS, **changes):
    """What is said of a reply that crossed the wire, where clients have at most 10 samples."""
    reply = Reply(
        **{"client": 3, "tensors": tensors, "weight": weight, "meta": meta or {}, **changes}
    )
    return refuse(read_reply(b"".join(reply_chunks(reply))), ORDER, Expected(ORDER, fields), 10.0)


def with_tensor(name, tensor):
    return {**HONEST, name: tensor}


# An honest reply


def test_an_honest_reply_passes():
    assert reason() is None
    assert reason(meta={"loss": 0.5}, wrote=True) is None
    assert reason(with_tensor("alpha.0", torch.ones(4))) is None
    assert reason(weight={"net.w": 10.0, "net.n": 0.0}) is None


@pytest.mark.parametrize("weight", [0.0, 1e-9, 10.0])
def test_weights_up_to_the_samples_pass(weight):
    assert reason(weight=weight) is None


def test_extreme_but_finite_values_pass():
    assert reason(with_tensor("net.w", torch.tensor([[3.4e38, -3.4e38], [1e-45, -0.0]]))) is None
    assert reason(with_tensor("net.d", torch.tensor([1e308], dtype=torch.float64))) is None


def test_an_honest_reply_without_any_tensor_passes():
    empty = Reply(3, weight=1.0)
    assert (
        refuse(
            read_reply(b"".join(reply_chunks(empty))),
            Order(3, "ask"),
            Expected(Order(3, "ask"), Fields()),
            1.0,
        )
        is None
    )


def test_only_declared_tensors_are_wanted_back():
    assert set(required_tensors(ORDER, FIELDS)) == {"net.w", "net.n", "net.d"}
    assert required_tensors(ORDER, Fields()) == {}


# Reasons to refuse


def test_another_clients_id():
    assert reason(client=4) == "it says it comes from client 4"


def test_an_undeclared_meta_field():
    assert (
        reason(meta={"loss": 1.0, "labels": [1, 2]}) == "it contains the undeclared field 'labels'"
    )


@pytest.mark.parametrize("name", ["hint", "secret", "alpha", "Net.w"])
def test_an_undeclared_tensor(name):
    assert reason(with_tensor(name, torch.ones(1))) == f"it contains the undeclared tensor '{name}'"


def test_an_extra_tensor_where_none_is_declared():
    fields = Fields(tensors=FIELDS.tensors)
    assert (
        reason(with_tensor("alpha.0", torch.ones(1)), fields=fields)
        == "it contains the undeclared tensor 'alpha.0'"
    )


@pytest.mark.parametrize("name", HONEST)
def test_a_missing_tensor(name):
    assert (
        reason({key: value for key, value in HONEST.items() if key != name})
        == f"tensor '{name}' is missing"
    )


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 2, 1), (), (0, 2), (1, 1)])
def test_another_shape(shape):
    expected = f"tensor 'net.w' has shape {list(shape)}, not [2, 2]"
    assert reason(with_tensor("net.w", torch.ones(shape))) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_another_dtype(dtype):
    expected = f"tensor 'net.w' is {dtype}, not torch.float32"
    assert reason(with_tensor("net.w", torch.ones(2, 2).to(dtype))) == expected


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", ["net", "alpha.0"])
def test_a_value_that_is_not_finite(name, dtype, value):
    name = (
        {torch.float32: "net.w", torch.float64: "net.d"}.get(dtype, "alpha.0")
        if name == "net"
        else name
    )
    poisoned = HONEST.get(name, torch.ones(3, dtype=dtype)).clone()
    poisoned.view(-1)[-1] = value
    assert reason(with_tensor(name, poisoned)) == f"tensor '{name}' holds a NaN or Inf"


def test_the_first_of_several_poisoned_tensors_is_named():
    poison = {"net.w": torch.full((2, 2), nan), "net.d": torch.full((1,), nan).double()}
    assert reason({**HONEST, **poison}) == "tensor 'net.d' holds a NaN or Inf"


@pytest.mark.parametrize(("weight", "shown"), [(-1.0, "-1"), (10.5, "10.5"), (1e300, "1e+300")])
def test_a_weight_out_of_bounds(weight, shown):
    assert reason(weight=weight) == f"its weight {shown} is not between 0 and 10"
    assert (
        reason(weight={"net.w": 1.0, "net.n": weight})
        == f"its weight {shown} is not between 0 and 10"
    )


@pytest.mark.parametrize("weight", [nan, inf, {"net.w": nan}])
def test_a_weight_that_is_not_finite(weight):
    read = read_reply(b"".join(reply_chunks(Reply(3, HONEST))))
    reply = Reply(3, read.tensors, weight)  # it cannot cross the wire, but trust nothing
    assert "is not between" in refuse(reply, ORDER, Expected(ORDER, FIELDS), 10.0)


def test_a_weight_for_an_unknown_tensor():
    assert reason(weight={"net.w": 1.0, "net.x": 1.0}) == "it weights the unknown tensor 'net.x'"


def test_a_count_set_by_a_client():
    assert reason(count={"net.w": 1000}) == "it claims to be an aggregator's"
    assert reason(count={}) == "it claims to be an aggregator's"


# Plain values


@pytest.mark.parametrize("value", [0, -1.5, 10**300, True, None, "", "x" * 1000], ids=str)
def test_a_bare_name_holds_a_number_a_short_text_or_nothing(value):
    assert reason(meta={"loss": value}) is None


@pytest.mark.parametrize(
    "value",
    [[], [1.0], {}, {"a": 1}, "x" * 1001, 10**400, [[[]]]],
    ids=lambda value: str(value)[:9],
)
def test_a_bare_name_holds_nothing_else(value):
    expected = (
        "its loss: neither a finite number, nor a string of at most 1,000 characters, nor null"
    )
    assert reason(meta={"loss": value}) == expected


TYPED = Fields(tensors=("net.*",), meta={
    "loss": float, "votes": Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=3)],
    "name": str | None, "rest": Any,
})  # fmt: skip
HONEST_META = {"loss": 1.5, "votes": [1, 2], "name": "a", "rest": {"b": [1]}}


def test_typed_values_pass():
    assert reason(meta=HONEST_META, fields=TYPED) is None
    assert (
        reason(meta={**HONEST_META, "loss": 1, "votes": [], "name": "x" * 2000}, fields=TYPED)
        is None
    )


@pytest.mark.parametrize("name", ["name", "rest"])
def test_a_typed_value_that_is_missing_counts_as_null(name):
    assert (
        reason(meta={key: value for key, value in HONEST_META.items() if key != name}, fields=TYPED)
        is None
    )
    assert reason(meta={**HONEST_META, name: None}, fields=TYPED) is None


@pytest.mark.parametrize(
    ("change", "where"),
    [({"loss": "1"}, "loss"), ({"loss": True}, "loss"), ({"loss": None}, "loss"),
     ({"loss": [1.0]}, "loss"), ({"votes": 1}, "votes"), ({"votes": [1, -1]}, "votes.1"),
     ({"votes": [1, "1"]}, "votes.1"), ({"votes": [1, 1, 1, 1]}, "votes"),
     ({"votes": {"0": 1}}, "votes"), ({"name": 3}, "name")],
    ids=str,
)  # fmt: skip
def test_a_value_of_another_type_is_named(change, where):
    assert reason(meta={**HONEST_META, **change}, fields=TYPED).startswith(f"its {where}: ")


def test_a_typed_value_that_must_be_there():
    meta = {key: value for key, value in HONEST_META.items() if key != "votes"}
    assert reason(meta=meta, fields=TYPED).startswith("its votes: ")
    assert (
        reason(meta={**HONEST_META, "more": 1}, fields=TYPED)
        == "it contains the undeclared field 'more'"
    )


def test_a_typed_value_has_a_size():
    many = Fields(tensors=("net.*",), meta={"votes": list[int]})
    assert reason(meta={"votes": [1] * 1000}, fields=many) is None
    assert reason(meta={"votes": [1] * 400_000}, fields=many).endswith(
        "characters, at most 1,048,576 are expected"
    )


# Tensors that may come back

PARTIAL = Fields(tensors=("net.d",), optional=("net.*",))


def without(*names):
    return {name: tensor for name, tensor in HONEST.items() if name not in names}


@pytest.mark.parametrize("left_out", [(), ("net.w",), ("net.n",), ("net.w", "net.n")])
def test_an_optional_tensor_may_be_left_out(left_out):
    assert reason(without(*left_out), fields=PARTIAL) is None


def test_a_tensor_that_is_both_required_and_optional_must_come_back():
    assert reason(without("net.d"), fields=PARTIAL) == "tensor 'net.d' is missing"


def test_an_optional_tensor_is_checked_like_any_other():
    def said(name, tensor):
        return reason(with_tensor(name, tensor), fields=PARTIAL)

    assert said("net.w", torch.ones(4)) == "tensor 'net.w' has shape [4], not [2, 2]"
    assert (
        said("net.w", torch.ones(2, 2).double())
        == "tensor 'net.w' is torch.float64, not torch.float32"
    )
    assert said("net.w", torch.full((2, 2), nan)) == "tensor 'net.w' holds a NaN or Inf"
    assert (
        said("net.x", torch.ones(1)) == "it contains the undeclared tensor 'net.x'"
    )  # the order had none
    assert said("hint", torch.ones(9)) == "it contains the undeclared tensor 'hint'"


def test_an_optional_counter_may_not_fall():
    order = Order(3, "train", {"n": torch.tensor(5), "w": torch.zeros(1)})
    expected = Expected(order, Fields(optional=("*",)))
    for after, reason in (
        (6, None),
        (4, "counter 'n' decreases"),
        (20, "counter 'n' rises by 15"),
    ):
        reply = read_reply(b"".join(reply_chunks(Reply(3, {"n": torch.tensor(after)}))))
        assert (refuse(reply, order, expected, 0.0, 7) or "None").startswith(str(reason))


def test_replies_that_bring_different_parts_are_each_looked_at():
    expected = Expected(ORDER, PARTIAL)
    for tensors, reason in [
        (HONEST, None),
        (without("net.w"), None),
        (HONEST, None),
        (without("net.d"), "tensor 'net.d' is missing"),
        (without("net.n"), None),
    ]:
        reply = read_reply(b"".join(reply_chunks(Reply(3, tensors))))
        assert refuse(reply, ORDER, expected, 10.0) == reason


def test_only_what_a_reply_brings_may_be_weighed():
    weight = {"net.w": 4.0, "net.n": 4.0, "net.d": 4.0}
    assert reason(weight=weight, fields=PARTIAL) is None
    expected = "it gives a weight for tensor 'net.w', which it lacks"
    assert reason(without("net.w"), weight=weight, fields=PARTIAL) == expected
    assert reason(without("net.w"), weight={**weight, "net.w": 0.0}, fields=PARTIAL) is None


def test_what_may_come_back_counts_in_the_size_of_a_reply():
    assert (
        Expected(ORDER, PARTIAL).most_bytes
        == Expected(ORDER, Fields(tensors=("net.*",))).most_bytes
    )
    assert (
        Expected(ORDER, Fields(tensors=("net.d",))).most_bytes
        == Expected(ORDER, PARTIAL).most_bytes - 24
    )


# States


@pytest.mark.parametrize("writes", [None, True, False])
def test_a_claimed_state_where_the_kind_never_makes_one(writes):
    fields = Fields(tensors=FIELDS.tensors, writes=writes)
    expected = "it claims a new state, which an order of kind 'train' never makes"
    assert reason(fields=fields, wrote=True) == (expected if writes is False else None)
    assert reason(fields=fields, wrote=False) is None


@pytest.mark.parametrize("kind", ["describe", "evaluate"])
def test_describing_and_evaluating_make_no_state(kind):
    reply = read_reply(b"".join(reply_chunks(Reply(3, wrote=True))))
    assert "claims a new state" in refuse(
        reply, Order(3, kind), Expected(Order(3, kind), BASIC[kind]), 0.0
    )


# Counters

BIG = 2**63 - 1
SMALL = -(2**63)


def counted(before, after, most):
    order = Order(3, "train", {"n": torch.tensor(before, dtype=torch.int64), "m": torch.tensor(5)})
    reply = Reply(3, {"n": torch.tensor(after, dtype=torch.int64), "m": torch.tensor(5)})
    fields = Fields(tensors=("*",))
    return refuse(
        read_reply(b"".join(reply_chunks(reply))), order, Expected(order, fields), 0.0, most
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [(0, 0), (0, 7), (-3, 4), ([0, 9], [7, 9]), (BIG - 7, BIG), (SMALL, SMALL + 7), ([], [])],
    ids=str,
)
def test_a_counter_may_rise_by_the_steps_of_a_client(before, after):
    assert counted(before, after, 7) is None


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [(0, 8, 8), (0, BIG, BIG), (SMALL, BIG, 2**64 - 1), ([0, 0], [7, 8], 8)],
    ids=str,
)
def test_a_counter_that_rises_too_far(before, after, steps):
    assert counted(before, after, 7) == f"counter 'n' rises by {steps}, at most 7 is possible"


@pytest.mark.parametrize(
    ("before", "after"), [(1, 0), (0, SMALL), (BIG, SMALL), ([5, 5], [6, 4])], ids=str
)
def test_a_counter_that_falls(before, after):
    assert counted(before, after, 7) == "counter 'n' decreases"
    assert counted(before, after, 10**30) == "counter 'n' decreases"


class Elsewhere(torch.Tensor):
    """As a tensor on another device does, it becomes an array only by force."""

    def numpy(self, *, force=False):
        if not force:
            raise TypeError("can't convert this tensor to numpy")
        return super().numpy(force=True)


def test_a_counter_that_was_sent_from_another_device():
    order = Order(3, "train", {"n": torch.tensor([5]).as_subclass(Elsewhere)})
    for after, reason in ((6, None), (4, "counter 'n' decreases")):
        reply = read_reply(b"".join(reply_chunks(Reply(3, {"n": torch.tensor([after])}))))
        assert refuse(reply, order, Expected(order, Fields(tensors=("*",))), 0.0, 7) == reason


def test_integers_that_are_no_counters_are_left_alone():
    assert counted(BIG, SMALL, None) is None
    extra = Reply(3, {"alpha.n": torch.tensor(SMALL)})
    read = read_reply(b"".join(reply_chunks(extra)))
    assert (
        refuse(
            read, Order(3, "train"), Expected(Order(3, "train"), Fields(extra=("alpha.*",))), 0.0, 7
        )
        is None
    )


def test_how_large_a_reply_may_be():
    tight = Fields(tensors=("net.*",))
    assert Expected(ORDER, tight).most_bytes == (16 + 8 + 8) + 256 * 4 + (1 << 20)
    assert Expected(ORDER, FIELDS).most_bytes == Expected(ORDER, tight).most_bytes + (256 << 20)
    assert Expected(Order(1, "describe"), Fields()).most_bytes == 1 << 20


# Descriptions

TASK = Task("fedavg", {}, "image", (1, 8, 8), ("cat", "dog"), 0, (0.5,), (0.25,))
DESCRIPTION = {
    "shape": [1, 8, 8],
    "labels": ["cat", "dog"],
    "samples": {"train": 5, "validation": 0, "test": 2},
    "extra": {"histogram": [1, 2]},
}


def described(**changes):
    return refuse_description({**DESCRIPTION, **changes}, TASK)


def test_an_honest_description_passes():
    assert described() is None
    assert described(samples={"train": 0, "validation": 0, "test": 0}) is None


@pytest.mark.parametrize("name", DESCRIPTION)
def test_a_description_without_a_field(name):
    meta = {key: value for key, value in DESCRIPTION.items() if key != name}
    assert refuse_description(meta, TASK) == f"its {name}: field required"


def test_a_description_tells_label_counts_if_they_were_asked_for():
    exact = HistogramRule.parse("exact")
    assert refuse_description({**DESCRIPTION, "histogram": [3, 2]}, TASK, exact) is None
    assert refuse_description(DESCRIPTION, TASK, exact) == (
        "its histogram: it must have one count for each of the 2 labels"
    )
    assert "a whole number" in refuse_description(
        {**DESCRIPTION, "histogram": [3, -2]}, TASK, exact
    )
    assert described(histogram=[3, 2]) == "its histogram: the run did not ask for it"


def test_a_description_with_a_field_too_many():
    assert described(address="here") == "its address: extra inputs are not permitted"


@pytest.mark.parametrize(
    "samples",
    [{"train": -1}, {"train": "5"}, {"train": 5.5}, {"train": True}, {"train": None},
     {"test": MOST_SAMPLES + 1}, {"validation": 10**400}, {"more": 1}],
    ids=str,
)  # fmt: skip
def test_a_description_with_counts_that_are_none(samples):
    assert described(samples={**DESCRIPTION["samples"], **samples}).startswith("its samples.")


@pytest.mark.parametrize(
    "change", [{"shape": "188"}, {"shape": ["1", "8", "8"]}, {"labels": [1, 2]}, {"extra": []}]
)
def test_a_description_of_other_types(change):
    assert described(**change).startswith(f"its {next(iter(change))}")


def test_another_sample_shape_names_both():
    assert (
        described(shape=[3, 8, 8]) == "its samples have shape [3, 8, 8], the run expects [1, 8, 8]"
    )


@pytest.mark.parametrize(
    "labels", [["dog", "cat"], ["cat"], ["cat", "dog", "cow"], ["Cat", "dog"], []]
)
def test_other_labels_or_another_order_names_both(labels):
    reason = described(labels=labels)
    assert str(labels)[1:-1] in reason and "expects ['cat', 'dog']…, in this order" in reason


# Evaluations

FIGURES = classify(np.eye(2), np.array([0, 0]), 2).to_json()


def evaluated(**changes):
    """Of a client that described 2 samples; changes are of its personal figures."""
    return refuse_evaluation({"personal": {**FIGURES, **changes}, "shared": None}, 2, ACCURACY)


def test_an_honest_evaluation_passes():
    nothing = classify(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 2).to_json()
    assert FIGURES["correct"] == 1 and evaluated() is None
    assert refuse_evaluation({"personal": FIGURES, "shared": FIGURES}, 2, ACCURACY) is None
    assert refuse_evaluation({"personal": nothing, "shared": None}, 0, ACCURACY) is None
    assert (
        refuse_evaluation({"personal": FIGURES, "shared": None}, inf, ACCURACY) is None
    )  # of a client never described


@pytest.mark.parametrize(
    "change",
    [{"accuracy": 1.01}, {"accuracy": -0.01}, {"balanced_accuracy": 2}, {"f1": 1e9}, {"auc": -1},
     {"samples": -1}, {"correct": -1}, {"correct": 1.5}, {"samples": "2"}, {"correct": True},
     {"accuracy": "0.5"}, {"interval": [0.1]}, {"interval": 0.5}, {"interval": ["0", "1"]},
     {"interval": [0.0, 1.5]}, {"samples": None}, {"extra": 1}],
    ids=str,
)  # fmt: skip
def test_an_evaluation_with_impossible_figures(change):
    assert evaluated(**change).startswith(f"its personal.{next(iter(change))}")


def test_an_evaluation_with_more_right_answers_than_samples():
    assert evaluated(correct=3) == "its personal: value error, more correct answers than samples"


def test_an_evaluation_of_more_samples_than_described():
    assert evaluated(samples=3) == "it evaluated 3 samples of 2"
    meta = {"personal": FIGURES, "shared": {**FIGURES, "samples": 4}}
    assert refuse_evaluation(meta, 2, ACCURACY) == "it evaluated 4 samples of 2"


@pytest.mark.parametrize("name", ["personal", "shared"])
def test_an_evaluation_without_a_part(name):
    meta = {key: FIGURES for key in ("personal", "shared") if key != name}
    assert refuse_evaluation(meta, 2, ACCURACY) == f"its {name}: field required"


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "answers"])
def test_an_evaluation_without_a_figure(name):
    meta = copy.deepcopy({"personal": FIGURES, "shared": None})
    del meta["personal"][name]
    assert refuse_evaluation(meta, 2, ACCURACY) == f"its personal.{name}: field required"


def test_a_site_of_the_version_before_does_not_tell_how_many_answers_it_got():
    before = {name: value for name, value in FIGURES.items() if name != "answers"}
    assert refuse_evaluation({"personal": before, "shared": before}, 2, ACCURACY, 2) is None
    assert evaluated(answers=None) is None


@pytest.mark.parametrize("answers", [-1, 1.5, "1", True])
def test_answers_that_are_no_count(answers):
    assert evaluated(answers=answers).startswith("its personal.answers: ")


@pytest.mark.parametrize("answers", [0, 3])
def test_more_answers_than_samples_or_none_although_some_are_right(answers):
    rule = f"its personal.answers: it cannot have given {answers} different ones"
    assert evaluated(answers=answers) == rule
    meta = {"personal": FIGURES, "shared": {**FIGURES, "answers": answers}}
    assert refuse_evaluation(meta, 2, ACCURACY) == rule.replace("personal", "shared")


def test_more_answers_than_classes():
    meta = {"personal": {**FIGURES, "samples": 9, "answers": 3}, "shared": None}
    assert refuse_evaluation(meta, 9, ACCURACY, 3) is None
    assert (
        refuse_evaluation(meta, 9, ACCURACY, 2)
        == "its personal.answers: it cannot have given 3 different ones"
    )


def confused(counts, classes=2):
    meta = {"personal": FIGURES, "shared": None, "confusion": counts}
    return refuse_evaluation(meta, 2, ACCURACY, classes)


def test_an_honest_confusion_passes():
    assert confused([[1, 1], [0, 0]]) is None and confused(None) is None
    one_nan = {**FIGURES, "answers": 1}  # a sample with a NaN score was taken for nothing
    meta = {"personal": one_nan, "shared": None, "confusion": [[1, 0], [0, 0]]}
    assert refuse_evaluation(meta, 2, ACCURACY, 2) is None


def test_a_confusion_that_contradicts_the_number_of_answers():
    rule = "its confusion: it does not agree with its number of different answers"
    assert confused([[1, 0], [0, 0]]) == rule
    assert confused([[1, 1], [0, 0]]) is None


@pytest.mark.parametrize(
    "counts", [[[1, 1]], [[1], [0]], [[1, 1, 0], [0, 0, 0], [0, 0, 0]], []], ids=str
)
def test_a_confusion_of_another_size(counts):
    assert confused(counts) == "its confusion: it is not 2 × 2"


@pytest.mark.parametrize("counts", [[[1, 1], [1, 0]], [[0, 1], [0, 0]], [[1, 0], [0, 1]]], ids=str)
def test_a_confusion_that_contradicts_the_figures(counts):
    assert (
        confused(counts) == "its confusion: it does not agree with its samples and correct answers"
    )


@pytest.mark.parametrize(
    "counts", [[[1, -1], [0, 0]], [[1.0, 0], [0, 0]], [[True, 0], [0, 0]], 3, {"0": 1}], ids=str
)
def test_a_confusion_of_no_counts(counts):
    assert confused(counts).startswith("its confusion")


# Evaluations of text

TEXT_FIGURES = measure_perplexity(np.eye(2), np.array([0, 0]), 2).to_json()


def text_refusal(**changes):
    return refuse_evaluation(
        {"personal": {**TEXT_FIGURES, **changes}, "shared": TEXT_FIGURES}, 2, PERPLEXITY
    )


def test_an_honest_evaluation_of_text_passes():
    nothing = measure_perplexity(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 2).to_json()
    assert text_refusal() is None and text_refusal(interval=None) is None
    largest = measure_perplexity(np.full((2, 2), np.nan), np.zeros(2), 2).to_json()
    assert text_refusal(**largest) is None
    assert refuse_evaluation({"personal": nothing, "shared": None}, 0, PERPLEXITY) is None


@pytest.mark.parametrize(
    "change",
    [{"perplexity": 0.99}, {"perplexity": 0.0}, {"perplexity": 3e43}, {"perplexity": float("inf")},
     {"perplexity": float("nan")}, {"perplexity": "2"}, {"accuracy": 1.5}, {"interval": [0.5, 2.0]},
     {"interval": [1.0, 1e300]}, {"samples": -1}, {"f1": 0.5}],
    ids=str,
)  # fmt: skip
def test_an_evaluation_of_text_with_impossible_figures(change):
    assert text_refusal(**change).startswith(f"its personal.{next(iter(change))}")


@pytest.mark.parametrize(("figures", "metric"), [(FIGURES, PERPLEXITY), (TEXT_FIGURES, ACCURACY)])
def test_an_evaluation_by_another_metric(figures, metric):
    assert refuse_evaluation({"personal": figures, "shared": None}, 2, metric).startswith(
        "its personal."
    )


def test_what_a_reason_quotes_is_fit_for_a_log():
    from fedloom.federation.server.receiving import readable

    assert readable("it holds \x1b[2J\n'x'") == "it holds  [2J 'x'"
    assert len(readable("x" * (1 << 20))) == 501
