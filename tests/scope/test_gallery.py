"""The gallery of misleading cases: what the usual pair (accuracy and an aggregate cosine) says, and what we say."""

import copy

import numpy as np
import pytest
import torch
from scope.nets import FeedbackNet, Net, samples, train
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.blocks import observe
from creditscope.errors import BadInput
from creditscope.scope import backward_credit, rule_credit

FAST = {"redraws": 99, "directions": 2}


def run_of(audit):
    return audit.claims[0].cell.runs[0]


def outcome(audit, name):
    return next(o for o in audit.claims[0].outcomes if o.name == name)


def ruling(audit, name):
    return str(outcome(audit, name).ruling)


class Mixed:
    """The true gradient at some states, one random vector for all samples at the others."""

    def __init__(self, true_at):
        self.true_at = true_at

    def deliver(self, task, params, batch):
        g = observe(task, params, None, {}, batch).references
        generator = torch.Generator().manual_seed(0)
        noise = [torch.randn(1, *c.shape[1:], generator=generator).to(c).expand_as(c) for c in g]
        return [c if level in self.true_at else noise[level] for level, c in enumerate(g)]


def test_both_zero_cosine():
    """A fitted sample has neither gradient nor credit. A tool that writes 1 there reports alignment."""
    x, y = samples(40)
    x[:20, 0], y[:20] = 1e6, 0
    model = Net().double()
    with torch.no_grad():
        # Logit 0 follows the first input: the first half is fitted beyond float64, its error is exactly zero.
        for p in (model.embed.weight, model.head.weight):
            p.zero_()
            p[0, 0] = 1.0

    def cosines(credit):
        return run_of(cs.audit_model(model, loader=(x.double(), y), credit=credit, **FAST)).epochs[0].cosine

    random, true = cosines(Mixed(set())), cosines(Mixed({0, 1, 2, 3}))
    assert random.n == true.n == [20] * 4
    assert random.n_undefined == [20] * 4
    np.testing.assert_allclose(true.mean, 1, atol=1e-12)
    written_as_one = (20 * 1.0 + 20 * np.asarray(random.mean)) / 40
    assert np.all(written_as_one > np.asarray(random.mean) + 0.2)


def test_layer_0_dominance():
    """Γ looks positive because the embedding's credit is exact; every deep block gets noise."""
    audit = cs.audit_model(Net(), loader=samples(200), credit=Mixed({0, 1}), **FAST)
    gamma = run_of(audit).epochs[0].gamma
    assert gamma.acting > 0.4
    assert abs(gamma.deep) < 0.35
    assert gamma.worst < gamma.acting - 0.3
    assert audit.claims[0].decision.gamma > 0.1
    assert ruling(audit, "direction") != "passes"


def test_last_block_dominance():
    """fa-block's last credit is the true gradient by construction: it lifts Γ and says nothing of the blocks below."""
    x, y = samples(200)
    model = Net(depth=4)
    generator = torch.Generator().manual_seed(1)
    feedback = {f"M.{level}": torch.randn(8, 8, generator=generator) / 8**0.5 for level in range(4)}
    credit = rule_credit("fa-block", feedback)
    audit = cs.audit_model(model, loader=(x, y), credit=credit, init=model.state_dict(), redraws=999, directions=2)
    row = run_of(audit).epochs[0]
    assert row.cosine.mean[-1] == pytest.approx(1.0)
    assert row.cosine.status[-1] == "exact-by-construction"
    assert row.gamma.acting > row.gamma.deep + 0.1
    assert row.gamma.deep == pytest.approx(np.mean(row.cosine.mean[2:-1]))
    assert ruling(audit, "direction") != "passes"
    assert "block 3 exact by construction, not tested" in outcome(audit, "direction").reason


class Explodes(nn.Module):
    """A block that multiplies the stream."""

    def __init__(self, factor):
        super().__init__()
        self.linear, self.factor = nn.Linear(8, 8), factor

    def forward(self, h):
        return h + self.factor * self.linear(h)


def test_clamp():
    """An exploding stream before a LayerNorm: g is tiny but exact. torch's clamped cosine of g with itself is not 1."""
    torch.manual_seed(0)
    x, y = samples(64)
    blocks = [Explodes(1e3) for _ in range(3)]
    model = nn.Sequential(nn.Linear(6, 8), *blocks, nn.LayerNorm(8), nn.Linear(8, 4))
    audit = cs.audit_model(model, loader=(x, y), blocks=["1", "2", "3"], credit=backward_credit(model), **FAST)
    row, probe = run_of(audit).epochs[0], run_of(audit).probes[0]
    np.testing.assert_allclose(row.cosine.mean, 1, atol=1e-5)
    h = model[:4](x).detach().requires_grad_()
    functional.cross_entropy(model[4:](h), y, reduction="mean").backward()
    clamped = float(functional.cosine_similarity(h.grad, h.grad, dim=1).mean())
    assert clamped < 0.5
    assert row.gamma.clamped < 0.9
    assert probe.clamp.onset[3] == pytest.approx(row.reference.median[3] / 1e-8)
    assert ruling(audit, "scale") == "fires"
    assert ruling(audit, "reference") == "fires"
    assert "tiny but exact" in outcome(audit, "reference").reason
    assert ruling(audit, "fidelity") == "passes"


def test_mismatched_baseline():
    """A trained net passed as the frozen twin, and a twin measured on other data, are told apart."""
    x, y = samples(100)
    model = Net()
    init = copy.deepcopy(model.state_dict())
    other = train(Net(), x, y, 3)
    train(model, x, y, 30)
    with pytest.raises(
        BadInput, match=r"wanted a baseline whose blocks stayed at initialisation, but blocks\.0\.\S+ moved"
    ):
        cs.audit_model(model, loader=(x, y), init=init, baseline=other, **FAST)
    logs = []
    for one, probe in ((model, (x, y)), (cs.frozen_copy(Net()), samples(100, seed=9))):
        with cs.watch(one, probe=probe, **FAST) as scope:
            scope.epoch()
        logs.append(scope.log)
    depth = outcome(cs.audit(logs), "depth")
    assert str(depth.ruling) == "not measured"
    assert "no frozen-blocks run matches; the nearest differs in data" in depth.reason


def test_dead_blocks():
    """Accuracy is fine and a block never moved: embedding and head did the work."""
    x, _ = samples(400)
    y = x[:, :4].argmax(1)
    model = Net()
    init = copy.deepcopy(model.state_dict())

    def all_but_block_1(model):
        return [p for name, p in model.named_parameters() if not name.startswith("blocks.1")]

    optimiser = torch.optim.AdamW(all_but_block_1(model), 1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    with torch.no_grad():
        model.blocks[1].linear.weight.mul_(0.9)  # weight decay is no movement
    audit = cs.audit_model(model, loader=(x, y), init=init, credit=rule_credit("bp"), **FAST)
    decision = audit.claims[0].decision
    assert decision.by_accuracy_and_gamma == "looks like learning"
    assert decision.accuracy > 0.6
    assert ruling(audit, "movement") == "fires"
    assert "at block 1" in outcome(audit, "movement").reason
    assert str(audit.claims[0].verdict.kind) == "walked back"


def test_leaked_gradients():
    """Feedback alignment whose last layer forgot its feedback: true gradients enter by the back door."""
    batch = samples(64)
    honest, leaky = FeedbackNet(), FeedbackNet()
    leaky.blocks[2].layer.forward = lambda h: functional.linear(
        h, leaky.blocks[2].layer.weight, leaky.blocks[2].layer.bias
    )
    assert cs.check_locality(honest, batch=batch, hold="activations").local
    found = cs.check_locality(leaky, batch=batch, hold="activations")
    assert not found.local
    assert {leak.source for leak in found.leaks} == {"blocks.2"}
    assert found.leaks[0].block in {"embedding", "blocks.0", "blocks.1"}
    assert "follows the weights of blocks.2" in str(found)
