"""ResNet: forward, every rule and training against plain functions; running statistics in a fleet; growth."""

from functools import cache

import numpy as np
import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.models import assign, params_of, scrambled, seeded_generator, task_of
from cases.resnet_by_autograd import PlainResNet
from torch import nn
from torch.nn import functional

from creditscope.blocks import Batch, observe
from creditscope.data.batches import normalise
from creditscope.data.dataset import Splits, make_dataset
from creditscope.data.order import epoch_order
from creditscope.engine.checkpoint import FleetState, restore
from creditscope.engine.fleet import Fleet
from creditscope.engine.step import in_training
from creditscope.errors import BadInput
from creditscope.models.resnet import ResNet
from creditscope.probes.guards import samples_are_independent
from creditscope.probes.per_epoch import epoch_fields, epoch_numbers, summarise
from creditscope.rules.build import rule_named

NORMS = ("batch", "group")
METHODS = ("bp", "fa", "dfa", "dfa-rms")


def net(norm="batch", width=2, depth=3):
    return scrambled(ResNet((2, 8, 8), 3, width=width, depth=depth, norm=norm))


def some_batch(n=4):
    generator = seeded_generator(3)
    x = torch.randn(n, 2, 8, 8, generator=generator, dtype=torch.float64)
    return Batch(x, torch.randint(3, (n,), generator=generator))


def plain(model, feedback=None):
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    return PlainResNet(params, buffers, len(model.blocks), feedback)


def same(got, wanted):
    assert set(got) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(got[name].detach(), wanted[name].detach(), rtol=1e-8, atol=1e-11, err_msg=str(name))


@pytest.mark.parametrize("penalty", [None, 0.3])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_every_rule_equals_plain_autograd(method, norm, penalty):
    """In training mode, running statistics included; the skips of the second and third stage halve the side."""
    model, batch, rule = net(norm), some_batch(), rule_named(method)
    modules = [module for module in model.modules() if module.training]
    model.eval()
    task, params = task_of(model, batch.x), params_of(model)
    state = rule.init(task, params, seeded_generator())
    weight = None if penalty is None else torch.tensor(penalty, dtype=torch.float64)
    with in_training(modules):
        got = assign(rule, task, params, state, batch, weight)
    oracle = plain(model, state if method == "fa" else None)
    if method.startswith("dfa"):
        matrices = [state["B.0"], *(state[f"B.{level}"] for level in range(3))]
        signals = oracle.direct(*batch, matrices, rms=method == "dfa-rms")
        grads, loss = oracle.blockwise(signals, *batch, penalty or 0.0)
    else:
        grads, loss = oracle.transport(*batch, penalty or 0.0, local=method == "fa")
    same(got.grads, grads)
    torch.testing.assert_close(got.loss.mean(), loss.detach())
    assert all(torch.equal(b, task.buffers[name]) for name, b in model.named_buffers()), "the model was changed"
    floats = {name: b for name, b in got.buffers.items() if b.is_floating_point()}
    same(floats, {name: b for name, b in oracle.b.items() if b.is_floating_point()})
    counts = [int(b) for name, b in got.buffers.items() if name.endswith("num_batches_tracked")]
    assert counts == ([1] * 7 if norm == "batch" else [])


def test_the_pieces_of_resnet_20():
    model = ResNet((3, 32, 32), 10)
    maps = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len(maps) == 20
    # 3×3 kernels of each stage, two norms a convolution's channel, and the head with its bias.
    convs = 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    assert sum(p.numel() for p in model.parameters()) == convs + 2 * (7 * 16 + 6 * 32 + 6 * 64) + 64 * 10 + 10
    assert float(maps[1].weight.detach().std()) == pytest.approx((2 / (9 * 16)) ** 0.5, rel=0.1)
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_states_of_unlike_shape_have_feedback_of_their_own():
    model, batch = net().eval(), some_batch()
    task, params = task_of(model, batch.x), params_of(model)
    assert task.shapes == ((2, 8, 8), (2, 8, 8), (4, 4, 4), (8, 2, 2))
    assert task.blocks.skips == (True, False, False)
    state = rule_named("dfa").init(task, params, seeded_generator())
    assert {name: tuple(b.shape) for name, b in state.items()} == {"B.0": (3, 128), "B.1": (3, 64), "B.2": (3, 32)}
    with pytest.raises(BadInput, match="fa-block wants vectors or tokens of one shape at every state"):
        rule_named("fa-block").init(task, params, seeded_generator())


def test_what_is_measured_where_the_shape_changes():
    """Growth is a ratio of norms, whatever the shapes; the published pairing has no common space there."""
    model, batch = net().eval(), some_batch()
    task, params = task_of(model, batch.x), params_of(model)
    rule = rule_named("dfa")
    state = rule.init(task, params, seeded_generator())
    seen = observe(task, params, rule, state, batch)
    with torch.no_grad():
        states = plain(model).states(batch.x, training=False)
    for ours, theirs in zip(seen.states, states, strict=True):
        torch.testing.assert_close(ours, theirs)
    fields = epoch_fields(summarise(epoch_numbers(task, params, rule, state, batch, "flat", 4)), (False,) * 4)
    medians = [float(np.median(h.flatten(1).norm(dim=1))) for h in states]
    np.testing.assert_allclose(fields["growth"], [medians[i + 1] / medians[i] for i in range(3)], rtol=1e-12)
    assert fields["cosine"].status == ["ok"] * 4
    assert fields["cosine_published"].status == ["ok", "not measured", "not measured", "ok"]


@cache
def pictures():
    draw = np.random.default_rng(0)
    x = [draw.integers(0, 256, (n, 2, 8, 8), dtype=np.uint8) for n in (40, 24)]
    y = [draw.integers(0, 3, n) for n in (40, 24)]
    return make_dataset("pictures", Splits(x[0], y[0], x[1], y[1]), 3)


def run_of(method, norm="batch", seed=1, **changes):
    told = None if norm == "batch" else {"norm": norm}
    given = {"model": "resnet", "width": 2, "depth": 3, "terminal_ln": False, "architecture": told, "batch": 10}
    return spec(method, pictures(), seed, **(given | changes))


def company(norm="batch", **changes):
    methods = ("bp", "bp+pen0.1", "bp@frozen", "fa+pen0.1", "dfa", "dfa-rms@last2", "fa@readout")
    return [run_of(method, norm, 1 + at % 2, **changes) for at, method in enumerate(methods)]


@pytest.mark.parametrize("norm", NORMS)
def test_training_is_that_of_the_plain_net(norm):
    """Eight steps of backprop with torch's AdamW on the re-creation, then its test loss in eval mode."""
    made, _ = fleets.trained(company(norm), epochs=2, data=pictures())
    at = next(at for at, one in enumerate(made.specs) if one.method == "bp")
    run, data = made.specs[at], pictures()
    model = fleets.fleet([run], data).task.blocks.model
    oracle = plain(model)
    optimiser = torch.optim.AdamW(oracle.p.values(), lr=run.optimiser.lr, weight_decay=run.optimiser.weight_decay)
    for epoch in (1, 2):
        factor = 0.5 * (1 + np.cos(np.pi * (epoch - 1) / run.epochs))
        optimiser.param_groups[0]["lr"] = run.optimiser.lr * factor
        for index in epoch_order(run.seed, epoch, 40, 10):
            x = normalise(data.x_train[index], data.mean, data.std).double()
            grads, _ = oracle.transport(x, data.y_train[index])
            for name, p in oracle.p.items():
                p.grad = grads[name]
            optimiser.step()
    # A kernel before a norm has a scale without a gradient, whose rounding error AdamW turns into steps.
    for name, p in oracle.p.items():
        assert float((made.params[name][at] - p.detach()).abs().max()) < 1e-5, name
    for name, b in made.buffers.items():
        if b.is_floating_point():
            assert float((b[at] - oracle.b[name]).abs().max()) < 1e-5, name
    with torch.no_grad():
        x = normalise(data.x_test, data.mean, data.std).double()
        logits = oracle.head(oracle.states(x, training=False)[-1])
    scores = made.evaluate()
    torch.testing.assert_close(scores.loss[at], functional.cross_entropy(logits, data.y_test), rtol=1e-4, atol=1e-4)
    if norm == "batch":
        assert set(made.buffers["embed.1.num_batches_tracked"].tolist()) == {8}


@pytest.mark.parametrize("norm", NORMS)
def test_alone_as_in_a_fleet(norm):
    made, _ = fleets.trained(company(norm), epochs=2, data=pictures())
    for run, one in enumerate(made.specs):
        lonely, _ = fleets.trained([one], epochs=2, data=pictures())
        for ours, theirs in ((made.params, lonely.params), (made.buffers, lonely.buffers)):
            for name, value in theirs.items():
                torch.testing.assert_close(ours[name][run], value[0], rtol=1e-7, atol=1e-7)


def test_a_traced_step_moves_the_running_statistics_once():
    """Also where a rule passes the blocks twice, for its penalty."""
    runs = company(epochs=60)
    made = [Fleet(runs, pictures(), fleets.default_model, fleets.CPU, traced=traced) for traced in (True, False)]
    assert [one.traced for one in made] == [True, False]
    for one in made:
        one.train_epoch(1, steps=2)
    for name, value in made[1].buffers.items():
        torch.testing.assert_close(made[0].buffers[name], value, rtol=1e-7, atol=1e-9)
    assert set(made[0].buffers["embed.1.num_batches_tracked"].tolist()) == {2}


def test_statistics_are_resumed_and_rewound(tmp_path):
    runs = company()[:4]
    made, _ = fleets.trained(runs, epochs=1, data=pictures())
    FleetState(made, 1).save(tmp_path)
    again = fleets.fleet(runs, pictures())
    start = {name: b.clone() for name, b in again.buffers.items()}
    assert restore(again, tmp_path).epoch == 1
    for one in (made, again):
        one.train_epoch(2)
    assert all(torch.equal(made.buffers[name], again.buffers[name]) for name in start)
    assert all(torch.equal(made.params[name], again.params[name]) for name in made.params)
    assert not torch.equal(made.buffers["embed.1.running_mean"], start["embed.1.running_mean"])
    made.rewind()
    assert all(torch.equal(made.buffers[name], b) for name, b in start.items())


@pytest.mark.parametrize("norm", NORMS)
def test_measured_samples_are_independent(norm):
    made, _ = fleets.trained([run_of("dfa", norm)], epochs=1, data=pictures())
    before = {name: b.clone() for name, b in made.buffers.items()}
    assert samples_are_independent(made.snapshot(0, 1))
    made.observe(), made.evaluate()
    assert all(torch.equal(made.buffers[name], b) for name, b in before.items())


REFUSED = {
    "vectors": ({"shape": (5,)}, "resnet wants images, got shape (5,); use --set model=resmlp"),
    "depth": ({"depth": 4}, "resnet has 3 stages and wants a depth that is a multiple of it, got 4"),
    "ln": ({"terminal_ln": True}, "resnet has no LayerNorm before its head; set --set terminal_ln=false"),
    "norm": ({"norm": "layer"}, "--set model.norm=layer: known: batch, group"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=list(REFUSED))
def test_refused(given, message):
    with pytest.raises(BadInput) as caught:
        ResNet(**({"shape": (3, 8, 8), "classes": 10} | given))
    assert caught.value.with_flags == message
