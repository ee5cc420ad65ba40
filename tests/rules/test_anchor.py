"""Anchors: batches of backprop in every epoch, where they lie, what they move, and what they leave alone."""

import numpy as np
import pytest
import torch
from cases import by_hand, fleets
from cases.fleets import spec
from cases.rule_cases import same

from creditscope.blocks import Moment
from creditscope.data.order import epoch_order
from creditscope.engine.checkpoint import FleetState, restore
from creditscope.errors import BadInput
from creditscope.rules.build import rule_named

STEPS = 5


def params_of(made, run=0):
    return {name: p[run] for name, p in made.params.items()}


@pytest.mark.parametrize(("count", "wanted"), [(1, {3}), (2, {1, 5}), (3, {1, 3, 5}), (7, set(range(7)))])
def test_they_lie_in_the_middle_of_equal_shares_of_an_epoch(count, wanted):
    """The k-th at batch ⌊(k + ½)·n/N⌋, in every epoch alike."""
    rule = rule_named(f"dfa+anchor{count}")
    for epoch in (0, 4):
        phases = [rule.phase(Moment(epoch * 7 + batch, 7, 10)) for batch in range(7)]
        assert {batch for batch, phase in enumerate(phases) if phase} == wanted


def test_between_them_the_rule_has_its_own_phases():
    rule = rule_named("wm(every=2)+anchor1")
    assert [rule.phase(Moment(step, 5, 1)) for step in range(5)] == ["mirror", "", "anchor", "", "mirror"]


@pytest.mark.parametrize("method", ["dfa", "anchor", "pepita", "local", "dfa-rms+pen0.1"])
def test_anchored_at_every_batch_it_is_backprop(method):
    """With the penalty in the global loss, too."""
    name = f"anchor{STEPS}" if method == "anchor" else f"{method}+anchor{STEPS}"
    ours, losses = fleets.trained([spec(name)])
    theirs, wanted = fleets.trained([spec("bp+pen0.1" if "pen" in method else "bp")])
    same(params_of(ours), params_of(theirs), rtol=0, atol=0)
    assert torch.equal(torch.stack(losses), torch.stack(wanted))


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_alone_only_its_batches_train(optimiser):
    """A plain loop by torch's own optimiser on those batches: no step, no decay, no momentum and no count elsewhere."""
    data = fleets.features()
    told = fleets.OptimiserSpec(name=optimiser, lr=0.01, weight_decay=0.1)
    run = spec("anchor2", optimiser=told)
    made, losses = fleets.trained([run])
    params = fleets.initial(run, data)
    torchs = fleets.torchs_own(run.optimiser, list(params.values()))
    for epoch in range(1, fleets.EPOCHS + 1):
        rate = run.optimiser.lr * 0.5 * (1 + np.cos(np.pi * (epoch - 1) / run.epochs))
        torchs.param_groups[0]["lr"] = rate
        total = 0.0
        for step, index in enumerate(epoch_order(run.seed, epoch, len(data.y_train), run.batch)):
            x, y = fleets.inputs(run, data, epoch, step, index), data.y_train[index].numpy()
            grads, _, logits = by_hand.backward("bp", {n: p.numpy() for n, p in params.items()}, {}, x, y)
            total += -np.log((np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(len(y)), y]).mean()
            if step in (1, 3):
                for name, p in params.items():
                    p.grad = torch.from_numpy(grads[name])
                    p.mul_(1 - rate * told.weight_decay if optimiser == "sgd" else 1)
                torchs.step()
        assert float(losses[epoch - 1]) == pytest.approx(total / STEPS, rel=1e-9), "the loss is that of every batch"
    same(params_of(made), params)
    assert made.optimiser.steps.tolist() == [2 * fleets.EPOCHS]


@pytest.mark.parametrize("method", ["kp(decay=0.5)", "dkp", "local"])
def test_an_anchor_leaves_what_the_rule_learns_alone(method):
    """Matrices, moments and counts: one epoch whose only batch is an anchor."""
    made = fleets.fleet([spec(f"{method}+anchor{STEPS}")])
    before = {name: t.clone() for name, t in made.groups[0].state.items()}
    made.train_epoch(1)
    group = made.groups[0]
    same(group.state, before, rtol=0, atol=0)
    assert not any(moment.any() for stack in (group.first, group.second) for moment in stack.values())
    assert not torch.equal(made.params["head.weight"], made.init["head.weight"])


def test_moments_are_shared():
    """One anchor after two steps of dfa: its step begins from their moments."""
    ours, theirs = fleets.fleet([spec("dfa+anchor1")]), fleets.fleet([spec("dfa")])
    for made in (ours, theirs):
        made.train_epoch(1, steps=2)
    same(params_of(ours), params_of(theirs), rtol=0, atol=0)
    first = {name: m[0].clone() for name, m in ours.optimiser.first.items()}
    now = {name: p.numpy().copy() for name, p in params_of(ours).items()}
    run, data = ours.specs[0], fleets.features()
    ours.step()
    index = epoch_order(run.seed, 1, len(data.y_train), run.batch)[2]
    grads, _, _ = by_hand.backward("bp", now, {}, fleets.inputs(run, data, 1, 2, index), data.y_train[index].numpy())
    same(
        {name: m[0] for name, m in ours.optimiser.first.items()},
        {name: 0.9 * m.numpy() + 0.1 * grads[name] for name, m in first.items()},
    )


METHODS = (
    "dfa+anchor1",
    "kp+anchor2",
    "local+anchor1",
    "anchor1",
    "pepita-rms+anchor3",
    "anchor2@frozen",
    "wm+anchor1",
)


def test_in_company_and_resumed_they_are_what_they_are_alone(tmp_path):
    runs = [spec(method) for method in METHODS]
    whole, _ = fleets.trained(runs)
    half, _ = fleets.trained(runs, epochs=2)
    FleetState(half, 2).save(tmp_path)
    resumed = fleets.fleet(runs)
    assert restore(resumed, tmp_path).epoch == 2
    for epoch in range(3, fleets.EPOCHS + 1):
        resumed.train_epoch(epoch)
    assert resumed.optimiser.steps.tolist() == whole.optimiser.steps.tolist()
    for at, run in enumerate(whole.specs):
        alone, _ = fleets.trained([run])
        same(params_of(resumed, at), params_of(whole, at), rtol=0, atol=0)
        same(resumed.state_of(at), whole.state_of(at), rtol=0, atol=0)
        same(params_of(alone), params_of(whole, at))
        same(alone.state_of(0), whole.state_of(at))


def test_a_fleet_that_is_rewound_begins_again():
    made, _ = fleets.trained([spec("kp+anchor1"), spec("anchor1")])
    wanted = {name: p.clone() for name, p in made.params.items()}
    made.rewind()
    assert made.optimiser.steps.tolist() == [0, 0]
    for epoch in range(1, fleets.EPOCHS + 1):
        made.train_epoch(epoch)
    same(made.params, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["dfa", "pepita"])
def test_a_probe_asks_the_rule_and_not_its_anchors(method):
    """Where nearly every batch is an anchor, the next one too: what is judged is what the rule itself writes."""
    made = fleets.fleet([spec(f"{method}+anchor4"), spec(method)])
    for epoch in (0, fleets.EPOCHS):
        with torch.no_grad():
            same(made.snapshot(0, epoch).rule_grads, made.snapshot(1, epoch).rule_grads, rtol=0, atol=0)


def test_more_anchors_than_batches_are_refused():
    with pytest.raises(BadInput, match=r"\+anchor6: an epoch has 5 batches; wanted at most as many anchors"):
        fleets.fleet([spec("dfa+anchor6")])
