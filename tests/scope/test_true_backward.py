"""The true gradient through every way to bend a backward pass, against the same net written plainly."""

import copy
import threading

import pytest
import torch
import torch.utils.checkpoint
from scope.nets import FeedbackNet, samples
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.blocks import Task, observe
from creditscope.blocks.rule import Batch
from creditscope.scope.losses import cross_entropy
from creditscope.scope.true_backward import TrueBlocks


class Bent(nn.Module):
    """A residual block whose backward is bent in one of several ways; its forward is h + tanh(Wh)."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how = nn.Linear(8, 8).double(), how
        if how == "module hook":
            self.linear.register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 0,))

    def forward(self, h):
        inner = self.linear(h.detach() if self.how == "detach" else h)
        if self.how == "tensor hook" and inner.requires_grad:
            inner.register_hook(lambda g: g * 0)
        if self.how == "new-style function":
            inner = Zeroed.apply(inner)
        return h + torch.tanh(inner)


class Zeroed(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 1.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 0


def plain_gradients(blocks, head, x, y):
    states = [x.requires_grad_()]
    for block in blocks:
        states.append(states[-1] + torch.tanh(functional.linear(states[-1], block.linear.weight, block.linear.bias)))
        states[-1].retain_grad()
    functional.cross_entropy(head(states[-1]), y, reduction="sum").backward()
    return [h.grad for h in states]


@pytest.mark.parametrize("how", ["nothing", "detach", "tensor hook", "module hook", "new-style function"])
def test_the_reference_is_the_slope_of_the_forward(how):
    torch.manual_seed(0)
    blocks, head = nn.ModuleList(Bent(how) for _ in range(3)), nn.Linear(8, 4).double()
    model = nn.Sequential(*blocks, head)
    x, y = torch.randn(7, 8, dtype=torch.float64), torch.randint(4, (7,))
    task = Task.of(TrueBlocks.of(model, ["0", "1", "2"]), cross_entropy, x[:2])
    params = {name: p.detach() for name, p in model.named_parameters()}
    seen = observe(task, params, None, {}, Batch(x, y))
    for g, wanted in zip(seen.references, plain_gradients(blocks, head, x.clone(), y), strict=True):
        torch.testing.assert_close(g, wanted, rtol=1e-10, atol=1e-12)


def test_a_custom_function_is_inlined():
    model = FeedbackNet().double()
    x, y = samples()
    x = x.double()
    task = Task.of(TrueBlocks.of(model), cross_entropy, x[:2])
    params = {name: p.detach() for name, p in model.named_parameters()}
    g = observe(task, params, None, {}, Batch(x, y)).references
    with torch.no_grad():
        states = task.blocks.forward({**params, **task.buffers}, x).states
    for level, h in enumerate(states):
        h = h.detach().requires_grad_()
        wanted = torch.autograd.grad(functional.cross_entropy(model.true_logits(level, h), y, reduction="sum"), h)[0]
        torch.testing.assert_close(g[level], wanted, rtol=1e-10, atol=1e-12)


def trained(steps, seed, model):
    """Weights of a few steps with custom functions, hooks, detached tensors and dropout."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimiser.zero_grad()
        x, y = torch.randn(16, 8, generator=generator).double(), torch.randint(4, (16,), generator=generator)
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return [p.detach().clone() for p in model.parameters()]


def bent_model(seed):
    torch.manual_seed(seed)
    blocks = [Bent("new-style function"), Bent("tensor hook"), Bent("module hook"), Bent("detach")]
    return nn.Sequential(*blocks, nn.Dropout(0.5), nn.Linear(8, 4).double())


def test_a_training_in_another_thread_notices_nothing():
    x, y = torch.randn(24, 8).double(), torch.randint(4, (24,))
    audited, other = bent_model(0), bent_model(1)
    torch.manual_seed(5)
    alone = trained(300, 2, copy.deepcopy(other))
    torch.manual_seed(5)
    done = []
    thread = threading.Thread(target=lambda: done.append(trained(300, 2, other)))
    started = 0
    thread.start()
    while thread.is_alive() or not started:
        cs.audit_model(audited, loader=(x, y), blocks=["0", "1", "2", "3"], redraws=0, directions=1)
        started += 1
    assert all(torch.equal(a, b) for a, b in zip(alone, done[0], strict=True))


def test_a_state_given_in_is_not_written_into():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2))
    partition = TrueBlocks.of(model, ["0"])
    h = -torch.ones(2, 3)
    partition.tail(dict(model.named_parameters()), 1, h, torch.zeros(2, 3))
    assert torch.equal(h, -torch.ones(2, 3))


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * 0


old_alias, new_alias = Old.apply, Zeroed.apply


@pytest.mark.parametrize("alias", [old_alias, new_alias, staticmethod(Old.apply).__func__])
def test_a_function_that_is_called_by_another_name_is_inlined_too(alias):
    class Aliased(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, dtype=torch.float64)

        def forward(self, h):
            return h + torch.tanh(alias(self.linear(h)))

    torch.manual_seed(0)
    blocks, head = nn.ModuleList(Aliased() for _ in range(3)), nn.Linear(8, 4).double()
    model = nn.Sequential(*blocks, head)
    x, y = torch.randn(7, 8, dtype=torch.float64), torch.randint(4, (7,))
    task = Task.of(TrueBlocks.of(model, ["0", "1", "2"]), cross_entropy, x[:2])
    seen = observe(task, {name: p.detach() for name, p in model.named_parameters()}, None, {}, Batch(x, y))
    for g, wanted in zip(seen.references, plain_gradients(blocks, head, x.clone(), y), strict=True):
        torch.testing.assert_close(g, wanted, rtol=1e-10, atol=1e-12)
    # Outside, the function's own backward is back.
    h = torch.ones(2, requires_grad=True)
    alias(h).sum().backward()
    assert not h.grad.any()


@pytest.mark.parametrize("reentrant", [True, False])
def test_torchs_own_functions_are_followed_too(reentrant):
    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, dtype=torch.float64)

        def forward(self, h):
            inner = torch.utils.checkpoint.checkpoint(self.linear, h, use_reentrant=reentrant)
            return h + torch.tanh(inner)

    blocks, head = nn.ModuleList(Recomputed() for _ in range(2)), nn.Linear(8, 4).double()
    x, y = torch.randn(7, 8, dtype=torch.float64), torch.randint(4, (7,))
    model = nn.Sequential(*blocks, head)
    task = Task.of(TrueBlocks.of(model, ["0", "1"]), cross_entropy, x[:2])
    seen = observe(task, {name: p.detach() for name, p in model.named_parameters()}, None, {}, Batch(x, y))
    for g, wanted in zip(seen.references, plain_gradients(blocks, head, x.clone(), y), strict=True):
        torch.testing.assert_close(g, wanted, rtol=1e-10, atol=1e-12)
