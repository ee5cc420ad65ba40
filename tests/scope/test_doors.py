"""Any model and any loss: token outputs, streams with samples in the middle, tuples, labels as inputs, regression."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import BadInput
from creditscope.scope import backward_credit

FAST = {"redraws": 0, "directions": 1}
WIDTH, TOKENS, SYMBOLS = 8, 5, 7


class Layer(nn.Module):
    """Mixes tokens, then features; the stream is (tokens, samples, width)."""

    def __init__(self):
        super().__init__()
        self.mix, self.linear = nn.Linear(TOKENS, TOKENS), nn.Linear(WIDTH, WIDTH)

    def forward(self, h):
        return h + torch.tanh(self.linear(self.mix(h.movedim(0, -1)).movedim(-1, 0)))


class Text(nn.Module):
    """Token outputs; the previous targets are inputs too; it returns a tuple."""

    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(SYMBOLS, WIDTH), nn.ModuleList(Layer() for _ in range(2))
        self.out = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens, targets):
        h = (self.embed(tokens) + 0.1 * self.embed(targets.clamp(min=0).roll(1, 1))).transpose(0, 1)
        for layer in self.layers:
            h = layer(h)
        return self.out(h).transpose(0, 1), h


def text():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(SYMBOLS, (24, TOKENS), generator=generator) for _ in range(2))
    y[:, 0] = -100
    return x, y


def references(model, x, y):
    """‖g‖ per sample at every state, by plain autograd in float64: the mean loss over the tokens that have a target."""
    states = []

    def keep(_, args, out):
        for h in (*(args if not states else ()), out):
            h.retain_grad()
            states.append(h)

    model = model.double()
    handles = [layer.register_forward_hook(keep) for layer in model.layers]
    logits = model(x, y)[0]
    losses = [functional.cross_entropy(z, t, ignore_index=-100) for z, t in zip(logits, y, strict=True)]
    sum(losses).backward()
    for handle in handles:
        handle.remove()
    right = (logits.argmax(-1) == y)[y != -100].double().mean()
    return [np.median(h.grad.transpose(0, 1).flatten(1).norm(dim=1)) for h in states], right


@pytest.mark.parametrize("credit", [False, True])
def test_a_language_model_with_samples_in_the_middle(credit):
    torch.manual_seed(0)
    model, (x, y) = Text(), text()
    given = {"credit": backward_credit(model)} if credit else {}
    log = cs.audit_model(
        model,
        loader=[(x[:12], y[:12]), (x[12:], y[12:])],
        forward=lambda model, batch: model(*batch),
        batch_axis=1,
        **given,
        **FAST,
    ).logs[0]
    wanted, right = references(model, x, y)
    np.testing.assert_allclose(log.epochs[0].reference.median, wanted, rtol=1e-5)
    assert log.epochs[0].test_accuracy == pytest.approx(float(right))
    np.testing.assert_allclose(log.probes[0].gradient_cosine, 1, atol=1e-9)
    if credit:
        np.testing.assert_allclose(log.epochs[0].cosine.mean, 1, atol=1e-6)


def test_text_whose_every_token_has_a_target_is_judged_by_token_accuracy():
    torch.manual_seed(0)
    x, y = text()
    y[:, 0] = x[:, 0]
    model = Text()
    audit = cs.audit_model(model, loader=(x, y), forward=lambda model, batch: model(*batch), batch_axis=1, **FAST)
    log = audit.logs[0]
    assert log.spec.data.tokens == TOKENS
    assert log.spec.classes == SYMBOLS
    assert log.spec.data.class_counts == tuple(np.bincount(y.flatten(), minlength=SYMBOLS).tolist())
    with torch.no_grad():
        right = (model(x, y)[0].argmax(-1) == y).sum(1)
    assert bytes.fromhex(log.end.right) == right.numpy().astype(">u2").tobytes()
    learning = next(o for o in audit.claims[0].outcomes if o.name == "learning")
    chance = np.bincount(y.flatten()).max() / y.numel()
    assert learning.evidence.value == pytest.approx(100 * (float(right.sum()) / y.numel() - chance), abs=1e-6)


def test_samples_on_another_axis_are_named():
    torch.manual_seed(0)
    with pytest.raises(
        BadInput, match=r"samples on axis 0, state 0 of 2 samples has shape \(5, 2, 8\); pass batch_axis"
    ):
        cs.audit_model(Text(), loader=text(), forward=lambda model, batch: model(*batch), **FAST)


def test_a_dict_of_anything_and_regression():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.out = nn.ModuleList(nn.Linear(6, 6) for _ in range(2)), nn.Linear(6, 1)

        def forward(self, x, scale):
            h = x * scale
            for block in self.blocks:
                h = torch.tanh(block(h))
            return self.out(h).squeeze(1)

    model = Net()
    batch = {"in": {"x": torch.randn(20, 6), "scale": torch.rand(20, 1)}, "labels": torch.randn(20)}
    log = cs.audit_model(
        model,
        loader=batch,
        forward=lambda model, batch: model(**batch["in"]),
        loss_fn=lambda z, t: (z - t) ** 2,
        **FAST,
    ).logs[0]
    wide = model.double()
    h = (batch["in"]["x"] * batch["in"]["scale"]).double().requires_grad_()
    states = [h]
    for block in wide.blocks:
        # Blocks are linear maps, the tanh comes after them.
        states.append(block(states[-1] if len(states) == 1 else torch.tanh(states[-1])))
        states[-1].retain_grad()
    loss = (wide.out(torch.tanh(states[-1])).squeeze(1) - batch["labels"].double()) ** 2
    loss.sum().backward()
    wanted = [np.median(s.grad.norm(dim=1)) for s in states]
    np.testing.assert_allclose(log.epochs[0].reference.median, wanted, rtol=1e-4)
    assert log.epochs[0].test_loss == pytest.approx(float(loss.detach().mean()), rel=1e-5)
    assert log.epochs[0].test_accuracy is None


def test_a_batch_that_cannot_be_taken_apart_is_named():
    with pytest.raises(BadInput, match="wanted as many of everything in a batch, got 4, 3"):
        cs.audit_model(Text(), loader=[(torch.zeros(4), torch.zeros(3))], forward=lambda m, b: m(b), **FAST)
