"""Weight mirror: what a map's answer to noise teaches its feedback."""

import numpy as np
import pytest
import torch
from cases import by_hand, fleets
from cases.fleets import spec
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, seeded_generator, task_of
from cases.rule_cases import as_arrays, case, same

from creditscope.blocks import Moment
from creditscope.rules.build import rule_named
from creditscope.rules.transport import weight_of
from creditscope.rules.weight_mirror import mirrored


def test_equals_the_backward_written_by_hand():
    made = case("wm")
    p, x, y = made.arrays
    grads, credit, _ = by_hand.backward("fa", p, as_arrays(made.state), x, y, 0.3)
    for phase in ("", "mirror"):
        same(made.step(phase, penalty=0.3).grads, grads)
    same(dict(enumerate(made.deliver())), dict(enumerate(credit)))


@pytest.mark.parametrize("norm", ["current", "initial", "none"])
def test_a_mirror_phase_written_by_hand(norm):
    made = case(f"wm(rate=0.2,norm={norm})", n=6)
    assert made.step().state == {}
    for entry, after in made.step("mirror").state.items():
        w, b, noise = (t.numpy() for t in (made.params[weight_of(entry)], made.state[entry], made.noise[entry]))
        response = np.stack([w @ one for one in noise])
        centred = response - response.mean(0)
        wanted = b + 0.2 * sum(np.outer(r, one) for r, one in zip(centred, noise, strict=True)) / len(noise)
        kept = {"current": w, "initial": b, "none": wanted}[norm]
        np.testing.assert_allclose(after, wanted * np.linalg.norm(kept) / np.linalg.norm(wanted), rtol=1e-10)


def test_the_mean_of_many_phases_is_the_weight_less_one_sample():
    """E ΔB/rate = (N − 1)/N·W: the centring costs one sample."""
    generator, n, draws = torch.Generator().manual_seed(3), 4, 20_000
    weight = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.0, 2.0]], dtype=torch.float64)
    heard = torch.randn(draws, n, 3, generator=generator, dtype=torch.float64)
    each = torch.func.vmap(lambda one: mirrored(weight, one))(heard)
    error = each.std(0) / np.sqrt(draws)
    np.testing.assert_array_less(((each.mean(0) - 0.75 * weight) / error).abs(), 5)


def test_a_mirror_phase_comes_every_few_steps():
    rule = rule_named("wm(every=3)")
    assert [rule.phase(Moment(step, 10, 2)) for step in range(5)] == ["mirror", "", "", "mirror", ""]


def test_feedback_turns_towards_the_weights():
    run = spec("wm(every=1,rate=0.3)")
    made, _ = fleets.trained([run])
    start = fleets.fleet([run])

    def cosine(fleet, entry):
        pair = fleet.state_of(0)[entry].flatten(), fleet.params[weight_of(entry)][0].flatten()
        return float(torch.dot(*pair) / (pair[0].norm() * pair[1].norm()))

    for entry in made.state_of(0):
        assert cosine(made, entry) > max(0.8, cosine(start, entry)), entry
        b, w = made.state_of(0)[entry], made.params[weight_of(entry)][0]
        assert abs(float(b.norm() / w.norm()) - 1) < 0.05, "the norm of W before the last step"


def test_a_convolution_is_mirrored_on_patches():
    model, batch, rule = conv_net(), batch_of((1, 4, 4), 3), rule_named("wm(norm=none,rate=1)")
    task, params = task_of(model, batch.x, CONV_BLOCKS), params_of(model)
    state = rule.init(task, params, seeded_generator())
    assert rule.noise(task, params, 2)["B.same.conv"] == (2, 27)
    heard = {name: torch.randn(shape, dtype=torch.float64) for name, shape in rule.noise(task, params, 2).items()}
    patches = heard["B.same.conv"].reshape(2, 3, 3, 3)
    weight = params["same.conv.weight"].clone().requires_grad_()
    response = torch.nn.functional.conv2d(patches, weight)
    centred = (response - response.mean(0)).detach()
    (wanted,) = torch.autograd.grad((response * centred).sum() / 2, weight)
    grown = rule.step(task, params, state, batch, heard, "mirror").state["B.same.conv"] - state["B.same.conv"]
    torch.testing.assert_close(grown, wanted, rtol=1e-10, atol=1e-13)
