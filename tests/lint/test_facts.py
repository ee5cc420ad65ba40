"""What the explanations claim about torch, checked against torch itself."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import testing


def test_a_norm_takes_its_order_first():
    t = torch.tensor([[1.0, 2.0], [4.0, 8.0]], dtype=torch.float64)
    assert t.norm(-1).item() == 1 / (1 + 1 / 2 + 1 / 4 + 1 / 8)
    assert F.normalize(t, -1).shape == t.shape
    assert not torch.allclose(F.normalize(t, -1), F.normalize(t, dim=-1))


def test_the_clamped_self_cosine_of_tiny_vectors_is_a_hundredth():
    v = torch.tensor([3e-10, 4e-10, 0.0, 0.0], dtype=torch.float64) * 2
    assert v.norm().item() == 1e-9
    testing.assert_close(F.cosine_similarity(v, v, dim=0).item(), 0.01)
    testing.assert_close(F.cosine_similarity(v, v, dim=0, eps=0.0).item(), 1.0)
    testing.assert_close(((v * v).sum() / (v.norm() * v.norm())).item(), 1.0)


def test_autocast_means_float16_on_a_gpu_and_bfloat16_on_a_cpu():
    assert torch.get_autocast_dtype("cuda") is torch.float16
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert torch.finfo(torch.float16).max == 65504
    assert torch.tensor(2.9e-8, dtype=torch.float16).item() == 0.0


def test_a_plain_attribute_is_not_in_the_state_dict():
    module = torch.nn.Module()
    module.plain = torch.ones(1)
    module.register_buffer("hidden", torch.ones(1), persistent=False)
    module.register_buffer("kept", torch.ones(1))
    assert list(module.state_dict()) == ["kept"]


def test_an_absolute_step_rounds_away_in_float32():
    h = torch.full((4,), 1e6)
    assert torch.equal(h + 1e-3, h)
    assert not torch.equal(h.double() + 1e-3, h.double())
