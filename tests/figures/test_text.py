"""Numbers and names as they stand in a sentence."""

import pytest

from creditscope.figures.text import hold, lam, listed, points_of_percent, sci, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.28e-5, "1.28e-5"),
        (0.1, "0.1"),
        (0.0506, "0.0506"),
        (0, "0"),
        (1.9e9, "1.9e9"),
        (255.4, "255"),
        (1e-4, "1e-4"),
    ],
)
def test_sci(value, text):
    assert sci(value) == text


def test_signs_are_true_minus_signs():
    assert signed(-4.94) == "−4.9"
    assert signed(1.06) == "+1.1"
    assert points_of_percent(-0.031) == "−3.1 pp"
    assert [lam(value) for value in (0.0, 1e-5, 1e-4, 0.01, 0.25, 20.0)] == [
        *("λ = 0", "λ = 0.00001", "λ = 0.0001", "λ = 0.01", "λ = 0.25", "λ = 20"),
    ]


def test_long_lists_are_counted():
    assert listed(list("abcde")) == "a, b, c, d, e"
    assert listed(list("abcdef")) == "a, b, c, d, 2 more"


def test_relations_stay_on_one_line():
    assert hold("at l = 0, bp ≥ 3 and 2.1 pp") == "at l\u00a0=\u00a00, bp\u00a0≥\u00a03 and 2.1\u00a0pp"
