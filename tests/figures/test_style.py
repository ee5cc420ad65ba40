"""Looks that can be told apart without colour, and the published colours where they are due."""

from itertools import pairwise

from creditscope.figures.style import BLUE, ORANGE, RED, family, ladder, line_styles
from creditscope.figures.table import Series

MANY = [
    *(Series("bp", "bp"), Series("fa-block", "fa-block"), Series("fa", "fa"), Series("dfa-rms", "dfa")),
    *(Series("dfa", "dfa"), Series("dfa-rms+pen0.01", "dfa", "penalised"), Series("dfa-rms@frozen", "dfa", "baseline")),
    Series("mine", "my-rule"),
]


def test_the_first_of_each_family_wears_its_colour():
    chosen = line_styles(MANY)
    assert (chosen["bp"].color, chosen["bp"].marker) == (BLUE, "o")
    assert (chosen["fa-block"].color, chosen["fa-block"].marker) == (ORANGE, "s")
    assert (chosen["dfa-rms"].color, chosen["dfa-rms"].marker) == (RED, "D")


def test_series_differ_in_marker_and_not_only_in_colour():
    chosen = line_styles(MANY)
    assert len({look.marker for look in chosen.values()}) == len(MANY)
    assert len({look.color for look in chosen.values()}) == len(MANY)


def test_baselines_of_one_figure_differ_too():
    chosen = line_styles([Series(f"twin {i}", "dfa", "baseline") for i in range(6)])
    assert len({look.marker for look in chosen.values()}) == 6


def test_families():
    assert [family(rule) for rule in ("bp", "fa", "fa-block", "fa-exact-head", "dfa", "farewell")] == [
        *("bp", "fa", "fa", "fa", "dfa", "other"),
    ]


def test_the_ladder_darkens_with_lambda():
    chosen = list(ladder([f"λ = {i}" for i in range(6)]).values())
    weights = {1: 0.299, 3: 0.587, 5: 0.114}
    light = [sum(w * int(look.color[i : i + 2], 16) for i, w in weights.items()) for look in chosen]
    assert light == sorted(light, reverse=True)
    assert len({look.marker for look in chosen}) == 6
    for most in range(2, 7):  # neighbours differ by more than a shade
        shades = [look.color for look in ladder([str(i) for i in range(most)]).values()]
        channels = [[int(shade[i : i + 2], 16) for i in (1, 3, 5)] for shade in shades]
        assert min(sum(abs(a - b) for a, b in zip(x, y, strict=True)) for x, y in pairwise(channels)) > 90
    assert len(ladder([str(i) for i in range(9)])) == 9
