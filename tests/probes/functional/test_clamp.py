import numpy as np
import pytest
import torch
from torch.nn import functional

from creditscope.probes.functional.clamp import PROBE_SIZES, TORCH_CLAMP, clamp_onset, shrink_factor


@pytest.mark.parametrize("n", PROBE_SIZES)
@pytest.mark.parametrize("norm", [1.3e-7, 5e-6, 1e-2])
def test_shrink_is_what_torch_does_to_a_mean_reduced_gradient(norm: float, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    c, g = torch.randn(2, 16, generator=generator, dtype=torch.float64)
    g = g / g.norm() * norm
    exact = float(c @ g / c.norm() / g.norm())
    reported = float(functional.cosine_similarity(c, g / n, dim=0))
    factor = shrink_factor(clamp_onset(g.norm()), n)
    assert exact / reported == pytest.approx(float(factor), rel=1e-9)


def test_torchs_clamp_is_where_we_say() -> None:
    assert TORCH_CLAMP == 1e-8
    below, above = (torch.tensor([f * TORCH_CLAMP], dtype=torch.float64) for f in (0.99, 1.01))
    assert float(functional.cosine_similarity(below, below, dim=0)) == pytest.approx(0.99**2)
    assert float(functional.cosine_similarity(above, above, dim=0)) == pytest.approx(1)


def test_a_zero_gradient_shrinks_without_end() -> None:
    assert np.isinf(float(shrink_factor(clamp_onset(torch.tensor(0.0)), 128)))
