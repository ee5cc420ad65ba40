"""Kolen–Pollack: B moves as W does, so W − B shrinks by the decay alone, whatever the optimiser."""

import numpy as np
import pytest
import torch
from cases import by_hand, fleets
from cases.fleets import spec
from cases.models import resmlp
from cases.rule_cases import as_arrays, case, same

from creditscope.rules.transport import weight_of


def rates(made):
    run = made.specs[0]
    return [run.optimiser.lr * 0.5 * (1 + np.cos(np.pi * epoch / run.epochs)) for epoch in range(run.epochs)]


@pytest.mark.parametrize("penalty", [None, 0.3])
def test_equals_the_backward_written_by_hand(penalty):
    made = case("kp")
    p, x, y = made.arrays
    grads, credit, _ = by_hand.backward("fa", p, as_arrays(made.state), x, y, penalty or 0.0)
    grads |= {entry: grads[weight_of(entry)] for entry in made.state}
    same(made.step(penalty=penalty).grads, grads)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_the_difference_shrinks_by_one_minus_the_rate_times_the_decay(decay):
    """Under AdamW both get one step from one gradient; the run's decay and the rule's own are each decoupled."""
    run = spec(f"kp(decay={decay})")
    made, _ = fleets.trained([run])
    start = fleets.fleet([run])
    own = run.optimiser.weight_decay
    shrunk = np.prod([((1 - r * own) * (1 - r * decay)) ** start.steps_per_epoch for r in rates(start)])
    assert shrunk < 1
    for entry, matrix in made.state_of(0).items():
        before = start.params[weight_of(entry)][0] - start.state_of(0)[entry]
        now = made.params[weight_of(entry)][0] - matrix
        torch.testing.assert_close(now, shrunk * before, rtol=1e-9, atol=1e-12)


def test_under_plain_sgd_with_decoupled_decay_it_shrinks_likewise():
    made, rate, decay = case("kp"), 0.1, 0.4
    params, state = dict(made.params), dict(made.state)
    for _ in range(5):
        grads = made.step(params=params, state=state).grads
        params = {n: p * (1 - rate * decay) - rate * grads[n] for n, p in params.items()}
        state = {n: b * (1 - rate * decay) - rate * grads[n] for n, b in state.items()}
    for entry, b in state.items():
        before = made.params[weight_of(entry)] - made.state[entry]
        torch.testing.assert_close(
            params[weight_of(entry)] - b, (1 - rate * decay) ** 5 * before, rtol=1e-9, atol=1e-12
        )


def test_started_at_the_weights_it_is_backprop_for_ever():
    """LayerNorm and biases included: both optimisers see the same gradients at every step."""
    run = spec("kp")
    ours, exact = fleets.fleet([run]), fleets.fleet([spec("bp")])
    for entry, matrix in ours.groups[0].state.items():
        matrix.copy_(ours.params[weight_of(entry)])
    for epoch in range(1, fleets.EPOCHS + 1):
        ours.train_epoch(epoch)
        exact.train_epoch(epoch)
    same({n: p[0] for n, p in ours.params.items()}, {n: p[0] for n, p in exact.params.items()})


def test_runs_that_differ_in_the_decay_are_one_group():
    made = fleets.fleet([spec("kp"), spec("kp(decay=0.5)"), spec("kp(decay=1.5)")])
    assert len(made.groups) == 1


def test_held_at_its_start_it_is_feedback_alignment():
    ours, _ = fleets.trained([spec("kp@fixed-feedback")])
    theirs, _ = fleets.trained([spec("fa")])
    same({n: p[0] for n, p in ours.params.items()}, {n: p[0] for n, p in theirs.params.items()}, rtol=0)


def test_a_decay_of_its_own_moves_the_weights_with_it_and_leaves_the_rest():
    step = case("kp(decay=0.5)", resmlp()).step()
    assert set(step.decay) == {name for entry in case("kp").state for name in (entry, weight_of(entry))}
    assert {float(value) for value in step.decay.values()} == {0.5}
