"""Ridge readout: how much of the labels a linear map can read from a state. Closed form, float64."""

import torch
from torch import Tensor

# Strengths in units of (samples × feature variance); the one that reads held-out samples best is used.
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
HELD_OUT = 5


def ridge_accuracy(fit_x: Tensor, fit_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> Tensor:
    """Test accuracy of a ridge regression on one-hot labels with standardised features.

    The strength is chosen on every fifth fitting sample, held out; then all are used. At equal accuracy the
    stronger wins.

    Args:
        fit_x: Features to fit on, shape (n, d).
        fit_y: Their labels.
        test_x: Features to test on.
        test_y: Their labels.
        classes: Number of classes.
    """
    held = torch.arange(len(fit_x), device=fit_x.device) % HELD_OUT == HELD_OUT - 1
    tried = [
        _accuracy(fit_x[~held], fit_y[~held], fit_x[held], fit_y[held], classes, strength) for strength in STRENGTHS
    ]
    best = max(range(len(STRENGTHS)), key=lambda i: (float(tried[i]), i))
    return _accuracy(fit_x, fit_y, test_x, test_y, classes, STRENGTHS[best])


def _accuracy(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, classes: int, strength: float) -> Tensor:
    x, test_x = _standardise(x.double(), test_x.double())
    target = torch.zeros(len(x), classes, dtype=torch.float64, device=x.device).scatter(1, y.long().unsqueeze(1), 1.0)
    mean = target.mean(dim=0)
    scores = test_x @ ridge_weights(x, target - mean, strength * len(x)) + mean
    return (scores.argmax(dim=1) == test_y).double().mean()


def ridge_weights(x: Tensor, target: Tensor, strength: float) -> Tensor:
    """argmin_w ‖x·w − target‖² + strength·‖w‖², through the smaller of the two Gram matrices.

    Args:
        x: Shape (n, d).
        target: Shape (n, classes).
        strength: Greater than 0.
    """
    n, d = x.shape
    small = x.T @ x if d <= n else x @ x.T
    small.diagonal().add_(strength)
    factor = torch.linalg.cholesky(small)
    if d <= n:
        return torch.cholesky_solve(x.T @ target, factor)
    return x.T @ torch.cholesky_solve(target, factor)


def _standardise(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """By the first set's mean and spread; a feature that does not vary there says nothing and becomes 0."""
    mean, sd = x.mean(dim=0), x.std(dim=0)
    # A constant feature's spread is rounding of its size, never information.
    varies = sd > 1e-12 * x.abs().amax(dim=0)
    scale = torch.where(varies, 1 / torch.where(varies, sd, 1.0), 0.0)
    return (x - mean) * scale, (other - mean) * scale
