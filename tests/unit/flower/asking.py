"""A site of one kit in this process, and a server that asks it whatever it likes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from fedloom.federation.protocol.strict_json import read_json
from fedloom.federation.protocol.wire import Body, order_head, read_reply
from fedloom.types import Order, Stamp, Task

EXPERIMENT = "0123456789abcdef"
SIDE = 6
TERMS = {"seed": 0, "test": 0.25, "hold": 0.0}


class AskedSite:
    """Start kit, data and messages of a site, whose answers come from `deploy.site.handle`."""

    data_kind = "image"

    def __init__(self, folder: Path, samples: int = 100, policy: dict[str, object] | None = None):
        from fedloom.deploy.kits import Federation

        federation = Federation.create(folder / "made", ["a"], "127.0.0.1", 9092)
        self.kit = federation.path / "kits" / "a"
        self.data = folder / "patient-4711.npz"
        self.write_data(samples)
        self.set(**(policy or {}))

    def write_data(self, samples: int) -> None:
        draw = np.random.default_rng(0)
        x = draw.integers(256, size=(samples, SIDE, SIDE), dtype=np.uint8)
        np.savez(self.data, x=x, y=np.arange(samples) % 2)

    def set(self, **lines: object) -> None:
        """Edit lines of the policy; None leaves one out."""
        path = self.kit / "policy.toml"
        text = path.read_text()
        for name, value in lines.items():
            text = re.sub(rf"^{name} = .*\n", "", text, flags=re.M)
            if value is not None:
                text = f"{name} = {json.dumps(value)}\n{text}"
        path.write_text(text)

    def stamp(self, number=1, hop=0, experiment=EXPERIMENT, **task) -> Stamp:
        from fedloom.runs.configure import resolve_options

        method = task.pop("method", "fedavg")
        options = task.pop("options", {})
        if method == "fedavg":
            small = {"width": 0.125, "batch": 8, "epochs": 1}
            options = resolve_options(method, {}) | small | options
        facts = {
            "kind": self.data_kind,
            "shape": (1, SIDE, SIDE),
            "labels": ("0", "1"),
            "seed": 0,
            "mean": (0.0,),
            "std": (255.0,),
            **task,
        }
        made = Task(method=method, options=options, **facts)
        return Stamp(experiment, made, "train", number, hop)

    def send(self, message) -> SimpleNamespace:
        """What leaves the site: code and text of a fault, or a reply, or facts."""
        from fedloom.deploy import site

        context = SimpleNamespace(node_config={"kit": str(self.kit), "data": str(self.data)})
        answer = site.handle(message, context)
        records = answer.content.config_records
        if "facts" in records:
            return SimpleNamespace(code=None, facts=read_json(str(records["facts"]["json"])))
        envelope = read_json(str(records["envelope"]["json"]))
        fault = envelope["fault"]
        if fault is not None:
            assert fault["detail"] == ""
            return SimpleNamespace(code=fault["kind"], text=fault["text"], envelope=envelope)
        raw = bytes(answer.content.array_records["reply"]["raw"].data)
        return SimpleNamespace(code=None, reply=read_reply(raw), raw=raw, envelope=envelope)

    def order(self, kind="train", terms=None, meta=None, tensors=None, client=0, **stamp):
        from flwr.app import ConfigRecord, RecordDict

        from fedloom.federation.engines.flower.answers import raw

        stamped = self.stamp(**stamp)
        if tensors is None:
            tensors = self.weights(stamped.task)
        if kind == "evaluate":
            meta = {"part": "test", "final": False, **(meta or {})}
        if kind == "train":
            meta = {"lr": 0.05, **(meta or {})}
        order = Order(client, kind, tensors, meta or {}, stamp=stamped)
        body = Body(order.tensors)
        content = RecordDict(
            {
                "order": ConfigRecord({"head": order_head(order, body)}),
                "body": raw(body.chunks),
                "terms": ConfigRecord({"json": json.dumps({**TERMS, **(terms or {})})}),
            }
        )
        return received(content)

    def ask(self, *words, **named) -> SimpleNamespace:
        return self.send(self.order(*words, **named))

    def survey(
        self,
        table: dict[str, object] | None = None,
        size: dict[str, object] | None = None,
    ) -> SimpleNamespace:
        """The facts about the data. `table` gives roles of a table's columns, `size` of images."""
        from flwr.app import ConfigRecord, RecordDict

        asked = ConfigRecord({"ask": "facts"})
        if table is not None:
            asked["table"] = json.dumps(table)
        if size is not None:
            asked["size"] = json.dumps(size)
        content = RecordDict({"survey": asked})
        return self.send(received(content))

    def weights(self, task: Task) -> dict[str, torch.Tensor]:
        """The first weights of a task; none if there are no such networks."""
        from fedloom.methods import stages
        from fedloom.types import Setup

        if task.options.get("width", 1) > 10 or task.method != "fedavg":
            return {}
        return dict(stages(task)[0].method.init(Setup(task, population=1), None).tensors)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in (self.kit / "audit.jsonl").read_text().splitlines()]


def received(content):
    """A message with this content, as a SuperLink passes it on to a site."""
    from flwr.app import Message
    from flwr.app.metadata import Metadata

    metadata = Metadata(
        run_id=77,
        message_id="5ca1ab1e",
        src_node_id=1,
        dst_node_id=2,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=3600.0,
        message_type="query",
    )
    return Message(metadata=metadata, content=content)
