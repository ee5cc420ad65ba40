"""Sign-symmetric rules: the backward written by hand with B from the weights' signs, and what makes them backprop."""

import numpy as np
import pytest
import torch
from cases import by_hand
from cases.models import conv_net, params_of, resmlp
from cases.rule_cases import as_arrays, case, same

from creditscope.errors import BadInput

MAPS = ("head", *(f"blocks.{level}.branch.{i}" for level in range(3) for i in (1, 3)))


def matrices(method, made):
    """B of each map, in numpy, for a step and for a probe."""
    p, state, noise = (as_arrays(tensors) for tensors in (made.params, made.state, made.noise))
    found = []
    for drawn in (noise, {}):
        b = {}
        for name in MAPS:
            w = p[f"{name}.weight"]
            s = np.sqrt((w**2).sum() / w.size)
            size = {
                "usf": lambda s=s: s,
                "frsf": lambda name=name: np.abs(state[f"M.{name}"]),
                "brsf": lambda s=s, name=name, drawn=drawn: np.abs(
                    drawn[f"M.{name}"] * s if drawn else state[f"M.{name}"]
                ),
            }[method]()
            b[f"B.{name}"] = size * np.where(w > 0, 1.0, -1.0)
        found.append(b)
    return found


@pytest.mark.parametrize("penalty", [None, 0.3])
@pytest.mark.parametrize("method", ["usf", "frsf", "brsf"])
def test_equals_the_backward_written_by_hand(method, penalty):
    made = case(method)
    p, x, y = made.arrays
    in_step, in_probe = matrices(method, made)
    grads, _, _ = by_hand.backward("fa", p, in_step, x, y, penalty or 0.0)
    _, credit, _ = by_hand.backward("fa", p, in_probe, x, y)
    same(made.step(penalty=penalty).grads, grads)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


def test_uniform_signs_of_weights_that_are_all_of_one_size_are_backprop():
    model = resmlp()
    with torch.no_grad():
        for name in MAPS:
            model.get_submodule(name).weight.sign_().mul_(0.25)
    made, exact = case("usf", model), case("bp", model)
    same(made.step().grads, exact.step().grads, rtol=0, atol=1e-15)
    same(dict(enumerate(made.deliver())), dict(enumerate(exact.deliver())), rtol=0, atol=1e-15)


def test_fixed_magnitudes_that_are_the_weights_are_backprop():
    made, exact = case("frsf"), case("bp")
    state = made.state | {f"M.{name}": made.params[f"{name}.weight"] for name in MAPS}
    same(made.step(state=state).grads, exact.step().grads)


@pytest.mark.parametrize("method", ["usf", "frsf", "brsf"])
def test_signs_follow_the_weights_and_the_spread_stays(method):
    made, other = case(method), params_of(resmlp(seed=5))
    p = as_arrays(other)
    moved = made._replace(params=other)
    _, x, y = moved.arrays
    b, _ = matrices(method, made)
    flipped = {f"B.{n}": np.abs(b[f"B.{n}"]) * np.sign(p[f"{n}.weight"]) for n in MAPS}
    same(moved.step().grads, by_hand.backward("fa", p, flipped, x, y)[0])


@pytest.mark.parametrize("method", ["usf", "frsf", "brsf"])
def test_a_fresh_feedback_knows_nothing_of_the_weights(method):
    made = case(method, resmlp(width=40))
    drawn = made.rule.redraw(made.task, made.params, made.state)(torch.Generator().manual_seed(0), 200)
    name = "blocks.1.branch.1"
    w, b = made.params[f"{name}.weight"], drawn[f"B.{name}"]
    spread = float(w.square().mean().sqrt())
    agree = (b.sign() == w.sign()).double().mean()
    # 200·1600 signs: five standard errors.
    assert abs(float(agree) - 0.5) < 5 * 0.5 / np.sqrt(b.numel())
    if method == "usf":
        np.testing.assert_allclose(b.abs(), spread, rtol=1e-6)
    else:
        assert float(b.square().mean().sqrt()) == pytest.approx(spread, rel=0.02)
    credit = made.deliver(state=made.state | {key: t[0] for key, t in drawn.items()})
    p, x, y = made.arrays
    same(
        dict(enumerate(credit)),
        dict(enumerate(by_hand.backward("fa", p, {key: t[0].numpy() for key, t in drawn.items()}, x, y)[1])),
    )


def test_convolutions_carry_signs_too():
    from cases.models import CONV_BLOCKS, batch_of, seeded_generator, task_of

    from creditscope.rules.build import rule_named

    model, batch = conv_net(), batch_of((1, 4, 4), 3)
    with torch.no_grad():
        for name in ("same.conv", "down.0", "flat.1", "head"):
            model.get_submodule(name).weight.sign_().mul_(0.5)
    task, params = task_of(model, batch.x, CONV_BLOCKS), params_of(model)
    rule, exact = rule_named("usf"), rule_named("bp")
    state = rule.init(task, params, seeded_generator())
    got, wanted = (each.step(task, params, state, batch, {}, "").grads for each in (rule, exact))
    same(got, wanted, atol=1e-14)


def test_weights_of_zero_are_refused():
    model = resmlp()
    with torch.no_grad():
        model.head.weight.zero_()
    with pytest.raises(BadInput, match="cannot be sized like 'head': its weights are 0; start it at others"):
        case("usf", model)
