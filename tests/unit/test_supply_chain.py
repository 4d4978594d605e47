"""The bill of materials, and what `make pip-audit` says. Neither needs a network."""

import importlib.util
import json
from importlib.metadata import distributions
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bill_of_materials_is_cyclonedx_and_complete():
    bill = tool("sbom").sbom(distributions())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    main = bill["metadata"]["component"]
    assert (main["type"], main["name"]) == ("application", "fedloom")
    names = [component["name"] for component in bill["components"]]
    assert names == sorted(set(names)) and {"numpy", "torch", "pydantic"} <= set(names)
    references = {component["bom-ref"] for component in bill["components"]} | {main["bom-ref"]}
    assert all(reference.startswith("pkg:pypi/") for reference in references)
    (own,) = [row for row in bill["dependencies"] if row["ref"] == main["bom-ref"]]
    assert {"numpy", "torch"} <= {ref.split("/")[1].split("@")[0] for ref in own["dependsOn"]}
    for row in bill["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= references
    assert json.loads(json.dumps(bill)) == bill


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("", 0, "did not answer (no route to host): no advisory was looked up"),
        ('{"dependencies": [{"name": "a", "version": "1"}]}', 0, "1 packages, 0 known advisories"),
        (
            '{"dependencies": [{"name": "a", "version": "1", "vulns": '
            '[{"id": "X-1", "fix_versions": ["2"]}]}]}',
            1,
            "a 1: X-1, fixed in 2",
        ),
    ],
)
def test_without_an_answer_nothing_was_checked(capsys, output, code, said):
    assert tool("audit").verdict(output, "trouble\nno route to host\n") == code
    assert said in capsys.readouterr().out
