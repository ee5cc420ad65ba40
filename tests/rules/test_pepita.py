"""PEPITA: two forward passes, against a backward written by hand, and what follows from its definition."""

import numpy as np
import pytest
import torch
from cases import fleets, updates_by_hand
from cases.fleets import spec
from cases.models import TokenNet, mlp, params_of, resmlp, scrambled, seeded_generator, task_of
from cases.rule_cases import as_arrays, case, same

from creditscope.errors import BadInput
from creditscope.rules.build import rule_named

NETS = {"resmlp": (resmlp, updates_by_hand.ResMLP), "mlp": (mlp, updates_by_hand.MLP)}


@pytest.mark.parametrize("terminal_ln", [True, False])
@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize(("method", "changes"), [("pepita", {}), ("pepita(sign=-1)", {"sign": -1})])
def test_equals_the_backward_written_by_hand(method, changes, kind, terminal_ln):
    build, by_hand = NETS[kind]
    made = case(method, build(terminal_ln=terminal_ln))
    p, x, y = made.arrays
    same(
        made.step().grads,
        updates_by_hand.pepita(by_hand, p, as_arrays(made.state), x, y, **changes, terminal_ln=terminal_ln),
    )


@pytest.mark.parametrize("kind", NETS)
def test_divided_and_penalised_by_hand(kind):
    build, by_hand = NETS[kind]
    made = case("pepita-rms", build())
    p, x, y = made.arrays
    wanted = updates_by_hand.pepita(by_hand, p, as_arrays(made.state), x, y, rms=True)
    added = updates_by_hand.penalty(by_hand(p, x), 0.3)
    same(made.step(penalty=0.3).grads, {name: grad + added.get(name, 0) for name, grad in wanted.items()})


def test_without_feedback_the_blocks_only_decay():
    run = spec("pepita(scale=0)")
    made, _ = fleets.trained([run])
    rates = [run.optimiser.lr * 0.5 * (1 + np.cos(np.pi * epoch / run.epochs)) for epoch in range(run.epochs)]
    kept = np.prod([(1 - rate * run.optimiser.weight_decay) ** made.steps_per_epoch for rate in rates])
    for name, p in made.params.items():
        if name.startswith(("blocks", "embed")):
            torch.testing.assert_close(p[0], kept * made.init[name][0], rtol=1e-12, atol=1e-14)
        elif name == "head.weight":
            assert (p[0] - kept * made.init[name][0]).norm() > 0.01


def test_the_change_of_the_states_is_the_tangent_of_the_error():
    made, small = case("pepita"), 1e-6
    x, feedback = made.batch.x, made.state["F"]
    error = made.task.error(made.task.forward(made.params, x).logits, made.batch.y)
    states, tangents = torch.func.jvp(lambda x: made.task.forward(made.params, x).states, (x,), (error @ feedback,))
    after = made.task.forward(made.params, x + small * error @ feedback).states
    for h, other, tangent in zip(states, after, tangents, strict=True):
        torch.testing.assert_close((other - h) / small, tangent, rtol=1e-4, atol=1e-6)


def test_the_sign_and_that_of_the_matrix_cancel():
    made, other = case("pepita"), case("pepita(sign=-1)")
    same(other.step(state={"F": -made.state["F"]}).grads, made.step().grads, rtol=0, atol=0)


def test_feedback_is_as_wide_as_published():
    model = resmlp(inputs=3000, width=4, depth=1)
    task = task_of(model, torch.zeros(2, 3000, dtype=torch.float64))
    state = rule_named("pepita").init(task, params_of(model), seeded_generator())
    entries = state["F"] / (0.05 * np.sqrt(6 / 3000))
    assert entries.abs().max() <= 1
    assert float(entries.std()) == pytest.approx(1 / np.sqrt(3), rel=0.03)


@pytest.mark.parametrize("sign", [0, 2])
def test_another_sign_is_refused(sign):
    with pytest.raises(BadInput, match="option sign of rule pepita: wanted 1 or -1"):
        rule_named(f"pepita(sign={sign})")


def test_a_model_that_reads_indices_is_refused():
    model, x = scrambled(TokenNet()), torch.tensor([[1, 2], [3, 4]])
    task = task_of(model, x)
    with pytest.raises(BadInput, match="pepita adds the error to the input, and this model reads indices"):
        rule_named("pepita").init(task, params_of(model), seeded_generator())
