"""Gradient cosine and step descent against plain backward()."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.models import assign, cross_entropy, resmlp
from cases.snapshots import mlp_snapshot

from creditscope.errors import NotMeasured
from creditscope.probes.parameters import GradientCosineProbe, StepDescentProbe, block_parameters


def bp_gradients(snapshot) -> dict[str, np.ndarray]:
    model = resmlp()
    x, y = snapshot.train
    cross_entropy(model(x), y).mean().backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters()}


def cosine(first, second, names) -> float:
    a, b = (np.concatenate([np.asarray(side[name]).ravel() for name in names]) for side in (first, second))
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_parameters_of_each_block_and_of_no_other() -> None:
    snapshot = mlp_snapshot("dfa", depth=12)
    found = block_parameters(snapshot)
    assert [len(names) for names in found] == [6] * 12
    assert all(name.startswith("blocks.1.") for name in found[1])


@pytest.mark.parametrize("method", ["dfa-rms", "fa-block", "fa"])
def test_gradient_cosine_of_what_the_rule_wrote(method: str) -> None:
    snapshot = mlp_snapshot(method)
    written = assign(snapshot.rule, snapshot.task, snapshot.params, snapshot.state, snapshot.train, None).grads
    expected = [cosine(written, bp_gradients(snapshot), names) for names in block_parameters(snapshot)]
    got = GradientCosineProbe().measure(snapshot).values["gradient_cosine"]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert (abs(got[-1] - 1) < 1e-12) == (method == "fa-block")  # exact credit at the last block


def test_gradients_that_somebody_elses_backward_wrote() -> None:
    snapshot = mlp_snapshot("dfa")
    grads = {name: torch.as_tensor(grad) for name, grad in bp_gradients(snapshot).items()}
    grads = {name: -grad if name.startswith("blocks.1.") else grad for name, grad in grads.items()}
    foreign = replace(snapshot, rule=None, state={}, grads=grads)
    np.testing.assert_allclose(GradientCosineProbe().measure(foreign).values["gradient_cosine"], [1, -1, 1], rtol=1e-12)


def test_a_block_that_got_no_gradient_has_no_cosine() -> None:
    snapshot = mlp_snapshot("dfa")
    grads = {name: torch.as_tensor(grad) for name, grad in bp_gradients(snapshot).items()}
    grads = {name: grad * ("blocks.0." not in name) for name, grad in grads.items() if "blocks.2." not in name}
    got = GradientCosineProbe().measure(replace(snapshot, rule=None, grads=grads)).values["gradient_cosine"]
    assert (got[0], got[2]) == (None, None)
    assert got[1] == pytest.approx(1)


def test_step_descent_of_the_kept_step() -> None:
    snapshot = mlp_snapshot("dfa")
    expected = [cosine(bp_gradients(snapshot), snapshot.update, names) for names in block_parameters(snapshot)]
    got = StepDescentProbe().measure(snapshot).values["step_descent"]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_step_down_the_gradient_is_minus_one_and_a_frozen_block_has_none() -> None:
    snapshot = mlp_snapshot("bp")
    update = {name: -0.1 * torch.as_tensor(grad) for name, grad in bp_gradients(snapshot).items() if ".1." not in name}
    update["blocks.1.branch.1.weight"] = torch.zeros(6, 6)
    got = StepDescentProbe().measure(replace(snapshot, update=update)).values["step_descent"]
    assert got[1] is None
    np.testing.assert_allclose([got[0], got[2]], -1, rtol=1e-12)


def test_what_is_missing_is_named() -> None:
    snapshot = mlp_snapshot("dfa")
    with pytest.raises(NotMeasured, match="no optimiser step"):
        StepDescentProbe().measure(replace(snapshot, update=None))
    with pytest.raises(NotMeasured, match="neither a rule nor gradients"):
        GradientCosineProbe().measure(replace(snapshot, rule=None))
    with pytest.raises(NotMeasured):
        GradientCosineProbe().measure(replace(snapshot, train=None))
