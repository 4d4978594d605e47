"""What FedorAS cannot do is said in one sentence before anything is trained.

The exit code is 2; there is no folder and no traceback.
"""

from pathlib import Path

import pytest

from fedloom import cli

RUN = ["run", "fedoras", "--data", "digits", "--clients", "4", "--rounds", "3", "--workers", "0"]
ALL = "conv1,ds3e0.5,ds3e1,ds3e2,mb1e2,mb3e0.5,mb3e1,mb3e2,identity"
SPACE = """name = "mine"
kind = "image"
stem = {op = "conv3", channels = CHANNELS, stride = 1}
"""
STAGE = """[[stage]]
layers = 1
ops = ["OP", "identity"]
reduce = "dw+proj"
"""
FILES = {
    "odd.toml": SPACE.replace("CHANNELS", "7") + STAGE.replace("OP", "ds3e0.5"),
    "small.toml": SPACE.replace("CHANNELS", "8") + 4 * STAGE.replace("OP", "conv1"),
    "bare.toml": SPACE.replace("CHANNELS", "8"),
    "key.toml": SPACE.replace("CHANNELS", "8")
    + STAGE.replace("OP", "conv1").replace("layers", "layer"),
    "unknown.toml": "[[tier]]\nmacs = 3e5\nspeed = 3\n",
    "half.toml": "[[tier]]\nmacs = 3e5\nshare = 0.5\n[[tier]]\nmacs = 6e6\n",
    "shared.toml": "[[tier]]\nmacs = 3e5\nshare = 0.5\n[[tier]]\nmacs = 6e6\nshare = 0.5\n",
    "nobody.toml": "[[tier]]\nmacs = 3e5\nshare = 0\n[[tier]]\nmacs = 6e6\nshare = 1\n",
    "falling.toml": "[[tier]]\nmacs = 3e5\nparams = 9e4\n[[tier]]\nmacs = 6e6\nparams = 5e4\n",
    "slow.toml": "[[tier]]\nlatency_ms = 3\n",
    "both.toml": '[[tier]]\nmacs = 25e3\nparams = 5004\nunsupported = ["identity"]\n',
    "play.txt": 200 * "to be or not to be, that is the question. ",
    "who.json": "[1, 1, 1, 1]",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--tiers 10,max --cost macs", "it is 10 macs, and the cheapest path has 21,054"),
        ("--tiers 300k,200k", "the limits of tiers must rise, but 200,000 macs follows 300,000"),
        ("--tiers falling.toml", "the limits of tiers must rise, but 50,000 params follows 90,000"),
        ("--tiers both.toml", "must leave at least one path"),
        (
            "--tiers unknown.toml",
            "unknown.toml, tier 1: speed` must be a known name, but got 'speed'",
        ),
        ("--tiers half.toml", "must have a `share`, or none, but 1 of 2 do"),
        ("--tiers shared.toml --shares .5,.5", "got --shares and `share` in the file"),
        ("--tiers shared.toml --cost macs", "--cost must be left out"),
        ("--tiers nobody.toml", "nobody.toml, tier 1: share` must be greater than 0, but got 0"),
        ("--tiers nowhere.toml", "must be a readable TOML file of tiers, but there is none"),
        ("--shares .5,.6", "that sum to 1, but they are 0.5, 0.6 and sum to 1.1"),
        ("--shares .5,.2,.3", "a number for each of the 2 tiers, but got 3"),
        ("--shares 1,0", "must be numbers above 0 that sum to 1"),
        ("--tier-file who.json", "every tier must have a client, but tier 2 has none"),
        ("--tier-file who.json --shares .5,.5", "got --tier-file and shares"),
        ("--tier-file who.json --devices phones", "got --tier-file and --devices"),
        ("--devices phone", "did you mean phones"),
        ("--device phones", "did you mean --devices phones"),
        (
            "--comm 5000",
            "5,000 of the supernet's 77,128 parameters, and these have 5,004; use --comm 0.07 or "
            "more",
        ),
        ("--unsupported mb3e3", "did you mean mb3e2"),
        (
            f"--unsupported {ALL}",
            "every layer must keep an operation that the devices support, but layer 1 has none",
        ),
        (
            "--cost latency_ms",
            "must have the profile of a device that covers the space, but there is no --profile",
        ),
        ("--tiers slow.toml", "tier 1 has a limit in latency_ms but no profile"),
        ("--score central", "the server must have samples, but it has none"),
        ("--dynamic 0", "must be greater than 0, but got '0'"),
        ("--dynamic 1.5", "must be less than or equal to 1, but got '1.5'"),
        ("--space rnn", "samples for rnn must be windows of symbols, but their shape is [1, 8, 8]"),
        ("--data play.txt --partition iid --space cnn-l", "samples for cnn-l must be maps"),
        (
            "--space odd.toml",
            "odd.toml, line 6: the channels of stage 1 must suit its operation ds3e0.5",
        ),
        ("--space small.toml", "small.toml, line 19: maps must stay at least 1×1"),
        ("--space bare.toml", "bare.toml, line 3: a space must have a stage, but it has none"),
        (
            "--space key.toml",
            "key.toml, line 5: a key of a space must be a known name, but got 'layer'",
        ),
    ],
)
def test_one_sentence(
    place: Path,
    flags: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    assert cli.main([*RUN, *flags.split()]) == 2
    errors = capsys.readouterr().err
    assert words in errors, errors
    assert errors.startswith("fedloom: ") and errors.count("\n") == 1
    assert not (place / "runs").exists()
