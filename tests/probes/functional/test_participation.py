import numpy as np
import pytest
import torch

from creditscope.probes.functional.participation import participation_ratio


@pytest.mark.parametrize(("n", "d"), [(30, 5), (5, 30)])
@pytest.mark.parametrize("scale", [1, 1e150, 1e-150])
def test_ratio_from_the_spectrum(n: int, d: int, scale: float) -> None:
    h = np.random.default_rng(0).normal(size=(n, d)) * np.arange(1, d + 1) + 4
    spectrum = np.linalg.eigvalsh(np.cov(h.T))
    expected = spectrum.sum() ** 2 / (spectrum**2).sum()
    assert float(participation_ratio(torch.tensor(h * scale))) == pytest.approx(expected, rel=1e-9)


def test_one_direction_is_one_and_none_is_undefined() -> None:
    line = torch.arange(6.0).unsqueeze(1) * torch.tensor([1.0, -2.0, 3.0])
    assert float(participation_ratio(line)) == pytest.approx(1)
    assert bool(participation_ratio(torch.full((7, 3), 0.1, dtype=torch.float64)).isnan())
