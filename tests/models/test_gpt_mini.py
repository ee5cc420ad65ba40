"""GPT-mini: loss, error and gradients against numpy, and which rules train it."""

import numpy as np
import pytest
import torch
from cases import gpt_by_hand
from cases.models import params_of, scrambled

from creditscope.blocks import Batch, Blocks, Task, observe
from creditscope.engine.step import cross_entropy
from creditscope.errors import BadInput
from creditscope.models.gpt_mini import GPTMini
from creditscope.rules.build import rule_named

TOKENS, CHARACTERS, HEADS = 5, 7, 2


def gpt(tied=False):
    return scrambled(GPTMini((TOKENS,), CHARACTERS, width=4, depth=2, heads=HEADS, ratio=3, tied=tied), sd=0.4)


def batch(n=3):
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randint(CHARACTERS, (n, TOKENS), generator=generator) for _ in range(2))
    return Batch(x, y)


def case(method, tied=False):
    model, some, rule = gpt(tied), batch(), rule_named(method)
    task, params = Task.of(Blocks.of(model), cross_entropy, some.x), params_of(model)
    return rule, task, params, rule.init(task, params, torch.Generator().manual_seed(1)), some


def arrays(tensors):
    return {name: t.numpy() for name, t in tensors.items()}


def by_hand(params, some, matrices=None):
    return gpt_by_hand.backward(arrays(params), some.x.numpy(), some.y.numpy(), HEADS, matrices)


def test_defaults():
    model = GPTMini((64,), 63)
    assert model.embed.weight.shape == (63, 128)
    assert model.position.shape == (1, 64, 128)
    assert len(model.blocks) == 4
    assert model.blocks[0].branch.mlp[0].weight.shape == (512, 128)
    assert model.head.weight is not model.embed.weight
    assert GPTMini((64,), 63, tied=True).head.weight is not None


def test_loss_error_and_references_are_those_written_by_hand():
    rule, task, params, _, some = case("bp")
    seen = observe(task, params, rule, {}, some)
    _, loss, error, signals = by_hand(params, some)
    np.testing.assert_allclose(seen.loss, loss, rtol=1e-12)
    np.testing.assert_allclose(seen.error, error, rtol=1e-10, atol=1e-15)
    assert seen.logits.shape == (3, TOKENS, CHARACTERS)
    for found, wanted in zip(seen.references, signals, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_every_gradient_is_the_one_written_by_hand(method):
    rule, task, params, state, some = case(method)
    matrices = [state[f"B.{level}"].numpy() for level in range(2)] if state else None
    grads, loss, _, signals = by_hand(params, some, matrices)
    step = rule.step(task, params, state, some, {}, "")
    assert set(step.grads) == set(grads) == set(params)
    np.testing.assert_allclose(step.loss, loss, rtol=1e-12)
    for name, wanted in grads.items():
        np.testing.assert_allclose(step.grads[name], wanted, rtol=1e-8, atol=1e-14, err_msg=name)
    for found, wanted in zip(rule.deliver(task, params, state, some), signals, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14)


def test_feedback_equal_to_the_weights_is_backprop():
    rule, task, params, state, some = case("fa")
    same = {entry: params[f"{entry.removeprefix('B.')}.weight"] for entry in state}
    assert set(same) == {"B.head"} | {
        f"B.blocks.{level}.branch.{name}"
        for level in range(2)
        for name in (*(f"attention.{each}" for each in ("query", "key", "value", "out")), "mlp.0", "mlp.2")
    }
    grads, *_ = by_hand(params, some)
    found = rule.step(task, params, same, some, {}, "").grads
    for name, wanted in grads.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-8, atol=1e-14, err_msg=name)


def test_no_token_sees_those_behind_it():
    model, some = gpt(), batch()
    changed = some.x.clone()
    changed[:, 3] = (changed[:, 3] + 1) % CHARACTERS
    before, after = model(some.x), model(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert bool((before[:, 3:] != after[:, 3:]).any(-1).all())


def test_a_tied_head_gets_both_gradients_in_one_matrix():
    """By the sum of what a free head and the embedding get where the two are equal."""
    rule, task, params, state, some = case("bp", tied=True)
    assert "head.weight" not in params
    free = {**params, "head.weight": params["embed.weight"]}
    grads, *_ = by_hand(free, some)
    found = rule.step(task, params, state, some, {}, "").grads
    np.testing.assert_allclose(found["embed.weight"], grads["embed.weight"] + grads["head.weight"], rtol=1e-9)


@pytest.mark.parametrize("method", ["fa", "kp", "usf"])
def test_a_tied_head_cannot_have_feedback_of_its_own(method):
    with pytest.raises(BadInput, match=r"fa cannot carry 'embed.weight'"):
        case(method, tied=True)


def test_drtp_sends_each_token_the_row_of_its_own_target():
    rule, task, params, state, some = case("drtp")
    found = rule.deliver(task, params, state, some)
    np.testing.assert_array_equal(found[2], -state["B.1"][some.y])


def test_other_inputs_and_widths_are_refused():
    with pytest.raises(BadInput, match=r"gpt-mini wants sequences of characters, shape \(tokens,\), got \(3, 8, 8\)"):
        GPTMini((3, 8, 8), 10)
    with pytest.raises(BadInput, match="gpt-mini has 4 heads and wants a width that is a multiple of 4, got 6"):
        GPTMini((8,), 10, width=6)
