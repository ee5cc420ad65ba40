"""MLP: every rule against numpy, alone and in a fleet; growth without a skip."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from cases import fleets
from cases.fleets import features, spec
from cases.mlp_by_hand import backward
from cases.models import assign, batch_of, params_of, scrambled, seeded_generator, task_of
from torch import nn

from creditscope.blocks import observe
from creditscope.errors import BadInput
from creditscope.models.mlp import ACTIVATIONS, MLP
from creditscope.probes.per_epoch import epoch_fields, epoch_numbers, summarise
from creditscope.rules.build import rule_named

METHODS = ("bp", "fa", "fa-block", "dfa", "dfa-rms")


def mlp(activation="relu", terminal_ln=False, depth=3):
    return scrambled(MLP((5,), 4, width=6, depth=depth, terminal_ln=terminal_ln, activation=activation))


@pytest.mark.parametrize("penalty", [None, 0.3])
@pytest.mark.parametrize("terminal_ln", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_every_rule_equals_the_backward_written_by_hand(method, terminal_ln, penalty):
    for activation in ("relu", "tanh"):
        model, batch, rule = mlp(activation, terminal_ln), batch_of((5,), 4, n=6), rule_named(method)
        task, params = task_of(model, batch.x), params_of(model)
        state = rule.init(task, params, seeded_generator())
        weight = None if penalty is None else torch.tensor(penalty, dtype=torch.float64)
        got = assign(rule, task, params, state, batch, weight)
        given = ({name: t.numpy() for name, t in tensors.items()} for tensors in (params, state))
        grads, credit, logits = backward(
            method, *given, batch.x.numpy(), batch.y.numpy(), penalty or 0.0, terminal_ln, activation
        )
        assert set(got.grads) == set(grads) == set(params)
        for name in grads:
            np.testing.assert_allclose(got.grads[name], grads[name], rtol=1e-9, atol=1e-12, err_msg=name)
        for c, wanted in zip(rule.deliver(task, params, state, batch), credit, strict=True):
            np.testing.assert_allclose(c, wanted, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model(batch.x).detach(), logits, rtol=1e-10)


def test_without_a_skip_the_branch_is_the_output_and_growth_is_its_size():
    model, batch = mlp("tanh"), batch_of((5,), 4, n=7)
    task, params = task_of(model, batch.x), params_of(model)
    assert task.blocks.skips == (False, False, False)
    seen = observe(task, params, None, {}, batch)
    h = torch.tanh(model.embed(batch.x)).detach()
    sizes = [h.norm(dim=1).median()]
    for level, block in enumerate(model.blocks):
        h = torch.tanh(block[0](h)).detach()
        assert torch.equal(seen.branches[level], seen.states[level + 1])
        torch.testing.assert_close(seen.states[level + 1], h)
        sizes.append(h.norm(dim=1).median())
    numbers = epoch_numbers(task, params, rule_named("bp"), {}, batch, "flat", 7)
    growth = epoch_fields(summarise(numbers), (True,) * 4)["growth"]
    np.testing.assert_allclose(growth, [float(b / a) for a, b in pairwise(sizes)], rtol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_stands_after_every_hidden_map(name):
    model, x = mlp(name, depth=2), batch_of((5,), 4).x
    act = ACTIVATIONS[name]()
    h = act(model.embed(x))
    for block in model.blocks:
        h = act(block[0](h))
    torch.testing.assert_close(model(x), model.head(h))
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())


def test_an_unknown_activation_is_one_line():
    with pytest.raises(BadInput) as caught:
        MLP((5,), 4, activation="tahn")
    assert caught.value.with_flags == "--set model.activation=tahn: did you mean 'tanh'?"


RUNS = [
    spec(method, model="mlp", architecture=architecture, seed=seed)
    for method in (*METHODS, "fa+pen0.1", "bp@frozen", "dfa@readout", "fa-block@last1")
    for architecture, seed in ((None, 1), (None, 2))
]


def test_twenty_steps_in_a_fleet_are_those_of_a_plain_loop():
    made, losses = fleets.trained(RUNS)
    assert len(made.specs) == len(RUNS)
    for run, one in enumerate(made.specs):
        params, plain = fleets.alone(one, features(), made.state_of(run))
        for name, wanted in params.items():
            torch.testing.assert_close(made.params[name][run], wanted, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(torch.stack(losses)[:, run], torch.tensor(plain), rtol=1e-9, atol=1e-9)


def test_the_activation_is_the_runs_own_and_keeps_fleets_apart():
    run = spec("fa", model="mlp", architecture={"activation": "tanh"}, terminal_ln=False)
    made, _ = fleets.trained([run])
    params, _ = fleets.alone(run, features(), made.state_of(0))
    for name, wanted in params.items():
        torch.testing.assert_close(made.params[name][0], wanted, rtol=1e-9, atol=1e-10)
    plain = run.model_copy(update={"architecture": None})
    for key in ("stack_key", "match_key", "cell_key", "run_id"):
        assert getattr(plain, key) != getattr(run, key)
    assert "architecture" not in plain.model_dump()
