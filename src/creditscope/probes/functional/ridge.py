"""Ridge readout: how much of the labels a linear map can read from a state. Closed form, float64."""

import math

import torch
from torch import Tensor

# Strengths in units of (samples × feature variance); the one that reads held-out samples best is used.
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
HELD_OUT = 5
# Entries of Gram matrices that are worked on together.
_TOGETHER = 2**23


def ridge_right(fit_x: Tensor, fit_y: Tensor, test_x: Tensor, test_y: Tensor, classes: int) -> Tensor:
    """Per test sample, whether a ridge regression on one-hot labels with standardised features is right: 1 or 0.

    NaN where there is no fit.

    The strength is chosen on every fifth fitting sample, held out; then all are used. At equal accuracy the
    stronger wins. Nothing waits for the device.

    Args:
        fit_x: Features to fit on, shape (..., n, d).
        fit_y: Their labels, shape (n,).
        test_x: Features to test on.
        test_y: Their labels.
        classes: Number of classes.
    """
    n, held = fit_x.shape[-2], slice(HELD_OUT - 1, None, HELD_OUT)
    kept = torch.arange(n - n // HELD_OUT, device=fit_x.device)
    kept = kept + kept // (HELD_OUT - 1)
    strongest_first = torch.tensor(STRENGTHS[::-1], dtype=torch.float64, device=fit_x.device)
    every = strongest_first.view(-1, *(1,) * (fit_x.ndim - 2))
    tried = _right(fit_x[..., kept, :], fit_y[kept], fit_x[..., held, :], fit_y[held], classes, every).mean(dim=-1)
    best = strongest_first[tried.argmax(dim=0)]
    return _right(fit_x, fit_y, test_x, test_y, classes, best.unsqueeze(0))[0]


def _right(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, classes: int, strengths: Tensor) -> Tensor:
    """One row a strength; the axes behind its first are the leading ones of x."""
    x, test_x = _standardise(x.double(), test_x.double())
    n = x.shape[-2]
    target = torch.zeros(n, classes, dtype=torch.float64, device=x.device).scatter(1, y.long().unsqueeze(1), 1.0)
    mean = target.mean(dim=0)
    gram = _gram(x)
    found = []
    for some in strengths.split(max(1, _TOGETHER // gram.numel())):  # type: ignore[no-untyped-call]
        scores = test_x @ ridge_weights(x, target - mean, some * n, gram) + mean
        right = (scores.argmax(dim=-1) == test_y).double()
        found.append(torch.where(scores.isnan().flatten(-2).any(dim=-1, keepdim=True), math.nan, right))
    return torch.cat(found)


def ridge_weights(x: Tensor, target: Tensor, strength: Tensor, gram: Tensor | None = None) -> Tensor:
    """argmin_w ‖x·w − target‖² + strength·‖w‖², through the smaller of the two Gram matrices.

    Args:
        x: Shape (..., n, d).
        target: Shape (n, classes).
        strength: Greater than 0, of any leading axes that go with those of x.
        gram: That matrix, where it is known already.
    """
    n, d = x.shape[-2:]
    gram = _gram(x) if gram is None else gram
    small = gram + torch.zeros_like(strength)[..., None, None]  # one for each strength
    small.diagonal(dim1=-2, dim2=-1).add_(strength.unsqueeze(-1))
    # The plain call would wait for the device to say whether there is a factor. A failed one is made visible.
    factor, failed = torch.linalg.cholesky_ex(small)
    factor = torch.where((failed > 0)[..., None, None], math.nan, factor)
    return _solve(factor, x.mT @ target) if d <= n else x.mT @ _solve(factor, target)


def _solve(factor: Tensor, target: Tensor) -> Tensor:
    """As ``cholesky_solve``, which on a GPU waits until all work there is done, also that of others."""
    half: Tensor = torch.linalg.solve_triangular(factor, target, upper=False)
    whole: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return whole


def _gram(x: Tensor) -> Tensor:
    n, d = x.shape[-2:]
    return x.mT @ x if d <= n else x @ x.mT


def _standardise(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """By the first set's mean and standard deviation; a feature that does not vary there says nothing and becomes 0."""
    mean, sd = x.mean(dim=-2, keepdim=True), x.std(dim=-2, keepdim=True)
    # The standard deviation of a constant feature is rounding error of its size, not information.
    varies = sd > 1e-12 * x.abs().amax(dim=-2, keepdim=True)
    scale = torch.where(varies, 1 / torch.where(varies, sd, 1.0), 0.0)
    return (x - mean) * scale, (other - mean) * scale
