"""Snapshot: batches are joined, dtypes are cast once, and what is unknown is said to be."""

import numpy as np
import pytest
import torch
from cases.models import assign, batch_of, cross_entropy, params_of, resmlp, seeded_generator, task_of
from torch.nn import functional

from creditscope.blocks import Snapshot, observe
from creditscope.errors import NotMeasured
from creditscope.rules.build import rule_named


def snapshot(rule="dfa", **changes):
    model, probe = resmlp(), batch_of((5,), 4, n=7)
    task, params = task_of(model, probe.x), params_of(model)
    built = rule_named(rule) if rule else None
    fields = {
        "task": task,
        "params": params,
        "init": params_of(resmlp(seed=9)),
        "rule": built,
        "state": built.init(task, params, seeded_generator()) if built else {},
        "probe": probe,
        "batch": 3,
        "view": "flat",
        "seed": 0,
        "train": batch_of((5,), 4, n=4, seed=3),
    }
    return Snapshot(**(fields | changes))


def test_the_probe_is_seen_in_batches_and_joined():
    shot = snapshot()
    assert [len(b.x) for b in shot.batches] == [3, 3, 1]
    whole = observe(shot.task, shot.params, shot.rule, shot.state, shot.probe)
    for name in ("states", "branches", "references", "delivered"):
        for joined, once in zip(getattr(shot.observation, name), getattr(whole, name), strict=True):
            np.testing.assert_allclose(joined, once, rtol=1e-12, atol=1e-15)
    for name in ("error", "logits", "loss"):
        np.testing.assert_allclose(getattr(shot.observation, name), getattr(whole, name), rtol=1e-12)
    assert shot.observation is shot.observation
    assert shot.delivered is shot.observation.delivered


def test_looking_works_without_and_with_gradients_switched_on():
    with torch.no_grad():
        off = snapshot().observation
    on = snapshot().observation
    assert all(torch.equal(a, b) for a, b in zip(off.references, on.references, strict=True))
    assert not any(h.requires_grad for h in on.states)


def test_rule_and_true_gradients_on_the_training_batch():
    shot = snapshot("dfa")
    wanted = assign(shot.rule, shot.task, shot.params, shot.state, shot.train, None).grads
    assert all(torch.equal(shot.rule_grads[name], wanted[name]) for name in wanted)
    model = resmlp()
    functional.cross_entropy(model(shot.train.x), shot.train.y).backward()
    for name, p in model.named_parameters():
        np.testing.assert_allclose(shot.bp_grads[name], p.grad, rtol=1e-9, atol=1e-14)


def test_gradients_of_somebody_elses_backward_come_first():
    mine = {"head.bias": torch.ones(4)}
    assert snapshot(None, grads=mine).rule_grads == mine


def test_the_loss_of_the_tail_is_the_loss():
    shot = snapshot()
    for level in range(4):
        got = shot.tail_loss(level, shot.observation.states[level], shot.probe.y)
        np.testing.assert_allclose(got, shot.observation.loss, rtol=1e-12)


def test_the_losses_of_all_tails_are_found_once_and_in_the_runs_own_dtype(monkeypatch):
    shot = snapshot().in_dtype(torch.float32)
    once = shot.tail_losses
    monkeypatch.setattr(Snapshot, "tail_loss", None)
    assert shot.tail_losses is once
    for loss in once:
        assert loss.dtype == torch.float32
        np.testing.assert_allclose(loss, shot.observation.loss, rtol=1e-5)


def test_feedback_is_drawn_with_the_spread_of_the_initial_weights_in_every_dtype():
    shot = snapshot("fa")
    for own in (shot, shot.in_dtype(torch.float32)):
        init = {name: p.to(own.dtype) for name, p in shot.init.items()}
        inits = own.rule.feedback_inits(own.task, init)
        assert set(inits) == set(shot.state)
        for name, (shape, sd, distribution) in inits.items():
            weight = shot.init[f"{name.removeprefix('B.')}.weight"]
            assert (shape, distribution) == (tuple(weight.shape), "normal")
            assert sd == pytest.approx(np.std(weight.numpy(), ddof=1), rel=1e-6)


def test_the_tail_is_computed_in_the_dtype_asked_for():
    shot = snapshot()
    rough = shot.tail_loss(1, shot.observation.states[1], shot.probe.y, torch.float32)
    assert rough.dtype == torch.float32
    np.testing.assert_allclose(rough, shot.observation.loss, rtol=1e-4)


def test_another_dtype_is_cast_once_and_only_numbers_are():
    shot = snapshot()
    single = shot.in_dtype(torch.float32)
    assert shot.dtype == torch.float64
    assert single.dtype == torch.float32
    assert single is shot.in_dtype(torch.float32)
    assert shot is shot.in_dtype(torch.float64)
    assert single.probe.x.dtype == single.train.x.dtype == single.state["B.0"].dtype == torch.float32
    assert single.probe.y.dtype == torch.int64
    np.testing.assert_allclose(single.observation.logits, shot.observation.logits, rtol=1e-3, atol=1e-4)


def test_the_cast_itself_runs_once(monkeypatch):
    shot, casts = snapshot(), []
    real = Snapshot._cast
    monkeypatch.setattr(Snapshot, "_cast", lambda self, dtype: casts.append(dtype) or real(self, dtype))
    for level in (0, 1, 2):
        shot.tail_loss(level, shot.observation.states[level], shot.probe.y, torch.float32)
    assert casts == [torch.float32]


def test_which_states_are_exact():
    assert snapshot("bp").exact == (True,) * 4
    assert snapshot("fa-block").exact == (False, False, False, True)
    assert snapshot(None).exact == (False,) * 4


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: snapshot(None).delivered,
            "no-credit-saved: the rule's own feedback is needed; pass credit=... or save it with the run",
        ),
        (
            lambda: snapshot(None).rule_grads,
            "parameter gradients: neither a rule nor gradients of the user's own backward are known",
        ),
        (
            lambda: snapshot(train=None).rule_grads,
            "parameter gradients: neither a rule nor gradients of the user's own backward are known",
        ),
        (lambda: snapshot(train=None).bp_grads, "parameter gradients: no training batch was kept"),
    ],
    ids=["delivered", "rule-grads", "no-train", "bp-grads"],
)
def test_what_is_not_known_is_not_measured(ask, message):
    with pytest.raises(NotMeasured) as caught:
        ask()
    assert str(caught.value) == message


def test_the_task_loss_never_holds_a_penalty():
    shot = snapshot()
    wanted = cross_entropy(shot.observation.logits, shot.probe.y)
    assert torch.equal(shot.observation.loss, wanted)
