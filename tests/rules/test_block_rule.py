"""The parts that block rules share."""

import numpy as np
import pytest
import torch
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of, vit
from torch.nn import functional

from creditscope.blocks.penalty import penalised, penalised_sum
from creditscope.rules.block_rule import normalised


def test_top_gradient_is_the_true_gradient_through_the_readout():
    model, batch = vit(), batch_of((2, 8, 8), 3)
    h = torch.randn(3, 5, 8, generator=seeded_generator(), dtype=torch.float64, requires_grad=True)
    got = task_of(model, batch.x).top_gradient(params_of(model), h, batch)
    loss = functional.cross_entropy(model.head(model.out_ln(h[:, 0])), batch.y, reduction="sum")
    np.testing.assert_allclose(got, torch.autograd.grad(loss, h)[0], rtol=1e-10, atol=1e-14)
    assert not got[:, 1:].any(), "only the class token is read out"


@pytest.mark.parametrize("whole", [False, True])
def test_the_penalty_is_the_slope_of_the_mean_size_averaged_over_tokens_only(whole):
    lam = torch.tensor(0.3, dtype=torch.float64)
    for shape, mean_of in (((2, 6), 1), ((2, 5, 6), 5), ((2, 3, 4, 4), 1)):
        f, before = (torch.randn(*shape, generator=seeded_generator(k), dtype=torch.float64) for k in (7, 8))
        step = 1e-6 * torch.randn(*shape, generator=seeded_generator(1), dtype=torch.float64)
        arriving = torch.randn(*shape, generator=seeded_generator(2), dtype=torch.float64)

        def size(f, mean_of=mean_of):
            return 0.3 * float(f.square().sum()) / mean_of / 2  # two samples

        def shown(f, before=before):
            return penalised_sum(before + f, before, lam) if whole else penalised(f, lam)

        value, pullback = torch.func.vjp(shown, f)
        np.testing.assert_array_equal(value, before + f if whole else f)
        slope = (size(f + step) - size(f - step)) / 2
        added = pullback(arriving)[0] - arriving
        np.testing.assert_allclose(float((added * step).sum()), slope, rtol=1e-6)
        if whole:  # what the sum adds to f it takes from h, so that only f is held small
            both = before + f
            below = torch.func.vjp(lambda b, both=both: penalised_sum(both, b, lam), before)[1](arriving)[0]
            np.testing.assert_allclose(below, -added, rtol=1e-9, atol=1e-15)


def test_rms_of_a_zero_error_is_zero_not_nan():
    zero = torch.zeros(2, 6, dtype=torch.float64)
    assert all(torch.equal(c, zero) for c in normalised([zero, zero, zero.clone()]))


def test_the_readout_of_block_rules_learns_from_the_true_gradient():
    """Nothing below h_L hears of the readout's gradient: a detached state carries none."""
    model, batch = resmlp(), batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    live = {name: p.requires_grad_() for name, p in params.items()}
    seen = task.blocks.forward(live, batch.x, detach=True)
    functional.cross_entropy(seen.logits, batch.y).backward()
    reached = {name for name, p in live.items() if p.grad is not None}
    assert reached == {"out_ln.weight", "out_ln.bias", "head.weight", "head.bias"}
