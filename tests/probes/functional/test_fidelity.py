import math

import numpy as np
import pytest
import torch

from creditscope.probes.functional.fidelity import allowed_error, confident_tenth, infidelity


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("noise", [1e-8, 1e-4, 0.1, 2.0])
def test_infidelity_is_one_minus_the_cosine_in_extended_precision(noise: float) -> None:
    exact = draw(6, 30)
    run = exact + noise * draw(6, 30, seed=1)
    gap, vanished = infidelity(run, exact)
    for i in range(6):
        a, b = (v[i].numpy().astype(np.longdouble) for v in (run, exact))
        # 1 − cos as ‖â − b̂‖²/2 by its other form, sin² of the half angle.
        cosine = sum(a * b) / np.sqrt(sum(a * a) * sum(b * b))
        assert float(gap[i]) == pytest.approx(float(1 - cosine), rel=1e-2 if noise == 1e-8 else 1e-9)
    assert not bool(vanished.any())


def test_the_allowed_error_is_the_sine() -> None:
    angle = torch.tensor([1e-9, 1e-7, 0.1, math.pi / 2], dtype=torch.float64)
    np.testing.assert_allclose(allowed_error(2 * (angle / 2).sin().square()), angle.sin(), rtol=1e-12)


def test_float32_rounding_of_a_gradient_costs_about_1e_minus_15() -> None:
    exact = draw(200, 256) * 1e-9
    gap, _ = infidelity(exact.float(), exact)
    assert 1e-16 < float(gap.median()) < 1e-14


def test_zero_in_the_runs_dtype_alone_counts_as_nothing_left() -> None:
    exact = draw(5, 4)
    run = exact.clone()
    run[0], run[1], exact[1], run[2, 0], run[3, 0] = 0, 0, 0, math.inf, math.nan
    gap, vanished = infidelity(run, exact)
    assert gap[[0, 2, 3]].tolist() == [1, 1, 1]  # φ = 0: gone, overflowed, not a number
    assert bool(gap[1].isnan())  # zero in both: there is no direction to keep
    assert float(gap[4]) == 0
    assert vanished.tolist() == [True, False, False, False, False]


def test_fp16_underflow_is_seen() -> None:
    exact = draw(4, 8) * 1e-9
    gap, vanished = infidelity(exact.half(), exact)
    assert gap.tolist() == [1] * 4
    assert bool(vanished.all())


def test_the_most_confident_tenth_by_probability() -> None:
    logits = draw(50, 4) * 3
    top = np.exp(logits.numpy()).max(1) / np.exp(logits.numpy()).sum(1)
    assert set(confident_tenth(logits).tolist()) == set(np.argsort(-top)[:5].tolist())


def test_saturated_probabilities_are_still_ranked() -> None:
    logits = torch.tensor([[100.0, 0.0], [300.0, 0.0], [200.0, 0.0]]).repeat(5, 1)
    assert bool(logits.softmax(-1).max(-1).values.eq(1).all())
    assert confident_tenth(logits).item() in (1, 4, 7, 10, 13)
