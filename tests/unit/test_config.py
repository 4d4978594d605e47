import tomllib
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, model_validator

from fedloom.config.assigning import assign, parse_assignment, parse_value, read_toml
from fedloom.config.file_rows import (
    DeviceConfig,
    FaultConfig,
    IntervalConfig,
    LatencyConfig,
    TierConfig,
)
from fedloom.config.flags import FLAGS, PATHS
from fedloom.config.models import BudgetConfig, DataConfig, Experiment, Sink, validated
from fedloom.config.section import Section
from fedloom.errors import FedloomError

DEVICE = DeviceConfig(macs_per_second=1e9, lan=1e6, wan_down=1e5, wan_up=1e4)


def leaves(schema, prefix=""):
    """Every option as (path, annotation)."""
    for name, field in schema.model_fields.items():
        below = field.annotation
        sections = [
            kind
            for kind in (below, *get_args(below))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        if sections:
            yield from leaves(sections[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", below


def sample(annotation):
    """A text that --set may give, other than any default, and what it becomes."""
    alternatives = get_args(annotation) or [annotation]
    if get_origin(annotation) is list:
        alternatives = [annotation]
    kinds = []
    words = []
    for kind in alternatives:
        if get_origin(kind) is Literal:
            words += get_args(kind)
        elif isinstance(kind, str):  # the annotation itself is a Literal
            words.append(kind)
        elif kind is not type(None):
            kinds.append(kind)
    if words:
        return words[-1], words[-1]
    (kind,) = kinds
    return {
        int: ("6", 6),
        bool: ("true", True),
        float: ("0.5", 0.5),
        str: ("words", "words"),
        list[float]: ("[0.5, 2]", [0.5, 2.0]),
        list[int]: ("[1, 2]", [1, 2]),
        list[list[int]]: ("[[0, 2], [1]]", [[0, 2], [1]]),
        list[str]: ("conv1,identity", ["conv1", "identity"]),
        list[TierConfig]: ('[{"macs": 5}]', [TierConfig(macs=5)]),
        list[DeviceConfig]: (f"[{DEVICE.model_dump_json()}]", [DEVICE]),
        list[LatencyConfig]: (
            '[{"fixed": 1, "rows": [[2, 3]]}]',
            [LatencyConfig(fixed=1, rows=[[2, 3]])],
        ),
        list[Sink]: ("mlflow,wandb", ["mlflow", "wandb"]),
    }[kind]


# Options whose text has a grammar of its own.
SAMPLES = {
    "topology.clusters": ("labels", "labels"),
    "topology.histograms": ("laplace:2", "laplace:2.0"),
    "budget.limits": ("seconds=60,wan=5M", {"seconds": 60.0, "wan": 5e6}),
    "clock.overselect": ("1.3", 1.3),
    "clock.intervals": (
        '[{"client": 0, "begin": 1, "end": 2}]', [IntervalConfig(client=0, begin=1, end=2)],
    ),
    "clock.fault_rows": (
        '[{"round": 2, "hop": 1, "client": 0}]', [FaultConfig(round=2, hop=1, client=0)],
    ),
}  # fmt: skip
OPTIONS = [(path, annotation) for path, annotation in leaves(Experiment) if path != "options"]


def get(config, path):
    for part in path.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize(("path", "annotation"), OPTIONS, ids=[path for path, _ in OPTIONS])
def test_every_option_is_reached_by_set_and_survives_toml(path, annotation):
    text, value = SAMPLES.get(path) or sample(annotation)
    tree: dict[str, object] = {"init": {"run": "runs/1"}} if path.startswith("init.") else {}
    assign(tree, *parse_assignment(f"{path}={text}"))
    config = validated(Experiment, tree)
    assert get(config, path) == value
    assert validated(Experiment, tomllib.loads(config.to_toml())) == config


def test_every_flag_sets_an_option_that_exists():
    paths = {path for path, _ in OPTIONS}
    assert {flag.path for flag in FLAGS} <= paths
    assert len({flag.name for flag in FLAGS}) == len(FLAGS) == len(PATHS)


def test_every_option_says_what_it_is():
    for section in (
        DataConfig,
        BudgetConfig,
        *(f.annotation for f in Experiment.model_fields.values()),
    ):
        if isinstance(section, type) and issubclass(section, Section):
            assert all(field.description for field in section.model_fields.values())


def test_a_section_that_may_be_left_out_must_be_whole():
    with pytest.raises(FedloomError, match="`--init` must be given, but it is missing"):
        validated(Experiment, {"init": {"client": 1}})


def test_options_of_a_method_survive_toml():
    options = {"lr": 0.1, "network": "cnn", "layers": [1, 2], "deep": {"er": True}}
    config = Experiment(options=options)
    assert validated(Experiment, tomllib.loads(config.to_toml())).options == options


def test_null_gives_the_default_back():
    tree = {"data": {"clients": 3}}
    assign(tree, *parse_assignment("data.clients=null"))
    assert validated(Experiment, tree).data.clients is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", "3"),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_values(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize("text", ["[1", "{1}", "[1,]"])
def test_values_that_are_no_json(text):
    with pytest.raises(FedloomError, match=r"a list or table must be JSON, but got .*; try"):
        parse_value(text)


@pytest.mark.parametrize("text", ["lr", "=1", " =1", ""])
def test_assignments_without_a_name_or_value(text):
    with pytest.raises(FedloomError, match=r"--set must look like a.b=value, but got"):
        parse_assignment(text)


def test_assignments_keep_what_follows_the_first_equals_sign():
    assert parse_assignment(" data.name = a=b.npz ") == ("data.name", "a=b.npz")


def test_an_option_is_no_section():
    with pytest.raises(
        FedloomError, match=r"`seed.x` must name an option, but seed is not a section"
    ):
        assign({"seed": 3}, "seed.x", 1)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"budget": {"rounds": 0}}, "`--rounds` must be greater than or equal to 1, but got 0;"),
        ({"budget": {"rounds": "x"}}, "`--rounds` must be a valid integer, but got 'x';"),
        ({"budget": {"participation": 0}}, "`--participation` must be greater than 0, but got 0;"),
        (
            {"budget": {"equal": "x"}},
            "`--equal` must be 'rounds', 'macs', 'bytes', 'wan' or 'seconds', but got 'x';",
        ),
        (
            {"engine": {"deadline": float("nan")}},
            "`--deadline` must be a finite number, but got nan;",
        ),
        ({"data": {"test": 1}}, "`data.test` must be less than 1, but got 1;"),
        ({"data": {"mean": ["x"]}}, "`data.mean.0` must be a valid number, but got 'x';"),
        ({"data": 3}, "`data` must be a valid dictionary"),
        ({"options": 3}, "`options` must be a valid dictionary, but got 3;"),
        (
            {"budget": {"round": 1}},
            "option `budget.round` must be a known name, but got 'round'; did you mean rounds?",
        ),
        (
            {"buget": {}},
            "option `buget` must be a known name, but got 'buget'; did you mean budget?",
        ),
        (
            {"xyzzy": 1},
            "option `xyzzy` must be a known name, but got 'xyzzy'; choose from budget, clock, data",
        ),
    ],
)
def test_errors_name_the_flag_or_the_option(tree, message):
    with pytest.raises(FedloomError) as caught:
        validated(Experiment, tree)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")
    assert caught.value.code == 2


def test_errors_of_a_method_are_named_by_its_prefix():
    class Options(BaseModel):
        lr: float = Field(0.1, gt=0)

    with pytest.raises(FedloomError, match=r"`options.lr` must be greater than 0, but got -1"):
        validated(Options, {"lr": -1}, prefix="options.")


def test_a_file(tmp_path):
    path = tmp_path / "given.toml"
    path.write_text("seed = 3\n[data]\nclients = 5\n")
    assert read_toml(path) == {"seed": 3, "data": {"clients": 5}}
    path.write_text("seed = \n")
    with pytest.raises(
        FedloomError,
        match=r"given.toml must be a readable TOML file, but it does not parse .*line 1",
    ):
        read_toml(path)
    path.write_bytes(b"\xff")
    with pytest.raises(FedloomError, match="it is not text in UTF-8"):
        read_toml(path)
    with pytest.raises(FedloomError, match="must be a readable TOML file, but there is none"):
        read_toml(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "clusters",
            "lables",
            "`--clusters` must be one of labels, updates, speed, random, alike, round, or a .json",
        ),
        ("histograms", "laplace", "`topology.histograms` must be exact, none, or laplace:E"),
        ("histograms", "laplace:0", "`topology.histograms` must be exact, none, or laplace:E"),
        ("histograms", "laplace:nan", "but got 'laplace:nan'"),
        ("histograms", "gauss:1", "but got 'gauss:1'"),
        ("histograms", 1, "but got 1"),
        ("cluster_size", 0, "`topology.cluster_size` must be greater than or equal to 1"),
        ("recluster", 0, "`topology.recluster` must be greater than or equal to 1"),
        ("h_max", 0, "`topology.h_max` must be greater than 0"),
        ("heartbeat", 0, "`topology.heartbeat` must be greater than 0"),
        ("misses", 0, "`topology.misses` must be greater than or equal to 1"),
        ("aggregator", "best", "`topology.aggregator` must be 'delay', 'random' or 'lowest'"),
        ("phases", "both", "`topology.phases` must be 'serial' or 'parallel'"),
        ("relay", "client", "`--relay` must be 'server'"),
        ("cluster_sise", 3, "did you mean cluster_size"),
    ],
)
def test_the_topology_s_options_are_checked(option, value, words):
    with pytest.raises(FedloomError) as raised:
        validated(Experiment, {"topology": {option: value}})
    assert words in str(raised.value)


def test_histograms_are_asked_for_only_where_clusters_need_them():
    asked = {}
    for clusters in (None, "labels", "alike", "updates", "random", "groups.json"):
        topology = validated(Experiment, {"topology": {"clusters": clusters}}).topology
        asked[clusters] = str(topology.histogram_rule)
    noisy = "laplace:1.0"
    expected = {"labels": noisy, "alike": noisy, None: "None", "updates": "None", "random": "None"}
    assert asked == {**expected, "groups.json": "None"}
    silent = {"clusters": "alike", "histograms": "none"}
    assert validated(Experiment, {"topology": silent}).topology.histogram_rule is None


def test_a_rule_about_several_options_has_no_name():
    class Ordered(BaseModel):
        low: int = 1
        high: int = 2

        @model_validator(mode="after")
        def _is_ordered(self):
            if self.low > self.high:
                raise ValueError("low must not be above high")
            return self

    with pytest.raises(FedloomError, match=r"^low must not be above high, but got \{'low': 3\}; "):
        validated(Ordered, {"low": 3}, "options.")


def test_constants_may_be_one_number():
    data = validated(Experiment, {"data": {"mean": "4.88", "std": 6}}).data
    assert (data.mean, data.std) == ([4.88], [6.0])
    with pytest.raises(FedloomError, match="must be a valid number, but got 'grey'"):
        validated(Experiment, {"data": {"mean": "grey"}})
