"""The parts that block rules share."""

import numpy as np
import torch
from cases.models import batch_of, params_of, resmlp, seeded_generator, task_of, vit
from torch.nn import functional

from creditscope.rules.block_rule import penalty_signal, top_gradient


def test_top_gradient_is_the_true_gradient_through_the_readout():
    model, batch = vit(), batch_of((2, 8, 8), 3)
    h = torch.randn(3, 5, 8, generator=seeded_generator(), dtype=torch.float64, requires_grad=True)
    got = top_gradient(task_of(model, batch.x), params_of(model), h, batch)
    loss = functional.cross_entropy(model.head(model.out_ln(h[:, 0])), batch.y, reduction="sum")
    np.testing.assert_allclose(got, torch.autograd.grad(loss, h)[0], rtol=1e-10, atol=1e-14)
    assert not got[:, 1:].any(), "only the class token is read out"


def test_penalty_signal_is_the_slope_of_the_size_averaged_over_tokens_only():
    lam = torch.tensor(0.3, dtype=torch.float64)
    for shape, mean_of in (((2, 6), 1), ((2, 5, 6), 5), ((2, 3, 4, 4), 1)):
        f = torch.randn(*shape, generator=seeded_generator(), dtype=torch.float64)
        step = 1e-6 * torch.randn(*shape, generator=seeded_generator(1), dtype=torch.float64)

        def size(f, mean_of=mean_of):
            return 0.3 * float(f.square().sum()) / mean_of

        slope = (size(f + step) - size(f - step)) / 2
        np.testing.assert_allclose(float((penalty_signal(f, lam) * step).sum()), slope, rtol=1e-6)


def test_the_readout_of_block_rules_learns_from_the_true_gradient():
    """Nothing below h_L hears of the readout's gradient: a cut state carries none."""
    model, batch = resmlp(), batch_of((5,), 4)
    task, params = task_of(model, batch.x), params_of(model)
    live = {name: p.requires_grad_() for name, p in params.items()}
    seen = task.blocks.forward(live, batch.x, detach=True)
    functional.cross_entropy(seen.logits, batch.y).backward()
    reached = {name for name, p in live.items() if p.grad is not None}
    assert reached == {"out_ln.weight", "out_ln.bias", "head.weight", "head.bias"}
