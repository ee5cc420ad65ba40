"""Credit adapters: ours, one read from a backward pass, and one of a user's own."""

import copy

import numpy as np
import pytest
import torch
from scope.by_hand import cosine_by_hand, delivered_by_hand
from scope.nets import FeedbackNet, Net, samples
from torch.nn import functional

import creditscope as cs
from creditscope.blocks import Batch, Task
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit
from creditscope.scope.true_backward import TrueBlocks

FAST = {"redraws": 99, "directions": 2}


def run_of(audit):
    return audit.claims[0].cell.runs[0]


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


def test_signals_put_in_by_hooks_are_read_and_leave_the_reference_alone():
    """A module hook replaces what goes back out of block 1, a tensor hook what comes back to h_3."""
    x, y = samples()
    model = Net().eval()
    plain = run_of(cs.audit_model(model, loader=(x, y), **FAST)).epochs[0]

    def into_last(module, args, output):
        if output.requires_grad:
            output.register_hook(lambda grad: torch.full_like(grad, 3.0))

    model.blocks[1].register_full_backward_hook(lambda m, grad_in, grad_out: (torch.full_like(grad_in[0], 7.0),))
    model.blocks[2].register_forward_hook(into_last)
    task = Task.of(TrueBlocks.of(model), lambda z, t: functional.cross_entropy(z, t, reduction="none"), x[:2])
    signals = backward_credit(model).deliver(task, dict(model.named_parameters()), Batch(x, y))
    assert torch.equal(signals[1], torch.full((48, 8), 7.0))
    assert torch.equal(signals[3], torch.full((48, 8), 3.0))
    row = run_of(cs.audit_model(model, loader=(x, y), credit=backward_credit(model), **FAST)).epochs[0]
    assert row.reference == plain.reference
    assert len(model.blocks[1]._backward_hooks) == len(model.blocks[2]._forward_hooks) == 1


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
