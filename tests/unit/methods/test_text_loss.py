"""Text is trained at every position of a window, and judged at the last one."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.loss import next_symbols, training_loss
from fedloom.learning.training import SgdOptions, train
from fedloom.methods.fedoras_client import ClientPaths, train_paths
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.rng import rng
from fedloom.searchers.path_scores import score_paths
from fedloom.searchers.paths import PathSampler
from fedloom.spaces.choice import Mixture
from fedloom.spaces.mixed import Mixed
from fedloom.spaces.paths import training_scores
from fedloom.types import Arch, Task

SPACE = str(Path(__file__).parents[3] / "docs" / "examples" / "three-sums.toml")
PATH = (1, 1, 1, 0, 2)
PLAIN = {"batch": 8, "momentum": 0.0, "weight_decay": 0.0, "clip": 1e9, "epochs": 1}
TASK = Task("fedoras", {"space": SPACE}, "text", (5,), ("a", "b", "c", "d"), 3, (), ())


def windows(count: int = 8) -> Samples:
    draws = torch.Generator().manual_seed(1)
    text = torch.randint(0, 4, (count, 6), generator=draws)
    return Samples(text[:, :5].to(torch.uint8), text[:, 5])


def frame() -> Frame:
    return Frame.of_task(TASK, FedorASOptions(space=SPACE))


def on_path() -> Arch:
    return frame().arch(tuple((op,) for op in PATH))


def client_run() -> ClientRun:
    return ClientRun(TASK, "supernet", 1, 0, 0, "cpu", lambda: b"")


def by_hand(net: Model, batch: Samples, *choice: object) -> torch.Tensor:
    """Position by position: a window's beginning predicts the symbol behind it."""
    text = torch.cat([batch.x.long(), batch.y.unsqueeze(1)], dim=1)
    total = torch.zeros(())
    for length in range(1, 6):
        total = total + functional.cross_entropy(net(text[:, :length], *choice), text[:, length])
    return total / 5


def test_what_follows_each_symbol():
    batch = Samples(torch.tensor([[3, 1, 2], [0, 0, 1]], dtype=torch.uint8), torch.tensor([0, 3]))
    assert next_symbols(batch).tolist() == [[1, 2, 0], [0, 1, 3]]


def test_the_loss_of_two_positions_by_hand():
    """Chances of what comes: ½ of symbol 1 at the first position, ⅛ of symbol 0 at the second."""
    batch = Samples(torch.tensor([[0, 1]], dtype=torch.uint8), torch.tensor([0]))
    chances = torch.tensor([[[0.5, 0.5], [0.125, 0.875]]])
    assert float(training_loss(chances.log(), batch)) == pytest.approx(2 * 0.693147, abs=1e-5)


def test_classes_have_one_loss_a_sample():
    scores = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    batch = Samples(torch.zeros(2, 1, 4, 4), torch.tensor([1, 0]))
    assert torch.equal(training_loss(scores, batch), functional.cross_entropy(scores, batch.y))


def test_a_step_of_a_path_is_by_the_loss_of_every_position():
    net = frame().model()
    twin = frame().model()
    options = FedorASOptions.model_validate({"space": SPACE, **PLAIN})
    paths = ClientPaths(OnePath(), (1e9,), 1.0, rng(0, "none"))
    trained = train_paths(net, frame(), paths, windows(), options, 0.5, client_run())
    loss = by_hand(twin, windows(), on_path())
    loss.backward()
    assert trained.loss == pytest.approx(loss.item(), rel=1e-5)
    assert trained.samples == 8  # windows, not symbols
    moved = dict(net.named_parameters())
    for name, parameter in twin.named_parameters():
        if parameter.grad is None:
            assert torch.equal(moved[name], parameter)
        else:
            torch.testing.assert_close(moved[name], parameter - 0.5 * parameter.grad)


class OnePath(PathSampler):
    def __init__(self) -> None:
        pass

    def draw(self, limits, draws):
        return PATH


def test_a_network_of_the_space_is_trained_alike_by_every_method():
    net = frame().model(tuple((op,) for op in PATH))
    loss = by_hand(net, windows())
    trained = train(net, windows(), SgdOptions.model_validate(PLAIN), 0.5, client_run())
    assert trained.loss == pytest.approx(loss.item(), rel=1e-5)


def test_a_mixture_of_all_operations_is_trained_at_every_position():
    model = frame().model()
    alpha = [torch.zeros(len(slot.options)) for slot in frame().space.slots]
    mixed = Mixed(model, {})
    loss = training_loss(mixed.mix_to_train(windows().x, alpha), windows())
    expected = by_hand(model, windows(), Mixture.softmax(alpha))
    torch.testing.assert_close(loss, expected)


def test_a_fixed_network_for_text_is_trained_at_the_last_position():
    net = build_model(TASK, "lstm", 0.05)
    assert training_scores(net, windows().x).shape == (8, 4)


def test_paths_are_scored_at_the_last_position():
    model = frame().model()
    (score,) = score_paths(model, [PATH], windows())
    last = functional.cross_entropy(model(windows().x, on_path()), windows().y, reduction="sum")
    assert score.samples == 8
    assert score.loss == pytest.approx(last.item(), rel=1e-5)
