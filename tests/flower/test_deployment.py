"""A real federation on loopback: TLS, node authentication, a process for everything."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from deployment import wait_for
from PIL import Image

from fedloom.data.image_rules import ImageRules
from fedloom.data.resizing import resized
from fedloom.data.sources import open_source
from fedloom.federation.server.archive import Archive

pytestmark = pytest.mark.flower

CHAIN = str(Path(__file__).parents[1] / "contract" / "short_chain.toml")
OPTIONS = [
    "--width",
    "0.125",
    "--batch",
    "8",
    "--evaluate-every",
    "100",
]  # each exchange starts processes


def weights(path):
    at = Archive(path).final()
    return at.round, at.state.tensors


def embedded(federation, name, method, *words):
    """The same run without a network."""
    words = [method, "--data", "sites", "--partition", "sites", *OPTIONS, *words, "--workers", "0"]
    done = federation.fedloom("run", *words, "--out", name, "--json")
    assert done.returncode == 0, done.stderr
    return weights(federation.folder / name)


def same(found, expected):
    return (
        found[0] == expected[0]
        and found[1].keys() == expected[1].keys()
        and all(torch.equal(found[1][name], expected[1][name]) for name in found[1])
    )


def test_kits_hold_no_other_partys_key_and_are_their_owners_alone(federation):
    kits = {name: federation.path / "kits" / name for name in federation.names}
    for name, kit in kits.items():
        keys = {file.name: file.read_bytes() for file in kit.iterdir() if file.suffix == ".key"}
        assert set(keys) == {"node.key", "site.key"}
        others = [federation.path / "ca.key", federation.path / "server.key"]
        others += [other / "node.key" for other_name, other in kits.items() if other_name != name]
        assert all(other.read_bytes() not in keys.values() for other in others)
        assert kit.stat().st_mode & 0o777 == 0o700
        assert all((kit / key).stat().st_mode & 0o777 == 0o600 for key in keys)


def test_the_same_bits_as_an_embedded_run_of_the_same_sites(federation):
    """Although hospital-b calls itself hospital-a: a site is its key, whatever it says."""
    kit = federation.path / "kits" / "hospital-b" / "kit.json"
    before = kit.read_text()
    kit.write_text(before.replace("hospital-b", "hospital-a"))
    try:
        done = federation.run("fedavg", "--rounds", "2", "--seed", "3", *OPTIONS, "--out", "run")
    finally:
        kit.write_text(before)
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    result = json.loads(done.stdout)
    assert [row["samples"] for row in result["clients"]] == [40, 41]
    assert [row["architecture"] for row in result["clients"]] == [
        None,
        None,
    ]  # it stays at the site
    assert same(
        weights(federation.folder / "run"),
        embedded(federation, "local", "fedavg", "--rounds", "2", "--seed", "3"),
    )
    assert exchanged(federation, "run") == exchanged(
        federation, "local"
    )  # bytes, and MACs by formula
    assert result_in(federation, "run")["macs"] == result_in(federation, "local")["macs"] > 0


def result_in(federation, name):
    return json.loads((federation.folder / name / "result.json").read_text())


def exchanged(federation, name):
    """For all work, by round: client, hop, bytes down and up, and MACs, which sites do not send."""
    rounds = []
    for row in tiny.rows(federation.folder / name):
        assert row.get("macs_by_formula", False) == (not name.startswith("local"))
        rounds.append([line[:5] for line in row["ledger"] if line[1] >= 0])
    return rounds


AUTO = [
    "--sizes",
    ".8,1",
    "--width",
    "0.2",
    "--batch",
    "8",
    "--lr",
    "0.1",
    "--trial-epochs",
    "1",
    "--changes-after",
    ".5",
]
AUTO += [
    "--equal",
    "macs",
    "--set",
    "budget.amount=4.5e6",
    "--rounds",
    "12",
    "--seed",
    "3",
    "--evaluate-every",
    "100",
]
STEPS = ["race", "judge", "begin", "invariance", "train", "trial", "compare", "cool", "tune"]
DESCRIBED = ["shape", "labels", "samples", "extra", "personal", "shared"]  # what every run asks for
SUMS = ["loss", "nll", "correct", "plain", "changed", "up", "down"]


def test_auto_decides_in_a_federation_for_a_budget_in_macs(federation):
    """All of its steps, and the bits and MACs of the same run without a network.

    hospital-b has other names for its labels, so that a trial speaks for fine-tuning. It lets only
    weights and sums leave.
    """
    file = federation.folder / "sites" / "hospital-b.npz"
    policy = federation.path / "kits" / "hospital-b" / "policy.toml"
    before = {path: path.read_bytes() for path in (file, policy)}
    with np.load(file) as arrays:
        np.savez(file, x=arrays["x"], y=(arrays["y"] + 1) % 3)
    fields = json.dumps([*DESCRIBED, *SUMS])
    policy.write_text(before[policy].decode().replace('fields = ["*"]', f"fields = {fields}"))
    try:
        done = federation.run("auto", *AUTO, "--out", "auto")
        words = [
            "auto",
            "--data",
            "sites",
            "--partition",
            "sites",
            *AUTO,
            "--workers",
            "0",
            "--out",
            "local-auto",
        ]
        alone = federation.fedloom("run", *words, "--json")
    finally:
        for path, content in before.items():
            path.write_bytes(content)
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    assert alone.returncode == 0, alone.stderr
    rows = tiny.rows(federation.folder / "auto")
    assert list(dict.fromkeys(row["phase"] for row in rows)) == STEPS
    assert all(row["refused"] == [] for row in rows)
    assert same(weights(federation.folder / "auto"), weights(federation.folder / "local-auto"))
    assert exchanged(federation, "auto") == exchanged(federation, "local-auto")
    result = result_in(federation, "auto")
    expected = result_in(federation, "local-auto")
    assert result["decisions"] == expected["decisions"] and result["macs"] == expected["macs"]
    assert result["macs_by_formula"] is True and "macs_by_formula" not in expected
    assert "MACs, by formula" in (federation.folder / "auto" / "report.html").read_text()


def test_sites_agree_on_the_classes_of_all_of_them(federation):
    """Each names classes that the other lacks, in an order of its own."""
    before = {}
    for name, labels in {
        "hospital-a": ("well", "flu", "cold"),
        "hospital-b": ("cold", "asthma", "well"),
    }.items():
        file = federation.folder / "sites" / f"{name}.npz"
        before[file] = file.read_bytes()
        with np.load(file) as arrays:
            np.savez(file, x=arrays["x"], y=arrays["y"], labels=labels)
    try:
        done = federation.run("fedavg", "--rounds", "1", "--seed", "3", *OPTIONS, "--out", "union")
        assert done.returncode == 0, done.stderr + federation.log("server").read_text()
        expected = embedded(federation, "union-local", "fedavg", "--rounds", "1", "--seed", "3")
    finally:
        for file, content in before.items():
            file.write_bytes(content)
    result = json.loads((federation.folder / "union" / "result.json").read_text())
    assert result["input"]["labels"] == ["asthma", "cold", "flu", "well"]
    assert same(weights(federation.folder / "union"), expected)
    told = "hospital-a lacks asthma; hospital-b lacks flu"
    for name in ("union", "union-local"):
        assert told in (federation.folder / name / "run.log").read_text()


def test_images_of_any_size_and_files_that_cannot_be_read(federation):
    """hospital-b has photos of various sizes, one of them damaged. The run's size applies."""
    photos = federation.folder / "photos"
    draw = np.random.default_rng(1)
    for number in range(30):
        file = photos / str(number % 3) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(256, size=(7 + number % 4, 9), dtype=np.uint8)).save(file)
    (photos / "1/4.png").write_bytes(b"no image")
    federation.leave("hospital-b")
    federation.attend("hospital-b", "photos", None, "--resize", "9", "--skip-bad")
    words = ["--rounds", "1", "--seed", "3", "--resize", "5", "--fit", "crop"]
    try:
        done = federation.run("fedavg", *words, *OPTIONS, "--out", "photographed")
    finally:
        federation.leave("hospital-b")
        federation.attend("hospital-b")
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    result = json.loads((federation.folder / "photographed" / "result.json").read_text())
    assert (result["input"]["shape"], result["input"]["resize"], result["input"]["fit"]) == (
        [1, 5, 5],
        5,
        "crop",
    )
    told = "files that hospital-b could not read and left out (it uses --skip-bad): 1"
    assert told in (federation.folder / "photographed" / "run.log").read_text()
    assert federation.said("hospital-b", f"fedloom: skipped {photos / '1/4.png'}")
    mixed = federation.folder / "mixed"
    mixed.mkdir()
    shutil.copy(federation.folder / "sites" / "hospital-a.npz", mixed)
    source = open_source(str(photos), images=ImageRules(5, "crop", skip_bad=True))
    with np.load(mixed / "hospital-a.npz") as arrays:
        small = resized(arrays["x"][:, None], 5, "crop")
        np.savez(mixed / "hospital-a.npz", x=small, y=arrays["y"])
    np.savez(mixed / "hospital-b.npz", x=source.x, y=source.y)
    words = [
        "fedavg",
        "--data",
        "mixed",
        "--rounds",
        "1",
        "--seed",
        "3",
        *OPTIONS,
        "--workers",
        "0",
    ]
    done = federation.fedloom("run", *words, "--out", "mixed-local", "--json")
    assert done.returncode == 0, done.stderr
    assert same(
        weights(federation.folder / "photographed"), weights(federation.folder / "mixed-local")
    )


def test_tiers_come_from_the_sites_devices(federation):
    """FedorAS: the smaller device is in the first tier. The same run without a network agrees."""
    policy = federation.path / "kits" / "hospital-a" / "policy.toml"
    before = policy.read_text()
    policy.write_text(f"{before}\n[device]\nmacs = 8_000\n")
    words = [
        "--space",
        CHAIN,
        "--tiers",
        "8000,max",
        "--cost",
        "macs",
        "--rounds",
        "3",
        "--batch",
        "8",
    ]
    words += [
        "--epochs",
        "1",
        "--models",
        "2",
        "--pool",
        "2",
        "--sample",
        "1",
        "--evaluate-every",
        "100",
    ]
    try:
        done = federation.run("fedoras", *words, "--out", "tiers")
    finally:
        policy.write_text(before)
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    result = json.loads(done.stdout)
    assert [row["tier"] for row in result["clients"]] == [1, 2]
    assert [row["clients"] for row in result["tiers"]] == [1, 1]
    assert result["tiers"][0]["macs"] <= 8_000
    assert result["tiers"][0]["global"] is not None  # figures of every site
    (federation.folder / "tiers.json").write_text(
        "[1, 2]"
    )  # what the sites told, by the operator's word
    words += [
        "--tier-file",
        "tiers.json",
        "--data",
        "sites",
        "--partition",
        "sites",
        "--workers",
        "0",
    ]
    done = federation.fedloom("run", "fedoras", *words, "--out", "told", "--json")
    assert done.returncode == 0, done.stderr
    assert same(weights(federation.folder / "tiers"), weights(federation.folder / "told"))


def test_clusters_are_relayed_by_the_server(federation):
    """Every byte is WAN, no site aggregates, and the bits are those of a run without a network."""
    words = ["--rounds", "2", "--cluster-size", "2", *OPTIONS]
    refused = federation.run("hfl", *words, "--out", "unrelayed")
    assert refused.returncode == 2 and "must be relayed by its server" in refused.stderr
    assert not (federation.folder / "unrelayed").exists()
    done = federation.run("hfl", *words, "--relay", "server", "--out", "relayed")
    assert done.returncode == 0, done.stderr + federation.log("server").read_text()
    result = json.loads((federation.folder / "relayed" / "result.json").read_text())
    assert result["topology"]["kind"] == "clustered" and result["topology"]["relay"] == "server"
    assert [sorted(cluster["members"]) for cluster in result["clusters"]] == [[0, 1]]
    assert result["clusters"][0]["aggregator"] is None
    sent = json.loads(done.stdout)["bytes"]
    assert sent["lan_down"] == sent["lan_up"] == 0 < min(sent["down"], sent["up"])
    rows = tiny.rows(federation.folder / "relayed")
    clusters = [row["clusters"][0] for row in rows]
    assert all(
        cluster["lan_down"] == cluster["lan_up"] == 0 < cluster["wan_up"] for cluster in clusters
    )
    words = ["--rounds", "2", "--cluster-size", "2", "--relay", "server"]
    assert same(
        weights(federation.folder / "relayed"), embedded(federation, "relayed-here", "hfl", *words)
    )


def test_status_names_every_site(federation):
    def online():
        done = federation.fedloom("federation", "status", str(federation.path), "--json")
        return [
            row["site"] for row in json.loads(done.stdout)["sites"] if row["status"] == "online"
        ]

    assert wait_for(lambda: online() == list(federation.names), 60)


def test_a_site_keeps_to_its_policy(federation):
    policy = federation.path / "kits" / "hospital-b" / "policy.toml"
    before = policy.read_text()
    policy.write_text(before.replace('methods = ["*"]', 'methods = ["fednas"]'))
    try:
        done = federation.run("fedavg", "--rounds", "1", *OPTIONS, "--out", "refused")
    finally:
        policy.write_text(before)
    assert done.returncode == 0, done.stderr
    (row,) = tiny.rows(federation.folder / "refused")
    ((client, reason),) = [(refused["client"], refused["reason"]) for refused in row["refused"]]
    assert (
        client == 1
        and "this site's policy must allow the method, but fedavg is not among its methods"
        in reason
    )


def test_a_killed_server_is_started_again_and_the_run_resumed(federation):
    words = ["--rounds", "3", "--seed", "5", *OPTIONS]
    process = federation.launch(
        "submitter",
        "run",
        "fedavg",
        *words,
        "--federation",
        str(federation.path),
        "--out",
        "killed",
    )
    metrics = federation.folder / "killed" / "metrics.jsonl"
    assert wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 1, 200), (
        federation.log("server").read_text()
    )
    federation.kill("server")
    assert process.wait(200) == 3
    assert federation.said("submitter", "continue with `fedloom resume killed`")
    federation.serve()
    done = federation.fedloom("resume", "killed", "--json")
    assert done.returncode == 0, done.stderr
    assert same(
        weights(federation.folder / "killed"),
        embedded(federation, "whole", "fedavg", "--rounds", "3", "--seed", "5"),
    )
