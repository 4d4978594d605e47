"""The chains that come with FedLoom: those of FedorAS (Dudziak et al. 2022), and a tiny one."""

from __future__ import annotations

from fedloom.spaces.chains.definition import Definition, checked

CNN_L_OPS = [
    "conv1", "ds3e0.5", "ds3e1", "ds3e2", "mb1e2", "mb3e0.5", "mb3e1", "mb3e2", "identity",
]  # fmt: skip
CNN_S_OPS = [
    "conv1", "ds3e0.5", "ds3e1", "ds1e2", "ds3e2", "mb1e2", "mb3e0.5", "conv3", "mb3e1", "mb3e2",
    "identity",
]  # fmt: skip
SYMBOL_OPS = ["lstm", "gru", "ligru", "qrnn", "linear", "conv5"]


def over_maps(
    name: str,
    kind: str,
    stem: dict[str, object],
    stages: list[int],
    ops: list[str],
    reduce: str,
    scale: float,
) -> Definition:
    raw_stages = []
    for layers in stages:
        raw_stages.append({"layers": layers, "ops": ops, "reduce": reduce, "scale": scale})
    return checked({"name": name, "kind": kind, "stem": stem, "stage": raw_stages})


CNN_L = over_maps(
    "cnn-l",
    "image",
    {"op": "conv3", "channels": 64, "stride": 1},
    [4, 4, 4, 4],
    CNN_L_OPS,
    "dw+proj",
    1.5,
)
CNN_S = over_maps(
    "cnn-s",
    "speech",
    {"op": "conv3", "channels": 16, "stride": 2},
    [1, 1, 2, 2],
    CNN_S_OPS,
    "pool",
    2.0,
)
CNN_TINY = over_maps(
    "cnn-tiny",
    "image",
    {"op": "conv3", "channels": 8, "stride": 1},
    [2, 2, 2],
    CNN_L_OPS,
    "dw+proj",
    1.5,
)
RNN = checked(
    {
        "name": "rnn",
        "kind": "text",
        "embedding": 8,
        "hidden": 128,
        "stage": [
            {"layers": 2, "ops": [SYMBOL_OPS, [*SYMBOL_OPS, "zero"]]},
            {"layers": 2, "ops": [[*SYMBOL_OPS, "identity"], [*SYMBOL_OPS, "identity", "zero"]]},
        ],
    }
)
