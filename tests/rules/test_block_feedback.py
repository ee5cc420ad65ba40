"""fa-block: exact at the top, a fixed random matrix per block below."""

import math

import numpy as np
import pytest
import torch
from cases import fleets
from cases.fleets import spec
from cases.models import CONV_BLOCKS, batch_of, conv_net, params_of, resmlp, seeded_generator, task_of, vit

from creditscope.blocks import observe
from creditscope.errors import BadInput
from creditscope.rules.block_feedback import BlockFeedback


@pytest.mark.parametrize(("make", "shape", "classes"), [(resmlp, (5,), 4), (vit, (2, 8, 8), 3)], ids=["resmlp", "vit"])
def test_the_top_is_exact_and_matrices_carry_it_down(make, shape, classes):
    model, batch, rule = make(), batch_of(shape, classes), BlockFeedback()
    task, params = task_of(model, batch.x), params_of(model)
    feedback = rule.init(task, params, seeded_generator())
    seen = observe(task, params, rule, feedback, batch)
    depth = task.blocks.depth
    assert set(feedback) == {f"M.{level}" for level in range(depth)}
    np.testing.assert_allclose(seen.delivered[-1], seen.references[-1], rtol=1e-10, atol=1e-14)
    for level in range(depth):
        carried = np.einsum("...i,ij->...j", seen.delivered[level + 1], feedback[f"M.{level}"])
        np.testing.assert_allclose(seen.delivered[level], carried, rtol=1e-9, atol=1e-14)


def test_entries_have_variance_one_over_width():
    model = resmlp(width=100)
    task = task_of(model, batch_of((5,), 4).x)
    drawn = torch.cat([m.flatten() for m in BlockFeedback().init(task, params_of(model), seeded_generator()).values()])
    n = drawn.numel()
    assert abs(float(drawn.mean())) < 5 * math.sqrt(0.01 / n)
    assert abs(float(drawn.var()) - 0.01) < 5 * 0.01 * math.sqrt(2 / n)


def test_states_of_several_shapes_are_refused():
    model = conv_net()
    task = task_of(model, batch_of((1, 4, 4), 3).x, CONV_BLOCKS)
    with pytest.raises(BadInput) as caught:
        BlockFeedback().init(task, params_of(model), seeded_generator())
    assert str(caught.value) == (
        "fa-block wants vectors or tokens of one shape at every state, got ((3, 4, 4), (3, 4, 4), (2, 2, 2), (5,)); "
        "use fa or dfa for this model"
    )


def test_divided_by_its_size_its_last_state_is_still_exact_sample_by_sample():
    """The engine checks the claim before it trains: each sample's direction counts, not that of their sum."""
    made, _ = fleets.trained([spec("fa-block-rms")], epochs=1)
    assert made.groups[0].exact == (False, False, False, True)
