"""The client of the simple job on Flower, in a separate module that Ray's processes import once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import job
from fedloom.nets.model import Model


@cache
def kept_images(path: str) -> job.Images:
    return job.Images(Path(path))


@cache
def kept_network() -> Model:
    torch.set_num_threads(1)
    return job.network()


def client_app(images: str) -> ClientApp:
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        x, y = kept_images(images).of_client(int(context.node_config["partition-id"]))
        net = kept_network()
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        loss = job.train_client(net, arrays.to_torch_state_dict(), x, y)
        content = RecordDict(
            {
                "arrays": ArrayRecord(net.state_dict()),
                "metrics": MetricRecord({"num-examples": len(y), "loss": loss}),
            }
        )
        return Message(content=content, reply_to=message)

    app.train()(train)
    return app
