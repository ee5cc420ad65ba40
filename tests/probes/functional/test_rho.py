import numpy as np
import pytest
import torch

from creditscope.probes.functional.rho import pearson, predicted_changes


@pytest.mark.parametrize("scale", [1, 1e-180, 1e150])
def test_pearson_is_numpys(scale: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 5)) + 3
    y = 0.4 * x + rng.normal(size=(8, 5))
    expected = np.corrcoef(x.ravel(), y.ravel())[0, 1]
    assert float(pearson(torch.tensor(x * scale), torch.tensor(y))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, -7.3])
def test_what_does_not_vary_has_no_correlation(constant: float) -> None:
    values = torch.arange(7, dtype=torch.float64)
    assert bool(pearson(torch.full((7,), constant, dtype=torch.float64), values).isnan())
    assert bool(pearson(values, torch.full((7,), constant, dtype=torch.float64)).isnan())


def test_predicted_changes_one_by_one() -> None:
    rng = np.random.default_rng(1)
    c, v = rng.normal(size=(3, 4)), rng.normal(size=(3, 5, 4))
    got = predicted_changes(torch.tensor(c), torch.tensor(v), torch.tensor(0.01, dtype=torch.float64))
    for i in range(3):
        for m in range(5):
            assert float(got[i, m]) == pytest.approx(sum(c[i, k] * v[i, m, k] for k in range(4)) * 0.01, rel=1e-9)
