"""What a site remembers of experiments, its policy, and any bytes in their place."""

import json
import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedloom.deploy import divisions
from fedloom.deploy.divisions import Cut, Division, PartOwner, check_cut, check_division
from fedloom.deploy.experiments import Approvals, Record, Waiting, locked_experiments
from fedloom.deploy.failures import DataFailed, Refusal, failure_of, failure_of_fault
from fedloom.deploy.policy import POLICY, Policy, notices_of_policy, read_policy
from fedloom.deploy.surveys import AnsweredSurveys
from fedloom.deploy.terms import ImageSize, TableQuestion, Terms, own_data
from fedloom.errors import FedloomError
from fedloom.federation.protocol.envelope import Fault

RECORD = Record(client=0, seed=1, test=0.2, asked_test=0.2, hold=0.0)
ID = "0123456789abcdef"


def division(**changes):
    return Division(
        **{"seed": 1, "client": 0, "test": 0.2, "hold": 0.25, "samples": 200, **changes}
    )


def policy(**changes):
    return Policy(methods=["*"], fields=["*"], rounds=10, megabytes=1, **changes)


# Divisions


def test_a_division_has_the_parts_that_the_site_uses():
    class Source:
        x = np.arange(200, dtype=np.uint8).reshape(-1, 1)
        y = np.zeros(200, np.int64)

    terms = Terms(seed=1, test=0.9, hold=0.25)
    data = own_data(Source, 0, terms, 0.2, lambda begin: PartOwner(begin, 20, no_cut))
    used = [data.test, data.validation, data.train]
    for part, samples in zip(division().parts(), used, strict=True):
        assert part.tolist() == sorted(samples.x.flatten().tolist())
        assert samples.owner.least == 20
    places = [samples.owner.begin for samples in used]
    assert places == [part.begin for part in division().intervals] == [0, 160, 40]


def no_cut(begin, at, end):
    raise AssertionError("nothing is divided")


@pytest.mark.parametrize(
    ("change", "fewest"),
    [
        ({"test": 0.205}, 1),
        ({"hold": 0.26}, 2),
        ({"hold": 0.0, "test": 0.25}, 10),
        ({"test": 0.995, "hold": 0.0}, 1),  # a small rest, and nearly the sum of all others
    ],
)
def test_parts_that_are_almost_alike_are_refused(change, fewest):
    rule = f"must not single out fewer than 20 samples, .* single out {fewest}; use seed 1"
    with pytest.raises(Refusal, match=rule):
        check_division(division(**change), (division(),), policy())


@pytest.mark.parametrize("change", [{"seed": 2}, {"client": 1}, {"samples": 140}, {"hold": 0.0}])
def test_parts_that_differ_by_many_samples_are_no_matter(change):
    check_division(division(**change), (division(),), policy())


def test_parts_from_before_and_after_samples_were_added_are_compared():
    """One seed orders 200 and 220 samples nearly alike, so that its parts differ by few."""
    rule = "would single out 1?[0-9]; use another seed"
    for before, after in ((200, 220), (220, 200)):
        with pytest.raises(Refusal, match=rule):
            check_division(division(samples=after), (division(samples=before),), policy())
        check_division(division(samples=after, seed=2), (division(samples=before),), policy())


def test_a_server_finds_no_seed_whose_part_is_nearly_that_of_fewer_samples():
    """It can try many seeds by itself: the test parts of these two differ by 18 samples."""
    before = (division(seed=0, samples=100, hold=0.0),)
    with pytest.raises(Refusal, match="would single out 18;"):
        check_division(division(seed=307_104, samples=120, hold=0.0), before, policy())


def test_a_sum_of_four_figures_singles_out_no_sample():
    """Any two of these differ by many samples; the first three plus or minus the last by one."""
    before = []
    for begin, end in ((0, 60), (60, 120), (30, 90)):
        before.append(Cut(seed=1, client=0, samples=200, begin=begin, at=begin + 30, end=end))
    for number, cut in enumerate(before):
        check_cut(cut, before[:number], (), policy())
    last = Cut(seed=1, client=0, samples=200, begin=31, at=120, end=200)
    with pytest.raises(Refusal, match="would single out 1;"):
        check_cut(last, before, (), policy())


def test_a_test_part_is_compared_with_the_rest_of_another(monkeypatch):
    """Of two seeds: the one's test samples are nearly the other's training samples."""
    orders = {1: np.arange(200), 2: np.roll(np.arange(200), 101)}
    monkeypatch.setattr(divisions, "own_order", lambda seed, client, samples: orders[seed])
    before = (division(test=0.5, hold=0.0),)
    with pytest.raises(Refusal, match="would single out 2;"):
        check_division(division(seed=2, test=0.5, hold=0.0), before, policy())
    orders[2] = np.roll(np.arange(200), 120)
    check_division(division(seed=2, test=0.5, hold=0.0), before, policy())
    orders[2] = np.roll(np.arange(200), 100)  # the same parts under other names
    check_division(division(seed=2, test=0.5, hold=0.0), before, policy())


def test_what_earlier_versions_allowed_locks_no_site_out():
    before = (division(), division(test=0.205))
    check_division(division(seed=2), before, policy())
    with pytest.raises(Refusal, match="single out"):
        check_division(division(seed=2, test=0.205), (*before, division(seed=2)), policy())


def test_parts_of_which_no_answer_speaks_do_not_count():
    small = division(test=0.05, hold=0.0)
    check_division(small, (), policy())
    with pytest.raises(Refusal, match="would single out 1;"):
        check_division(division(test=0.055, hold=0.0), (small,), policy())


def test_a_tables_sums_do_not_single_out_a_small_validation_part():
    """All rows without the test and training parts are the validation part."""
    few = division(hold=0.05)
    check_division(few, (), policy())
    with pytest.raises(Refusal, match=r"hold back at least 20 rows for validation.* be 8;"):
        check_division(few, (), policy(), tells_sums=True)
    for fitting in (division(), division(hold=0.0), division(samples=90, hold=0.05)):
        check_division(fitting, (), policy(), tells_sums=True)


def test_data_change_by_many_samples_or_not_at_all():
    before = (division(), division(samples=300))
    for samples in (181, 199, 201, 219, 281, 319):
        with pytest.raises(Refusal, match=f"it has {samples} samples, and had"):
            check_division(division(samples=samples), before, policy())
    for samples in (180, 220, 300):
        check_division(division(samples=samples, seed=2), before, policy())


def fewest_by_trying(cells, others):
    """What `fewest_told_apart` is defined by: all sums of cells against all sums of the others."""
    sums = set()
    for one in range(1 << cells.max()):
        first = (1 << cells >> 1) & one != 0
        for other in range(1 << others.max()):
            second = (1 << others >> 1) & other != 0
            sums.add(int((first != second).sum()))
    return min(sums - {0}, default=float("inf"))


@settings(max_examples=200, deadline=None)
@given(
    cells=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40),
)
def test_the_fewest_samples_that_sums_tell_apart(cells):
    first, second = np.array(cells).T
    assert divisions.fewest_told_apart(first, second) == fewest_by_trying(first, second)


# Records


def test_a_record_counts_what_was_not_counted_before():
    once = RECORD.with_order("training", "a" * 64, 10)
    again = once.with_order("training", "a" * 64, 10)
    assert (again.trainings, again.repeats) == (once.trainings, once.repeats + 1)
    twice = once.with_order("training", "b" * 64, 10).with_order("evaluation", "a" * 64, 10)
    counts = (len(twice.trainings), len(twice.evaluations), len(twice.descriptions))
    assert counts == (2, 1, 0)
    assert (once.bytes, again.bytes, twice.bytes) == (10, 20, 30)


def test_what_is_remembered_is_found_again(tmp_path):
    with locked_experiments(tmp_path) as experiments:
        assert experiments.get(ID) is None and experiments.names() == []
        experiments.check_new(policy(experiments=1))
        experiments.divide(RECORD.division(200), policy())
        experiments.put(ID, RECORD)
        with pytest.raises(Refusal, match="at most 1 experiments, but this is another"):
            experiments.check_new(policy(experiments=1))
        experiments.put_approvals(Approvals(approved=("x",)))
    with locked_experiments(tmp_path) as experiments:
        assert experiments.get(ID) == RECORD
        assert experiments.names() == [ID]
        assert experiments.divisions() == (division(hold=0.0),)
        assert experiments.approvals().approved == ("x",)


@settings(max_examples=300, deadline=None)
@given(content=st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)))
def test_any_bytes_as_a_memory_are_one_sentence(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("state")
    with locked_experiments(folder) as experiments:
        memory = (folder / "draws.json", folder / "cuts.json")
        for path in (experiments.path(ID), experiments.approvals_path, *memory):
            path.write_bytes(content)
        readers = (
            lambda: experiments.get(ID),
            experiments.approvals,
            experiments.divisions,
            experiments.cuts,
        )
        for read in readers:
            with suppress(FedloomError):
                read()


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = st.sampled_from([*Terms.model_fields, "more"])


@settings(max_examples=300, deadline=None)
@given(content=st.dictionaries(NAMES, JSON_LIKE, max_size=5))
def test_any_terms_are_terms_or_a_value_error(content):
    with suppress(ValueError):
        Terms.read(json.dumps({"seed": 0, "test": 0.5, "hold": 0.0, **content}))


APPROVALS = Approvals(
    approved=("a" * 12,),
    waiting=(Waiting(id="b" * 12, experiment=ID, task={"seed": 1}, terms={"test": 0.2}),),
)
SURVEYS = AnsweredSurveys(questions=("c" * 32,), repeats=2, sizes=(ImageSize(resize=8),))
WHOLE = {
    "record": (RECORD.with_order("training", "a" * 64, 10).model_dump_json(), Record),
    "approvals": (APPROVALS.model_dump_json(), Approvals),
    "terms": (Terms(seed=1, test=0.2, hold=0.1, trainings=9).to_json(), Terms),
    "size": (ImageSize(resize=8, fit="crop").model_dump_json(), ImageSize),
    "question": (TableQuestion(label="age", ignore=("id",)).to_json(), TableQuestion),
    "surveys": (SURVEYS.model_dump_json(), AnsweredSurveys),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_million_damaged_messages(name):
    """With bytes that are changed at random, they are refused or still follow the schema."""
    text, schema = WHOLE[name]
    raw = text.encode()
    draw = random.Random(0)
    for _ in range(1_000_000):
        damaged = bytearray(raw)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        with suppress(ValidationError):
            schema.model_validate_json(bytes(damaged))


# The policy


def written(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_a_new_kit_names_every_limit(tmp_path):
    new = read_policy(written(tmp_path, POLICY))
    assert (new.min_part, new.test, new.approve) == (20, 0.2, "policy")
    assert (new.memory, new.parameters, new.seconds) == (16e9, 1e9, 3600)
    assert notices_of_policy(new) == []


def test_an_older_kit_has_the_usual_limits_and_is_told_so(tmp_path):
    text = 'methods = ["*"]\nfields = ["*"]\nrounds = 1000\nmegabytes = 1024\n'
    old = read_policy(written(tmp_path, text))
    assert (old.min_part, old.test, old.approve) == (20, None, "policy")
    first, second = notices_of_policy(old)
    assert "does not name approve, test, min_part" in first and "(min_part = 20)" in first
    assert "each run chooses the share" in second


LIMITS = "min_part divisions experiments rounds evaluations gigabytes megabytes seconds memory"


@pytest.mark.parametrize("name", [*LIMITS.split(), "parameters", "resize", "test"])
@pytest.mark.parametrize("value", ["0", "-1", "true", '"much"', "[]", "inf"])
def test_a_limit_of_zero_is_one_sentence(tmp_path, name, value):
    lines = [line for line in POLICY.splitlines() if not line.startswith(f"{name} ")]
    path = written(tmp_path, "\n".join([f"{name} = {value}", *lines]))
    with pytest.raises(FedloomError, match=rf"policy\.toml(, `{name}`)? must be") as caught:
        read_policy(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(content=st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)))
def test_any_bytes_as_a_policy_are_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("kit") / "policy.toml"
    path.write_bytes(content)
    with pytest.raises(FedloomError):
        read_policy(path)


# Failures


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataFailed("FileNotFoundError: /patients/4711.png"), "data"),
        (MemoryError("4711"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 4711 bytes"), "memory"),
        (IndexError("Target 4711 is out of bounds"), "method"),
        (FedloomError("/kits/4711 must be whole", "it is not", "restore it"), "refused"),
    ],
)
def test_what_an_error_says_stays_here(error, code):
    failure = failure_of(error)
    fault = failure.fault(12)
    assert (fault.kind, fault.text) == (code, "number 12 in the site's audit log")
    assert "4711" in failure.explanation and fault.detail == ""
    assert failure.fault(None).text == "see the site's own log"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("raised", "method"),
        ("store", "data"),
        ("lost", "lost"),
        ("refused", "refused"),
        ("few", "refused"),
    ],
)
def test_what_a_fault_says_stays_here(kind, code):
    fault = failure_of_fault(Fault(kind, "4711", "4711")).fault(3)
    assert fault.kind == code and "4711" not in fault.text + fault.detail


def test_a_refusal_is_told_as_it_is():
    fault = failure_of(Refusal("a run must be short", "it is not", "ask the site")).fault(3)
    text = "a run must be short, but it is not; ask the site (number 3 in the site's audit log)"
    assert (fault.kind, fault.text) == ("refused", text)
