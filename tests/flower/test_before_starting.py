"""What is checked before any process starts, and what of a site's envelope is believed."""

import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedloom.errors import FedloomError

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


def test_a_federation_that_is_none_is_named(monkeypatch, tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    config = validated(Experiment, {"engine": {"federation": str(tmp_path)}})
    with pytest.raises(
        FedloomError, match=r"federation.json must be the file of a federation's folder"
    ):
        submission.create(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {"equal": "macs"}}, "--equal macs in a single run must have an amount"),
        ({"budget": {"equal": "bytes"}}, "--equal bytes in a single run must have an amount"),
        (
            {"method": "spider", "budget": {"equal": "macs", "amount": 1e9}},
            "the server cannot tell what clients of spider compute, and sites do not",
        ),
        (
            {"method": "fednas", "budget": {"limits": "wan=1M,macs=1G"}},
            "the server cannot tell what clients of fednas compute, and sites do not",
        ),
        (
            {"budget": {"equal": "seconds", "amount": 60}},
            "it has no simulated clock to count seconds by",
        ),
        ({"clock": {"availability": "duty:600,300"}}, "must run by the clock of its sites"),
        ({"clock": {"dropout": 0.1}}, "leave --availability, --dropout, --faults"),
        ({"clock": {"round_deadline": 5.0}}, "must run by the clock of its sites"),
        ({"budget": {"limits": "seconds=900"}}, "it has no simulated clock to count seconds by"),
        (
            {"devices": {"table": "phones"}},
            "the devices of a federation must be those of its sites",
        ),
        ({"data": {"clients": 3}}, "--clients must not be given to a federation"),
        ({"method": "file.py:name"}, "must be installed at every site"),
        ({"method": "adapt"}, "each new client adapts by itself"),
        ({"data": {"name": "mnist"}}, "--data must not be given to a federation, but got mnist"),
        ({"data": {"server_share": 0.1}}, "--server-share must not be given to a federation"),
        ({"data": {"skip_bad": True}}, "--skip-bad must be given to the sites whose files are bad"),
        ({"data": {"fit": "pad"}}, "--fit pad must be with --resize, but there is none"),
        (
            {"method": "fedoras", "tiers": {"shares": [0.5, 0.5]}},
            "must come from their devices, not from --shares",
        ),
        (
            {"method": "fedoras", "devices": {"table": "phones"}},
            "the devices of a federation must be those of its sites",
        ),
        (
            {"method": "fedoras", "tiers": {"limits": "9,max", "cost": "latency_ms"}},
            "must be in macs, macs_paper or params",
        ),
    ],
)
def test_what_a_federation_cannot_do_is_refused(changes, message):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    with pytest.raises(FedloomError, match=re.escape(message)):
        submission.check(validated(Experiment, changes))


@pytest.mark.parametrize(
    "method", ["auto", "auto-tiers", "fedavg", "fedprox", "fedyogi", "local", "local-adaptation"]
)
@pytest.mark.parametrize(
    "budget", [{"equal": "macs", "amount": 1e9}, {"limits": "macs=1G"}, {"limits": "bytes=1M"}]
)
def test_a_budget_in_macs_where_the_server_can_tell_them(method, budget):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    submission.check(validated(Experiment, {"method": method, "budget": budget}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "clustered:1x2"}, "got --topology clustered:1x2 without --relay server"),
        ({}, "got --topology clustered without --relay server"),
    ],
)
def test_clusters_of_a_federation_are_relayed_by_its_server(changes, message, tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    engine = {"federation": str(made_by(tmp_path).path), **changes}
    method = "fedavg" if changes else "hfl"
    config = validated(Experiment, {"method": method, "engine": engine})
    with pytest.raises(FedloomError, match=re.escape(message)):
        submission.create(config, tmp_path / "refused")
    relayed = config.model_copy(
        update={"topology": config.topology.model_copy(update={"relay": "server"})}
    )
    assert submission.create(relayed, tmp_path / "run").config().topology.relay == "server"


def test_a_federation_scores_paths_at_its_sites(tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    engine = {"federation": str(made_by(tmp_path).path)}
    config = validated(
        Experiment, {"method": "fedoras", "options": {"score": "central"}, "engine": engine}
    )
    with pytest.raises(
        FedloomError, match=r"scored by the sites of a federation.* but got score=central"
    ):
        submission.create(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "fields", "told"),
    [
        (True, '["*"]', True),
        (True, '["shape", "labels", "samples"]', False),
        (False, '["*"]', False),
    ],
)
def test_a_site_tells_of_its_device_if_it_is_asked_and_may(tmp_path, asked, fields, told):
    from fedloom.deploy.kits import Kit
    from fedloom.deploy.site import device_facts

    kit = made_by(tmp_path).path / "kits" / "a"
    policy = (kit / "policy.toml").read_text().replace('fields = ["*"]', f"fields = {fields}")
    (kit / "policy.toml").write_text(f'{policy}\n[device]\nmacs = "5M"\nunsupported = ["mb3e2"]\n')
    device = device_facts(Kit.open(kit).policy, asked)
    if not told:
        assert device is None
        return
    assert (device.macs, device.params, device.unsupported) == (5e6, None, ("mb3e2",))


def test_a_size_of_images_is_for_all_sites_of_a_run(tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    engine = {"federation": str(made_by(tmp_path).path)}
    config = validated(
        Experiment, {"method": "fedavg", "data": {"resize": 6, "fit": "pad"}, "engine": engine}
    )
    written = submission.create(config, tmp_path / "run").config().data
    assert (written.resize, written.fit) == (6, "pad")


def test_a_survey_asks_for_a_size_that_the_sites_policy_allows(tmp_path):
    from fedloom.deploy.kits import Kit
    from fedloom.deploy.server import Survey
    from fedloom.deploy.site import size_in
    from fedloom.deploy.terms import ImageSize

    kit = made_by(tmp_path).path / "kits" / "a"
    policy = Kit.open(kit).policy
    assert size_in(Survey().to_record(), policy) is None
    size = ImageSize(resize=512, fit="crop")
    assert size_in(Survey(size=size).to_record(), policy) == size
    with pytest.raises(FedloomError, match="a survey must be a message from fedloom"):
        size_in({"size": '{"resize": "large"}'}, policy)
    text = (kit / "policy.toml").read_text().replace("resize = 512", "resize = 64")
    (kit / "policy.toml").write_text(text)
    with pytest.raises(
        FedloomError, match="at most 64 pixels a side here, but it asks for 512; ask the site"
    ):
        size_in(Survey(size=size).to_record(), Kit.open(kit).policy)


def test_a_site_hears_which_columns_of_a_table_are_what():
    from fedloom.config.models import DataConfig, Experiment
    from fedloom.deploy.server import Survey
    from fedloom.deploy.site import question_in
    from fedloom.deploy.terms import ImageSize, TableQuestion

    plain = Survey.of(Experiment(method="fedavg"))
    assert set(plain.to_record()) == {"ask", "device"}  # as every version asks
    assert question_in(plain.to_record()) == TableQuestion()
    data = DataConfig(label="outcome", ignore=["id"], resize=6)
    survey = Survey.of(Experiment(method="fedavg", data=data))
    assert survey == Survey(
        False, ImageSize(resize=6), TableQuestion(label="outcome", ignore=("id",))
    )
    assert question_in(survey.to_record()) == survey.table
    for text in ('{"task": "guessing"}', '{"label": "a", "label": "b"}', '{"file": "/etc/passwd"}'):
        with pytest.raises(FedloomError, match="a survey must be a message from fedloom"):
            question_in({"table": text})


def test_an_order_asks_for_a_size_that_the_sites_policy_allows(tmp_path, monkeypatch):
    from fedloom.deploy import site
    from fedloom.deploy.kits import Kit

    monkeypatch.setattr(site, "read_order", lambda head, body: None)
    monkeypatch.setattr(site, "check", lambda policy, order: None)
    monkeypatch.setattr(site, "bytes_in", lambda content, name: b"")
    terms = '{"seed": 0, "test": 0.2, "hold": 0.0, "size": {"resize": 4096}}'
    records = {"order": {"head": b""}, "terms": {"json": terms}}
    message = SimpleNamespace(content=SimpleNamespace(config_records=records))
    with pytest.raises(FedloomError, match="at most 512 pixels a side here, but it asks for 4096"):
        site.work(message, {}, Kit.open(made_by(tmp_path).path / "kits" / "a"))


def test_kits_are_checked_before_they_are_used(tmp_path):
    from fedloom.deploy.kits import Federation, Kit

    for sites, message in (
        ([], "every site must be named once"),
        (["a", "a"], "named once"),
        (["A b"], "lower-case"),
    ):
        with pytest.raises(FedloomError, match=message):
            Federation.create(tmp_path / "none", sites, "127.0.0.1", 9092)
    federation = Federation.create(tmp_path / "made", ["b", "a"], "127.0.0.1", 9092)
    assert Federation.open(federation.path).sites == ("a", "b")
    with pytest.raises(FedloomError, match="a federation must get a new folder"):
        Federation.create(federation.path, ["a"], "127.0.0.1", 9092)
    kit = federation.path / "kits" / "a"
    assert Kit.open(kit).policy.methods == ["*"]
    (kit / "node.key").chmod(0o644)
    with pytest.raises(
        FedloomError, match="must be readable by its owner alone, but its mode is 644"
    ):
        Kit.open(kit)
    (kit / "node.key").chmod(0o600)
    (kit / "policy.toml").write_text("methods = 3")
    with pytest.raises(FedloomError, match="methods"):
        Kit.open(kit)
    (kit / "policy.toml").write_text("methods = [")
    with pytest.raises(FedloomError, match="must be a site's policy in TOML"):
        Kit.open(kit)
    with pytest.raises(FedloomError, match="must be the file of a site's start kit"):
        Kit.open(tmp_path)


def test_a_port_in_use_is_named(tmp_path):
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.processes import check_free

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        federation = Federation.create(
            tmp_path / "made", ["a"], "127.0.0.1", taken.getsockname()[1]
        )
        with pytest.raises(
            FedloomError, match=f"port {federation.port} must be free, but another program uses it"
        ):
            check_free(federation)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e12, "1", None, True, [1]])
def test_a_sites_envelope_with_absurd_seconds_is_none(seconds):
    from fedloom.federation.engines.flower.parcels import from_outside
    from fedloom.federation.protocol.envelope import Envelope

    with pytest.raises(ValueError, match="its seconds are not a plausible number"):
        from_outside(Envelope(seconds))


def test_a_sites_envelope_can_neither_stop_the_run_nor_reach_a_report():
    from fedloom.federation.engines.flower.parcels import from_outside
    from fedloom.federation.protocol.envelope import Envelope, Fault

    envelope = from_outside(
        Envelope(1.5, 10**30, {"params": 1}, Fault("store", "x" * 10_000, "a traceback"))
    )
    assert (envelope.seconds, envelope.macs, envelope.facts) == (1.5, None, None)
    assert (envelope.fault.kind, len(envelope.fault.text), envelope.fault.detail) == (
        "raised",
        500,
        "",
    )
    assert from_outside(Envelope(2, fault=Fault("lost", "gone"))).fault.kind == "lost"
    assert from_outside(Envelope(2)).fault is None


def made_by(tmp_path, port=9092):
    from fedloom.deploy.kits import Federation

    return Federation.create(tmp_path / "made", ["a"], "127.0.0.1", port)


def test_certificates_are_checked_before_they_are_used(tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    from fedloom.deploy.kits import Authority, Federation, Kit

    federation = made_by(tmp_path)
    key = serialization.load_pem_private_key((federation.path / "ca.key").read_bytes(), None)
    authority = Authority(
        key, x509.load_pem_x509_certificate((federation.path / "ca.crt").read_bytes())
    )
    kit = federation.path / "kits" / "a"
    whole = (federation.path / "server.crt").read_bytes()
    authority.issue("127.0.0.1", ["127.0.0.1"], days=-1).save(federation.path / "server")
    with pytest.raises(
        FedloomError,
        match=r"server.crt must be a certificate that is valid now, but it is valid from 20",
    ):
        Federation.open(federation.path)
    (federation.path / "server.crt").write_bytes(b"no certificate")
    with pytest.raises(FedloomError, match="valid now, but it is not a certificate"):
        Federation.open(federation.path)
    (federation.path / "server.crt").unlink()
    with pytest.raises(FedloomError, match="but it cannot be read"):
        Federation.open(federation.path)
    (federation.path / "server.crt").write_bytes(whole)
    Federation.open(federation.path)
    (kit / "ca.crt").write_bytes(b"")
    with pytest.raises(
        FedloomError,
        match=r"ca.crt must be a certificate that is valid now, but it is not a certificate",
    ):
        Kit.open(kit)


@pytest.mark.parametrize("content", ["missing", "empty", "damaged"])
def test_a_site_without_data_is_told_so_at_once(tmp_path, capsys, content):
    from fedloom.cli import main

    kit = made_by(tmp_path).path / "kits" / "a"
    data = tmp_path / "data.npz"
    if content == "empty":
        np.savez(data, x=np.zeros((0, 6, 6), np.uint8), y=np.zeros(0, np.int64))
    if content == "damaged":
        data.write_bytes(b"PK nothing")
    assert main(["federation", "site", str(kit), "--data", str(data)]) == 2
    errors = capsys.readouterr().err
    assert "data.npz" in errors and "Traceback" not in errors


def test_a_server_that_speaks_no_tls_is_named(tmp_path):
    import threading
    from dataclasses import replace

    from fedloom.deploy.kits import Kit
    from fedloom.deploy.processes import check_server

    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer():
            with plain.accept()[0] as met:
                met.recv(10)
                met.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        kit_of_plain_server = replace(kit, server=f"127.0.0.1:{plain.getsockname()[1]}")
        with pytest.raises(FedloomError, match="must speak TLS, but it does not"):
            check_server(kit_of_plain_server, insecure=False)


def test_a_server_that_does_not_answer_yet_is_waited_for(tmp_path, capsys):
    from dataclasses import replace

    from deployment import free_port

    from fedloom.deploy.kits import Kit
    from fedloom.deploy.processes import check_server

    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    check_server(replace(kit, server=f"127.0.0.1:{free_port()}"), insecure=False)
    assert "does not answer yet; waiting" in capsys.readouterr().err


def test_a_federations_own_defaults(tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy.kits import Federation
    from fedloom.deploy.submission import settings

    federation = Federation.create(tmp_path / "three", ["a", "b", "c"], "127.0.0.1", 9092)
    config = settings(validated(Experiment, {}), federation)
    assert (config["deadline"], config["min_replies"]) == (600.0, 2)
    asked = {"engine": {"deadline": 5.0, "min_replies": 3}}
    config = settings(validated(Experiment, asked), federation)
    assert (config["deadline"], config["min_replies"]) == (5.0, 3)
    assert (
        settings(validated(Experiment, {"budget": {"participation": 0.3}}), federation)[
            "min_replies"
        ]
        == 1
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('fields = ["shape"]', "'loss' is not among its fields"),
        ('tensors = ["net.*"]', "'a' is not"),
    ],
)
def test_a_policy_says_what_may_leave(tmp_path, line, found):
    import torch

    from fedloom.deploy.kits import Kit
    from fedloom.deploy.site import check_reply
    from fedloom.types import Reply

    kit = made_by(tmp_path).path / "kits" / "a"
    reply = Reply(0, {"a": torch.zeros(2)}, 20.0, {"loss": 0.5})
    check_reply(Kit.open(kit).policy, reply)
    name = line.partition(" ")[0]
    policy = (kit / "policy.toml").read_text()
    (kit / "policy.toml").write_text(re.sub(rf"^{name} = .*$", line, policy, flags=re.M))
    with pytest.raises(FedloomError, match=f"policy must allow what leaves, but {found}"):
        check_reply(Kit.open(kit).policy, reply)


@pytest.mark.parametrize(
    ("fields", "told"), [(["*"], True), (["conf*"], True), (["personal", "shared"], False)]
)
def test_a_policy_that_does_not_name_confusion_keeps_it_at_the_site(
    tmp_path, monkeypatch, fields, told
):
    """It is left out of the reply, so that the figures beside it may still leave."""
    from fedloom.cost.limits import DeviceLimit, Limit
    from fedloom.deploy import site
    from fedloom.deploy.kits import Kit

    made = []
    monkeypatch.setattr(site, "Site", lambda **named: made.append(named))
    source = SimpleNamespace(x=np.zeros((2, 1)), labels=("a",))
    stamp = SimpleNamespace(experiment="0" * 16)
    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    kit.policy.fields[:] = fields
    site.site_for(stamp, source, None, {}, kit, site.Border(kit.policy))
    assert [named["sends_confusion"] for named in made] == [told]
    assert made[0]["limit"]() == DeviceLimit()
    with (kit.path / "policy.toml").open("a") as policy:
        policy.write('[device]\nmacs = "5M"\n')
    kit = Kit.open(kit.path)
    site.site_for(stamp, source, None, {}, kit, site.Border(kit.policy))
    assert made[1]["limit"]() == DeviceLimit(Limit(macs=5e6))


# Who may call a server, and what a site runs


@pytest.mark.parametrize(
    ("host", "path", "passes"),
    [
        ("127.0.0.1", "/v1/control/list-nodes", False),  # it shows no token
        ("127.0.0.1", "/v1/runtime/acquire-task", True),  # Flower asks for a signature
        ("127.0.0.1", "/docs", False),
        ("10.0.0.7", "/v1/fleet/pull-messages", False),  # it is signed by no site
        ("10.0.0.7", "/v1/control/start-run", False),
        ("10.0.0.7", "/v1/control/register-node", False),
        ("10.0.0.7", "/v1/runtime/acquire-task", False),
        ("127.0.0.2", "/v1/control/start-run", False),
        ("10.0.0.7", "/docs", False),
    ],
)
def test_runs_are_taken_from_the_servers_own_machine_alone(tmp_path, host, path, passes):
    import asyncio

    from fedloom.deploy.guard import Door

    reached = []
    said = []

    async def inside(scope, receive, send):
        reached.append(scope["path"])

    async def send(event):
        said.append(event)

    door = Door(inside, made_by(tmp_path).path)
    asyncio.run(door({"type": "http", "client": (host, 1), "path": path}, None, send))
    assert bool(reached) is passes
    assert passes or said[0]["status"] in (401, 403)


def test_a_superlink_has_its_door_outermost(monkeypatch):
    from flwr.superlink import cli, extensions, main

    from fedloom.deploy import guard

    monkeypatch.setattr(
        extensions, "get_middleware", extensions.get_middleware
    )  # restored at the end
    monkeypatch.setattr(cli, "flower_superlink", lambda: None)
    guard.superlink()
    assert main._get_middleware()[0].cls is guard.Door


def program(**files):
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def ours(**changes):
    import tomli_w

    from fedloom.deploy.processes import APP

    app = {**APP["tool"]["flwr"]["app"], **changes}
    return tomli_w.dumps({**APP, "tool": {"flwr": {"app": app}}})


def test_a_site_runs_the_program_that_we_submit(tmp_path):
    from flwr.cli.build import build_fab_from_disk

    from fedloom.deploy.guard import is_ours

    (tmp_path / "pyproject.toml").write_text(ours())
    assert is_ours(build_fab_from_disk(tmp_path))


@pytest.mark.parametrize(
    "sent",
    [
        b"no archive",
        program(**{"pyproject.toml": ours()}),
        program(**{"pyproject.toml": ours(), ".info/CONTENT": "", "fedloom/__init__.py": ""}),
        program(
            **{"pyproject.toml": ours(components={"clientapp": "os:system"}), ".info/CONTENT": ""}
        ),
        program(**{"pyproject.toml": "[", ".info/CONTENT": ""}),
        program(**{"pyproject.toml": ours() + "#" * (1 << 17), ".info/CONTENT": ""}),
    ],
    ids=["none", "unlisted", "code", "components", "damaged", "large"],
)
def test_a_site_runs_no_other_program(sent):
    from fedloom.deploy.guard import is_ours

    assert not is_ours(sent)


def test_a_supernode_asks_the_guard_about_every_program(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from flwr.supernode import cli, start_client_internal

    from fedloom.deploy import guard
    from fedloom.deploy.audit import AuditLog

    monkeypatch.chdir(tmp_path)  # as in a kit
    refused = []
    run = SimpleNamespace(fab_hash="abc", series_id=1, primary_task_type="")
    message = SimpleNamespace(
        metadata=SimpleNamespace(group_id="", run_id=7, message_type="query", message_id="m")
    )
    for name in ("_pull_and_store_message", "_verify_fab"):
        monkeypatch.setattr(
            start_client_internal, name, getattr(start_client_internal, name)
        )  # restored at the end
    monkeypatch.setattr(start_client_internal, "Message", lambda error, reply_to: error)
    monkeypatch.setattr(
        start_client_internal, "_insert_message", lambda reply, *rest: refused.append(reply)
    )
    monkeypatch.setattr(start_client_internal, "time", start_client_internal.time)
    monkeypatch.setattr(guard, "connect_again_after_broken_handshakes", lambda: None)
    monkeypatch.setattr(cli, "flower_supernode", lambda: None)
    guard.supernode()
    start_client_internal._pull_and_store_message(
        state=SimpleNamespace(get_run=lambda run_id: None), object_store=None, node_config={},
        receive=lambda: (message, None), get_run=lambda run_id: run, pull_object=None,
        confirm_message_received=None,
        get_fab=lambda fab_hash, run_id: SimpleNamespace(content=b"evil"), trusted_entities=None,
    )  # fmt: skip
    assert refused == [start_client_internal.FAB_VERIFICATION_ERROR]
    ((line, _),) = AuditLog(tmp_path).verified()
    assert line.event == "refused" and "not the installed fedloom" in line.content["reason"]


def test_a_server_that_does_not_run_is_named(tmp_path):
    from deployment import free_port

    from fedloom.deploy.health import site_statuses

    federation = made_by(tmp_path, free_port())
    with pytest.raises(
        FedloomError, match=f"server must run here, but nothing answers at port {federation.port}"
    ):
        site_statuses(federation)


@pytest.mark.parametrize(
    "path", ["/a b/c", "/a=b", "/it's", '/q"q', "/ä😀", "/back\\slash", '/a b="c" d=1', '/\\"']
)
def test_any_path_reaches_flower_as_it_is(path):
    from flwr.common.config import parse_config_args

    from fedloom.deploy.processes import as_words

    assert parse_config_args([as_words({"kit": path, "data": "digits"})]) == {
        "kit": path,
        "data": "digits",
    }


@pytest.mark.parametrize(
    "host", ["", "a b", "bücher.example", "x" * 80, "http://x", "x:9", 'a"b', "::1", "-x"]
)
def test_a_host_that_no_certificate_or_address_can_hold_is_named(tmp_path, host):
    from fedloom.deploy.kits import Federation

    with pytest.raises(FedloomError, match="--host must be a name or an IPv4 address"):
        Federation.create(tmp_path / "made", ["a"], host, 9092)
    assert not (tmp_path / "made").exists()


def test_only_a_federation_of_several_machines_listens_to_others(tmp_path):
    from fedloom.deploy.kits import Federation

    assert made_by(tmp_path).address == ("127.0.0.1", 9092)
    far = Federation.create(tmp_path / "far", ["a"], "fed.example.org", 9092)
    assert far.address == ("0.0.0.0", 9092)


@pytest.mark.parametrize("line", ['"server": "nowhere"', '"server": "a:b"', '"site": "../up"'])
def test_a_kit_that_was_edited_is_damaged(tmp_path, line):
    from fedloom.deploy.kits import Kit

    kit = made_by(tmp_path).path / "kits" / "a"
    name = line.partition(":")[0]
    (kit / "kit.json").write_text(
        re.sub(rf"{name}: \"[^\"]*\"", line, (kit / "kit.json").read_text())
    )
    with pytest.raises(FedloomError, match=r"kit.json must be as fedloom wrote it"):
        Kit.open(kit)


# What a site takes from a server, which may be anybody's


def order_of(**changes):
    from fedloom.types import Order, Stamp, Task

    given = {
        "experiment": "0123456789abcdef",
        "method": "fedavg",
        "options": {},
        "round": 1,
        **changes,
    }
    task = Task(
        given["method"], given["options"], "image", (1, 6, 6), ("0", "1"), 0, (0.0,), (1.0,)
    )
    return Order(0, "train", stamp=Stamp(given["experiment"], task, "train", given["round"], 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experiment": "../../../tmp/up"}, "must name its experiment"),
        ({"experiment": "/tmp/0123456789a"}, "must name its experiment"),
        ({"method": "/tmp/file.py:name"}, "the order names a file"),
        ({"method": "adapt"}, "new clients must adapt on their own machine"),
        ({"options": {"network": "/tmp/file.py:name"}}, "the order names a file"),
        ({"options": {"network": "/etc/some.json"}}, "the order names a file"),
        ({"method": "local"}, "local is not among its methods"),
        ({"round": 4}, "at most 3 rounds here, but this is 4"),
    ],
)
def test_an_order_that_a_site_does_not_take(changes, message):
    from fedloom.deploy.kits import Policy
    from fedloom.deploy.site import check

    policy = Policy(methods=["fed*"], fields=["*"], rounds=3, megabytes=1)
    assert check(policy, order_of()).experiment == "0123456789abcdef"
    with pytest.raises(FedloomError, match=re.escape(message)):
        check(policy, order_of(**changes))


@pytest.mark.parametrize(
    ("policy", "takes", "refuses"),
    [
        ("laplace:1", ["laplace:1.0"], ["exact", "laplace:0.5", "laplace:2.0", "none"]),
        ("exact", ["laplace:1.0", "exact"], []),
        ("none", [], ["laplace:1.0", "exact"]),
    ],
)
def test_label_counts_leave_as_the_policy_has_it(policy, takes, refuses):
    """Of another E there would be another draw: several tell more than either."""
    from dataclasses import replace

    from fedloom.deploy.kits import Policy
    from fedloom.deploy.site import check

    agreed = Policy(methods=["*"], fields=["*"], rounds=3, megabytes=1, histograms=policy)
    check(agreed, replace(order_of(), kind="describe"))
    for asked in takes:
        check(agreed, replace(order_of(), kind="describe", meta={"histograms": asked}))
    for asked in refuses:
        with pytest.raises(
            FedloomError,
            match=f"policy has it: {agreed.histograms}, but the order asks for {asked};",
        ):
            check(agreed, replace(order_of(), kind="describe", meta={"histograms": asked}))


def test_an_older_kit_tells_label_counts_with_noise_only(tmp_path):
    from fedloom.deploy.kits import Kit

    kit = made_by(tmp_path).path / "kits" / "a"
    text = (kit / "policy.toml").read_text()
    assert Kit.open(kit).policy.histograms == "laplace:1.0"
    (kit / "policy.toml").write_text(re.sub(r"^histograms = .*\n", "", text, flags=re.M))
    assert "histograms" not in (kit / "policy.toml").read_text()
    assert Kit.open(kit).policy.histograms == "laplace:1.0"
    (kit / "policy.toml").write_text(text.replace('"laplace:1.0"', '"laplace"'))
    with pytest.raises(FedloomError, match="`histograms` must be exact, none, or laplace:E"):
        Kit.open(kit)


def test_one_secret_of_a_site_for_all_experiments(tmp_path, monkeypatch):
    """With noise of each experiment's own, a server could ask again and average."""
    from fedloom.deploy import site
    from fedloom.deploy.kits import Kit
    from fedloom.deploy.terms import Terms, own_data
    from fedloom.federation.protocol.wire import Body, order_head, read_reply
    from fedloom.types import Order

    source = SimpleNamespace(
        x=np.zeros((60, 1, 6, 6), np.uint8),
        y=np.arange(60) % 2,
        labels=("0", "1"),
        official_test=None,
        groups=None,
    )
    kit = Kit.open(made_by(tmp_path).path / "kits" / "a")
    data = own_data(source, 0, Terms(seed=0, test=0.2, hold=0.0))
    rows = []
    for experiment in ("0" * 16, "1" * 16):
        stamp = order_of(experiment=experiment).stamp
        order = Order(0, "describe", meta={"histograms": "laplace:0.01"}, stamp=stamp)
        here = site.site_for(stamp, source, data, {}, kit, site.Border(kit.policy))
        chunks, envelope = here.handle(order_head(order, Body({})), b"")
        assert envelope.fault is None, envelope.fault
        rows.append(read_reply(b"".join(chunks)).meta["histogram"])
    assert rows[0] == rows[1]
    secret = kit.path / "state" / "secret"
    assert len(secret.read_bytes()) == 32
    secret.write_bytes(bytes(32))
    chunks, _ = here.handle(order_head(order, Body({})), b"")
    assert read_reply(b"".join(chunks)).meta["histogram"] != rows[0]


def test_private_states_are_their_owners_alone(tmp_path):
    from fedloom.deploy.site import private

    (tmp_path / "state").mkdir(mode=0o755)
    assert private(tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_federations_network_is_no_file():
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    config = validated(Experiment, {"options": {"network": "net.py:Net"}})
    with pytest.raises(
        FedloomError, match=r"network must be installed at every site, but net\.py:Net is a file"
    ):
        submission.check(config)


def test_a_federation_takes_a_space_that_a_file_defines():
    """Only what it defines is sent; one in Python would have to be at every site."""
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    examples = Path(__file__).parents[2] / "docs" / "examples"
    submission.check(
        validated(Experiment, {"method": "fednas", "options": {"space": f"{examples}/wide.toml"}})
    )
    config = validated(
        Experiment, {"method": "fednas", "options": {"space": f"{examples}/chain.py:Chain"}}
    )
    with pytest.raises(
        FedloomError, match=r"space must be installed at every site, but .* is a file"
    ):
        submission.check(config)


# What a server takes from a site


FACTS = {
    "kind": "image", "shape": [1, 6, 6], "labels": ["0", "1"], "named": False,
    "mean": [0.0], "std": [1.0], "samples": 40,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 1 << 60},
        {"samples": -1},
        {"samples": "40"},
        {"shape": []},
        {"shape": [1, 0, 6]},
        {"shape": [1, 1 << 40, 1 << 40]},
        {"labels": []},
        {"labels": [str(number) for number in range(1_000_000)]},
        {"labels": ["\x1b[2J", "1"]},
        {"labels": ["x" * 2000], "named": True},
        {"mean": [1e999]},
        {"mean": []},
        {"std": [0.0]},
        {"kind": "../image"},
        {"more": 1},
    ],
    ids=lambda change: "-".join(change),
)
def test_absurd_facts_are_none(change):
    from fedloom.deploy.terms import Facts

    assert Facts.read(json.dumps(FACTS)).samples == 40
    with pytest.raises(ValueError, match=r"^[a-z.0-9]+: "):
        Facts.read(json.dumps({**FACTS, **change}))


def test_facts_of_any_length_are_refused_before_they_are_read():
    from fedloom.deploy.terms import Facts

    with pytest.raises(ValueError, match="characters, at most"):
        Facts.read(" " * (17 << 20) + json.dumps(FACTS))


def survey_reply(**records):
    from types import SimpleNamespace

    from flwr.app import ConfigRecord, RecordDict

    content = RecordDict({name: ConfigRecord(record) for name, record in records.items()})
    return SimpleNamespace(has_error=lambda: False, content=content)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ({}, "its message is not from fedloom"),
        ({"envelope": {"json": "[" * 100_000}}, "its message is not from fedloom"),
        ({"envelope": {"json": "{}"}}, "its message is not from fedloom"),
        ({"facts": {"json": '{"\\u001b[31m": 1}'}}, "kind: field required"),
        ({"facts": {}}, "facts: invalid json"),
    ],
)
def test_a_site_that_answers_nonsense_to_the_survey_is_named(records, found):
    from fedloom.deploy.server import facts_in

    with pytest.raises(
        FedloomError, match=re.escape(f"site a must describe its data, but {found}")
    ) as caught:
        facts_in(survey_reply(**records), "a")
    assert str(caught.value).isprintable()


def test_a_site_is_the_node_that_its_key_was_given(monkeypatch):
    """It is not the node that claims to be the site: here node 8 claims to be site a.

    With --insecure there are no keys, so there is only the claim.
    """
    from fedloom.deploy import server

    claims = {7: "b", 8: "a"}
    grid = SimpleNamespace(get_node_ids=lambda: list(claims))
    monkeypatch.setattr(
        server, "ask", lambda grid, nodes, until, survey: {node: claims[node] for node in nodes}
    )
    monkeypatch.setattr(server, "name_in", lambda message: message)
    registered = SimpleNamespace(insecure=False, sites=("a", "b"), nodes={"a": 7, "b": 9})
    assert server.nodes_of(grid, registered, lambda event: None, server.Survey()) == {
        "a": 7,
        "b": 9,
    }
    anybody = SimpleNamespace(insecure=True, sites=("a", "b"), nodes={})
    assert server.nodes_of(grid, anybody, lambda event: None, server.Survey()) == {"a": 8, "b": 7}


def test_a_run_hears_its_own_events_alone(tmp_path):
    from fedloom.deploy.submission import Stopped, follow
    from fedloom.federation.server.events import RoundEnded
    from fedloom.records.rows import MetricsRow

    ended = RoundEnded(
        MetricsRow("train", 1, 0.0, meta={"loss": 0.5}, notes={"phase": "search"}), 0.5
    )
    stopped = {"event": "stopped", "text": "it is in use", "code": 2, "as": "2"}
    events = [
        stopped,
        {"event": "waiting", "as": "1"},
        {**ended.to_json(), "as": "1"},
        {"event": "finished", "as": "1"},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    heard = []
    follow(None, tmp_path / "events.jsonl", 0, "1", heard.append)
    assert heard == [ended]
    with pytest.raises(Stopped, match="it is in use"):
        follow(None, tmp_path / "events.jsonl", 0, "2", heard.append)


def test_a_process_of_flowers_ends_after_the_one_that_started_it(tmp_path):
    """As when a server is killed: what it started would wait for it for ever."""
    import os
    import subprocess
    import sys

    from deployment import wait_for

    left = "from fedloom.deploy.processes import end_without_parent; import time; "
    left += "end_without_parent(0.05); print('up', flush=True); time.sleep(60)"
    parent = "import subprocess, sys; "
    parent += f"p = subprocess.Popen([sys.executable, '-c', {left!r}], stdout=subprocess.PIPE); "
    parent += "p.stdout.readline(); print(p.pid, flush=True)"  # then it ends
    number = int(
        subprocess.run(
            [sys.executable, "-c", parent], capture_output=True, text=True, check=True
        ).stdout
    )

    def gone():
        try:
            return open(f"/proc/{number}/stat").read().split()[2] == "Z"
        except FileNotFoundError:
            return True

    try:
        assert wait_for(gone, 20)
    finally:
        if not gone():
            os.kill(number, 9)


def test_a_federations_run_folder_is_its_owners_alone(tmp_path):
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission

    config = validated(
        Experiment, {"method": "fedavg", "engine": {"federation": str(made_by(tmp_path).path)}}
    )
    assert submission.create(config, tmp_path / "run").path.stat().st_mode & 0o777 == 0o700


def test_a_federation_begins_with_a_finished_run(tmp_path):
    """The weights and their normalisation go into the run's folder, where the server finds them."""
    import fedloom
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy import submission
    from fedloom.runs.warm_start import load_start

    flags = {"clients": 2, "rounds": 1, "workers": 0, "width": 0.125}
    first = fedloom.search(
        "fedavg", data="digits", partition="iid", out=tmp_path / "first", **flags
    )
    engine = {"federation": str(made_by(tmp_path).path)}
    tree = {
        "method": "fedavg",
        "engine": engine,
        "init": {"run": str(first.path)},
        "options": {"width": 0.125},
    }
    folder = submission.create(validated(Experiment, tree), tmp_path / "run")
    assert folder.config().data.mean == [4.8842]
    assert "net.classifier.weight" in load_start(folder).tensors


@pytest.mark.parametrize("words", [["compare", "fedavg", "local"], ["run", "fedavg", "--dry-run"]])
def test_what_needs_the_data_here_does_not_pretend_to_use_a_federation(tmp_path, capsys, words):
    from fedloom.cli import main

    assert main([*words, "--federation", str(made_by(tmp_path).path), "--rounds", "1"]) == 2
    assert "the data must be at hand for this, but the sites of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "topology", "budget", "trainings"),
    [
        ("fedavg", "flat", {"rounds": 7}, 8),
        ("fedavg", None, {"rounds": 7}, 8),
        ("fednas", "flat", {"rounds": 7}, 9),
        ("fedavg", "clustered:1x2", {"rounds": 7}, None),
        ("hfl", None, {"rounds": 7}, None),
        ("fedavg", "flat", {"equal": "bytes", "amount": 1e6}, None),
    ],
)
def test_a_run_tells_its_sites_how_often_they_will_train(method, topology, budget, trainings):
    """One more than its rounds for each stage; a round of clusters has several."""
    from fedloom.config.models import Experiment, validated
    from fedloom.deploy.settled import trainings_of
    from fedloom.methods import stages
    from fedloom.runs.configure import resolve_options
    from fedloom.types import Task

    engine = {"topology": topology}
    config = validated(Experiment, {"method": method, "engine": engine, "budget": budget})
    options = resolve_options(method, {})
    task = Task(method, options, "image", (1, 8, 8), ("0", "1"), 0, (0.0,), (1.0,))
    prepared = SimpleNamespace(config=config, task=task, stages=stages(task))
    assert trainings_of(prepared) == trainings


def test_a_sites_own_port_is_any_free_one_or_the_one_given(tmp_path, monkeypatch):
    """Two sites of one machine need no option. A port in use is named before anything starts."""
    from fedloom import cli
    from fedloom.deploy import processes

    kit = made_by(tmp_path).path / "kits" / "a"
    data = tmp_path / "data.npz"
    np.savez(data, x=np.zeros((9, 4, 4), np.uint8), y=np.arange(9) % 3)
    ports = []

    def started(kit, data, *, device, port, insecure):
        ports.append(port)
        raise FedloomError("a test", "ends", "here")

    monkeypatch.setattr(processes, "start_site", started)
    monkeypatch.setattr(processes, "check_server", lambda kit, insecure: None)
    monkeypatch.setattr(processes, "say_hello", lambda kit, insecure: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["federation", "site", str(kit), "--data", str(data)]
        used = str(taken.getsockname()[1])
        assert cli.main([*words, "--port", used]) == 2 and ports == []
        assert cli.main(words) == 2
        assert len(ports) == 1 and ports[0] not in (0, int(used))
        with socket.create_server(("127.0.0.1", ports[0])):
            pass  # it was free
