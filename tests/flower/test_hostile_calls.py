"""Mutated calls and files: each is refused with a sentence, and nothing else is ever raised."""

import random
from contextlib import suppress

import pytest

from fedloom.errors import FedloomError

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower

FEW = 2_000
MANY = pytest.param(1_000_000, marks=pytest.mark.slow)


def mutated(draw, content):
    """A few changed, missing or doubled bytes."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) or 1)
        change = draw.randrange(4)
        if change == 0:
            changed[place : place + 1] = bytes([draw.randrange(256)])
        elif change == 1:
            del changed[place : place + draw.randint(1, 20)]
        elif change == 2:
            changed[place:place] = changed[place : place + draw.randint(1, 20)]
        else:
            changed[place:] = b""
    return bytes(changed)


def submission():
    import tomli_w
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    from fedloom.deploy.control import digest_of
    from fedloom.deploy.processes import APP

    content, _ = build_fab_from_files({"pyproject.toml": tomli_w.dumps(APP).encode()})
    fab = fab_to_proto(Fab(digest_of(content), content, {}))
    settings = user_config_to_proto({"run": "/runs/1", "federation": "/fed"})
    return StartRunRequest(fab=fab, override_config=settings)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_no_mutated_submission_brings_another_program(count):
    from flwr.proto.control_pb2 import StartRunRequest

    from fedloom.deploy.guard import refusal_of_run

    request = submission()
    content = request.SerializeToString()
    assert refusal_of_run(content) is None
    draw = random.Random(23)
    for _ in range(count):
        changed = mutated(draw, content)
        if refusal_of_run(changed) is None:  # only another path, at most
            passed = StartRunRequest.FromString(changed)
            assert passed.fab.content == request.fab.content
            assert set(passed.override_config) <= {"run", "federation"}


@pytest.mark.parametrize("count", [FEW, MANY])
def test_no_mutated_token_opens_anything(tmp_path, count):
    from fedloom.deploy import tokens

    token = tokens.issue(tmp_path, "anna", "admin", 1, "127.0.0.1:1", "PEM")
    book = tokens.TokenBook.read(tmp_path)
    header = f"Bearer {token.secret}"
    assert tokens.refusal_of(book, header, "start-run") is None
    draw = random.Random(23)
    for _ in range(count):
        changed = mutated(draw, header.encode()).decode("latin-1")
        if changed.partition(" ")[2] != token.secret:
            assert tokens.refusal_of(book, changed, "start-run") is not None


@pytest.mark.parametrize("count", [FEW, MANY])
def test_no_mutated_greeting_is_taken_for_a_site(tmp_path, count):
    from fedloom.deploy import hello
    from fedloom.deploy.kits import Federation

    federation = Federation.create(tmp_path / "made", ["a"], "127.0.0.1", 1)
    headers = hello.signed(federation.path / "kits" / "a" / "node.key")
    whole = hello.question_in(headers)
    assert whole is not None
    draw = random.Random(23)
    names = [hello.KEY, hello.MOMENT, hello.SIGNATURE]
    for _ in range(count // 10):
        name = draw.choice(names)
        changed = mutated(draw, headers[name].encode()).decode("latin-1")
        question = hello.question_in({**headers, name: changed})
        assert question is None or (question.public_key.strip(), question.moment) == (
            whole.public_key.strip(),
            whole.moment,
        )


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_mutated_file_is_one_sentence(tmp_path, count):
    """A site's request, the server's answer to it, and a token."""
    from fedloom.deploy import joining
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.tokens import TokenFile

    federation = Federation.create(tmp_path / "made", ["a"], "127.0.0.1", 1)
    request, _ = joining.request(tmp_path / "kit", "c")
    _, admission, _ = joining.admit(federation, request, 1, None, replace=False)
    readers = [
        (request.read_bytes(), joining.read_request),
        (admission.model_dump_json().encode(), joining.Admission.read),
        (federation.owners_token().model_dump_json().encode(), TokenFile.read),
    ]
    draw = random.Random(23)
    path = tmp_path / "hostile"
    path.touch(mode=0o600)
    for _ in range(count // 10):
        content, read = draw.choice(readers)
        path.write_bytes(mutated(draw, content))
        with suppress(FedloomError):  # what was mutated may still be whole
            read(path)
