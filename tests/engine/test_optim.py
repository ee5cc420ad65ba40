"""Stacked AdamW against torch's own, run by run."""

import pytest
import torch

from creditscope.engine.optim import FleetAdamW, FleetSGD, Segment
from creditscope.probes.functional.movement import movements
from creditscope.records import OptimiserSpec

SPEC = OptimiserSpec(lr=1.0, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6)
BOTH = frozenset({"a", "b"})


def stacked(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (4, 3), "b": (4, 2, 2)}
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


SEGMENTS = (Segment(0, 2, 0.1, BOTH), Segment(2, 3, 0.01, BOTH), Segment(3, 4, 0.01, frozenset({"b"})))


def grads_of(full):
    return {(name, s.start): g[s.start : s.stop] for name, g in full.items() for s in SEGMENTS}


def test_each_run_is_torchs_adamw():
    params = stacked()
    before = {name: p.clone() for name, p in params.items()}
    fleet = FleetAdamW(params, SEGMENTS, SPEC)
    rates = {0: 0.1, 1: 0.1, 2: 0.01, 3: 0.01}
    plain = {run: {n: p[run].clone() for n, p in before.items() if run < 3 or n == "b"} for run in range(4)}
    each = {
        run: torch.optim.AdamW(
            leaves.values(), lr=rates[run], betas=SPEC.betas, eps=SPEC.eps, weight_decay=0.1, foreach=False
        )
        for run, leaves in plain.items()
    }
    for step in range(7):
        factor = 1 / (step + 1)
        fleet.schedule(factor)
        full = stacked(seed=step + 1)
        fleet.step(grads_of(full))
        for run, optimiser in each.items():
            optimiser.param_groups[0]["lr"] = rates[run] * factor
            for name, p in plain[run].items():
                p.grad = full[name][run]
            optimiser.step()
    for run, leaves in plain.items():
        for name, p in leaves.items():
            torch.testing.assert_close(params[name][run], p, rtol=1e-12, atol=1e-12)
    assert torch.equal(params["a"][3], before["a"][3]), "what does not train does not decay either"
    assert not fleet.first["a"][3].any()


def test_steps_can_be_set_as_after_a_checkpoint():
    params = stacked()
    fleet = FleetAdamW(params, SEGMENTS, SPEC)
    for step in range(3):
        fleet.step(grads_of(stacked(step)))
    other_params = {name: p.clone() for name, p in params.items()}
    other = FleetAdamW(other_params, SEGMENTS, SPEC)
    for ours, theirs in ((other.first, fleet.first), (other.second, fleet.second)):
        for name in ours:
            ours[name].copy_(theirs[name])
    other.set_steps(lambda segment: (3, 3))
    for one in (fleet, other):
        one.step(grads_of(stacked(9)))
    assert all(torch.equal(params[name], other_params[name]) for name in params)
    assert other.steps.tolist() == [4] * 4


@pytest.mark.parametrize("run", [0, 2])
def test_the_last_update_leaves_the_decay_out(run):
    params = stacked()
    fleet = FleetAdamW(params, SEGMENTS, SPEC)
    for step in range(3):
        before = params["a"][run].clone()
        fleet.step(grads_of(stacked(step)))
    lr = (0.1, 0.1, 0.01)[run]
    moved = params["a"][run] - before * (1 - lr * 0.1)
    update = fleet.last_update([fleet.first["a"][run], fleet.second["a"][run]], 3, lr)
    torch.testing.assert_close(update, moved, rtol=1e-9, atol=1e-12)


def test_a_gradient_that_lies_in_another_order_meets_its_own_entries():
    ours, theirs = stacked(), stacked()
    one, other = FleetAdamW(ours, SEGMENTS, SPEC), FleetAdamW(theirs, SEGMENTS, SPEC)
    full = stacked(1)
    one.step(grads_of(full))
    turned = full | {"b": full["b"].mT.contiguous().mT}
    assert turned["b"].stride() != full["b"].stride()
    other.step(grads_of(turned))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_segments_may_take_their_steps_one_after_another():
    ours, theirs = stacked(), stacked()
    one, other = FleetAdamW(ours, SEGMENTS, SPEC), FleetAdamW(theirs, SEGMENTS, SPEC)
    for step in range(3):
        grads = grads_of(stacked(step))
        one.step(grads)
        for segment in SEGMENTS:
            other.step({key: grad for key, grad in grads.items() if key[1] == segment.start})
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert one.steps.tolist() == other.steps.tolist() == [3] * 4


# SGD


def sgd(params, momentum=0.9, decay=0.1):
    return FleetSGD(params, SEGMENTS, OptimiserSpec(name="sgd", momentum=momentum, weight_decay=decay))


@pytest.mark.parametrize(("momentum", "theirs"), [(0.0, 0.1), (0.9, 0.0)])
def test_each_run_is_torchs_sgd(momentum, theirs):
    """Without momentum torch's decay is decoupled too; with momentum theirs is taken off by hand, before the step."""
    params = stacked()
    before = {name: p.clone() for name, p in params.items()}
    fleet = sgd(params, momentum)
    rates = (0.1, 0.1, 0.01, 0.01)
    plain = {run: {n: p[run].clone() for n, p in before.items() if run < 3 or n == "b"} for run in range(4)}
    each = {
        run: torch.optim.SGD(leaves.values(), lr=rates[run], momentum=momentum, weight_decay=theirs, foreach=False)
        for run, leaves in plain.items()
    }
    for step in range(7):
        factor = 1 / (step + 1)
        fleet.schedule(factor)
        full = stacked(seed=step + 1)
        fleet.step(grads_of(full))
        for run, optimiser in each.items():
            optimiser.param_groups[0]["lr"] = rates[run] * factor
            for name, p in plain[run].items():
                p.mul_(1 - rates[run] * factor * (0.1 - theirs))
                p.grad = full[name][run]
            optimiser.step()
    for run, leaves in plain.items():
        for name, p in leaves.items():
            torch.testing.assert_close(params[name][run], p, rtol=1e-12, atol=1e-12)
    assert torch.equal(params["a"][3], before["a"][3])
    assert fleet.second == {}
    assert fleet.steps.tolist() == [7] * 4


def test_the_last_update_of_sgd_leaves_the_decay_out():
    params = stacked()
    fleet = sgd(params)
    for step in range(3):
        before = params["a"][2].clone()
        fleet.step(grads_of(stacked(step)))
    moved = params["a"][2] - before * (1 - 0.01 * 0.1)
    torch.testing.assert_close(fleet.last_update([fleet.first["a"][2]], 3, 0.01), moved, rtol=1e-9, atol=1e-12)


def test_decay_alone_is_no_movement():
    """Zero gradients: only the decay works, and a multiple of the start is no movement."""
    params = stacked()
    start = {name: p.clone() for name, p in params.items()}
    fleet = sgd(params)
    zeros = {name: torch.zeros_like(p) for name, p in params.items()}
    for _ in range(5):
        fleet.step(grads_of(zeros))
    torch.testing.assert_close(params["a"][0], start["a"][0] * (1 - 0.1 * 0.1) ** 5, rtol=1e-12, atol=0)
    assert float(movements(params["a"][:3], start["a"][:3]).max()) < 1e-7


def test_tensors_are_all_that_a_step_changes():
    for fleet_of in (sgd, lambda params: FleetAdamW(params, SEGMENTS, SPEC)):
        params = stacked()
        fleet = fleet_of(params)
        live = [*params.values(), *fleet.tensors]
        kept = [t.clone() for t in live]
        fleet.step(grads_of(stacked(1)))
        once = [t.clone() for t in live]
        for tensor, old in zip(live, kept, strict=True):
            tensor.copy_(old)
        fleet.step(grads_of(stacked(1)))
        assert all(torch.equal(a, b) for a, b in zip(live, once, strict=True))
