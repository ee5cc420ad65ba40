"""Locality: rules that are told the error only, rules that carry it back, and backprop in disguise."""

import pytest
import torch
from scope.nets import FeedbackNet, Net, same, samples, state_of_model
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.probes.seeds import gaussian, probe_generator

BATCH = samples(24)


def direct_feedback(leak=None):
    """Nøkland's rule by hand on ``Net``: every block is told e·B_l. With a leak, one block forgets to detach."""
    generator = torch.Generator().manual_seed(2)
    feedback = [torch.randn(4, 8, generator=generator) for _ in range(3)]

    def update(model, x, y):
        logits = model(x)
        error = (logits.softmax(1) - functional.one_hot(y, 4)).detach()
        h = model.embed(x)
        loss = (h * (error @ feedback[0])).sum()
        for level, block in enumerate(model.blocks):
            h = block(h if level == leak else h.detach())
            loss = loss + (h * (error @ feedback[level])).sum()
        loss = loss + functional.cross_entropy(model.head(h.detach()), y, reduction="sum")
        loss.backward()

    return update


def greedy(model, x, y):
    """Each block has a readout of its own: a fixed random one."""
    generator = torch.Generator().manual_seed(4)
    h = model.embed(x)
    loss = functional.cross_entropy(h @ torch.randn(8, 4, generator=generator), y)
    for block in model.blocks:
        h = block(h.detach())
        loss = loss + functional.cross_entropy(h @ torch.randn(8, 4, generator=generator), y)
    names, params = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss + functional.cross_entropy(model(x), y).detach(), params, allow_unused=True)
    return {name: grad for name, grad in zip(names, grads, strict=True) if grad is not None}


@pytest.mark.parametrize("hold", ["output", "activations", "nothing"])
def test_backprop_leaks_whatever_is_held(hold):
    found = cs.check_locality(Net(), batch=BATCH, hold=hold)
    assert not found.local
    assert {leak.source for leak in found.leaks} >= {"blocks.1", "blocks.2", "readout"}
    assert str(found).startswith("leak: the weights of blocks.0, blocks.1, blocks.2, readout were changed one part")


def test_direct_feedback_is_told_the_output_and_nothing_else():
    found = cs.check_locality(Net(), batch=BATCH, update_fn=direct_feedback())
    assert found.local
    assert found.upstream == 14
    assert str(found).endswith("held fixed; the updates of 14 parameters upstream stayed the same")
    assert not cs.check_locality(Net(), batch=BATCH, update_fn=direct_feedback(), hold="nothing").local


def test_a_forgotten_detach_is_named():
    found = cs.check_locality(Net(), batch=BATCH, update_fn=direct_feedback(leak=2))
    assert not found.local
    assert {leak.block for leak in found.leaks} == {"blocks.1"}
    assert {leak.source for leak in found.leaks} == {"blocks.2"}
    assert {leak.parameter for leak in found.leaks} == {
        f"blocks.1.{name}" for name in ("norm.weight", "norm.bias", "linear.weight", "linear.bias")
    }
    assert "in blocks.1 follows the weights of blocks.2" in str(found)
    assert "and 3 more parameters leak" in str(found)


def test_the_change_that_is_reported_is_that_of_the_update():
    model, (x, y) = Net().eval(), BATCH
    found = cs.check_locality(model, ["blocks.0", "blocks.1"], BATCH, split="blocks.1", seed=5, hold="nothing")
    assert {leak.source for leak in found.leaks} == {"readout"}
    functional.cross_entropy(model(x), y, reduction="sum").backward()
    leak = next(leak for leak in found.leaks if leak.parameter == "embed.weight")
    assert leak.block == "embedding"
    before = model.embed.weight.grad.clone()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith(("head", "blocks.2")):
                size = float(p.square().mean().sqrt()) or 1.0  # a bias that starts at zero moves by 1
                p.add_(gaussian(tuple(p.shape), probe_generator(5, 2, name)).float() * size)
    model.zero_grad()
    functional.cross_entropy(model(x), y, reduction="sum").backward()
    wanted = float((model.embed.weight.grad - before).norm() / before.norm())
    assert leak.change == pytest.approx(wanted, rel=1e-3)


def test_feedback_alignment_uses_slopes_but_no_weights():
    assert not cs.check_locality(FeedbackNet(), batch=BATCH).local
    assert cs.check_locality(FeedbackNet(), batch=BATCH, hold="activations").local


def test_a_loss_in_each_block_needs_nothing_held():
    assert cs.check_locality(Net(), batch=BATCH, update_fn=greedy, hold="nothing", split=1).local


def test_a_split_asks_only_about_its_two_sides():
    leaky = direct_feedback(leak=2)
    assert cs.check_locality(Net(), batch=BATCH, update_fn=leaky, split="blocks.0").local
    found = cs.check_locality(Net(), batch=BATCH, update_fn=leaky, split=0)
    assert found.sources == ("blocks.1", "blocks.2", "readout")
    assert not cs.check_locality(Net(), batch=BATCH, update_fn=leaky, split="blocks.1").local


@pytest.mark.parametrize("broken", [False, True])
def test_the_model_is_left_as_found(broken):
    model = Net()
    model.train()
    functional.cross_entropy(model(BATCH[0]), BATCH[1]).backward()
    before, calls = state_of_model(model), []

    def update(model, x, y):
        calls.append(1)
        if broken and len(calls) == 3:
            raise KeyError("mine")
        functional.cross_entropy(model(x), y).backward()

    if broken:
        with pytest.raises(KeyError, match="mine"):
            cs.check_locality(model, batch=BATCH, update_fn=update)
    else:
        cs.check_locality(model, batch=BATCH, update_fn=update)
    assert same(before, state_of_model(model))


class Dead(nn.Module):
    """Its second block has no part in the output."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        h = self.blocks[0](x)
        return self.head(h + 0 * self.blocks[1](h))


def noisy(model, x, y):
    (functional.cross_entropy(model(x), y) * torch.rand(())).backward()


def by_parts(model, x, y):
    h = model.embed(x)
    for block in model.blocks:
        h = block(h)
    functional.cross_entropy(model.head(h), y).backward()


def silent(model, x, y):
    model(x)
    return {name: torch.zeros_like(p) for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        (Net(), {"batch": None}, "wanted a batch to compute updates on, got none; pass batch=(x, y)"),
        (Net(), {"hold": "logits"}, "unknown hold 'logits'; known: activations, nothing, output"),
        (Net(), {"split": "blocks.9"}, "no block 'blocks.9' to split after; did you mean 'blocks."),
        (Net(), {"split": 3}, "wanted a split after block 0 to 2, got 3; give an index or a block's name"),
        (Net(), {"update_fn": silent}, "no gradient: wanted updates upstream of the split, all are absent or zero;"),
        (
            Net(),
            {"update_fn": by_parts},
            "update_fn never calls model(x), so the network's output cannot be held fixed;",
        ),
        (Net(), {"update_fn": noisy}, "differs from call to call with nothing changed; make update_fn deterministic"),
        (Net(), {"update_fn": noisy, "loss_fn": noisy}, "wanted loss_fn or update_fn, got both"),
        (Dead(), {}, "changing the weights of blocks.1 does not change the output, so nothing can be shown;"),
        (Net().requires_grad_(False), {}, "no gradient: the loss depends on no parameter that requires one;"),
    ],
)
def test_what_proves_nothing_is_refused(model, given, says):
    with pytest.raises(BadInput) as error:
        cs.check_locality(model, **({"batch": BATCH} | given))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
