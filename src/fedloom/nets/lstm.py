"""The recurrent network for text: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018,
for Shakespeare.

An embedding of 8, two LSTM layers of 256, a linear layer on the last output: 819,920 parameters for
80 symbols. The width factor scales the layers of the LSTM, not the embedding.
"""

from typing import Any

import torch
from torch import nn

from fedloom.nets.nesting import nests

EMBEDDING, HIDDEN, LAYERS = 8, 256, 2


class Recurrent(nn.LSTM):
    """torch's LSTM, which can say what it computes: autograd shows the meter no products of it."""

    def count_macs(self, inputs: tuple[Any, ...], output: Any) -> int:
        """Four gates for each symbol and layer.

        Each is a product with the layer's input and one with its last output.
        """
        symbols = inputs[0].shape[0] * inputs[0].shape[1]
        sizes = (self.input_size, *[self.hidden_size] * (self.num_layers - 1))
        return int(
            symbols * sum(4 * self.hidden_size * (size + self.hidden_size) for size in sizes)
        )


@nests
class CharLSTM(nn.Module):
    """LEAF's two-layer LSTM over symbols, which foretells the next one; for text."""

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
