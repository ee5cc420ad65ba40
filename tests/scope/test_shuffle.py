"""The null by shuffling: values, exactness, calibration, and the feedback put back."""

import copy

import numpy as np
import pytest
import torch
from scope.by_hand import cosine_by_hand, delivered_by_hand
from scope.nets import FeedbackNet, same, samples, state_of_model

import creditscope as cs
from creditscope.scope import backward_credit
from creditscope.scope.shuffle import shuffled, shuffled_null
from creditscope.scope.subject import Subject

FAST = {"redraws": 99, "directions": 2}


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def test_shuffled_feedback_gives_a_null_and_comes_back():
    x, y = samples()
    model = FeedbackNet()
    before = state_of_model(model)
    credit = backward_credit(model, feedback=model.feedback_names, redraws=60)
    log = run_of(cs.audit_model(model, loader=(x, y), credit=credit, init=model.state_dict(), **FAST))
    assert same(before, state_of_model(model))
    null = log.probes[0].null
    np.testing.assert_allclose(null.observed, log.epochs[0].cosine.mean, atol=1e-6)
    assert null.redraws == 60
    # By hand: the same shuffles of another seed have about the same mean, and p counts the values above.
    draws = []
    other = copy.deepcopy(model)
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        for name, own in model.named_buffers():
            other.get_buffer(name).copy_(own.flatten()[torch.randperm(own.numel(), generator=generator)].view_as(own))
        signals, gradients = delivered_by_hand(other, x, y)
        draws.append([cosine_by_hand(c, g) for c, g in zip(signals, gradients, strict=True)])
    sd = np.std(draws, axis=0)
    assert np.all(np.abs(np.mean(draws, axis=0) - null.mean) < 4 * sd * np.sqrt(2 / 60))
    for level in range(4):
        beyond = sum(value >= null.observed[level] for value in null.draws[level])
        assert null.p[level] == pytest.approx((1 + beyond) / 61)


def test_feedback_that_is_the_weight_passes_its_null():
    x, y = samples(200)
    logs = []
    for seed in (1, 2, 3):
        model = FeedbackNet(width=16, seed=seed)
        for module in [*(b.layer for b in model.blocks), model.head]:
            module.feedback.copy_(module.weight.detach())
        credit = backward_credit(model, feedback=model.feedback_names, redraws=199)
        logs += cs.audit_model(model, loader=(x, y), credit=credit, init=model.state_dict(), seed=seed, **FAST).logs
        np.testing.assert_allclose(logs[-1].epochs[0].cosine.mean, 1, atol=1e-6)
    direction = next(o for o in cs.audit(logs).claims[0].outcomes if o.name == "direction")
    assert str(direction.ruling) == "passes"


def test_a_state_that_no_shuffle_reaches_is_exact_by_construction():
    """The head is a plain linear map: the last state gets its true gradient, and no null is asked of it."""
    x, y = samples()
    model = FeedbackNet()
    model.head = torch.nn.Linear(8, 4)
    credit = backward_credit(model, feedback=model.feedback_names[:-1], redraws=9)
    log = run_of(cs.audit_model(model, loader=(x, y), credit=credit, init=model.state_dict(), **FAST))
    assert log.header.exact == [False, False, False, True]
    assert log.epochs[0].cosine.status == ["ok", "ok", "ok", "exact-by-construction"]
    assert log.epochs[0].gamma.deep == log.epochs[0].cosine.mean[2]
    assert log.probes[0].null.p[3] is None
    assert None not in log.probes[0].null.p[:3]


def test_no_shuffles_no_null():
    model = FeedbackNet()
    credit = backward_credit(model, feedback=model.feedback_names, redraws=0)
    log = run_of(cs.audit_model(model, loader=samples(), credit=credit, **FAST))
    assert log.probes[0].null is None
    assert "at least one shuffle" in log.probes[0].not_measured["null"]


def test_the_feedback_comes_back_after_an_exception():
    model = FeedbackNet()
    before = state_of_model(model)
    inside = []
    try:
        with shuffled(backward_credit(model, feedback=model.feedback_names), torch.Generator().manual_seed(0)):
            inside = [b.clone() for b in model.buffers()]
            raise KeyError
    except KeyError:
        assert same(before, state_of_model(model))
    for now, own in zip(inside, model.buffers(), strict=True):
        assert not torch.equal(now, own)
        assert torch.equal(now.flatten().sort().values, own.flatten().sort().values)


def test_p_is_uniform_where_the_feedback_is_random():
    """Sixty nets with feedback that never met the weights: p has the mean and standard deviation of a uniform one."""
    data, values = samples(32), []
    for seed in range(60):
        model = FeedbackNet(depth=2, seed=seed).eval()
        credit = backward_credit(model, feedback=model.feedback_names, redraws=19)
        subject = Subject.of(model, None, data, None, credit, None, seed)
        values.append(shuffled_null(subject.snapshot(None, 1), credit, keep_draws=False).p)
    p = np.asarray(values)
    assert p.shape == (60, 3)
    # Uniform on 1/20..20/20: mean 0.525, standard deviation 0.288.
    assert np.all(np.abs(p.mean(axis=0) - 0.525) < 4 * 0.288 / np.sqrt(60))
    assert np.all(np.abs(p.std(axis=0) - 0.288) < 0.09)
