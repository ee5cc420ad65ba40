"""Bounds of partial audits, against streams whose every state is known."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from creditscope.protocol.partial import blocks_at_least, growth_bounds, stream_bounds

RATIOS = st.lists(st.floats(0.4, 1e4), min_size=1, max_size=6)


@given(RATIOS)
def test_the_true_growth_lies_within(ratios):
    product = math.prod(ratios)
    bounds = growth_bounds(product, len(ratios), 0.4)
    assert not bounds.refuted
    assert bounds.low <= max(ratios) * (1 + 1e-9)
    assert bounds.high >= max(ratios) * (1 - 1e-9)


@given(RATIOS)
def test_the_true_count_is_not_above_the_bound(ratios):
    count = sum(ratio >= 50 for ratio in ratios)
    assert count <= blocks_at_least(math.prod(ratios), len(ratios), 0.4, 50.0)


def test_the_formulas_of_the_protocol():
    P, n, r = 8.0e4, 4, 0.4
    bounds = growth_bounds(P, n, r)
    assert (bounds.low, bounds.high) == pytest.approx((P ** (1 / n), P / r ** (n - 1)))
    expected = math.floor((math.log(P) - n * math.log(r)) / (math.log(50) - math.log(r)))
    assert blocks_at_least(P, n, r, 50.0) == expected == 3


def test_both_ends_are_reached():
    # Equal growth reaches the lower end; one block growing and the others at r reaches the upper.
    assert growth_bounds(3.0**4, 4, 0.4).low == pytest.approx(3.0)
    assert growth_bounds(100 * 0.4**3, 4, 0.4).high == pytest.approx(100)


@given(st.floats(1e-6, 0.999), st.integers(2, 6))
def test_shrinking_below_r_per_block_refutes_the_assumption(share, blocks):
    bounds = growth_bounds(share * 0.4**blocks, blocks, 0.4)
    assert "refutes" in bounds.refuted


@given(RATIOS, st.data())
def test_known_states_in_between_only_tighten(ratios, data):
    states = [1.0]
    for ratio in ratios:
        states.append(states[-1] * ratio)
    inner = range(1, len(states) - 1)
    hidden = data.draw(st.sets(st.sampled_from(list(inner)))) if inner else set()
    partly = [None if i in hidden else s for i, s in enumerate(states)]
    bounds, ends = stream_bounds(partly, 0.4), growth_bounds(states[-1] / states[0], len(ratios), 0.4)
    assume(not bounds.refuted)
    assert bounds.low <= max(ratios) * (1 + 1e-9)
    assert max(ratios) * (1 - 1e-9) <= bounds.high <= ends.high * (1 + 1e-9)
    assert bounds.low >= ends.low * (1 - 1e-9)
    if not hidden:
        assert bounds.low == bounds.high
