"""What is done to a network before torch's exporter writes it as ONNX."""

import pytest
import torch
from routed_networks import guided
from torch import nn

from fedloom.export.onnx import ScaleAndShift, without_norms
from fedloom.export.tracing import Whole
from fedloom.testing.toy import samples


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
@torch.no_grad()
def test_a_norm_is_a_scale_and_a_shift(affine, eps):
    norm = nn.BatchNorm2d(3, affine=affine, eps=eps)
    norm.running_mean.copy_(torch.tensor([0.5, -2.0, 3.0]))
    norm.running_var.copy_(torch.tensor([0.01, 1.0, 4.0]))
    if affine:
        norm.weight.copy_(torch.tensor([2.0, 0.0, -1.0]))
        norm.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    norm.eval()
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ScaleAndShift(norm)(x), norm(x), rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_a_network_without_norms_answers_alike_and_the_other_keeps_its_own():
    whole = Whole(guided())
    folded = without_norms(whole)
    x = samples(9, "test").x
    torch.testing.assert_close(folded(x), whole(x), rtol=1e-5, atol=1e-6)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    assert any(isinstance(part, nn.BatchNorm2d) for part in whole.modules())
