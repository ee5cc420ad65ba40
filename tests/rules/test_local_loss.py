"""Local losses and their control, backprop with deep supervision: against numpy, and what makes them what they are."""

import pytest
import torch
from cases import updates_by_hand
from cases.models import mlp, params_of, resmlp, seeded_generator, task_of, vit
from cases.rule_cases import as_arrays, case, same
from torch.nn import functional

from creditscope.blocks import Batch
from creditscope.rules.build import rule_named
from creditscope.rules.local_loss import similarity

NETS = {"resmlp": (resmlp, updates_by_hand.ResMLP), "mlp": (mlp, updates_by_hand.MLP)}


@pytest.mark.parametrize("terminal_ln", [True, False])
@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize(
    ("method", "beta"), [("local", None), ("local(sim=true)", 0.99), ("local(beta=0.3,sim=true)", 0.3)]
)
def test_equals_the_backward_written_by_hand(method, beta, kind, terminal_ln):
    build, by_hand = NETS[kind]
    made = case(method, build(terminal_ln=terminal_ln))
    p, x, y = made.arrays
    same(made.step().grads, updates_by_hand.local(by_hand, p, as_arrays(made.state), x, y, beta, terminal_ln))


@pytest.mark.parametrize("kind", NETS)
def test_a_penalty_stays_in_its_block(kind):
    build, by_hand = NETS[kind]
    made = case("local", build())
    p, x, y = made.arrays
    wanted = updates_by_hand.local(by_hand, p, as_arrays(made.state), x, y)
    added = updates_by_hand.penalty(by_hand(p, x), 0.3)
    same(made.step(penalty=0.3).grads, {name: grad + added.get(name, 0) for name, grad in wanted.items()})


@pytest.mark.parametrize("method", ["local", "local(sim=true)", "ff"])
def test_later_weights_change_no_earlier_update(method):
    made = case(method)
    own = made.step().grads
    for level in range(made.task.blocks.depth):
        later = tuple(f"blocks.{other}." for other in range(level + 1, made.task.blocks.depth))
        # For the last block the readout is its own decoder: nothing comes after it.
        later += () if level == made.task.blocks.depth - 1 else ("out_ln", "head")
        params = {name: p * 3 + 1 if name.startswith(later) and later else p for name, p in made.params.items()}
        changed = made.step(params=params).grads
        earlier = ("embed", *(f"blocks.{other}." for other in range(level + 1)))
        for name in own:
            if name.startswith(earlier):
                assert torch.equal(own[name], changed[name]), (level, name)
            elif name.startswith(later):
                assert not torch.equal(own[name], changed[name]), (level, name)


def test_the_last_block_learns_by_the_true_gradient():
    local, exact = case("local").step().grads, case("bp").step().grads
    last = {name for name in exact if name.startswith(("blocks.2", "out_ln", "head"))}
    same({name: local[name] for name in last}, {name: exact[name] for name in last})
    assert not torch.allclose(local["blocks.1.branch.3.weight"], exact["blocks.1.branch.3.weight"])


def test_without_its_share_similarity_says_nothing():
    same(case("local(beta=0,sim=true)").step().grads, case("local").step().grads)


def test_similarity_is_the_correlation_of_samples():
    rows = torch.randn(5, 7, generator=seeded_generator(), dtype=torch.float64)
    torch.testing.assert_close(similarity(rows), torch.corrcoef(rows))
    rows[2] = 3.0
    assert torch.equal(similarity(rows)[2], torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_deep_supervision_written_by_hand(kind, weight):
    build, by_hand = NETS[kind]
    made = case(f"bp-deep(weight={weight})", build())
    p, x, y = made.arrays
    grads, credit = updates_by_hand.deep(by_hand, p, as_arrays(made.state), x, y, weight)
    same(made.step().grads, grads)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


def test_without_its_weight_deep_supervision_is_backprop():
    deep, exact = case("bp-deep(weight=0)"), case("bp")
    step = deep.step().grads
    same({name: step[name] for name in exact.params}, exact.step().grads, rtol=1e-12)
    assert not any(step[name].any() for name in deep.state)


def test_deep_supervision_against_autograd():
    """On tokens: the decoders read the whole state."""
    model = vit()
    x = torch.randn(3, 2, 8, 8, generator=seeded_generator(1), dtype=torch.float64)
    batch, task, params = Batch(x, torch.tensor([0, 2, 1])), task_of(model, x), params_of(model)
    rule = rule_named("bp-deep")
    state = rule.init(task, params, seeded_generator())
    leaves = {name: t.clone().requires_grad_() for name, t in (params | state).items()}
    seen = task.forward({name: leaves[name] for name in params}, x)
    losses = functional.cross_entropy(seen.logits, batch.y)
    for level, h in enumerate(seen.states[:-1]):
        weight, bias = (leaves[f"decoder.{level}.{kind}"] for kind in ("weight", "bias"))
        losses = losses + functional.cross_entropy(functional.linear(h.flatten(1), weight, bias), batch.y)
    wanted = dict(zip(leaves, torch.autograd.grad(losses, leaves.values()), strict=True))
    same({n: g.detach() for n, g in rule.step(task, params, state, batch, {}, "").grads.items()}, wanted)


@pytest.mark.parametrize("method", ["local", "pepita", "fg"])
def test_a_vision_transformer_is_trained_too(method):
    model = vit()
    x = torch.randn(3, 2, 8, 8, generator=seeded_generator(1), dtype=torch.float64)
    batch, task, params = Batch(x, torch.tensor([0, 2, 1])), task_of(model, x), params_of(model)
    rule = rule_named(method)
    state, noise = rule.init(task, params, seeded_generator()), rule.noise(task, params, 3)
    drawn = {n: torch.randn(shape, generator=seeded_generator(), dtype=x.dtype) for n, shape in noise.items()}
    grads = rule.step(task, params, state, batch, drawn, "").grads
    # No input reaches the class token of h_0, so an error in the input changes nothing there.
    assert {name for name in params if not grads[name].any()} == ({"cls"} if method == "pepita" else set())
