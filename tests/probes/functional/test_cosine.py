import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from creditscope.probes.functional.cosine import cosines, mean_defined, sum_cosines, units


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(c: np.ndarray, g: np.ndarray) -> np.ndarray:
    """One pair after the other, in extended precision."""
    rows = []
    for a, b in zip(c.astype(np.longdouble), g.astype(np.longdouble), strict=True):
        rows.append(float(sum(a * b) / np.sqrt(sum(a * a) * sum(b * b))))
    return np.array(rows)


def test_cosines_are_the_textbooks() -> None:
    c, g = draw(2, 7, 5), draw(2, 7, 5, seed=1)
    got, defined = cosines(c, g)
    assert bool(defined.all())
    for run in range(2):
        np.testing.assert_allclose(got[run], plain(c[run].numpy(), g[run].numpy()), rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-9, 1e200, 1e300])
def test_size_does_not_matter(scale: float) -> None:
    c, g = draw(6, 8), draw(6, 8, seed=1)
    expected = plain(c.numpy(), g.numpy())
    np.testing.assert_allclose(cosines(c * scale, g)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(cosines(c * scale, g * scale)[0], expected, rtol=1e-12)


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    st.integers(-900, 900),
)
def test_cosine_is_scale_free(a: list[float], b: list[float], power: int) -> None:
    c, g = torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)
    # Away from denormal entries, which a power of two would round.
    c, g = (torch.where(v.abs() < 1e-9, 0.0, v) for v in (c, g))
    value, defined = cosines(c, g)
    scaled, still = cosines(torch.ldexp(c, torch.tensor(power)), g)
    assert torch.equal(defined, still)
    assert torch.allclose(value, scaled, rtol=0, atol=1e-15, equal_nan=True)
    assert bool((value.abs() <= 1)[defined].all())


def test_a_zero_vector_has_no_cosine_on_either_side_nor_on_both() -> None:
    # Mistake 3: a tool wrote 1 where both gradients were zero.
    c, g = draw(4, 3), draw(4, 3, seed=1)
    c[0], g[1], c[2], g[2] = 0, 0, 0, 0
    value, defined = cosines(c, g)
    assert defined.tolist() == [False, False, False, True]
    assert value.isnan().tolist() == [True, True, True, False]
    mean, count = mean_defined(value, defined)
    assert int(count) == 1
    assert float(mean) == float(value[3])
    assert math.isnan(mean_defined(*cosines(c[:3], g[:3]))[0])


def test_a_vector_that_is_not_finite_has_no_cosine() -> None:
    c = torch.tensor([[1.0, math.inf], [math.nan, 1.0], [1.0, 1.0]])
    assert cosines(c, torch.ones(3, 2))[1].tolist() == [False, False, True]


def test_torchs_own_cosine_is_clamped_and_ours_is_not() -> None:
    # Mistake 2.
    tiny = draw(5, 16)
    tiny = tiny / tiny.norm(dim=1, keepdim=True) * 1e-9
    np.testing.assert_allclose(functional.cosine_similarity(tiny, tiny), 0.01, rtol=1e-9)
    np.testing.assert_allclose(cosines(tiny, tiny)[0], 1, rtol=1e-15)


def test_float32_vectors_are_taken_to_float64_first() -> None:
    c = torch.full((1, 4), 1e-30)
    assert float(cosines(c, c)[0]) == pytest.approx(1, rel=1e-15)


def test_units_of_zero_are_zero_and_said() -> None:
    unit, defined = units(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    assert unit.tolist() == [[0, 0], pytest.approx([0.6, 0.8])]
    assert defined.tolist() == [False, True]


def case(scale: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    redrawn, g = draw(9, 6, 20) * scale, draw(2, 6, 20, seed=1)
    g[1, 3] = 0
    return redrawn.to(dtype), g


@pytest.mark.parametrize(
    ("scale", "dtype", "rtol"),
    [(1, torch.float64, 1e-13), (1e-180, torch.float64, 1e-13), (1, torch.float32, 1e-5), (1e-30, torch.float32, 1e-5)],
)
def test_summed_cosines_of_redraws_are_the_sums(scale: float, dtype: torch.dtype, rtol: float) -> None:
    redrawn, g = case(scale, dtype)
    redrawn[:, 2] = 0
    unit, where = units(g)
    (total,), (count,) = sum_cosines([redrawn], [unit], where.unsqueeze(0))
    assert total.dtype == count.dtype == torch.float64
    for k in range(9):
        for j in range(2):
            value, defined = cosines(redrawn[k], g[j])
            assert int(count[k, j]) == int(defined.sum()) == 5 - j
            assert float(total[k, j]) == pytest.approx(float(value[defined].sum()), rel=rtol, abs=rtol)


def test_float32_redraws_move_a_mean_cosine_by_less_than_1e_minus_6() -> None:
    redrawn, g = draw(50, 256, 64), draw(1, 256, 64, seed=1)
    unit, where = units(g)
    exact, rounded = (sum_cosines([c], [unit], where.unsqueeze(0))[0] / 256 for c in (redrawn, redrawn.float()))
    assert float((exact - rounded).abs().max()) < 1e-6
