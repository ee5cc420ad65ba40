import numpy as np
import pytest
import torch

from creditscope.probes.functional import ridge
from creditscope.probes.functional.ridge import HELD_OUT, STRENGTHS, ridge_right, ridge_weights


def ridge_accuracy(*sets):
    return ridge_right(*sets).mean(dim=-1)


@pytest.mark.parametrize(("n", "d"), [(40, 6), (6, 40), (10, 10)])
def test_weights_are_least_squares_with_the_penalty_as_extra_rows(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(n, d)), rng.normal(size=(n, 3))
    rows = np.vstack([x, np.sqrt(0.7) * np.eye(d)])
    expected = np.linalg.lstsq(rows, np.vstack([target, np.zeros((d, 3))]), rcond=None)[0]
    both = torch.tensor([0.2, 0.7], dtype=torch.float64)
    for strengths in (both[1], both):
        got = ridge_weights(torch.tensor(x), torch.tensor(target), strengths)
        np.testing.assert_allclose(got.reshape(-1, d, 3)[-1], expected, rtol=1e-9, atol=1e-12)


def test_strengths_that_do_not_fit_together_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [torch.tensor(v) for split in (clusters(200, 1), clusters(100, 2)) for v in split]
    together = ridge_accuracy(*sets, 3)
    monkeypatch.setattr(ridge, "_TOGETHER", 1)
    assert torch.equal(ridge_accuracy(*sets, 3), together)


def oracle(fit_x, fit_y, test_x, test_y, classes) -> float:
    """The whole readout in numpy: normal equations, every strength, every fifth sample held out."""

    def accuracy(a, ya, b, yb, strength) -> float:
        mean, sd = a.mean(0), a.std(0, ddof=1)
        a, b = (a - mean) / sd, (b - mean) / sd
        target = np.eye(classes)[ya]
        w = np.linalg.solve(a.T @ a + strength * len(a) * np.eye(a.shape[1]), a.T @ (target - target.mean(0)))
        return float(((b @ w + target.mean(0)).argmax(1) == yb).mean())

    held = np.arange(len(fit_x)) % HELD_OUT == HELD_OUT - 1
    tried = [accuracy(fit_x[~held], fit_y[~held], fit_x[held], fit_y[held], s) for s in STRENGTHS]
    best = max(i for i, value in enumerate(tried) if value == max(tried))
    return accuracy(fit_x, fit_y, test_x, test_y, STRENGTHS[best])


def clusters(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(3, 8))
    y = rng.integers(0, 3, size=n)
    return (centres[y] + 1.3 * rng.normal(size=(n, 8))) * np.logspace(-6, 6, 8), y


def test_accuracy_is_the_oracles() -> None:
    (fit_x, fit_y), (test_x, test_y) = clusters(200, 1), clusters(100, 2)
    got = ridge_accuracy(*(torch.tensor(v) for v in (fit_x, fit_y, test_x, test_y)), 3)
    assert float(got) == pytest.approx(oracle(fit_x, fit_y, test_x, test_y, 3))
    assert 0.6 < float(got) < 1


def test_features_that_do_not_vary_say_nothing() -> None:
    (fit_x, fit_y), (test_x, test_y) = clusters(200, 1), clusters(100, 2)
    with_constant = [np.hstack([x, np.full((len(x), 2), c)]) for x, c in ((fit_x, 0.1), (test_x, 5.0))]
    plain = ridge_accuracy(*(torch.tensor(v) for v in (fit_x, fit_y, test_x, test_y)), 3)
    more = ridge_accuracy(*(torch.tensor(v) for v in (with_constant[0], fit_y, with_constant[1], test_y)), 3)
    assert float(plain) == float(more)


def test_noise_reads_at_chance() -> None:
    rng = np.random.default_rng(4)
    x, y = torch.tensor(rng.normal(size=(600, 10))), torch.tensor(rng.integers(0, 4, size=600))
    assert float(ridge_accuracy(x[:400], y[:400], x[400:], y[400:], 4)) < 0.4


def test_several_states_at_once_are_one_after_the_other() -> None:
    sets = [[torch.tensor(v) for v in clusters(n, seed)] for n, seed in ((203, 1), (100, 2))]
    (fit_x, fit_y), (test_x, test_y) = sets
    fit, test = (torch.stack([x[:, at : at + 2] for at in (0, 2, 6)]) for x in (fit_x, test_x))
    got = ridge_accuracy(fit, fit_y, test, test_y, 3)
    one_by_one = [
        oracle(a.numpy(), fit_y.numpy(), b.numpy(), test_y.numpy(), 3) for a, b in zip(fit, test, strict=True)
    ]
    np.testing.assert_allclose(got, one_by_one)
    assert len(set(got.tolist())) > 1


def test_a_fit_that_fails_says_nothing() -> None:
    x, y = (torch.tensor(v) for v in clusters(50, 1))
    broken = torch.stack([x, x.clone().fill_(torch.nan)])
    got = ridge_accuracy(broken, y, broken, y, 3)
    assert float(got[0]) == float(ridge_accuracy(x, y, x, y, 3))
    assert bool(got[1].isnan())
