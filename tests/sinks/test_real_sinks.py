"""Each sink for real: a small run is mirrored, resumed, and read back. `make test-sinks`."""

import json

import numpy as np
import pytest

import fedloom
from fedloom.federation.server.loop import Loop

pytestmark = pytest.mark.sinks
SMALL = {
    "data": "x.npz",
    "clients": 2,
    "partition": "iid",
    "rounds": 3,
    "workers": 0,
    "width": 0.125,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    np.savez("x.npz", x=np.arange(40 * 25, dtype=np.uint8).reshape(40, 5, 5), y=np.arange(40) % 2)


def stopped_and_resumed(sink, monkeypatch):
    """A run that is interrupted after its second round and then finished: the sink opens twice."""
    once = Loop._round

    def stops(self, at):
        if at.round == 2:
            raise KeyboardInterrupt
        return once(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_round", stops)
        with pytest.raises(KeyboardInterrupt):
            fedloom.search("fedavg", **SMALL, sink=sink, out="run")
    run = fedloom.resume("run")
    log = (run.path / "run.log").read_text()
    assert "sink" not in log, log
    return run


def wanted(run, name="evaluation.accuracy"):
    return {row["round"]: pytest.approx(row[name], rel=1e-6) for row in run.metrics}


def test_tensorboard(monkeypatch):
    from tensorboardX.proto.event_pb2 import Event

    run = stopped_and_resumed("tensorboard", monkeypatch)
    scalars = {}
    texts = []
    assert (
        len(list((run.path / "tensorboard").iterdir())) == 2
    )  # even if the second was opened within a second
    for path in sorted((run.path / "tensorboard").iterdir()):
        data = path.read_bytes()
        at = 0
        while at < len(data):  # length, its checksum, the event, its checksum
            size = int.from_bytes(data[at : at + 8], "little")
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                texts.append(value.tag)
                if value.tag == "evaluation/accuracy":
                    scalars[event.step] = value.simple_value
    assert scalars == wanted(run)
    assert any("configuration" in tag for tag in texts) and "totals/macs" in texts


def test_mlflow(monkeypatch):
    run = stopped_and_resumed("mlflow", monkeypatch)
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(run.path / "mlflow").resolve().as_uri())
    experiment = client.get_experiment_by_name("fedloom")
    (kept,) = client.search_runs([experiment.experiment_id])  # the resumed run found its own again
    assert kept.info.status == "FINISHED" and kept.info.run_name == "run"
    assert kept.data.params["options.width"] == "0.125" and kept.data.params["data.clients"] == "2"
    history = client.get_metric_history(kept.info.run_id, "evaluation.accuracy")
    assert {point.step: point.value for point in history} == wanted(run)


def records(path):
    """The records of W&B's file: a head of 7 bytes, then LevelDB's log.

    Records may be split at blocks of 32 KiB.
    """
    data = path.read_bytes()
    at = 7
    whole = b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        size = int.from_bytes(data[at + 4 : at + 6], "little")
        kind = data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""


def test_wandb(monkeypatch):
    run = stopped_and_resumed("wandb", monkeypatch)
    from wandb.proto.wandb_internal_pb2 import Record

    rows = {}
    for path in sorted((run.path / "wandb").glob("offline-run-*/*.wandb")):
        for record in map(Record.FromString, records(path)):
            items = {
                entry.key or ".".join(entry.nested_key): entry.value_json
                for entry in record.history.item
            }
            if "evaluation.accuracy" in items:
                rows[record.history.step.num or int(items["_step"])] = json.loads(
                    items["evaluation.accuracy"]
                )
    assert rows == wanted(run)


def test_all_at_once_in_a_comparison():
    comparison = fedloom.compare(
        ["fedavg:width=0.125"],
        sink="tensorboard,mlflow",
        **{k: v for k, v in SMALL.items() if k != "width"},
    )
    folder = comparison.runs[0].path
    assert any((folder / "tensorboard").iterdir()) and (folder / "mlflow").is_dir()
