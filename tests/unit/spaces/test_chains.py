"""Chains: their operations by hand, paths through them, parts of them, and what travels."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from fedloom.cli import main
from fedloom.config.variants import Variant
from fedloom.errors import FedloomError
from fedloom.nets.model import seeded
from fedloom.registry import is_file
from fedloom.rng import rng
from fedloom.spaces import open_space, space_for, space_of, usual_space
from fedloom.spaces.chains import space_class
from fedloom.spaces.chains.cells import LiGRU, QuasiRNN
from fedloom.spaces.chains.ops import CausalConv, build_map_op
from fedloom.spaces.drawing import as_svg
from fedloom.spaces.genotype import read
from fedloom.spaces.options import SpaceOptions
from fedloom.spaces.paths import EveryPosition, check_operations, names_on, path_of
from fedloom.spaces.space import OpId, Size
from fedloom.types import Arch

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SIZE = Size(1, 1, "mean")
CASES = [("cnn-tiny", (3, 8, 8)), ("rnn", (6,)), ("wide", (1, 9, 12)), ("three-sums", (5,))]
CLASSES = 5


def space_named(name):
    file = EXAMPLES / f"{name}.toml"
    return open_space(str(file) if file.exists() else name)


def samples(shape, count=3):
    draw = torch.Generator().manual_seed(1)
    if len(shape) == 1:
        return torch.randint(0, CLASSES, (count, *shape), generator=draw)
    return torch.randn(count, *shape, generator=draw)


def network(space, shape, **how):
    with seeded(0):
        return space.network(shape, CLASSES, SIZE, **how)


# Operations by hand


def test_a_light_gru_by_hand():
    with seeded(0):
        cell = LiGRU(2, 3)
    x = samples((4, 2), 2)
    h = torch.zeros(2, 3)
    w = cell.from_input.weight
    u = cell.from_state.weight
    assert {name for name, _ in cell.named_parameters()} == {
        "from_input.weight",
        "from_state.weight",
    }
    torch.testing.assert_close(u.T @ u, torch.eye(3))  # orthogonal at the start
    states = []
    for step in range(4):
        both = x[:, step] @ w.T + h @ u.T
        a = both[:, :3]
        gate = torch.sigmoid(both[:, 3:])
        h = gate * h + (1 - gate) * torch.tanh(a)
        states.append(h)
    torch.testing.assert_close(cell(x), torch.stack(states, 1))


def test_a_quasi_recurrent_network_by_hand():
    with seeded(0):
        cell = QuasiRNN(2, 3)
    x = samples((4, 2), 2)
    c = torch.zeros(2, 3)
    states = []
    for step in range(4):
        gates = x[:, step] @ cell.gates.weight.T + cell.gates.bias
        z = torch.tanh(gates[:, :3])
        f = torch.sigmoid(gates[:, 3:6])
        o = torch.sigmoid(gates[:, 6:])
        c = f * z + (1 - f) * c
        states.append(o * c)
    torch.testing.assert_close(cell(x), torch.stack(states, 1))


def test_a_causal_convolution_by_hand():
    with seeded(0):
        op = CausalConv("conv5", 2, 3)
    x = samples((6, 2), 1)
    last_five = x[0, 1:6].T  # [inputs, window]
    expected = torch.sigmoid((op.conv.weight * last_five).sum((1, 2)) + op.conv.bias)
    torch.testing.assert_close(op(x)[0, 5], expected)


def test_a_fused_bottleneck_by_hand():
    """Full convolution, squeeze-excite on the wide map, 1×1 back; nothing after the sum."""
    with seeded(0):
        op = build_map_op("mb3e2", 4).eval()
    x = samples((4, 5, 5))
    wide = functional.relu(op.full[1](functional.conv2d(x, op.full[0].weight, padding=1)))
    assert wide.shape[1] == 8
    means = wide.mean((2, 3))
    squeezed = functional.relu(
        means @ op.excite.squeeze.weight[:, :, 0, 0].T + op.excite.squeeze.bias
    )
    weights = torch.sigmoid(
        squeezed @ op.excite.expand.weight[:, :, 0, 0].T + op.excite.expand.bias
    )
    narrow = functional.conv2d(wide * weights[:, :, None, None], op.pointwise[0].weight)
    expected = x + functional.relu(op.pointwise[1](narrow))
    torch.testing.assert_close(op(x), expected)
    assert (op(x) < 0).any()


def test_half_the_channels_take_two_inputs_each():
    op = build_map_op("ds3e0.5", 6)
    assert op.depthwise[0].weight.shape == (3, 2, 3, 3) and op.depthwise[0].groups == 3
    assert build_map_op("ds3e2", 6).depthwise[0].groups == 6


# Paths


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_layer_by_layer_gives_the_same_bits(name, shape):
    """And a state that is kept can be gone on from."""
    space = space_named(name)
    net = network(space, shape).eval()
    x = samples(shape)
    first, second = (space.sample(rng(seed, "path")) for seed in range(2))
    half = len(space.slots) // 2
    state = net.begin(x)
    for number in range(half):
        state = net.layer(number, first.choice[number][0], state)
    for end in (first, second):
        going_on = state
        for number in range(half, len(space.slots)):
            going_on = net.layer(number, end.choice[number][0], going_on)
        path = Arch(space.name, (*first.choice[:half], *end.choice[half:]))
        assert torch.equal(net.finish(going_on), net(x, path))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_operations_off_the_path_get_no_gradient(name, shape):
    space = space_named(name)
    net = network(space, shape).train()
    path = space.sample(rng(3, "path"))
    net(samples(shape), path).square().sum().backward()
    with_gradient = {key for key, weight in net.named_parameters() if weight.grad is not None}
    expected = set()
    for key, _ in net.named_parameters():
        owner = net.owner(key)
        if owner is None or path.choice[owner.slot] == (owner.op,):
            expected.add(key)
    assert with_gradient == expected


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_part_has_the_keys_of_the_whole(name, shape):
    """What a client gets: some operations of every layer, filled by key."""
    space = space_named(name)
    whole = network(space, shape).eval()
    one, other = (space.sample(rng(seed, "part")) for seed in range(2))
    choice = tuple(tuple(sorted({*a, *b})) for a, b in zip(one.choice, other.choice, strict=True))
    part = network(space, shape, arch=Arch(space.name, choice)).eval()
    weights = whole.state_dict()
    part.load_state_dict({key: weights[key] for key in part.state_dict()})
    x = samples(shape)
    for path in (one, other):
        assert torch.equal(part(x, path), whole(x, path))
        assert torch.equal(whole.cut(path)(x), whole(x, path))


def test_owners_of_keys():
    net = network(open_space("cnn-tiny"), (3, 8, 8))
    assert net.owner("layers.2.ds3e0_5.depthwise.0.weight") == OpId(2, 1)
    assert net.owner("layers.5.mb3e2.excite.squeeze.bias") == OpId(5, 7)
    for key in ("stem.conv.0.weight", "reductions.1.projection.1.running_mean", "classifier.bias"):
        assert key in net.state_dict() and net.owner(key) is None


def test_names_lead_to_paths_and_back():
    space = open_space("cnn-tiny")
    names = ("conv1", "ds3e0.5", "identity", "mb3e2", "mb1e2", "ds3e1")
    arch = path_of(space, names)
    assert arch.choice == ((0,), (1,), (8,), (7,), (4,), (2,)) and names_on(space, arch) == names
    with pytest.raises(FedloomError, match=r"must have 6 operations, but it has 5"):
        path_of(space, names[1:])
    with pytest.raises(FedloomError, match=r"layer 1.1 must be a known name.*did you mean mb3e2\?"):
        path_of(space, ("mb3e3", *names[1:]))
    with pytest.raises(FedloomError, match=r"layer 1\.1 has 9"):
        names_on(space, space.full())
    check_operations(space, ["mb3e2", "identity"])
    with pytest.raises(FedloomError, match=r"an operation of cnn-tiny .* got 'lstm'"):
        check_operations(space, ["identity", "lstm"])


# Symbols


@pytest.mark.parametrize("name", ["rnn", "three-sums"])
def test_scores_of_every_position(name):
    """The last are those of a forward pass; a position knows nothing of later symbols."""
    space = space_named(name)
    net = network(space, (6,)).eval()
    assert isinstance(net, EveryPosition)
    x = samples((6,))
    later = x.clone()
    later[:, 4:] = (later[:, 4:] + 1) % CLASSES
    for seed in range(3):
        path = space.sample(rng(seed, "path"))
        scores = net.every_position(x, path)
        assert scores.shape == (3, 6, CLASSES)
        assert torch.equal(scores[:, -1], net(x, path))
        torch.testing.assert_close(net.every_position(later, path)[:, :4], scores[:, :4])


def test_the_sums_of_the_recurrent_space():
    """y = stem(x) + branch(x), z = block(y) + shortcut(y)."""
    space = open_space("rnn")
    assert [slot.name for slot in space.slots] == ["stem", "branch", "block", "shortcut"]
    assert [len(slot.options) for slot in space.slots] == [6, 7, 7, 8]
    net = network(space, (6,)).eval()
    x = samples((6,))
    stem = net.layers[0]["linear"]
    branch = net.layers[1]["conv5"]
    block = net.layers[2]["gru"]
    entry = net.embedding(x)
    y = stem(entry) + branch(entry)
    z = block(y) + y
    path = path_of(space, ("linear", "conv5", "gru", "identity"))
    torch.testing.assert_close(net.every_position(x, path), net.classifier(z))


# What travels


@pytest.mark.parametrize("name", ["wide", "three-sums"])
def test_a_definition_travels_without_its_file(name, tmp_path):
    """The name of a space out of a file says everything, in a process that never saw the file."""
    file = tmp_path / "own.toml"
    file.write_text((EXAMPLES / f"{name}.toml").read_text())
    options = SpaceOptions(space=str(file))
    file.unlink()
    again = space_of(json.loads(json.dumps(options.space)))
    assert str(tmp_path) not in options.space and again.title == name
    code = "import sys; from fedloom.spaces import space_of; print(space_of(sys.argv[1]).slots)"
    process = subprocess.run(
        [sys.executable, "-c", code, options.space], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == str(again.slots)


def test_a_variant_finds_its_file_from_any_folder():
    variant = Variant.parse("fednas:space=docs/examples/wide.toml").with_absolute_paths()
    assert variant == f"fednas:space={Path('docs/examples/wide.toml').resolve()}"


def test_a_file_that_is_written_otherwise_is_the_same_space(tmp_path):
    text = (EXAMPLES / "wide.toml").read_text()
    other = tmp_path / "other.toml"
    other.write_text(text.replace("scale = 1.5", "scale = 1.50").replace(", stride = 1", ""))
    assert open_space(str(other)).name == open_space(str(EXAMPLES / "wide.toml")).name


def test_a_space_of_a_packages_own_file():
    """Its class is registered by an entry point, under the entry point's name."""
    family = space_class(EXAMPLES / "wide.toml")
    space = family.named("")
    assert space.parameters == "" and space.slots == space_named("wide").slots
    assert space_class(EXAMPLES / "three-sums.toml").kinds == ("text",)


def test_a_network_of_a_file_is_drawn_by_its_name():
    space = space_named("wide")
    picture = as_svg(space.sample(rng(0)))
    assert 'aria-label="architecture of wide"' in picture and "reduce dw+proj" in picture


@pytest.mark.parametrize(
    ("kind", "shape", "name"),
    [
        ("text", (80,), "rnn"),
        ("speech", (1, 40, 51), "cnn-s"),
        ("image", (3, 32, 32), "cnn-l"),
        ("image", (1, 28, 28), "cnn-tiny"),
        ("image", (1, 8, 64), "cnn-tiny"),
    ],
)
def test_the_usual_space(kind, shape, name):
    assert usual_space(kind, shape) == name


def test_no_space_is_usual_for_other_data():
    with pytest.raises(FedloomError, match="it is of kind video"):
        usual_space("video", (3, 8, 8, 8))


# Bad input

GOOD = """name = "mine"
kind = "image"
stem = {op = "conv3", channels = 8, stride = 1}

[[stage]]
layers = 2
ops = ["conv1", "ds3e0.5"]
reduce = "dw+proj"
scale = 1.5

[[stage]]
layers = 1
ops = ["mb3e2", "identity"]
reduce = "pool"
"""
TEXT = """name = "mine"
kind = "text"
embedding = 8
hidden = 8

[[stage]]
layers = 2
ops = [["gru"], ["linear", "zero"]]
"""


@pytest.mark.parametrize(
    ("text", "before", "after", "expected"),
    [
        (
            GOOD,
            "channels = 8",
            "channels = 9",
            "line 7: .*stage 1 must suit .*ds3e0.5, but 1/2 of 9 channels is not a whole number",
        ),
        (
            GOOD,
            "scale = 1.5",
            "scales = 1.5",
            "line 9: a key of a space .* got 'scales'; did you mean scale",
        ),
        (
            GOOD,
            "stem =",
            "colour = 3\nstem =",
            "line 3: a key of a space .* got 'colour'; choose from",
        ),
        (GOOD, "stride = 1", "steps = 1", r"line 3: a key of a space .* got 'steps'"),
        (
            GOOD,
            '"mb3e2"',
            '"mb3e9"',
            "line 13: an operation over maps .* got 'mb3e9'; did you mean mb3e",
        ),
        (GOOD, '"mb3e2"', '"mb4e2"', "line 13: .* got 'mb4e2'; did you mean mb"),
        (GOOD, '"mb3e2"', '"mb3e1.5", "ds3e1.5"', "line 13: .*cannot lead from 12 to 18 channels"),
        (
            GOOD,
            "layers = 1",
            "layers = 0",
            "line 12: `stage.1.layers` .* greater than or equal to 1",
        ),
        (
            GOOD,
            'reduce = "pool"',
            "scale = 2",
            "line 14: stage 2 must reduce to change its channels",
        ),
        (GOOD, 'reduce = "pool"', 'reduce = "max"', "line 14: `stage.1.reduce`"),
        (
            GOOD,
            '["conv1", "ds3e0.5"]',
            '[["conv1"]]',
            "line 7: .*each of its layers, but it has 1 for 2",
        ),
        (GOOD, '["conv1", "ds3e0.5"]', '["conv1", "conv1"]', "line 7: .*each once"),
        (GOOD, '["conv1", "ds3e0.5"]', "[]", "line 7: .*has 0 for 2"),
        (GOOD, 'op = "conv3"', 'op = "conv1"', "line 3: the stem's op .* did you mean conv"),
        (GOOD, 'kind = "image"', "", "must have `kind`"),
        (GOOD, 'name = "mine"', 'name = "Mine!"', "line 1: `name`"),
        (
            GOOD,
            'name = "mine"',
            "name = mine",
            "must define a space in TOML, but it does not parse .*line 1",
        ),
        (TEXT, '["gru"]', '["gru", "zero"]', "line 8: a layer of stage 1 must be without zero"),
        (TEXT, '"linear"', '"lienar"', "line 8: .*did you mean linear"),
        (TEXT, "hidden = 8", "hidden = 9", None),
        (
            TEXT.replace('"zero"', '"identity"'),
            "hidden = 8",
            "hidden = 9",
            "line 8: .*to have identity, .* changes them to 9",
        ),
        (TEXT, "hidden = 8", "", "must have `hidden`"),
        (TEXT, "layers = 2", "layers = 2\nscale = 2", "line 8: a key of a space .* got 'scale'"),
    ],
)  # fmt: skip
def test_a_definition_that_does_not_connect(text, before, after, expected, tmp_path):
    """The good one is read, so what is refused is the one change; the file and line are named."""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    open_space(str(file))
    assert before in text
    file.write_text(text.replace(before, after, 1))
    if expected is None:
        open_space(str(file))
        return
    with pytest.raises(FedloomError, match=expected) as error:
        open_space(str(file))
    assert str(error.value).startswith(str(file))


def test_a_definition_without_a_stage(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.partition("[[stage]]")[0].rstrip())
    with pytest.raises(
        FedloomError, match=r"mine.toml, line 3: a space must have a stage, but it has none"
    ):
        open_space(str(file))


def test_maps_that_vanish_name_the_stage(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    space = open_space(str(file))
    assert network(space, (1, 2, 2)).eval()(samples((1, 2, 2))).shape == (3, CLASSES)
    with pytest.raises(
        FedloomError,
        match=r"mine.toml, line 8: maps must stay at least 1×1, but stage 1 reduces .* to 0×2",
    ):
        network(space, (1, 1, 5))
    with pytest.raises(FedloomError, match="must be maps"):
        network(space, (80,))
    with pytest.raises(FedloomError, match="must be windows of symbols"):
        network(open_space("rnn"), (1, 8, 8))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("map-chain", "must be JSON, but it does not parse"),
        ('map-chain:{"name":"x"}', "must have `kind`"),
        ("map-chain:[3]", "defined by keys and values"),
        ("cnn-l:4", "must be named without parameters"),
        ("no-such.toml", "no-such.toml must define a space in TOML, but there is none"),
    ],
)
def test_names_that_lead_nowhere(name, expected):
    with pytest.raises(FedloomError, match=re.escape(expected)):
        open_space(name)


def test_a_message_makes_nobody_read_a_file():
    """A site refuses options that name a file, and never reads one for an architecture's space."""
    file = EXAMPLES / "wide.toml"
    assert is_file(str(file)) and not is_file(space_named("wide").name)
    with pytest.raises(FedloomError, match="must be named by the run's own option `space`"):
        space_of(str(file))


def test_a_definition_from_a_message_may_not_fill_the_memory():
    stage = '{"layers":64,"ops":["mb7e6"]}'
    name = f'map-chain:{{"name":"x","kind":"image","stem":{{"channels":4096}},"stage":[{stage}]}}'
    with pytest.raises(FedloomError, match="at most 4,294,967,296 weights"):
        network(open_space(name), (3, 8, 8))


def test_its_size_is_its_own(tmp_path):
    with pytest.raises(
        FedloomError, match="cnn-tiny must be as large as it is defined, but got channels=4"
    ):
        space_for(SpaceOptions(space="cnn-tiny", channels=4))
    with pytest.raises(
        FedloomError, match="wide must be as large as it is defined, but got cells=3"
    ):
        space_for(SpaceOptions(space=str(EXAMPLES / "wide.toml"), cells=3))
    assert space_for(SpaceOptions(space=str(EXAMPLES / "wide.toml"))) == space_named("wide")
    with pytest.raises(FedloomError, match="must be named by a TOML file"):
        space_for(SpaceOptions(space="map-chain"))
    space = open_space("cnn-tiny")
    file = tmp_path / "path.json"
    file.write_text(space.sample(rng(0)).to_json())
    assert read(file)((3, 8, 8), CLASSES).size == Size(6, 8, "mean")
    half = read(file)((3, 8, 8), CLASSES, 0.5)  # a chain of the path's operations alone
    assert half.space.definition.channels == 2  # with 3 to 6 its ds3e0.5 would halve an odd number
    file.write_text(space.full().to_json())
    with pytest.raises(FedloomError, match=r"must have width 1, but got 0.5"):
        read(file)((3, 8, 8), CLASSES, 0.5)


def test_a_layer_must_have_an_operation():
    space = open_space("cnn-tiny")
    with pytest.raises(FedloomError, match=r"layer 1\.1 of cnn-tiny must have an operation"):
        space.check(Arch("cnn-tiny", ((),) * 6))


def test_one_operation_a_layer_leaves_nothing_to_choose(tmp_path):
    file = tmp_path / "fixed.toml"
    file.write_text(GOOD.replace(', "ds3e0.5"', "").replace(', "identity"', ""))
    space = open_space(str(file))
    arch = space.full()
    assert space.sample(rng(0)) == arch == space.mutate(arch, rng(0))
    added = space.op_cost(OpId(0, 0), (3, 8, 8), CLASSES, SIZE)
    assert added.params == 8 * 8 + 2 * 8


# On the command line


def shown(capsys, *words):
    code = main(["space", "show", *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_space_show_as_json(capsys):
    code, out, _ = shown(capsys, "cnn-l", "--shape", "3x32x32", "--classes", "10", "--json")
    table = json.loads(out)
    assert code == 0
    assert set(table) == {"params", "fixed_params", "macs", "macs_paper", "layers"}
    assert (table["params"], table["fixed_params"]) == (20_802_298, 619_226)
    assert table["macs"] == {"fixed": 18_179_976, "max": 710_938_504}
    assert table["macs_paper"] == {"fixed": 18_686_242, "max": 715_979_746}
    assert len(table["layers"]) == 16 and set(table["layers"][0]) == {"ops"}
    first = {"op": "conv1", "params": 4_224, "macs": 4_194_304, "macs_paper": 4_390_912}
    assert table["layers"][0]["ops"][0] == first
    for one, other in pairwise(table["layers"]):
        assert [op["op"] for op in one["ops"]] == [op["op"] for op in other["ops"]]


def test_space_show_as_a_table_and_a_drawing(capsys):
    code, out, _ = shown(capsys, str(EXAMPLES / "wide.toml"), "--shape", "1x9x12", "--classes", "4")
    assert code == 0
    assert "wide, samples of 1×9×12, 4 classes" in out
    assert re.search(r"ds5e1 +296", out) and "1.2 ── 1.1    ── conv3" in out


def test_a_grid_sees_four_times_as_much(capsys):
    mean, grid = (
        json.loads(shown(capsys, "cnn-s", "--head", head, "--json")[1]) for head in ("mean", "grid")
    )
    assert grid["fixed_params"] - mean["fixed_params"] == 3 * 256 * 12
    assert shown(capsys, "rnn", "--head", "grid")[0] == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cnn-x"], "did you mean cnn-"),
        (["darts:s2:4"], "must be a chain of layers"),
        (["cnn-l", "--shape", "3x32"], "--shape must look like CxHxW"),
        (["cnn-tiny", "--shape", "3x4x4"], "the space cnn-tiny: maps must stay at least 1×1"),
        (["cnn-l", "--classes", "1"], "--classes must be a whole number of at least 2"),
    ],
)
def test_space_show_refuses(words, expected, capsys):
    code, _, err = shown(capsys, *words)
    assert code == 2 and expected in err
