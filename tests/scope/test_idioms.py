"""Styles of public backprop-free code: each is measured rightly, against a plain net in float64, or refused by name."""

import runpy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit

FAST = {"redraws": 0, "directions": 1}
X, Y = torch.randn(64, 8, generator=torch.Generator().manual_seed(3)), torch.arange(64) % 3


def cosine(a, b):
    return float(functional.cosine_similarity(a.double(), b.double(), dim=1, eps=0).mean())


def seed_everything():
    torch.manual_seed(0)


CUTS = {
    "attribute": lambda h: setattr_grad(h.detach()),
    "method": lambda h: h.detach().requires_grad_(),
    "detach_": lambda h: h.clone().detach_(),
    "data": lambda h: h.data,
    "no_grad": lambda h: under(torch.no_grad, h),
    "inference": lambda h: under(torch.inference_mode, h),
    "float": lambda h: h.float(),
    "step aside": lambda h: h + torch.zeros(h.shape, dtype=torch.float32),
}


def setattr_grad(h):
    h.requires_grad = True
    return h


def under(context, h):
    with context():
        return h * 1


class Styled(nn.Module):
    """relu(Wh), passed through one or several of the idioms."""

    def __init__(self, width, cuts):
        super().__init__()
        self.linear, self.cuts = nn.Linear(width, width), cuts
        self.seen = torch.zeros(128, width)
        self.kept = []

    def forward(self, h):
        h = torch.relu(self.linear(h))
        for cut in self.cuts:
            h = CUTS[cut](h)
        self.seen.data[: len(h)].copy_(h.data)
        self.last = h
        self.kept.append(len(h))
        return h


def plain_references(model, blocks):
    """g at every state of embed → relu(W·) … → head, by hand."""
    weights = [(b.linear.weight.detach().double(), b.linear.bias.detach().double()) for b in blocks]
    embed, head = model[0], model[-1]
    states = [functional.linear(X.double(), embed.weight.detach().double(), embed.bias.detach().double())]
    for weight, bias in weights:
        states.append(torch.relu(functional.linear(states[-1], weight, bias)))
    logits = functional.linear(states[-1], head.weight.detach().double(), head.bias.detach().double())
    g = (logits.softmax(1) - functional.one_hot(Y, 3)) @ head.weight.detach().double()
    found = [g]
    for (weight, _), h in zip(reversed(weights), reversed(states), strict=False):
        g = (g * (h > 0)) @ weight
        found.append(g)
    return found[::-1]


def fill(model, x, y):
    """Stands for a rule that writes its own updates."""
    for p in model.parameters():
        p.grad = torch.ones_like(p)


def checked(cuts):
    seed_everything()
    blocks = [Styled(12, cuts), Styled(12, cuts)]
    model = nn.Sequential(nn.Linear(8, 12), *blocks, nn.Linear(12, 3))
    before = {name: (id(t), t.clone()) for name, t in model.state_dict(keep_vars=True).items()}
    attributes = [dict(vars(block)) for block in blocks]
    cached = [block.seen.clone() for block in blocks]
    audit = cs.audit_model(model, blocks=["1", "2"], loader=(X, Y), backward=fill, **FAST)
    wanted = [np.median(g.norm(dim=1)) for g in plain_references(model, blocks)]
    np.testing.assert_allclose(audit.logs[0].epochs[0].reference.median, wanted, rtol=1e-4)
    for name, t in model.state_dict(keep_vars=True).items():
        assert id(t) == before[name][0]
        assert torch.equal(t, before[name][1])
    for block, kept, own in zip(blocks, attributes, cached, strict=True):
        assert vars(block).keys() == kept.keys()
        assert block.kept == []
        assert torch.equal(block.seen, own)


@pytest.mark.parametrize("cut", CUTS)
def test_every_way_to_cut_a_stream_is_seen_through(cut):
    checked([cut])


@settings(max_examples=6, deadline=None)
# A tensor of inference mode cannot be made to require a gradient, in training neither.
@given(st.lists(st.sampled_from(sorted(CUTS.keys() - {"inference"})), max_size=4))
def test_any_mixture_of_idioms_is_measured_rightly(cuts):
    checked(cuts)


class FeedbackLinear(nn.Linear):
    """Feedback alignment by tensor hooks on what a layer is given and what it puts out."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.B = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)
        self.delta = None

    def forward(self, x):
        if x.requires_grad:
            x.register_hook(lambda g: self.delta @ self.B)
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda g: setattr(self, "delta", g))
        return y


class FeedbackBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = FeedbackLinear(width, width)

    def forward(self, h):
        return torch.tanh(self.fc(h))


def test_a_hook_on_the_next_blocks_input_is_read_behind_it():
    seed_everything()
    m = nn.Sequential(nn.Linear(8, 32), FeedbackBlock(32), FeedbackBlock(32), FeedbackLinear(32, 3))
    credit = backward_credit(m, feedback=["1.fc.B", "2.fc.B", "3.B"], redraws=9)
    log = cs.audit_model(m, blocks=["1", "2"], loader=(X, Y), credit=credit, **FAST).logs[0]
    with torch.no_grad():
        h = [m[0](X)]
        h += [m[1](h[-1])]
        h += [m[2](h[-1])]
        e = m[3](h[2]).softmax(1) - functional.one_hot(Y, 3)
        true, told = [e @ m[3].weight], [e @ m[3].B]
        for block, state in ((m[2], h[2]), (m[1], h[1])):
            true.append((true[-1] * (1 - state**2)) @ block.fc.weight)
            told.append((told[-1] * (1 - state**2)) @ block.fc.B)
    wanted = [cosine(c, g) for c, g in zip(reversed(told), reversed(true), strict=True)]
    np.testing.assert_allclose(log.epochs[-1].cosine.mean, wanted, atol=1e-5)
    assert log.header.exact == [False, False, False]


class Projected(torch.autograd.Function):
    """The identity forward, a random projection of the labels backward."""

    @staticmethod
    def forward(ctx, x, targets, B):
        ctx.save_for_backward(targets, B)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        targets, B = ctx.saved_tensors
        return targets @ B, None, None


class ProjectedBlock(nn.Module):
    """The projection sits at the end of the block (or nowhere), before a normaliser that trains on what arrives."""

    targets = functional.one_hot(Y, 3).float()

    def __init__(self, width, normalised=False, inside=True):
        super().__init__()
        self.fc, self.inside = nn.Linear(width, width), inside
        self.norm = nn.LayerNorm(width) if normalised else nn.Identity()
        self.B = nn.Parameter(torch.randn(3, width), requires_grad=False)

    def forward(self, h):
        h = torch.tanh(self.fc(h))
        return self.norm(Projected.apply(h, self.targets[: len(h)], self.B) if self.inside else h)


@pytest.mark.parametrize("normalised", [False, True])
def test_credit_that_is_substituted_inside_a_block_is_never_a_cosine(normalised):
    seed_everything()
    blocks = [ProjectedBlock(16, normalised), ProjectedBlock(16, normalised, inside=False)]
    m = nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 3))
    audit = cs.audit_model(m, blocks=["1", "2"], loader=(X, Y), credit=backward_credit(m), **FAST)
    cosines = audit.logs[0].epochs[-1].cosine.mean
    assert cosines[1] is None
    assert cosines[2] == pytest.approx(1)
    assert "credit is substituted inside block 1:" in audit.to_text()
    assert "inside block 2" not in audit.to_text()


def test_a_head_in_the_list_that_was_found_is_no_block():
    seed_everything()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)])

        def forward(self, x):
            for layer in self.linear[:-1]:
                x = torch.relu(layer(x))
            return self.linear[-1](x)

    assert cs.audit_model(Net(), loader=(X, Y), **FAST).logs[0].header.blocks == ["linear.0", "linear.1"]
    net = Net()
    net.linear = nn.ModuleList([nn.Linear(8, 3)])
    with pytest.raises(BadInput, match="found no blocks besides the output layer"):
        cs.audit_model(net, loader=(X, Y), **FAST)


def test_a_function_of_a_script_that_was_run_is_seen_through(tmp_path):
    script = tmp_path / "published.py"
    script.write_text(
        "import torch\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return 2 * x\n"
        "    @staticmethod\n"
        "    def backward(ctx, g): return 5 * g\n"
        "class Block(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.f = torch.nn.Linear(8, 8)\n"
        "    def forward(self, h): return Twice.apply(self.f(h))\n"
    )
    seed_everything()
    block = runpy.run_path(str(script))["Block"]
    model = nn.Sequential(nn.Linear(8, 8), block(), nn.Linear(8, 3))
    found = cs.audit_model(model, blocks=["1"], loader=(X, Y), **FAST).logs[0].epochs[0].reference.median
    with torch.no_grad():
        z = model[2](2 * model[1].f(model[0](X)))
        g = (z.softmax(1) - functional.one_hot(Y, 3)) @ model[2].weight
        wanted = [np.median((2 * g @ model[1].f.weight).norm(dim=1)), np.median(g.norm(dim=1))]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


class Aliased(nn.Module):
    """Its layers stand in a list too; the last two share their weight."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3, self.head = (nn.Linear(8, 8) for _ in range(4))
        self.layers = nn.ModuleList([self.fc1, self.fc2, self.fc3])
        self.fc3.weight = self.fc2.weight

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


@pytest.mark.parametrize("blocks", [None, "layers", ["fc1", "fc2", "fc3"], ["layers.0", "layers.1", "layers.2"]])
def test_modules_of_two_names_are_measured_and_left_alone(blocks):
    seed_everything()
    model = Aliased()
    weight, tied = model.fc1.weight, model.fc2.weight
    log = cs.audit_model(model, blocks=model.layers if blocks == "layers" else blocks, loader=(X, Y), **FAST).logs[0]
    assert log.header.blocks == ["fc1", "fc2", "fc3"]
    assert model.fc1.weight is weight
    assert model.fc2.weight is tied is model.fc3.weight
    states = [X.double()]
    wide = {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}
    for bias in ("fc1.bias", "fc2.bias", "fc3.bias"):
        weight = wide["fc1.weight" if bias == "fc1.bias" else "fc2.weight"]
        states.append(functional.linear(torch.relu(states[-1]) if len(states) > 1 else states[0], weight, wide[bias]))
        states[-1].retain_grad()
    z = functional.linear(torch.relu(states[-1]), wide["head.weight"], wide["head.bias"])
    functional.cross_entropy(z, Y, reduction="sum").backward()
    wanted = [np.median(h.grad.norm(dim=1)) for h in states[1:]]
    np.testing.assert_allclose(log.epochs[0].reference.median[1:], wanted, rtol=1e-5)


def test_watch_of_modules_of_two_names_sees_them_train():
    seed_everything()
    model = Aliased()
    with cs.watch(model, probe=(X, Y), budget=1.0, on_alert=lambda alert: None, **FAST) as scope:
        with torch.no_grad():
            model.fc1.weight.mul_(1.5).add_(0.1)
        scope.epoch()
    row = scope.log.epochs[-1]
    assert row.movement.trainable == [True, True, True]
    assert row.movement.weights["fc1.weight"] > 1e-3
    assert scope.log.spec.train_last == "all"


def test_heads_that_the_output_never_uses_do_not_dilute_the_gradient_cosine():
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.decoder = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, h):
            self.out = h + torch.tanh(self.fc(h))
            return self.out

    def own(model, x, y):
        functional.cross_entropy(model(x), y).backward()
        for block in (model[1], model[2]):
            functional.cross_entropy(block.decoder(block.out.detach()), y).backward()

    seed_everything()
    model = nn.Sequential(nn.Linear(8, 8), Local(), Local(), nn.Linear(8, 3))
    audit = cs.audit_model(model, blocks=["1", "2"], loader=(X, Y), backward=own, **FAST)
    np.testing.assert_allclose(audit.logs[0].probes[-1].gradient_cosine, 1, atol=1e-9)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx, grad):
        (u,) = ctx.saved_tensors
        return grad / (1 + 10 * u.abs()) ** 2


class Spiking(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, h):
        return Spike.apply(self.fc(h))


def test_a_step_function_is_named():
    seed_everything()
    model = nn.Sequential(nn.Linear(8, 32), Spiking(32), Spiking(32), nn.Linear(32, 3))
    with pytest.raises(BadInput, match="zero for every sample, and the backward pass writes another: spikes"):
        cs.audit_model(model, blocks=["1", "2"], loader=(X, Y), **FAST)
    assert cs.check_locality(model, ["1", "2"], batch=(X, Y)).sources == ("1", "2", "readout")


def test_blocks_without_weights_stand_for_those_before_them():
    seed_everything()
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    log = cs.audit_model(model, blocks=["1", "3"], loader=(X, Y), init=model.state_dict(), **FAST).logs[0]
    assert log.spec.train_last == "all"
    assert log.epochs[-1].movement.blocks == [[], ["2.weight"]]
    assert log.probes[-1].gradient_cosine == [None, pytest.approx(1)]


def test_losses_inside_the_blocks_leave_no_credit_to_read():
    class Inside(nn.Module):
        y = None

        def __init__(self):
            super().__init__()
            self.fc, self.decoder = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, h):
            h = torch.tanh(self.fc(h))
            if Inside.y is None:
                return h
            functional.cross_entropy(self.decoder(h), Inside.y).backward()
            return h.detach()

    def own(model, x, y):
        Inside.y = y
        try:
            functional.cross_entropy(model(x), y).backward()
        finally:
            Inside.y = None

    seed_everything()
    model = nn.Sequential(nn.Linear(8, 8), Inside(), Inside(), nn.Linear(8, 3))
    with pytest.raises(BadInput, match="no signal arrives at the end of any block"):
        cs.audit_model(model, blocks=["1", "2"], loader=(X, Y), credit=backward_credit(model, backward=own), **FAST)


def test_a_frozen_copy_of_a_model_that_keeps_its_last_states():
    seed_everything()
    model = nn.Sequential(nn.Linear(8, 8), Styled(8, []), nn.Linear(8, 3))
    model(X)
    twin = cs.frozen_copy(model, ["1"])
    assert [p.requires_grad for p in twin[1].parameters()] == [False, False]
    assert not twin[1].last.requires_grad
    assert model[1].last.requires_grad
