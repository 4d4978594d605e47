"""Who on the server's own machine may call it: with which token, and with which program."""

import json

import pytest

pytestmark = pytest.mark.flower

TINY = ["--rounds", "1", "--width", "0.125", "--batch", "8", "--evaluate-every", "100"]


@pytest.fixture(scope="module")
def tokens(federation):
    """A token of each role that the owner can give away."""
    files = {}
    for role in ("viewer", "submitter"):
        path = federation.folder / f"{role}.token"
        words = ["--role", role, "--days", "2", "--out", str(path)]
        done = federation.fedloom("federation", "token", str(federation.path), *words)
        assert done.returncode == 0, done.stderr
        assert path.stat().st_mode & 0o777 == 0o600
        files[role] = path
    return files


def called(federation, path, content=b"", secret=None):
    """The status and text that somebody gets who reaches the port."""
    import httpx
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

    from fedloom.deploy.kits import Federation

    port = Federation.open(federation.path).local_port
    headers = {"content-type": PROTOBUF_MEDIA_TYPE}
    if secret is not None:
        headers["Authorization"] = f"Bearer {secret}"
    authority = str(federation.path / "ca.crt")
    address = f"https://127.0.0.1:{port}{path}"
    answer = httpx.post(address, content=content, headers=headers, verify=authority)
    return answer.status_code, answer.text


def refused_task(federation):
    """The status that somebody gets who asks for the work of the server's own programs."""
    import httpx
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    from fedloom.deploy.kits import Federation

    address = f"127.0.0.1:{Federation.open(federation.path).local_port}"
    authority = (federation.path / "ca.crt").read_bytes()
    says_version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient.from_server_address(address, False, authority, [says_version])
    with client, pytest.raises(httpx.HTTPStatusError) as caught:
        client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
    return caught.value.response.status_code


def runs(federation):
    """How many runs the server has ever taken."""
    from flwr.proto.control_pb2 import ListRunsRequest

    from fedloom.deploy import control
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.processes import access_of

    access = access_of(Federation.open(federation.path))
    answer = control.call(access, lambda server: server.ListRuns(ListRunsRequest()))
    return len(answer.run_dict)


def request_of(content, **settings):
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    from fedloom.deploy.control import digest_of

    fab = fab_to_proto(Fab(digest_of(content), content, {}))
    request = StartRunRequest(fab=fab, override_config=user_config_to_proto(settings))
    return request.SerializeToString()


def program(**files):
    from flwr.cli.build import build_fab_from_files

    return build_fab_from_files({name: text.encode() for name, text in files.items()})[0]


def ours():
    import tomli_w

    from fedloom.deploy.processes import APP

    return tomli_w.dumps(APP)


def evil():
    return ours().replace("fedloom.flower.server:app", "evil:app")


def test_whoever_only_reaches_the_port_runs_nothing(federation):
    before = runs(federation)
    submission = request_of(program(**{"pyproject.toml": ours()}), run="/tmp/x")
    assert called(federation, "/v1/control/start-run", submission) == (
        401,
        "the call has no token\n",
    )
    assert called(federation, "/v1/control/list-nodes")[0] == 401
    assert refused_task(federation) in (401, 403)
    assert called(federation, "/docs")[0] == 403
    assert runs(federation) == before


def test_a_token_submits_no_other_program(federation, tokens):
    secret = json.loads(tokens["submitter"].read_text())["secret"]
    before = runs(federation)
    other = program(**{"pyproject.toml": evil(), "evil.py": "app = None"})
    own = program(**{"pyproject.toml": ours()})
    for content, reason in [
        (request_of(other, run="/tmp/x"), "only the program that points at the installed fedloom"),
        (request_of(own, run="/tmp/x", surprise="1"), "may only be told its folder"),
        (b"\xff\xff", "malformed"),
    ]:
        status, text = called(federation, "/v1/control/start-run", content, secret)
        assert status == 403 and reason in text
    assert runs(federation) == before


def test_a_submitter_runs_and_a_viewer_looks(federation, tokens):
    looked = federation.fedloom("federation", "status", str(tokens["viewer"]), "--json")
    assert looked.returncode == 0, looked.stderr
    sites = [site["site"] for site in json.loads(looked.stdout)["sites"]]
    assert sites == list(federation.names)
    words = ["run", "fedavg", *TINY, "--json"]
    refused = federation.fedloom(*words, "--federation", str(tokens["viewer"]), "--out", "viewed")
    assert refused.returncode == 2
    assert "a viewer's token does not allow start-run" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = federation.fedloom(*words, "--federation", str(tokens["submitter"]), "--out", "guest")
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()


def test_a_foreign_or_withdrawn_token_is_one_sentence(federation, tokens, tmp_path):
    from fedloom.deploy.kits import Federation

    foreign = Federation.create(tmp_path / "foreign", ["a"], "127.0.0.1", 1).owners_token()
    token = json.loads(tokens["viewer"].read_text())
    token["secret"] = foreign.secret
    path = tmp_path / "foreign.token"
    path.write_text(json.dumps(token))
    path.chmod(0o600)
    done = federation.fedloom("federation", "status", str(path))
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "the federation's server must accept the token, but the token is of another federation; "
        "ask the federation's owner for one that fits."
    )
    words = ["--withdraw", "viewer"]
    assert not federation.fedloom("federation", "token", str(federation.path), *words).returncode
    done = federation.fedloom("federation", "status", str(tokens["viewer"]))
    assert done.returncode == 2 and "is unknown here, or was withdrawn" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_run_whose_method_is_in_a_file_is_refused_by_the_server_too(tmp_path):
    from fedloom.config.models import Experiment
    from fedloom.deploy.installed import check_installed
    from fedloom.errors import FedloomError

    check_installed(Experiment(method="fedavg"))
    with pytest.raises(FedloomError, match=r"installed at every site, but /tmp/x\.py:Evil"):
        check_installed(Experiment(method="/tmp/x.py:Evil"))


def test_a_link_in_a_runs_folder_leads_the_server_nowhere(tmp_path, monkeypatch):
    """The folder is its submitter's, and the server would append to what the link points at."""
    from types import SimpleNamespace

    from fedloom.deploy import server
    from fedloom.errors import FedloomError
    from fedloom.records.folder import RunFolder

    monkeypatch.setattr(server, "end_without_parent", lambda: None)
    folder = RunFolder.create("run", "fedavg", tmp_path / "run").path
    book = tmp_path / "tokens.json"
    book.write_text("{}")
    (folder / "events.jsonl").symlink_to(book)
    context = SimpleNamespace(run_config={"run": str(folder), "federation": "-"}, run_id=1)
    with pytest.raises(FedloomError, match=r"must have no links, .* but .*events\.jsonl is one"):
        server.main(None, context)
    assert book.read_text() == "{}"
