import pytest
import torch

from creditscope.blocks import view_signal, view_state
from creditscope.probes.functional.tokens import keep_live, lift


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_credit_at_tokens_that_never_reach_the_loss_is_left_out() -> None:
    c, g = draw(4, 3, 2), draw(4, 3, 2, seed=1)
    g[:, 1] = 0
    kept = keep_live(c, g)
    assert torch.equal(kept[:, [0, 2]], c[:, [0, 2]])
    assert not bool(kept[:, 1].any())


def test_a_token_that_is_zero_for_some_samples_stays() -> None:
    c, g = draw(4, 3, 2), draw(4, 3, 2, seed=1)
    g[:3, 1] = 0
    assert torch.equal(keep_live(c, g), c)


def test_vectors_and_dead_states_come_back_as_they_are() -> None:
    c = draw(4, 2)
    assert keep_live(c, torch.zeros(4, 2)) is c
    tokens = draw(4, 3, 2)
    assert keep_live(tokens, torch.zeros(4, 3, 2)) is tokens


@pytest.mark.parametrize("view", ["cls", "mean", "all"])
def test_lifting_moves_the_view_by_the_vector_and_the_loss_by_the_signal(view: str) -> None:
    h, g = draw(4, 3, 2), draw(4, 3, 2, seed=1)
    v = draw(4, 6 if view == "all" else 2, seed=2)
    moved = h + lift(v, (3, 2), view)
    assert torch.allclose(view_state(moved, view) - view_state(h, view), v, atol=1e-14)
    change = (g * (moved - h)).flatten(1).sum(1)
    assert torch.allclose(change, (view_signal(g, view) * v).sum(1), atol=1e-13)


def test_lifting_a_feature_map_keeps_its_order() -> None:
    v = draw(2, 12)
    assert torch.equal(lift(v, (3, 2, 2), "flat").flatten(1), v)
