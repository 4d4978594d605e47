"""Whatever is wrong with a file or an argument, `fedloom federation` says it in one sentence.

Each command is called in this process with each damage of each file that it could read, and with
absurd values of each argument. It may succeed, if it does not need what is damaged. What it must
never do is raise anything but our own error.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from fedloom import cli
from fedloom.errors import shortened

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower

SITE = "a"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A federation, kits that joined and that wait, a request, an admission, tokens, backups."""
    from fedloom.deploy import joining
    from fedloom.deploy.approval import Waiting
    from fedloom.deploy.audit import AuditLog
    from fedloom.deploy.backup import backup
    from fedloom.deploy.experiments import Approvals, Division, Record, locked_experiments
    from fedloom.deploy.kits import Federation

    place = tmp_path_factory.mktemp("whole")
    # Nothing listens at port 1.
    federation = Federation.create(place / "fed", [SITE, "b"], "127.0.0.1", 1)
    federation = joining.revoke(federation, "b")
    (place / "fed" / "samples.json").write_text('{"a": 10}')
    (place / "fed" / "versions.json").write_text('{"a": "0.2.0"}')
    (place / "fed" / "current.json").write_text('{"run": "/nowhere"}')
    kit = Path(shutil.copytree(place / "fed" / "kits" / SITE, place / "kit"))
    AuditLog(kit).append("order", {"n": 1})
    task = {"method": "fedavg", "options": {"epochs": 1}}
    waiting = Waiting(id="f" * 64, experiment="1" * 16, task=task, terms={"trainings": 3})
    record = Record(client=0, seed=1, test=0.2, asked_test=0.2, hold=0.1, trainings=("x",))
    with locked_experiments(kit / "state") as experiments:
        experiments.put("1" * 16, record)
        experiments.put_divisions((Division(seed=1, client=0, test=0.2, hold=0.1, samples=9),))
        experiments.put_approvals(Approvals(waiting=(waiting,)))
    request, _ = joining.request(place / "new", "c")
    shutil.copy(request, place / "c.request")
    _, admission, _ = joining.admit(federation, request, 730, None, replace=False)
    shutil.copytree(place / "new", place / "waiting")
    (place / "c.admission").write_text(admission.model_dump_json())
    federation.owners_token().write(place / "anna.token")
    backup(kit, place / "kit.tar")
    backup(place / "fed", place / "fed.tar")
    (place / "data.npz").write_bytes(b"no data")
    return place


def parser_for_all(words):
    """The parser of all commands, which takes longer to make than most of them run."""
    return PARSER


PARSER = cli.make_parser(["federation"])


@pytest.fixture
def place(whole, tmp_path, monkeypatch):
    """A copy for one test. No command gets as far as a process."""
    from fedloom.deploy import processes
    from fedloom.errors import FedloomError

    def launch(*arguments):
        raise FedloomError("nothing must be wrong", "a process would start", "this is a test")

    monkeypatch.setattr(processes, "launch", launch)
    monkeypatch.setattr(processes, "samples_of", lambda data: 10)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(cli, "make_parser", parser_for_all)
    copy = Copy(whole, tmp_path / "place")
    monkeypatch.chdir(copy.place)
    return copy


# What each command reads, and how it is called.
COMMANDS = {
    "server": ("fed", "server fed"),
    "add": ("fed", "add fed --site d"),
    "rotate": ("fed", f"rotate fed --site {SITE}"),
    "revoke": ("fed", f"revoke fed --site {SITE}"),
    "admit": ("fed", "admit fed c.request --out answer"),
    "admit a request": ("c.request", "admit fed c.request --out answer"),
    "token": ("fed", "token fed --out new.token"),
    "withdraw": ("fed", "token fed --withdraw owner"),
    "status of a server": ("fed", "status fed --json"),
    "status of a guest": ("anna.token", "status anna.token"),
    "status of a site": ("kit", "status kit"),
    "site": ("kit", "site kit --data data.npz"),
    "audit": ("kit", "audit kit"),
    "audit with a head": ("kit", f"audit kit --head 1:{'0' * 64} --json"),
    "approve": ("kit", "approve kit"),
    "approve one": ("kit", f"approve kit {'f' * 12}"),
    "backup of a server": ("fed", "backup fed --out new.tar"),
    "backup of a site": ("kit", "backup kit --out new.tar"),
    "restore": ("kit.tar", "restore kit.tar again"),
    "restore a server": ("fed.tar", "restore fed.tar again"),
    "restore with counters": ("kit", "restore kit.tar again --counters kit"),
    "join": ("kit", f"join kit --site {SITE}"),
    "join with an admission": ("c.admission", "join waiting --admission c.admission"),
    "complete a kit": ("waiting", "join waiting --admission c.admission"),
}
DAMAGES = {
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\xfa",
    "zeros": bytes(3000),
    "deep JSON": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep TOML": b"a = " + b"[" * 5000,
    "deep TOML tables": b"a = " + b"{a = " * 5000,
    "a long number": b"9" * 10_000,
    "a number": b"3",
    "nothing in JSON": b"null",
    "a list": b"[1]",
    "a text": b'"text"',
    "an object": b"{}",
    "another object": b'{"sites": 3, "site": 3, "format": 99, "keys": [], "nodes": 1}',
    "TOML": b"methods = 3\n",
    "a long line": b'{"a": "' + b"x" * (1 << 20) + b'"}\n',
    "half a certificate": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "half a key": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
}


def damage_with(content):
    return lambda path: path.write_bytes(content)


def into_folder(path):
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def into_circle(path):
    path.unlink()
    path.symlink_to(path.name)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def doubled(path):
    path.write_bytes(path.read_bytes() * 2)


def into_pipe_of_nothing(path):
    path.unlink()
    path.symlink_to("/dev/null")


WAYS = {
    **{name: damage_with(content) for name, content in DAMAGES.items()},
    "absent": lambda path: path.unlink(),
    "a folder": into_folder,
    "a circle of links": into_circle,
    "a device": into_pipe_of_nothing,
    "cut": cut,
    "doubled": doubled,
}


def files_in(path):
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and "kits" not in file.parts)


def said_by(words, capsys, what):
    """What a command says. Its exit code is 0, 2 or 3, and an error is one sentence."""
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        called = shortened(" ".join(words), 100)
        raise AssertionError(f"{what}: `{called}` raised {error!r:.200}") from error
    errors = capsys.readouterr().err
    assert code in (0, 2, 3), what
    if code == 2:
        lines = [line for line in errors.splitlines() if line.startswith("fedloom: ")]
        assert lines and ", but " in lines[-1] and lines[-1].endswith("."), f"{what}: {errors}"
        assert len(lines[-1]) < 1500, what
    return errors


def marks_of(place):
    """What tells whether a file, folder or link was touched."""
    marks = {}
    for parent, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            state = os.lstat(path)
            mark = (state.st_mode, state.st_size, state.st_ino, state.st_mtime_ns)
            marks[os.path.relpath(path, place)] = mark if path not in folders else mark[:1]
    return marks


class Copy:
    """A copy of the whole place, in which only what was touched is copied again."""

    def __init__(self, whole, place):
        self.whole = whole
        self.place = place
        shutil.copytree(whole, place, symlinks=True)
        self.marks = marks_of(place)

    def heal(self):
        now = marks_of(self.place)
        touched = {name for name in now if now[name] != self.marks.get(name)}
        touched |= {name for name in self.marks if name not in now}
        for name in sorted(touched, key=len, reverse=True):
            path = self.place / name
            if path.is_dir() and not path.is_symlink():
                if not (self.whole / name).is_dir():
                    shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for name in sorted(touched):
            source = self.whole / name
            path = self.place / name
            if source.is_dir():
                path.mkdir(exist_ok=True)
                shutil.copystat(source, path)
            elif source.exists():
                shutil.copy2(source, path)
        self.marks = marks_of(self.place)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_file_is_one_sentence(place, capsys, command):
    reads, line = COMMANDS[command]
    words = ["federation", *line.split()]
    begin = list(COMMANDS).index(command)
    for number, file in enumerate(files_in(place.place / reads), begin):
        name = file.relative_to(place.place)
        # Each file in a third of the ways: other commands read it in the others.
        for way, damage in list(WAYS.items())[number % 3 :: 3]:
            damage(file)
            said_by(words, capsys, f"{name} is {way}")
            place.heal()


PLACES = ("fed", "kit", "waiting", "c.request", "c.admission", "anna.token", "again")
OTHER_PLACES = ("/dev/null", "data.npz", "nowhere", "fed/kits", "data.npz/x", "x" * 5000, "\udcff")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_for_a_folder_and_a_folder_for_a_file(place, capsys, command):
    _, line = COMMANDS[command]
    words = ["federation", *line.split()]
    for position, word in enumerate(words[2:], 2):
        if word not in PLACES:
            continue
        for other in OTHER_PLACES:
            changed = [*words[:position], other, *words[position + 1 :]]
            said_by(changed, capsys, f"{word} is {other[:20]!r}")
            place.heal()


# Values of the JSON files, one at a time


VALUES = [
    None, True, -1, 0, 99999, 10**18, 10**30, 1.5, 1e300, "", "abc", "x" * 300, "a\u0000b",
    "\ud800",
    "../../etc", "2027-01-01", "9999-99-99", "10000:1", [], [[]], {}, {"a": {"b": 1}}, [None],
]  # fmt: skip


def leaves_of(tree, path=()):
    """Every place in a JSON tree."""
    yield path
    if isinstance(tree, dict):
        for name, below in tree.items():
            yield from leaves_of(below, (*path, name))
    elif isinstance(tree, list):
        for number, below in enumerate(tree):
            yield from leaves_of(below, (*path, number))


def with_value(tree, path, value):
    if not path:
        return value
    changed = json.loads(json.dumps(tree))
    inside = changed
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return changed


JSON_FILES = {
    "fed/federation.json": ["server fed", "status fed", "rotate fed --site a", "token fed"],
    "fed/tokens.json": ["status fed", "token fed --name x"],
    "fed/owner.token": ["status fed"],
    "fed/current.json": ["status fed"],
    "fed/versions.json": ["status fed"],
    "kit/kit.json": ["site kit --data data.npz", "status kit", "backup kit --out kit-2.tar"],
    "kit/audit.jsonl": ["audit kit", "status kit"],
    "kit/audit.head": ["audit kit", "status kit"],
    "kit/state/draws.json": ["restore kit.tar again --counters kit"],
    "kit/state/experiments/1111111111111111.json": ["restore kit.tar again --counters kit"],
    "kit/state/experiments/approvals.json": ["approve kit", "approve kit ffffffffffff"],
    "anna.token": ["status anna.token"],
    "c.admission": ["join waiting --admission c.admission"],
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_an_absurd_value_in_a_file_is_one_sentence(place, capsys, name):
    file = place.place / name
    tree = json.loads(file.read_text())
    lines = JSON_FILES[name]
    for number, path in enumerate(leaves_of(tree)):
        for turn, value in enumerate(VALUES, number):
            file.write_text(json.dumps(with_value(tree, path, value)))
            words = ["federation", *lines[turn % len(lines)].split()]
            said_by(words, capsys, f"{name} {path} is {value!r:.30}")
            place.heal()


# Arguments


ABSURD = [
    "", "-1", "0", "1e9", "9" * 5000, "x" * 5000, "\udcff", "a b", "/dev/null/x",
    "\N{ARABIC-INDIC DIGIT ONE}", "\N{SUPERSCRIPT TWO}", "nan",
]  # fmt: skip
ARGUMENTS = [
    ["init", "{}"],
    ["init", "new", "--site", "{}"],
    ["init", "new", "--site", "a", "--host", "{}"],
    ["init", "new", "--site", "a", "--port", "{}"],
    ["init", "new", "--site", "a", "--offline-ca", "{}"],
    ["init", "new", "--site", "a", "--listen", "{}"],
    ["init", "new", "--site", "a", "--listen", "127.0.0.1:{}"],
    ["init", "new", "--site", "a", "--ca", "{}", "--listen", "127.0.0.1:1"],
    ["init", "new", "--site", "a", "--ca", "fed/ca.crt", "--certificate", "{}", "--key", "{}"],
    ["join", "{}", "--site", "a"],
    ["join", "new", "--site", "{}"],
    ["join", "waiting", "--admission", "{}"],
    ["join", "waiting", "--admission", "c.admission", "--fingerprint", "{}"],
    ["admit", "fed", "{}"],
    ["admit", "fed", "c.request", "--out", "{}"],
    ["admit", "fed", "c.request", "--days", "{}"],
    ["admit", "fed", "c.request", "--ca-key", "{}"],
    ["add", "fed", "--site", "{}"],
    ["rotate", "fed", "--site", "{}"],
    ["rotate", "fed", "--site", "a", "--ca-key", "{}"],
    ["revoke", "fed", "--site", "{}"],
    ["server", "{}"],
    ["server", "fed", "--metrics", "{}"],
    ["site", "{}", "--data", "data.npz"],
    ["site", "kit", "--data", "data.npz", "--port", "{}"],
    ["site", "kit", "--data", "data.npz", "--resize", "{}"],
    ["token", "fed", "--name", "{}"],
    ["token", "fed", "--days", "{}"],
    ["token", "fed", "--out", "{}"],
    ["token", "fed", "--withdraw", "{}"],
    ["token", "fed", "--role", "{}"],
    ["status", "{}"],
    ["audit", "{}"],
    ["audit", "kit", "--head", "{}"],
    ["approve", "{}"],
    ["approve", "kit", "{}"],
    ["backup", "kit", "--out", "{}"],
    ["backup", "{}", "--out", "new.tar"],
    ["restore", "{}", "again"],
    ["restore", "kit.tar", "{}"],
    ["restore", "kit.tar", "again", "--counters", "{}"],
]


@pytest.mark.parametrize("words", ARGUMENTS, ids=" ".join)
def test_an_absurd_argument_is_one_sentence(place, capsys, words):
    for value in ABSURD:
        if words[:2] == ["backup", "{}"] and not value:
            continue  # this folder
        changed = [word.replace("{}", value) for word in words]
        said_by(["federation", *changed], capsys, f"{value[:20]!r}")
        place.heal()
