"""The reference must be the slope of the loss; the header says what is known and no more."""

import numpy as np
import pytest
import torch
from scope.nets import FeedbackNet, Net, samples
from torch import nn

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit

FAST = {"redraws": 0, "directions": 1}


class Hidden(nn.Module):
    """h + tanh(Wh), the branch out of autograd's sight."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how = nn.Linear(8, 8), how

    def forward(self, h):
        if self.how == "no_grad":
            with torch.no_grad():
                f = 3 * torch.tanh(self.linear(h))
        else:
            f = 3 * torch.tanh(self.linear(h.data))
        return h + f + 0 * self.linear(h)


@pytest.mark.parametrize("how", ["no_grad", "data"])
def test_a_gradient_hidden_from_autograd_is_found(how):
    torch.manual_seed(0)
    blocks = nn.ModuleList(Hidden(how) for _ in range(2))
    model = nn.Sequential(nn.Linear(6, 8), *blocks, nn.Linear(8, 4))
    x, y = samples()
    found = cs.audit_model(model, loader=(x, y), blocks=["1", "2"], **FAST).logs[0].epochs[0].reference.median
    states = [model[0](x).detach().double().requires_grad_()]
    for block in blocks.double():
        states.append(states[-1] + 3 * torch.tanh(block.linear(states[-1])))
        states[-1].retain_grad()
    nn.functional.cross_entropy(model[3].double()(states[-1]), y, reduction="sum").backward()
    np.testing.assert_allclose(found, [np.median(h.grad.norm(dim=1)) for h in states], rtol=1e-5)


def test_the_header_says_what_is_known():
    model = Net()
    header = cs.audit_model(model, loader=samples(), name="mine", seed=7, **FAST).claims[0].cell.runs[0].header
    spec = header.spec
    assert (spec.rule, spec.origin, spec.model, spec.depth, spec.width) == ("mine", "watch", "Net", 3, 8)
    assert (spec.classes, spec.seed, spec.dtype, spec.view, spec.train_last) == (4, 7, "float32", "flat", "all")
    assert spec.optimiser is None
    assert spec.epochs is None
    assert header.exact == [False] * 4
    assert header.parameters == sum(p.numel() for p in model.parameters())
    assert spec.probe.n == 48


def test_something_that_by_passes_the_blocks_is_said():
    torch.manual_seed(0)

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x):
            h = self.embed(x)
            for block in self.blocks:
                h = h + torch.tanh(block(h))
            return self.head(h)

    log = cs.audit_model(Around(), loader=samples(), **FAST).claims[0].cell.runs[0]
    assert any("something by-passes the blocks" in note for note in log.problems)


def test_a_net_that_has_diverged_is_walked_back_not_refused():
    model = Net()
    with torch.no_grad():
        model.blocks[1].linear.weight.fill_(float("nan"))
    audit = cs.audit_model(model, loader=samples(), **FAST)
    assert str(audit.claims[0].verdict.kind) == "walked back"
    assert "diverged" in next(each for each in audit.claims[0].outcomes if each.check.name == "scale").reason


def test_an_audit_is_the_same_twice():
    model = FeedbackNet()

    def one():
        credit = backward_credit(model, feedback=model.feedback_names, redraws=5)
        log = cs.audit_model(model, loader=samples(), credit=credit, **FAST).claims[0].cell.runs[0]
        return log.epochs[0], log.probes[0].model_copy(update={"time_probe": None})

    first = one()
    torch.manual_seed(99)
    assert one() == first


class Stale(torch.autograd.Function):
    """Sends back what an earlier batch left behind."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return ctx.module.left, None


def test_a_backward_that_holds_an_earlier_batch_is_not_compared():
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.left = nn.Linear(6, 6), torch.randn(48, 6)

        def forward(self, h):
            return h + Stale.apply(torch.tanh(self.linear(h)), self)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), Holds(), Holds(), nn.Linear(6, 4))
    row = cs.audit_model(model, loader=samples(), blocks=["1", "2"], redraws=0, directions=0).logs[0].probes[0]
    assert row.gradient_cosine is None
    assert "writes another gradient when the samples come in another order" in row.not_measured["gradient_cosine"]


def test_a_backward_that_fails_is_refused_in_one_line():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.left = nn.Linear(6, 6), None

        def forward(self, h):
            return h + Stale.apply(torch.tanh(self.linear(h)), self).mm(torch.eye(6))

    model = nn.Sequential(nn.Linear(6, 6), Fails(), nn.Linear(6, 4))
    model[1].left = torch.zeros(3, 3)
    with pytest.raises(BadInput, match=r"^loss\.backward\(\) fails on this model \(RuntimeError: .*\); pass backward="):
        cs.audit_model(model, loader=samples(), blocks=["1"], redraws=0, directions=0)


def test_a_kink_that_is_met_exactly_hides_no_gradient():
    """Zero-initialised branches after a ReLU: half of the stream meets the next ReLU at 0."""

    class Rectified(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

        def forward(self, h):
            return torch.relu(h + self.linear(h))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Rectified(), Rectified(), nn.Linear(8, 4))
    log = cs.audit_model(model, loader=samples(), blocks=["2", "3"], redraws=0, directions=0).logs[0]
    assert log.epochs[0].reference is not None
