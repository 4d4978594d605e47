"""Sites with tables: their sums are agreed on before training, and their rows stay."""

import json
import re

import numpy as np
import pytest
from deployment import Deployment
from test_deployment import same, weights

pytestmark = pytest.mark.flower

TABLES = {
    "hospital-a": ["age,ward,flat,outcome"],
    "hospital-b": ["outcome,flat,ward,age"],
}


def write_tables(folder):
    """The same columns in another order; each ward, and a gap, is at one site alone."""
    draw = np.random.default_rng(0)
    for number in range(90):
        age = draw.normal(50, 10)
        ward = ("east", "west")[number % 2]
        outcome = f"{3 * age + 20 * (ward == 'east'):.2f}"
        TABLES["hospital-a"].append(f"{age:.1f},{ward},1,{outcome}")
        TABLES["hospital-b"].append(f"{outcome},1,{'' if number % 5 else 'north'},{age + 5:.1f}")
    for name, lines in TABLES.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    deployment = Deployment(tmp_path_factory.mktemp("tables")).init()
    (deployment.folder / "tables").mkdir()
    write_tables(deployment.folder / "tables")
    try:
        deployment.serve()
        for name in deployment.names:
            deployment.attend(name, f"tables/{name}.csv")
        yield deployment
    finally:
        deployment.stop()


def test_the_same_bits_as_an_embedded_run_of_the_same_tables(tables):
    words = ["fedavg", "--rounds", "2", "--label", "outcome", "--evaluate-every", "100"]
    done = tables.run(*words, "--out", "run")
    assert done.returncode == 0, done.stderr + tables.log("server").read_text()
    local = tables.fedloom(
        "run", *words, "--data", "tables", "--workers", "0", "--out", "local", "--json"
    )
    assert local.returncode == 0, local.stderr
    deployed = json.loads(done.stdout)
    embedded = json.loads(local.stdout)
    assert deployed["metric"] == "rmse" and deployed["rmse"] == embedded["rmse"]
    assert same(weights(tables.folder / "run"), weights(tables.folder / "local"))
    results = [
        json.loads((tables.folder / name / "result.json").read_text()) for name in ("run", "local")
    ]
    assert results[0]["input"] == results[1]["input"]
    assert [column["name"] for column in results[0]["input"]["table"]["columns"]] == ["age", "ward"]
    assert (
        "the column flat has the same value in every row"
        in (tables.folder / "run" / "run.log").read_text()
    )
    assert "columns" in json.dumps(results[0]["privacy"])
    kept = (tables.folder / "run" / "sites.json").read_text()
    assert TABLES["hospital-a"][1].split(",")[0] not in kept  # an age

    kit = tables.path / "kits" / "hospital-a"
    data = tables.folder / "tables" / "hospital-a.csv"
    words = [
        "predict",
        "run",
        "--kit",
        str(kit),
        "--kit-data",
        str(data),
        "--data",
        str(data),
        "--json",
    ]
    told = tables.fedloom(*words)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["figures"]["rmse"] > 0


def test_a_site_without_the_label_column_says_so(tables):
    done = tables.run("fedavg", "--rounds", "1", "--out", "nothing")
    assert done.returncode in (2, 3)
    assert re.search(r"must describe its data, but data: number \d+ in the site", done.stderr)
    assert tables.said("hospital-a", "must have the label column label")


def test_a_policy_keeps_sums_of_columns_at_home(tables):
    policy = tables.path / "kits" / "hospital-b" / "policy.toml"
    before = policy.read_text()
    policy.write_text(
        before.replace('fields = ["*"]', 'fields = ["shape", "labels", "samples", "extra", "loss"]')
    )
    try:
        done = tables.run("fedavg", "--rounds", "1", "--label", "outcome", "--out", "kept")
    finally:
        policy.write_text(before)
    assert done.returncode in (2, 3)
    assert "'columns' is not among its fields" in done.stderr
