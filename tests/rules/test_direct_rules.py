"""The relatives of direct feedback alignment: what they send instead of e, and feedback that learns."""

import numpy as np
import pytest
import torch
from cases import by_hand, fleets
from cases.fleets import spec
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of, vit
from cases.rule_cases import as_arrays, case, same

from creditscope.rules.build import rule_named

SENT = {
    "drtp": lambda e, y: -np.eye(e.shape[1])[y],
    "sdfa": lambda e, y: np.where(e > 0, 1.0, -1.0),
    "dkp": lambda e, y: e,
}


@pytest.mark.parametrize("method", SENT)
@pytest.mark.parametrize("norm", ["", "-rms"])
@pytest.mark.parametrize("penalty", [None, 0.3])
def test_equals_the_backward_written_by_hand(method, norm, penalty):
    made = case(method + norm)
    p, x, y = made.arrays
    grads, credit, _ = by_hand.backward("dfa" + norm, p, as_arrays(made.state), x, y, penalty or 0.0, sent=SENT[method])
    if method == "dkp":
        states = forward_states(p, x)
        e = error(p, states, y)
        grads |= {f"B.{level}": sum(map(np.outer, e, h)) / len(x) for level, h in enumerate(states[1:])}
    same(made.step(penalty=penalty).grads, grads)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


def forward_states(p, x):
    h = [x @ p["embed.weight"].T + p["embed.bias"]]
    for level in range(3):
        h.append(h[-1] + by_hand.branch_forward(p, level, h[-1]).out)
    return h


def error(p, states, y):
    top = (
        by_hand.layer_norm(states[-1], p["out_ln.weight"], p["out_ln.bias"])[0] if "out_ln.weight" in p else states[-1]
    )
    return by_hand.softmax_error(top @ p["head.weight"].T + p["head.bias"], y)


def test_all_samples_of_a_class_get_one_signal_and_the_logits_never_matter():
    for method in ("drtp", "sdfa"):
        made = case(method, n=8)
        other = made._replace(params=params_of(resmlp(seed=9)))
        for c, d in zip(made.deliver(), other.deliver(), strict=True):
            for label in made.batch.y.unique():
                rows = c[made.batch.y == label]
                assert torch.equal(rows, rows[:1].expand_as(rows)), method
            assert torch.equal(c, d), method


def test_the_sign_of_the_error_is_the_target_twice_and_a_constant():
    target, sign = case("drtp", n=6), case("sdfa", n=6)
    for level in range(3):
        constant = target.state[f"B.{level}"].sum(0)
        np.testing.assert_allclose(sign.deliver()[level + 1], 2 * target.deliver()[level + 1] + constant, atol=1e-12)


def test_feedback_that_starts_at_zero_sends_nothing_once():
    made = case("dkp")
    zero = {name: torch.zeros_like(b) for name, b in made.state.items()}
    assert not any(c.any() for c in made.deliver(state=zero))
    grads = made.step(state=zero).grads
    moved = {name: -0.1 * grads[name] for name in zero}
    assert all(c.any() for c in made.deliver(state=moved))


def test_without_a_norm_before_the_head_its_weight_and_the_last_matrix_approach_each_other():
    made, rate, decay = case("dkp", resmlp(terminal_ln=False)), 0.05, 0.3
    params, state = dict(made.params), dict(made.state)
    before = params["head.weight"] - state["B.2"]
    for _ in range(5):
        grads = made.step(params=params, state=state).grads
        params = {n: p * (1 - rate * decay) - rate * grads[n] for n, p in params.items()}
        state = {n: b * (1 - rate * decay) - rate * grads[n] for n, b in state.items()}
    torch.testing.assert_close(params["head.weight"] - state["B.2"], before * (1 - rate * decay) ** 5)


def test_with_its_gradient_turned_round_the_loss_rises():
    """Head and B start at zero and learn alone; then the blocks take one small step by B."""

    def change(sign):
        made = case("dkp", resmlp(terminal_ln=False), n=16)
        params, state = dict(made.params), {n: torch.zeros_like(b) for n, b in made.state.items()}
        params["head.weight"] = torch.zeros_like(params["head.weight"])
        for _ in range(20):
            grads = made.step(params=params, state=state).grads
            params = {n: p - 0.05 * grads[n] if n.startswith("head") else p for n, p in params.items()}
            state = {n: b - 0.05 * sign * grads[n] for n, b in state.items()}
        before = made.step(params=params, state=state)
        moved = {n: p - 1e-3 * before.grads[n] if n.startswith("blocks") else p for n, p in params.items()}
        return float((made.step(params=moved).loss - before.loss).mean())

    assert change(1) < 0 < change(-1)


def test_held_at_its_start_it_is_direct_feedback_alignment():
    ours, _ = fleets.trained([spec("dkp@fixed-feedback")])
    theirs, _ = fleets.trained([spec("dfa")])
    same({n: p[0] for n, p in ours.params.items()}, {n: p[0] for n, p in theirs.params.items()}, rtol=0, atol=0)
    free, _ = fleets.trained([spec("dkp")])
    assert all(not torch.equal(b, free.state_of(0)[n]) for n, b in ours.state_of(0).items())


def test_where_one_error_serves_a_sequence_the_state_is_the_mean_of_its_tokens():
    model, batch, rule = vit(), batch_of((2, 8, 8), 3), rule_named("dkp")
    task, params = task_of(model, batch.x), params_of(model)
    state = rule.init(task, params, seeded_generator())
    states = task.forward(params, batch.x).states
    e = task.forward(params, batch.x).logits.softmax(1) - torch.eye(3, dtype=torch.float64)[batch.y]
    grads = rule.step(task, params, state, batch, {}, "").grads
    for level in range(2):
        wanted = torch.einsum("nc,ntd->cd", e, states[level + 1]) / (3 * states[0].shape[1])
        torch.testing.assert_close(grads[f"B.{level}"], wanted, rtol=1e-10, atol=1e-13)
