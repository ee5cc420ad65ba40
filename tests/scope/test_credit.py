"""Credit adapters: ours, one read from a backward pass, and one of a user's own."""

import copy

import numpy as np
import pytest
import torch
from scope.nets import FeedbackNet, Net, same, samples, state_of_model
from torch.nn import functional

import creditscope as cs
from creditscope.blocks import Batch, Task
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit
from creditscope.scope.true_backward import TrueBlocks

FAST = {"redraws": 99, "directions": 2}


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def cosine_by_hand(c, g):
    return float(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(c, g, strict=True)]))


def delivered_by_hand(model, x, y):
    """Feedback alignment in numpy: the error through B, the slope of tanh, the skip."""
    h = model.embed(x).detach()
    states, slopes = [h], []
    for block in model.blocks:
        inner = torch.tanh(functional.linear(h, block.layer.weight, block.layer.bias))
        slopes.append(1 - inner**2)
        h = (h + inner).detach()
        states.append(h)
    error = functional.linear(h, model.head.weight, model.head.bias).softmax(1) - functional.one_hot(y, 4)
    signals = [(error @ model.head.feedback).detach()]
    for block, slope in zip(reversed(model.blocks), reversed(slopes), strict=True):
        signals.insert(0, (signals[0] + (signals[0] * slope) @ block.layer.feedback).detach())
    gradients = []
    for level, state in enumerate(states):
        state = state.clone().requires_grad_()
        loss = functional.cross_entropy(model.true_logits(level, state), y, reduction="sum")
        gradients.append(torch.autograd.grad(loss, state)[0])
    return [c.numpy() for c in signals], [g.numpy() for g in gradients]


def test_the_signal_of_a_custom_function_is_read_and_compared_with_the_true_gradient():
    x, y = samples()
    model = FeedbackNet()
    row = run_of(cs.audit_model(model, loader=(x, y), credit=backward_credit(model), **FAST)).epochs[0]
    signals, gradients = delivered_by_hand(model, x, y)
    wanted = [cosine_by_hand(c, g) for c, g in zip(signals, gradients, strict=True)]
    np.testing.assert_allclose(row.cosine.mean, wanted, atol=1e-5)
    assert max(wanted) < 0.99
    assert row.cosine.status == ["ok"] * 4


def test_a_backward_of_ones_own_is_read_per_sample():
    x, y = samples()
    model = FeedbackNet()
    task = Task.of(TrueBlocks.of(model), lambda z, t: functional.cross_entropy(z, t, reduction="none"), x[:2])
    params = dict(model.named_parameters())
    plain = backward_credit(model).deliver(task, params, Batch(x, y))
    own = backward_credit(model, backward=lambda m, x, y: functional.cross_entropy(m(x), y).backward())
    for a, b in zip(plain, own.deliver(task, params, Batch(x, y)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for p in model.parameters())


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
    twin = copy.deepcopy(model)
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        for name, own in model.named_buffers():
            twin.get_buffer(name).copy_(own.flatten()[torch.randperm(own.numel(), generator=generator)].view_as(own))
        signals, gradients = delivered_by_hand(twin, x, y)
        draws.append([cosine_by_hand(c, g) for c, g in zip(signals, gradients, strict=True)])
    spread = np.std(draws, axis=0)
    assert np.all(np.abs(np.mean(draws, axis=0) - null.mean) < 4 * spread * np.sqrt(2 / 60))
    for level in range(4):
        beyond = sum(value >= null.observed[level] for value in null.draws[level])
        assert null.p[level] == pytest.approx((1 + beyond) / 61)


def test_feedback_that_is_the_weight_passes_its_null():
    x, y = samples(200)
    model = FeedbackNet(width=16)
    for module in [*(b.layer for b in model.blocks), model.head]:
        module.feedback.copy_(module.weight.detach())
    credit = backward_credit(model, feedback=model.feedback_names, redraws=199)
    audit = cs.audit_model(model, loader=(x, y), credit=credit, init=model.state_dict(), **FAST)
    np.testing.assert_allclose(run_of(audit).epochs[0].cosine.mean, 1, atol=1e-6)
    direction = next(o for o in audit.claims[0].outcomes if o.name == "direction")
    assert str(direction.ruling) == "passes"


def test_without_feedback_named_there_is_no_null():
    model = FeedbackNet()
    audit = cs.audit_model(model, loader=samples(), credit=backward_credit(model), init=model.state_dict(), **FAST)
    assert run_of(audit).probes[0].null is None
    assert "no feedback to redraw" in run_of(audit).probes[0].not_measured["null"]


def test_our_rules_deliver_with_the_runs_own_feedback():
    x, y = samples()
    model = Net()
    generator = torch.Generator().manual_seed(3)
    feedback = {f"B.{level}": torch.randn(4, 8, generator=generator) for level in range(3)}
    log = run_of(
        cs.audit_model(model, loader=(x, y), credit=rule_credit("dfa", feedback), init=model.state_dict(), **FAST)
    )
    net = copy.deepcopy(model).eval()
    h = net.embed(x)
    states = [h]
    for block in net.blocks:
        h = block(h)
        states.append(h)
    logits = net.head(h)
    gradients = torch.autograd.grad(functional.cross_entropy(logits, y, reduction="sum"), states)
    error = (logits.softmax(1) - functional.one_hot(y, 4)).detach()
    wanted = [
        cosine_by_hand((error @ feedback[f"B.{max(level - 1, 0)}"]).numpy(), g.numpy())
        for level, g in enumerate(gradients)
    ]
    np.testing.assert_allclose(log.epochs[0].cosine.mean, wanted, atol=1e-5)
    assert log.probes[0].null.redraws == 99
    assert "gradient_null" not in log.probes[0].not_measured


def test_what_an_adapter_does_not_know_is_not_measured():
    class Half:
        def deliver(self, task, params, batch):
            ones = [torch.ones(len(batch.x), *shape) for shape in task.shapes]
            return [None, ones[1], None, ones[3]]

    row = run_of(cs.audit_model(Net(), loader=samples(), credit=Half(), **FAST)).epochs[0]
    assert row.cosine.status == ["not measured", "ok", "not measured", "ok"]
    assert [m is None for m in row.cosine.mean] == [True, False, True, False]


@pytest.mark.parametrize(
    ("feedback", "says"),
    [
        (
            ["blocks.0.layer.feedbak"],
            "no tensor 'blocks.0.layer.feedbak' to take as feedback; did you mean 'blocks.0.layer.feed",
        ),
        ("head.feedback", r"wanted a list of feedback names, got one string; pass feedback=['head.feedback']"),
    ],
)
def test_feedback_is_named_right(feedback, says):
    with pytest.raises(BadInput) as error:
        backward_credit(FeedbackNet(), feedback=feedback)
    assert says in str(error.value)


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
