"""Views: one vector per sample, the same way for states and signals."""

import numpy as np
import pytest
import torch
from cases.models import seeded_generator
from hypothesis import given
from hypothesis import strategies as st

from creditscope.blocks import VIEWS, view_signal, view_state
from creditscope.errors import BadInput


def tokens(seed=0):
    return torch.randn(2, 5, 3, generator=seeded_generator(seed), dtype=torch.float64)


def test_each_view_of_a_state():
    h = tokens()
    assert torch.equal(view_state(h, "cls"), h[:, 0])
    np.testing.assert_allclose(view_state(h, "mean"), h.numpy().mean(1), rtol=1e-14)
    for view in ("all", "flat"):
        assert torch.equal(view_state(h, view), h.reshape(2, 15))


def test_signals_are_viewed_alike_but_for_the_mean_which_is_a_sum():
    g = tokens()
    for view in ("cls", "all", "flat"):
        assert torch.equal(view_signal(g, view), view_state(g, view))
    np.testing.assert_allclose(view_signal(g, "mean"), g.numpy().sum(1), rtol=1e-14)


@given(st.integers(0, 99))
def test_moving_the_mean_changes_a_linear_loss_by_the_signal_of_the_mean(seed):
    h, g = tokens(seed), tokens(seed + 100)
    v = torch.randn(2, 3, generator=seeded_generator(seed + 200), dtype=torch.float64)
    moved = h + v[:, None]
    np.testing.assert_allclose(view_state(moved, "mean") - view_state(h, "mean"), v, rtol=1e-9, atol=1e-12)
    change = (g * (moved - h)).sum((1, 2))
    np.testing.assert_allclose((view_signal(g, "mean") * v).sum(1), change, rtol=1e-9, atol=1e-12)


def test_vectors_and_feature_maps_are_flattened():
    assert view_state(torch.ones(2, 6), "flat").shape == (2, 6)
    assert view_signal(torch.ones(2, 3, 4, 4), "all").shape == (2, 48)


@pytest.mark.parametrize("view", ["cls", "mean"])
@pytest.mark.parametrize("look", [view_state, view_signal])
def test_token_views_want_tokens(view, look):
    with pytest.raises(BadInput) as caught:
        look(torch.ones(2, 6), view)
    wanted = f"view {view!r} wants states of shape (samples, tokens, width), got (2, 6); use 'flat'"
    assert str(caught.value) == wanted


@pytest.mark.parametrize("look", [view_state, view_signal])
def test_an_unknown_view_is_refused_not_guessed(look):
    with pytest.raises(BadInput, match=r"^unknown view 'means'; did you mean 'mean'\?$"):
        look(tokens(), "means")
    assert VIEWS == ("flat", "cls", "mean", "all")
