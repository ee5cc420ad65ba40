import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from creditscope.probes.functional.movement import movements


def movement(theta, theta0):
    """Of one matrix."""
    return movements(theta[None], theta0[None])[0]


def test_the_nearest_multiple_of_the_start_is_found() -> None:
    rng = np.random.default_rng(0)
    start, now = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    best = minimize_scalar(lambda c: np.linalg.norm(now - c * start), tol=1e-12)
    assert float(movement(torch.tensor(now), torch.tensor(start))) == pytest.approx(
        best.fun / np.linalg.norm(start), rel=1e-9
    )


@pytest.mark.parametrize("factor", [1.0, 0.3, 1e-6, 0.0])
def test_decay_is_not_movement(factor: float) -> None:
    # Mistake 10: weight decay mistaken for movement.
    start = torch.randn(50, 50, generator=torch.Generator().manual_seed(0))
    assert float(movement(start * factor, start)) < 1e-7


def test_a_step_beside_the_start_counts_in_full() -> None:
    start, beside = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 0.6])
    assert float(movement(0.5 * start + beside, start)) == pytest.approx(0.2)


def test_from_a_zero_start() -> None:
    assert float(movement(torch.ones(2), torch.zeros(2))) == math.inf
    assert math.isnan(movement(torch.zeros(2), torch.zeros(2)))


def test_it_is_one_value_a_matrix_of_the_stack() -> None:
    start, now = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    mapped = movements(now, start)
    np.testing.assert_allclose(mapped, [float(movement(a, b)) for a, b in zip(now, start, strict=True)], rtol=1e-12)
