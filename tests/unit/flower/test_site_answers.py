"""What a site answers a server that asks for more than the site's policy allows.

Everything here goes through `deploy.site.handle`, with messages as Flower delivers them.
"""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fedloom.deploy.audit import AuditLog
from fedloom.types import Reply

pytest.importorskip("flwr")

OTHER = "f" * 16


@pytest.fixture
def site(tmp_path, monkeypatch):
    from asking import AskedSite

    from fedloom.deploy import site

    monkeypatch.setattr(site, "end_without_parent", lambda: None)
    return AskedSite(tmp_path)


def refused(answer, *words):
    assert answer.code == "refused", vars(answer)
    for word in words:
        assert word in answer.text
    assert re.search(r"\(number \d+ in the site's audit log\)$", answer.text)


# The test part, and the least number of samples


def test_the_sites_share_of_test_samples_counts(site):
    """Of 100 samples a fifth by the policy, and not the quarter that the server asks for."""
    described = site.ask("describe", tensors={})
    assert described.reply.meta["samples"] == {"train": 80, "validation": 0, "test": 20}
    assert site.survey().facts["test"] == 0.2
    site.set(test=None)
    described = site.ask("describe", tensors={}, terms={"test": 0.5}, experiment=OTHER)
    assert described.reply.meta["samples"] == {"train": 50, "validation": 0, "test": 50}
    assert "test" not in site.survey().facts


def test_a_server_cannot_read_single_labels_from_shrunken_test_parts(site):
    """With a test part of one sample, and another one for every seed, each answer was a label."""
    site.set(test=None, divisions=5)
    figures = []
    for number in range(30):
        experiment = f"{number:016x}"
        terms = {"test": 0.01, "seed": number}
        answer = site.ask("evaluate", terms=terms, seed=number, experiment=experiment)
        figures.append(answer.code)
    assert figures == ["refused"] * 30


def test_samples_are_divided_in_only_so_many_ways(site):
    """Each seed is one, and the figures of each tell something else about the labels."""
    site.set(divisions=3)
    answers = []
    for seed in range(5):
        experiment = f"{seed:016x}"
        answers.append(site.ask("evaluate", terms={"seed": seed}, seed=seed, experiment=experiment))
    assert [answer.code for answer in answers] == [None, None, None, "refused", "refused"]
    refused(answers[-1], "in at most 3 ways", "use a seed that was used here: 0, 1, 2")
    assert site.ask("evaluate", terms={"seed": 1}, seed=1, experiment=OTHER).code is None


def test_a_part_is_the_same_in_all_of_an_experiment(site):
    assert site.ask("evaluate").code is None
    for change in ({"test": 0.3}, {"hold": 0.3}, {"size": {"resize": 6, "fit": "crop"}}):
        refused(site.ask("evaluate", terms=change), "as its first order did")
    refused(site.ask("evaluate", client=1), "as its first order did")
    refused(site.ask("evaluate", terms={"seed": 1}), "divided by the seed of the run")
    assert site.ask("evaluate").code is None


def test_a_policy_that_is_edited_counts_for_later_experiments(site):
    """A running one would otherwise test on what it has trained on."""
    before = site.ask("evaluate").reply.meta["personal"]["samples"]
    site.set(test=0.5)
    assert site.ask("evaluate", number=2).reply.meta["personal"]["samples"] == before == 20
    assert site.ask("evaluate", experiment=OTHER).reply.meta["personal"]["samples"] == 50


def test_parts_of_two_experiments_do_not_differ_by_one_sample(site):
    """Their figures would: the difference is about this sample."""
    assert site.ask("evaluate", terms={"hold": 0.25}).code is None
    alike = site.ask("evaluate", terms={"hold": 0.2625}, experiment=OTHER)
    refused(alike, "must not single out fewer than 20 samples", "would single out 1;")
    assert site.ask("evaluate", terms={"hold": 0.25}, experiment=OTHER).code is None
    assert site.ask("evaluate", terms={"hold": 0.5}, experiment="a" * 16).code is None


def test_sums_of_four_figures_do_not_isolate_a_sample(site):
    """Where the policy has no `test`, test and validation parts of one seed overlap as asked."""
    site.write_data(400)
    site.set(test=None)
    # Boundaries at 100, at 200 and 300, and at 80 and 199: parts of one kind differ by many.
    shares = [(0.25, 0.0), (0.5, 0.5), (0.2, 0.628125)]
    answers = []
    for number, (test, hold) in enumerate(shares):
        terms = {"test": test, "hold": hold}
        answers.append(site.ask("evaluate", terms=terms, experiment=f"{number:016x}"))
    assert [answer.code for answer in answers] == [None, None, "refused"]
    refused(answers[-1], "would single out 1;")


def test_an_experiment_keeps_its_task(site):
    """Its options say how a method divides the training part."""
    assert site.ask().code is None
    refused(site.ask(options={"lr": 0.7}, hop=1), "must keep the method and options")
    refused(site.ask("describe", tensors={}, labels=("1", "0")), "must keep the method")
    assert site.ask(hop=1).code is None
    path = record_of(site)
    before_the_task_was_kept = json.loads(path.read_text())
    del before_the_task_was_kept["task"]
    path.write_text(json.dumps(before_the_task_was_kept))
    assert site.ask(options={"lr": 0.7}, hop=2).code is None
    refused(site.ask(hop=3), "must keep the method and options")


def test_a_task_of_a_later_version_may_have_further_options(site):
    assert site.ask().code is None
    path = record_of(site)
    record = json.loads(path.read_text())
    del record["task"]["options.lr"]
    path.write_text(json.dumps(record))
    assert site.ask(hop=1).code is None
    refused(site.ask(options={"lr": 0.7}, hop=2), "must keep the method and options")


def knn_per(share):
    from fedloom.runs.configure import resolve_options

    options = {"width": 0.125, "batch": 8, "epochs": 1, "train_share": share}
    return {"method": "knn-per", "options": resolve_options("knn-per", {}) | options}


def weights_of(site, task):
    from fedloom.methods import stages
    from fedloom.types import Setup

    return dict(stages(task)[0].method.init(Setup(task, population=1), None).tensors)


def test_inner_parts_of_two_experiments_do_not_differ_by_one_sample(site):
    """A method divides the training part by an option, which is the server's."""
    site.write_data(200)

    def trained(share, experiment, hop=0):
        stamp = {"experiment": experiment, "hop": hop, **knn_per(share)}
        return site.ask(tensors=weights_of(site, site.stamp(**stamp).task), **stamp)

    assert trained(0.5, "0" * 16).code is None
    cuts = site.kit / "state" / "cuts.json"
    (cut,) = json.loads(cuts.read_text())
    assert (cut["begin"], cut["at"], cut["end"]) == (40, 120, 200)
    refused(trained(0.50625, "1" * 16), "must not single out fewer than 20", "single out 1;")
    assert trained(0.5, "2" * 16).code is None
    assert trained(0.5, "0" * 16).code is None  # a run that goes on
    assert len(json.loads(cuts.read_text())) == 1
    assert trained(0.75, "3" * 16).code is None
    site.set(divisions=2)
    refused(trained(0.25, "4" * 16), "training samples in at most 2 ways")
    cuts.write_text("{")
    answer = trained(0.5, "0" * 16, hop=1)
    assert (answer.code, "cuts.json" in answer.text) == ("refused", False)
    assert "cuts.json must be as the site wrote it" in site.lines()[-1]["reason"]


def test_samples_that_came_since_are_not_told_apart_by_figures(site):
    """The figures of all parts before and after speak of the one sample that is new."""
    assert site.ask("evaluate").code is None
    site.write_data(101)
    more = site.ask("evaluate", number=2)
    refused(more, "must change by at least 20 samples", "it has 101 samples, and had 100")
    refused(site.ask("evaluate", experiment=OTHER), "must change by at least 20 samples")
    site.write_data(120)
    assert site.ask("evaluate", number=2).code is None
    site.write_data(100)
    assert site.ask("evaluate", number=2).code is None


def test_facts_of_images_do_not_leave_again_after_a_few_came(site):
    """Mean and deviation of all images before and after one image tell of this image."""
    site.write_data(100)
    assert site.survey().code is None and site.ask().code is None
    site.write_data(101)
    refused(site.survey(), "must change by at least 20 samples, or not at all")
    site.write_data(120)
    assert site.survey().facts["samples"] == 120


@pytest.mark.parametrize(("samples", "is_trained"), [(99, True), (24, False), (25, True)])
def test_a_site_trains_on_at_least_min_part_samples(site, samples, is_trained):
    site.write_data(samples)
    answer = site.ask()
    if is_trained:
        assert answer.code is None and answer.reply.weight >= 20
        return
    refused(answer, "a part of this site's samples is smaller than its policy allows")
    assert (
        "the training part must have at least 20 samples here, but it has 19"
        in (site.lines()[-1]["reason"])
    )


def test_a_small_part_has_no_figures(site):
    site.write_data(97)
    refused(site.ask("evaluate", experiment=OTHER), "smaller than its policy allows")
    held = site.ask(
        "evaluate",
        terms={"hold": 0.1, "seed": 1},
        meta={"part": "validation"},
        experiment="a" * 16,
        seed=1,
    )
    refused(held, "smaller than its policy allows")
    site.set(min_part=1)
    assert site.ask("evaluate", experiment=OTHER).reply.meta["personal"]["samples"] == 19
    site.write_data(99)
    assert site.ask("evaluate", experiment=OTHER).code is None


def test_label_counts_of_few_samples_do_not_leave(site):
    site.write_data(24)
    assert site.ask("describe", tensors={}).reply.meta["samples"]["train"] == 19
    counts = {"histograms": "laplace:1.0"}
    refused(site.ask("describe", tensors={}, meta=counts), "smaller than its policy allows")


def test_label_counts_have_one_noise_whatever_the_server_names_beside_them(site):
    """It averaged some hundred draws before: one for every list of classes."""
    lists = [("0", "1"), ("1", "0")]
    for number in range(3):
        lists.append(("0", *(f"{number} {padding}" for padding in range(number + 1)), "1"))
    lists.append(("0", "0.0", " 0", "00", "1", "1.0", "1 ", "01"))
    counts = set()
    for number, labels in enumerate(lists):
        meta = {"histograms": "laplace:1.0"}
        experiment = f"{number:016x}"
        asked = site.ask("describe", tensors={}, meta=meta, labels=labels, experiment=experiment)
        row = dict(zip(labels, asked.reply.meta["histogram"], strict=True))
        counts.add((row["0"], row["1"]))
    assert len(counts) == 1


def test_a_class_is_named_once(site):
    twice = site.ask("describe", tensors={}, labels=("0", "1", "1"))
    refused(twice, "the classes of a run must have different names")


def test_a_method_cannot_divide_the_training_part_into_small_ones():
    from fedloom.data.samples import Samples, TooFewSamples
    from fedloom.deploy.divisions import PartOwner

    cuts = []
    owner = PartOwner(10, 20, lambda *cut: cuts.append(cut))
    part = Samples(torch.zeros(50, 1), torch.zeros(50), owner)
    first, rest = part.split(0.5)
    assert (len(first), first.owner.begin, rest.owner.begin) == (25, 10, 35)
    assert cuts == [(10, 35, 60)]
    assert [len(piece) for piece in part.split(1.0)] == [50, 0]
    with pytest.raises(TooFewSamples, match="at least 20 samples here, but it has 10"):
        part.split(0.8)
    with pytest.raises(TooFewSamples):
        first.to("cpu").split(0.5)
    assert len(cuts) == 1


@pytest.mark.parametrize(
    ("weight", "leaves"),
    [(0.0, True), (19.0, False), (20.0, True), ({"a": 3.0, "b": 20.0}, True), ({"a": 3.0}, False)],
)
def test_a_reply_speaks_for_enough_samples(weight, leaves):
    from fedloom.deploy.failures import Refusal
    from fedloom.deploy.policy import Policy
    from fedloom.deploy.site import check_reply

    policy = Policy(methods=["*"], fields=["*"], rounds=1, megabytes=1)
    reply = Reply(0, weight=weight)
    if leaves:
        check_reply(policy, reply)
        return
    with pytest.raises(Refusal, match="made from at least 20 samples here"):
        check_reply(policy, reply)


# Counters


def test_renumbering_does_not_pass_the_limit_of_rounds(site):
    """Every training of this server is of round 1: 5 of 5 passed a limit of 2."""
    site.set(rounds=2)
    codes = [site.ask(hop=hop).code for hop in range(5)]
    assert codes == [None, None, "refused", "refused", "refused"]
    refused(site.ask(hop=7), "at most 2 trainings here, but this would be number 3")
    refused(site.ask(number=3), "at most 2 rounds here, but this is 3")
    assert site.ask("evaluate").code is None


def test_the_same_order_counts_once_because_its_answer_is_the_same(site):
    """A run that goes on after an interruption asks again."""
    site.set(rounds=1)
    first = site.ask()
    again = site.ask()
    assert first.code is None and first.raw == again.raw
    assert site.ask(hop=1).code == "refused"


def test_the_same_order_is_worked_on_only_so_often(site):
    """Its answer says nothing new, but the work is the site's."""
    site.set(evaluations=2)
    codes = [site.ask().code for _ in range(5)]
    assert codes == [None, None, None, "refused", "refused"]
    refused(site.ask(), "at most 2 repeated orders here, but this would be number 3")
    assert site.ask(hop=1).code is None  # another order


def test_evaluations_descriptions_and_bytes_are_counted(site):
    site.set(evaluations=2)
    codes = [site.ask("evaluate", number=number).code for number in (1, 2, 3)]
    assert codes == [None, None, "refused"]
    codes = [site.ask("describe", tensors={}, hop=hop).code for hop in range(4)]
    assert codes == [None, None, "refused", "refused"]
    exchanged = json.loads(record_of(site).read_text())["bytes"]
    site.set(gigabytes=(exchanged + 100) / (1 << 30), evaluations=100)
    refused(site.ask("describe", tensors={}, hop=9), "must exchange at most")


def test_the_bytes_of_an_order_that_fails_are_counted(site):
    answer = site.ask(tensors={})
    assert answer.code == "method"
    exchanged = json.loads(record_of(site).read_text())["bytes"]
    assert exchanged > 0
    assert site.ask(tensors={}).code == "method"
    assert json.loads(record_of(site).read_text())["bytes"] == 2 * exchanged


def record_of(site):
    return site.kit / "state" / "experiments" / "0123456789abcdef.json"


def test_only_so_many_experiments(site):
    site.set(experiments=2)
    answers = [site.ask("describe", tensors={}, experiment=letter * 16) for letter in "abca"]
    assert [answer.code for answer in answers] == [None, None, "refused", None]
    assert "at most 2 experiments" in answers[2].text


def test_counters_that_were_damaged_lift_no_limit(site):
    assert site.ask("describe", tensors={}).code is None
    record_of(site).write_text("{}")
    answer = site.ask()
    assert (answer.code, "path" in answer.text) == ("refused", False)
    assert "0123456789abcdef.json must be as the site wrote it" in site.lines()[-1]["reason"]


# Before anything is built


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 1000.0}, "networks must have at most 1,000,000,000 parameters here"),
        ({"width": 1000.0, "network": "resnet18"}, "at most 1,000,000,000 parameters here"),
        ({"epochs": 10**9}, "work on an order must take at most 3600 s here"),
        ({"width": 1e6}, "the options of fedavg must be possible here"),
    ],
)
def test_a_huge_order_is_refused_at_once(site, options, words):
    site.ask("describe", tensors={})
    began = time.monotonic()
    refused(site.ask(options=options, tensors={}, hop=1), words)
    assert time.monotonic() - began < 30  # of a busy machine; alone it takes 0.3 s


def test_a_supernet_of_any_size_is_refused_soon(site):
    from fedloom.runs.configure import resolve_options

    options = resolve_options("fednas", {"cells": 150, "channels": 16})
    site.set(parameters="1M")
    began = time.monotonic()
    answer = site.ask("search", method="fednas", options=options, tensors={})
    refused(answer, "at most 1,000,000 parameters")
    assert time.monotonic() - began < 30


def test_memory_is_priced_too(site):
    site.set(memory="2k")
    refused(site.ask(), "must take at most 2,000 bytes here")


def test_a_price_is_computed_once_for_the_same_limits(site, monkeypatch):
    from fedloom.deploy import site as module

    priced = []
    monkeypatch.setattr(module, "check_price", lambda *given: priced.append(given))
    site.ask()
    site.ask(number=2)
    site.set(seconds=60)
    site.ask(number=3)
    assert len(priced) == 2


def test_work_that_takes_too_long_is_interrupted(site, monkeypatch):
    from fedloom.methods.fedavg import FedAvg

    def slow(*given):
        time.sleep(30)

    monkeypatch.setattr(FedAvg, "client", slow)
    site.set(seconds=0.5)
    began = time.monotonic()
    refused(site.ask(), "must take at most 0.5 s here, but this one takes longer")
    assert time.monotonic() - began < 25


def test_networks_that_are_built_during_the_work_are_counted(site, monkeypatch):
    from fedloom.methods.fedavg import FedAvg

    def builds(*given):
        return [torch.nn.Linear(100, 100) for _ in range(100)]

    monkeypatch.setattr(FedAvg, "client", builds)
    site.set(parameters="500k")
    refused(site.ask(), "networks must have at most 500,000 parameters here")


def test_networks_that_are_gone_do_not_count():
    from fedloom.deploy.limits import BeyondLimit, Networks

    networks = Networks(50_000)
    with networks.watched():
        for _ in range(100):
            torch.nn.Linear(100, 100)
        still_there = [torch.nn.Linear(100, 100) for _ in range(4)]
        with pytest.raises(BeyondLimit):
            still_there.append(torch.nn.Linear(100, 100))
    assert len(still_there) == 4 and networks.largest <= 50_000
    torch.nn.Linear(1000, 1000)  # nothing is counted any more


def test_memory_beyond_the_limit_is_an_error_of_memory(site, monkeypatch):
    from fedloom.methods.fedavg import FedAvg

    monkeypatch.setattr(FedAvg, "client", lambda *given: torch.ones(1 << 30))
    site.set(memory="300M")
    answer = site.ask()
    assert answer.code == "memory" and "GB" not in answer.text
    assert len(torch.ones(1 << 20)) == 1 << 20


# Errors leave as codes


def test_an_exceptions_text_stays_at_the_site(site, monkeypatch):
    """`Target 8 is out of bounds` is a label value."""
    from fedloom.methods.fedavg import FedAvg

    def fails(*given):
        raise IndexError(f"Target 8 of {site.data} is out of bounds")

    monkeypatch.setattr(FedAvg, "client", fails)
    answer = site.ask()
    assert (answer.code, answer.text) == ("method", "number 2 in the site's audit log")
    assert "Target 8" not in json.dumps(answer.envelope)
    line = site.lines()[1]
    assert line["number"] == 2 and "Target 8" in line["reason"]


@pytest.mark.parametrize("damage", ["missing", "damaged", "labels"])
def test_what_is_wrong_with_the_data_stays_at_the_site(site, damage):
    if damage == "missing":
        site.data.unlink()
    if damage == "damaged":
        site.data.write_bytes(b"PK patient 4711")
    if damage == "labels":
        np.savez(site.data, x=np.zeros((40, 6, 6), np.uint8), y=np.full(40, -4711))
    for answer in (site.survey(), site.ask()):
        assert answer.code == "data"
        assert re.fullmatch(r"number \d+ in the site's audit log", answer.text)
        reason = site.lines()[-1]["reason"]
        assert "4711" in reason


def test_a_policy_that_does_not_parse_stays_at_the_site(site):
    (site.kit / "policy.toml").write_text("rounds = [")
    for answer in (site.survey(), site.ask()):
        refused(answer, "this site's kit must be whole")
        assert str(site.kit) not in answer.text
        assert str(site.kit) in site.lines()[-1]["reason"]


def test_a_lost_state_is_told_without_a_path(site):
    from dataclasses import replace

    stamp = replace(site.stamp(number=2), read="1.0")
    site.stamp = lambda **named: stamp
    answer = site.ask()
    assert answer.code == "lost"
    assert answer.text.startswith("this site no longer has the state of its client")


# The audit log and approval


def test_everything_that_was_asked_and_left_stands_in_the_log(site):
    site.survey()
    answer = site.ask()
    site.set(methods=["fednas"])
    site.ask(number=2)
    events = [(line["event"], line.get("order")) for line in site.lines()]
    assert events == [
        ("survey", None),
        ("facts", 1),
        ("order", None),
        ("reply", 3),
        ("order", None),
        ("refused", 5),
    ]
    order, reply = site.lines()[2:4]
    assert (order["method"], order["kind"], order["round"]) == ("fedavg", "train", 1)
    assert order["run"] == "77" and len(order["digest"]) == 64
    assert reply["bytes"] == len(answer.raw) and reply["weight"] == 80
    assert reply["fields"] == dict(answer.reply.meta)
    shapes = {name: list(tensor.shape) for name, tensor in answer.reply.tensors.items()}
    assert reply["tensors"] == shapes
    assert reply["seconds"] == answer.envelope["seconds"] > 0
    assert site.lines()[1]["facts"]["samples"] == 100


def test_what_a_server_was_told_stands_in_the_log(site, capsys):
    """Beside the reason, which stays at the site."""
    from fedloom.cli import main

    site.set(min_part=90)
    answer = site.ask()
    line = site.lines()[-1]
    assert line["told"] in answer.text and line["told"] not in line["reason"]
    assert main(["federation", "audit", str(site.kit)]) == 0
    assert f"(the server was told: {line['told']})" in capsys.readouterr().out


def test_a_message_without_content_stands_in_the_log(site):
    from flwr.app import Error, Message

    message = site.order()
    damaged = Message(metadata=message.metadata, error=Error(code=1, reason="none"))
    assert site.send(damaged).code == "method"
    events = [line["event"] for line in site.lines()]
    assert events == ["order", "refused"]


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [30, 197, 965])
@pytest.mark.parametrize("where", ["meta", "terms", "options"])
@pytest.mark.parametrize("approve", ["policy", "ask"])
def test_an_order_of_deeply_nested_values_does_not_stop_a_site(site, capsys, where, depth, approve):
    """A line that nobody can read would be the last one, and the site would answer nothing."""
    site.set(approve=approve)
    with ThreadPoolExecutor(1) as shallow:  # the tests' own calls leave less room for recursion
        shallow.submit(
            site.ask, "evaluate", tensors={}, **{where: {"deep": nested(depth)}}
        ).result()
    assert len(waiting_at(site, capsys)) <= 1
    site.set(approve="policy")
    assert site.ask("evaluate", experiment="f" * 16).code is None
    *_, (last, _) = AuditLog(site.kit).verified()
    assert last.event == "reply"


def test_terms_that_nothing_can_read_do_not_stop_the_log(site):
    order = site.order("evaluate")
    order.content.config_records["terms"]["json"] = "[" * 100_000
    refused(site.send(order), "an order must be a message from fedloom")
    assert site.ask("evaluate").code is None


def test_nothing_leaves_without_the_log(site):
    assert site.ask().code is None
    log = site.kit / "audit.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    for answer in (site.ask(), site.survey()):
        assert answer.code == "refused"
        assert answer.text.startswith("this site's audit log must be whole")
        assert answer.text.endswith("(see the site's own log)")
    log.write_bytes(b"".join(lines))
    assert site.ask().code is None


@pytest.mark.parametrize("content", [{}, {"order": {}}, {"order": {"head": b"\x00"}}])
def test_a_message_of_another_program_is_refused(site, content):
    from asking import received
    from flwr.app import ConfigRecord, RecordDict

    records = {name: ConfigRecord(record) for name, record in content.items()}
    answer = site.send(received(RecordDict(records)))
    refused(answer, "an order must be a message from fedloom")
    assert "unreadable" in site.lines()[0]


def test_an_experiment_waits_for_its_approval(site, capsys):
    from fedloom.cli import main

    site.set(approve="ask")
    assert main(["federation", "approve", str(site.kit)]) == 0
    assert "no experiment waits" in capsys.readouterr().out
    answer = site.ask(terms={"trainings": 20})
    refused(answer, "this site's operator must approve the experiment before")
    identity = re.search(r"approve KIT ([0-9a-f]{12})", answer.text)[1]
    assert site.ask(terms={"trainings": 20}).text.count(identity) == 2

    assert main(["federation", "approve", str(site.kit)]) == 0
    output = capsys.readouterr().out
    assert re.search(rf"^{identity}[0-9a-f]{{52}}  fedavg, at most 20 trainings", output, re.M)
    assert "width = 0.125" in output and "leaves in answer to train: loss, tensors *" in output
    assert main(["federation", "approve", str(site.kit), "0" * 12]) == 2
    assert "ID must be that of an experiment that waits" in capsys.readouterr().err
    assert main(["federation", "approve", str(site.kit), identity, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["approved"]["id"].startswith(identity)
    assert site.lines()[-1]["event"] == "approved"
    assert site.ask(terms={"trainings": 20}).code is None

    assert main(["federation", "approve", str(site.kit), identity]) == 2
    assert "is approved already" in capsys.readouterr().err
    changed = site.ask(options={"epochs": 2}, terms={"trainings": 20}, hop=1)
    refused(changed, "must approve the experiment")
    assert identity not in changed.text


def test_a_column_of_numbers_does_not_leave_as_names_of_classes(tmp_path):
    """Whoever asks for patients' numbers as labels gets a refusal that holds none of them."""
    from fedloom.data.tables.sums import LabelSums
    from fedloom.deploy.failures import Refusal
    from fedloom.deploy.policy import POLICY, read_policy
    from fedloom.deploy.site import check_classes

    (tmp_path / "policy.toml").write_text(POLICY)
    policy = read_policy(tmp_path / "policy.toml")
    few = LabelSums(is_whole=True, classes=tuple(map(str, range(policy.classes))))
    check_classes(few, 1000, policy)
    check_classes(LabelSums(is_whole=True), 1000, policy)
    many = LabelSums(is_whole=True, classes=(*few.classes, "777"))
    with pytest.raises(Refusal, match="at most 100 classes here, but this column has more") as info:
        check_classes(many, 1000, policy)
    assert "777" not in str(info.value)


def test_the_whole_id_is_approved_whatever_another_one_begins_with(site):
    """A server can search for an experiment whose id begins as that of a harmless one."""
    from fedloom.deploy.approval import approve_waiting
    from fedloom.deploy.experiments import locked_experiments
    from fedloom.errors import FedloomError

    site.set(approve="ask")
    site.ask(terms={"trainings": 1})
    with locked_experiments(site.kit / "state") as experiments:
        (waiting,) = experiments.approvals().waiting
        twin = waiting.model_copy(update={"id": waiting.id[:40] + "0" * 24})
        both = experiments.approvals().model_copy(update={"waiting": (waiting, twin)})
        experiments.put_approvals(both)
        with pytest.raises(FedloomError, match="but 2 begin with"):
            approve_waiting(experiments, waiting.id[:12])
        approve_waiting(experiments, twin.id)
        assert experiments.approvals().approved == (twin.id,)
    refused(site.ask(terms={"trainings": 1}), "must approve the experiment")


def test_approved_trainings_are_the_limit(site):
    from fedloom.deploy.approval import approve_waiting
    from fedloom.deploy.experiments import locked_experiments

    site.set(approve="ask")
    site.ask(terms={"trainings": 1})
    with locked_experiments(site.kit / "state") as experiments:
        (waiting,) = experiments.approvals().waiting
        approve_waiting(experiments, waiting.id)
    answers = [site.ask(terms={"trainings": 1}, hop=hop) for hop in range(2)]
    assert [answer.code for answer in answers] == [None, "refused"]
    assert "approved for at most 1 trainings here" in answers[1].text


def test_only_so_many_experiments_wait_until_some_are_rejected(site, capsys):
    """A server that makes up experiments cannot keep an honest one from its approval."""
    from fedloom.cli import main

    site.set(approve="ask")
    texts = [site.ask(experiment=f"{number:016x}", tensors={}).text for number in range(101)]
    assert all("must approve" in text for text in texts[:100])
    assert "at most 100 experiments may wait" in texts[100]
    assert main(["federation", "approve", str(site.kit), "--reject", "all"]) == 0
    rejected = re.findall("^([0-9a-f]{64}): rejected$", capsys.readouterr().out, re.M)
    assert len(set(rejected)) == 100
    assert [line["event"] for line in site.lines()[-100:]] == ["rejected"] * 100
    refused(site.ask(experiment=f"{100:016x}", tensors={}), "is not approved yet")
    refused(site.ask(experiment=f"{7:016x}", tensors={}), "was rejected")
    assert len(waiting_at(site, capsys)) == 1


def test_long_experiments_do_not_fill_the_list(site, capsys):
    """Seven of 41 MB made it longer than what is read, and the site refused everything."""
    site.set(approve="ask")
    labels = tuple(f"{number:0100d}" for number in range(11_000))
    refused(site.ask(labels=labels, tensors={}), "must have at most 1,048,576 bytes")
    long_characters = tuple(f"{number:05d}" + 95 * "\U0001f9f5" for number in range(3_000))
    refused(site.ask(labels=long_characters, tensors={}), "must have at most 1,048,576 bytes")
    refused(site.ask(), "is not approved yet")
    assert len(waiting_at(site, capsys)) == 1


def waiting_at(site, capsys):
    from fedloom.cli import main

    assert main(["federation", "approve", str(site.kit), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["waiting"]


def test_a_rejection_can_be_taken_back(site, capsys):
    from fedloom.cli import main

    site.set(approve="ask")
    site.ask()
    (waiting,) = waiting_at(site, capsys)
    command = ["federation", "approve", str(site.kit)]
    assert main([*command, "--reject", waiting["id"][:12], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rejected": [waiting["id"]]}
    assert main([*command, "--reject", waiting["id"]]) == 2
    assert "does not wait" in capsys.readouterr().err
    refused(site.ask(), f"{waiting['id'][:12]} was rejected", waiting["id"])
    assert waiting_at(site, capsys) == []
    assert main([*command, waiting["id"]]) == 0
    assert "waits for approval when its run asks again" in capsys.readouterr().out
    refused(site.ask(), "is not approved yet")  # nothing was approved
    assert waiting_at(site, capsys) == [waiting]
    assert main([*command, waiting["id"]]) == 0
    assert site.ask().code is None
    assert main([*command, waiting["id"], "--reject", "all"]) == 2
    assert "ID and --reject must not be given together" in capsys.readouterr().err


def test_an_older_kit_is_told_at_start_which_limits_apply(site, capsys):
    from fedloom.cli import main

    site.set(min_part=None)
    site.data.unlink()  # so that the command ends
    assert main(["federation", "site", str(site.kit), "--data", str(site.data)]) == 2
    errors = capsys.readouterr().err
    assert "policy.toml does not name min_part: the usual limits apply" in errors
    assert "(min_part = 20)" in errors and "Traceback" not in errors


# The seam


def test_a_hook_stands_between_a_reply_and_its_encoding(tmp_path):
    """Where a secure sum would mask a reply: what the hook returns is all that leaves."""
    from dataclasses import replace

    from fedloom.data.samples import ClientData, Samples
    from fedloom.federation.client.site import Site
    from fedloom.federation.client.store import ClientStore
    from fedloom.federation.protocol.method import Method, Stage
    from fedloom.federation.protocol.wire import Body, order_head, read_reply
    from fedloom.types import Fields, Order, Stamp, Task

    class Sends(Method):
        fields = {"work": Fields(tensors=("w",))}

        def client(self, order, data, own, run):
            return Reply(order.client, {"w": torch.ones(2)}, len(data)), None

    def masked(order, reply):
        return replace(reply, tensors={"w": reply.tensors["w"] + 7})

    part = Samples(torch.zeros(3, 1), torch.zeros(3))
    task = Task("sends", {}, "table", (1,), ("a", "b"), 0, (), ())
    stages = (Stage("train", Sends()),)
    data = ClientData(part, part, part)
    here = Site(
        lambda client: data,
        ClientStore(tmp_path),
        lambda task: stages,
        (1,),
        ("a", "b"),
        leaving=masked,
    )
    order = Order(0, "work", {"w": torch.zeros(2)}, stamp=Stamp("x", task, "train", 1, 0))
    body = Body(order.tensors)
    chunks, envelope = here.handle(order_head(order, body), b"".join(body.chunks))
    assert envelope.fault is None
    assert read_reply(b"".join(chunks)).tensors["w"].tolist() == [8.0, 8.0]
