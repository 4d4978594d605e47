"""The recurrent network for text: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018,
for Shakespeare.

It has an embedding of 8, two LSTM layers of 256 and a linear layer on the last output: 819,920
parameters for 80 symbols. The width factor scales the layers of the LSTM, not the embedding.
"""

from typing import Any

import torch
from torch import nn

from fedloom.nets.nesting import nests

EMBEDDING = 8
HIDDEN = 256
LAYERS = 2


class Recurrent(nn.LSTM):
    """torch's LSTM, which counts its own MACs: autograd does not show them to the meter."""

    def count_macs(self, inputs: tuple[Any, ...], output: Any) -> int:
        """Counts four gates for each symbol and layer.

        Each gate is a product with the layer's input and one with its last output.
        """
        symbols = inputs[0].shape[0] * inputs[0].shape[1]
        macs_per_symbol = 0
        layer_inputs = self.input_size
        for _ in range(self.num_layers):
            macs_per_symbol += 4 * self.hidden_size * (layer_inputs + self.hidden_size)
            layer_inputs = self.hidden_size
        return int(symbols * macs_per_symbol)


@nests
class CharLSTM(nn.Module):
    """LEAF's two-layer LSTM over symbols, which predicts the next one; for text."""

    kinds = ("text",)

    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        hidden = max(1, round(HIDDEN * width))
        self.embedding = nn.Embedding(classes, EMBEDDING)
        self.recurrent = Recurrent(EMBEDDING, hidden, LAYERS, batch_first=True)
        self.classifier = nn.Linear(hidden, classes)
        self.architecture = f"lstm:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.recurrent(self.embedding(x.long()))
        scores: torch.Tensor = self.classifier(outputs[:, -1])
        return scores
